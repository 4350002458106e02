"""The rules of Sparkbolt: no Spark, no I/O, no threads, no clock of its own.

Time, seeds and random stamps are arguments. Read in this order: ``ids``, ``retry``, ``dead_letters``, ``config``,
``packing``, ``tuples``, ``metrics``, ``story``, ``acker``, ``acker_bytes``, ``rotating_map``, ``stable_hash``,
``groupings``, ``components``, ``unsent``, ``keeping``, ``letter_ways``, ``topology_mistakes``, ``topology``, ``lane``,
``plan``, ``partition_manager``, ``fates``, ``histories``, ``retry_plans``, ``anchoring``, ``bare``, ``frames``,
``routing``, ``collectors``, ``rows``, ``deaths``, ``hosted``, ``failures``, ``tasks``, ``tracing``, ``forgetting``,
``holding``, ``snapshots``, ``text_keys``, ``segments``, ``bucket_table``, ``keyvalue``, ``state``, ``settled``,
``own_trees``, ``worker``, ``accounts``, ``shards``, ``stages``, ``levels``, ``reading``, ``letter_reading``,
``feedback``, ``messages``, ``stories``, ``promotion``, ``ledger_log``, ``tally``, ``ledger``, ``ledger_files``,
``ledger_settings``, ``offers``, ``pacing``, ``throttle``, ``desk``, ``host``, ``restarts``, ``ledger_reader``,
``shipping``.
"""
