"""Commands for topologies that run elsewhere: to see them, and to change them."""
