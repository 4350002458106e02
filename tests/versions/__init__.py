"""What holds on each supported version of Spark, and from one to the next; ``scripts/test versions`` runs it."""
