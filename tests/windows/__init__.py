"""Every kind of window in one topology, and what each must have shown."""
