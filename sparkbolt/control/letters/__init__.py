"""Letters: stores of dead letters, in which an operator looks, gives letters again, and discards them.

Read in this order: ``common``, ``stores``, ``topic``, ``edits``, ``of_topology``.
"""
