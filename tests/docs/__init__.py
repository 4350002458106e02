"""The documentation is tested: its examples run, its pictures are up to date, its links and tests exist."""
