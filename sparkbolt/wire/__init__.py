"""The values that cross processes, and their bytes."""
