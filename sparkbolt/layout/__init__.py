"""The layout of a topology: which components run at the source and at which level."""
