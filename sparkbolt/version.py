"""The version, for whoever tells it."""

__version__ = "0.1.0"
