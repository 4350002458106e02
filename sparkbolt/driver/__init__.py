"""The driver: what is read next, and which spout receives which verdict.

Read in this order: ``ledger`` (a room of its own), ``timers``, ``rate``, ``offers``, ``spout_buffer``,
``retry_entries``, ``coordinator``, ``planner``, ``restart_policy``.
"""
