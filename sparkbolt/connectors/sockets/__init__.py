"""Sockets: a spout that reads lines from a TCP connection."""
