"""The Kafka spout's half on executors: the messages of a range of offsets, and the tuples that they become.

Read in this order: ``reading``, ``decoding``.
"""
