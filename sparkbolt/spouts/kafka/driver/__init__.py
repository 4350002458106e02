"""The Kafka spout's driver side: where to begin, which offsets come next, and what is stored of them.

Read in this order: ``planning``, ``sizing``, ``starting``, ``offsets``, ``cluster``, ``watching``.
"""
