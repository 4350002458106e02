"""The ledger: which trees are open, and what the outcomes of the others are."""
