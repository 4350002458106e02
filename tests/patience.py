"""Patience: how long a test waits for what must come. It is no measure of speed, which depends on the machine."""

PATIENCE_SECS = 600.0
"""Until it is taken for certain that it never comes."""
TEST_SECS = 900.0
"""Until a test is ended that is on Spark, has a server, or takes seconds: those grow to minutes beside other work."""
