"""Simulator: runs the same plan, tasks and ledger as on Spark, in one process; it has no rules of its own."""
