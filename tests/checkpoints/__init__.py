"""A checkpoint that an earlier version has made, and the topology that it is of."""
