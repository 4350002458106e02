"""Kafka: the spout, the bolt, offsets, and topics of dead letters."""
