"""The driver: what is read next, and who is told what became of it.

Read in this order: ``ledger`` (a room of its own), ``timers``, ``rate``, ``offers``, ``spout_buffer``,
``retry_entries``, ``coordinator``, ``planner``, ``restart_policy``.
"""
