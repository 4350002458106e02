"""Tests of the repository itself: which room imports which, sizes, and what a commit must not contain."""
