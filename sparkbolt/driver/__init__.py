"""The driver's side: plans, the order in which a micro-batch becomes durable, and what becomes of each message."""
