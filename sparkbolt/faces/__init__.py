"""The interfaces for people and programs: the command line, the pages and REST, and drawings."""
