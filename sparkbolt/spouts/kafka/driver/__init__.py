"""The Kafka spout's half in the driver: where to begin, which offsets come next, and what is stored of them.

Read in this order: ``planning``, ``sizing``, ``starting``, ``offsets``, ``cluster``, ``watching``.
"""
