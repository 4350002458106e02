"""State: what a task stores from one micro-batch to the next.

Read in this order: ``snapshots``, ``segments``, ``bucket_table``, ``keyvalue``, ``task_state``.
"""
