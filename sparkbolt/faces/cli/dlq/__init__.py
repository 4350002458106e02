"""``sparkbolt dlq``: lists and shows dead letters of every kind of store, and replays them."""
