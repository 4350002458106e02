"""The rules of Sparkbolt: no Spark, no I/O, no threads, no clock of its own.

Time, seeds and random stamps are arguments. Read in this order: ``config``, ``ids``, ``tuples``,
``rotating_map``, ``groupings``, ``components``, ``topology``, ``lane``, ``plan``, ``frames``,
``collectors``, ``tasks``, ``stages``, ``acker``, ``ledger``, ``host``, ``state``, ``metrics``.
"""
