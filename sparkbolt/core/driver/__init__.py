"""The driver: what is read next, and who is told what became of it.

Read in this order: ``ledger`` (a room of its own), ``timers``, ``pacing``, ``offers``, ``desk``,
``retry_plans``, ``host``, ``planner``, ``restarts``.
"""
