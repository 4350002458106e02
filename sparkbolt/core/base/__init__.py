"""Arithmetic: ids, columns, hashes and intervals, and exceptions as text.

Read in this order: ``ids``, ``intervals``, ``packing``, ``bare``, ``text_keys``, ``exceptions``, ``salvage``,
``stable_hash``, ``throttle``, ``files``, ``outside``.
"""
