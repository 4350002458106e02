"""The base: arithmetic on ids, columns, hashes and intervals, enums of words, and exceptions as text.

Read in this order: ``words``, ``ids``, ``intervals``, ``packing``, ``arrow_buffers``, ``text_arrays``, ``exceptions``,
``salvage``, ``hashing``, ``throttle``, ``files``, ``engine_door``.
"""
