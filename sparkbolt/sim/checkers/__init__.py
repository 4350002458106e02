"""The checkers of a simulation: each watches one promise.

Read ``base`` first: what a checker is, and what all of them know. ``acks`` lists them all.
"""
