"""The version of Sparkbolt."""

__version__ = "0.1.0"
