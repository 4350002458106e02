"""RabbitMQ: the spout and the bolt."""
