"""Kestrel: the spout."""
