"""``sparkbolt dlq``: dead letters, wherever they are, shown and given to a topology again.

Read in this order: ``common``, ``commands``, ``topic``; ``summary`` is what a run says of them at its end.
"""
