"""The driver's side: plans, the order in which a micro-batch becomes durable, and the outcome of each message."""
