"""Lookups: values by key from a database or a web service."""
