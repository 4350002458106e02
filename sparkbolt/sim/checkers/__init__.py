"""Checkers: each watches one promise of a simulation."""
