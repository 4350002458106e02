"""The ledger: which trees are open, and what the outcomes of the others are.

Read in this order: ``open_trees``, ``retry_schedule``, ``message_log``, ``outcomes``, ``outages``,
``messages``, ``outbox_acks``, ``story_store``, ``log``, ``ledger``, ``files``, ``settings``, ``reader``, ``agreement``.
"""
