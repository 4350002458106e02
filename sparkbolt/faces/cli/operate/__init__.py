"""Commands that show and change topologies that run in other processes."""
