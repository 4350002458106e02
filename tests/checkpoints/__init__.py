"""Checkpoints of each format that was released, and the topology that made them."""
