"""The executor's side of a micro-batch: tasks, what they emit, and their state."""
