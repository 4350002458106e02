"""What people and programs use from outside: the command line, the pages and REST, and drawings."""
