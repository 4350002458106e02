"""The ledger: which trees are open, and what became of those that are not.

Read in this order: ``rotating_map``, ``partition_manager``, ``settled``, ``fates``, ``histories``, ``outages``,
``messages``, ``stories``, ``tally``, ``ledger_log``, ``ledger``, ``ledger_files``, ``ledger_settings``,
``ledger_reader``, ``agreement``.
"""
