"""The tests of Sparkbolt; a package, so that the workers of Spark can import what the tests define."""
