"""Tests that need a Spark session."""
