"""The ledger: which trees are open, and what became of those that are not.

Read in this order: ``open_trees``, ``partition_manager``, ``outbox_acks``, ``outcomes``, ``attempt_store``,
``outages``, ``messages``, ``story_store``, ``counts``, ``log``, ``ledger``, ``files``, ``settings``,
``reader``, ``agreement``.
"""
