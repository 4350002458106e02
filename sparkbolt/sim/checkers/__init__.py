"""Checkers: each watches one promise of a simulation.

Read ``base`` first: it explains what a checker is and what all of them know. ``acks`` has the list of all checkers.
"""
