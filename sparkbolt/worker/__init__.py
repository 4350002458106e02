"""The worker: an executor's side of a micro-batch.

Read in this order: ``failures``, ``routing``, ``tuple_batch``, ``collectors``, ``returned_values``, ``results``,
``bolt_runtime``, ``crash_isolation``, ``tasks``, ``environment``, ``activity``, ``health``, ``held_tuples``,
``hop_recorder``, ``outbox``, ``worker``, ``stage``, ``source_reader``, ``dead_letter_reader``.
"""
