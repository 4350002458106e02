"""The Kafka spout's executor side: the messages of a range of offsets, and the tuples that they become.

Read in this order: ``reading``, ``decoding``.
"""
