"""The rules of Sparkbolt: no Spark, no I/O, no threads, no clock of its own.

Time, seeds and random stamps are arguments. One law holds between its rooms: ``driver`` and ``worker`` never import
each other. Both import ``protocol``, which imports ``model``, which imports ``base``; ``state`` belongs to the worker.

    base      arithmetic on ids, columns and bytes, exceptions as text
    model     what users declare, and what a running topology reports to them
    protocol  values and codecs that cross processes
    state     what a task stores from one micro-batch to the next
    worker    the executor's side: levels, tasks, what user code receives
    driver    the driver's side: plans, records of spouts, and the ledger in a room of its own
"""
