"""State: what a task stores from one micro-batch to the next."""
