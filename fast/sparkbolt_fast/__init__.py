"""Sparkbolt's loops over tuples, compiled. Nothing here is for users: ``sparkbolt`` imports it if it is installed."""

KERNELS = 4
"""The version of what ``sparkbolt`` calls here; it uses no kernels of another version."""
