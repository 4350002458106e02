"""The worker: an executor's side of a micro-batch.

Read in this order: ``failures``, ``health``, ``emission``, ``routing``, ``collectors``, ``tuple_batch``,
``returned_values``, ``bolt_runtime``, ``crash_isolation``, ``tasks``, ``hop_recorder``, ``forgetting``, ``holding``,
``outbox``, ``activity``, ``worker``, ``stages``, ``levels``, ``source_reader``, ``dead_letter_reader``,
``environment``.
"""
