"""The rules of Sparkbolt: no Spark, no I/O, no threads, no clock of its own.

Time, seeds and random stamps are arguments. One law holds between its rooms: ``driver`` and ``worker`` never import
each other. Both import ``protocol``, which imports ``model``, which imports ``base``; ``state`` is the worker's.

    base      arithmetic on ids, columns and bytes, exceptions as text
    model     what users declare, and what a running topology tells them
    protocol  values and codecs that cross processes
    state     what a task keeps from one micro-batch to the next
    worker    an executor's side: levels, tasks, what user code is handed
    driver    the driver's side: plans, spouts' records, and the ledger in a room of its own
"""
