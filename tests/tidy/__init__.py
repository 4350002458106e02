"""The repository tests its own tidiness: layers, sizes, words. Read ``repo`` first."""
