"""The ledger: which trees are open, and what became of those that are not.

Read in this order: ``open_trees``, ``partition_manager``, ``outcomes``, ``attempt_store``, ``outages``, ``messages``,
``outbox_acks``, ``story_store``, ``log``, ``ledger``, ``files``, ``settings``, ``reader``, ``agreement``.
"""
