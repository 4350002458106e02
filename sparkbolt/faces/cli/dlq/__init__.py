"""``sparkbolt dlq``: lists and shows dead letters of every kind of store, and replays them.

Read in this order: ``commands``; ``summary`` has the lines about them at the end of a run.
"""
