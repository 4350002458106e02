"""The worker: an executor's side of a micro-batch.

Read in this order: ``failures``, ``health``, ``emission``, ``routing``, ``collectors``, ``rows``, ``returned``,
``bolt_runtime``, ``deaths``, ``tasks``, ``tracing``, ``forgetting``, ``holding``, ``own_trees``, ``activity``,
``worker``, ``stages``, ``levels``, ``reading``, ``letter_reading``, ``shipping``.
"""
