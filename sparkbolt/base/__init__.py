"""The base: arithmetic on ids, columns, hashes and intervals, enums of words, and exceptions as text."""
