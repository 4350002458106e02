"""The sources of the public interface, as they stand there."""

# ruff: noqa: F401  the imports are as they stand there

from datetime import timedelta

from sparkbolt import RetryPolicy
from sparkbolt.bolts import KafkaBolt
from sparkbolt.spouts import KafkaSpout, RabbitMQSpout, ZooKeeperOffsets

orders = KafkaSpout(
    "localhost:9092",
    topics=["orders"],
    group="billing",
    value="json",  # bytes | text | json | avro | protobuf | a function
    outputs=["customer", "amount"],  # fields taken from the decoded value
    start="uncommitted-earliest",
    retry=RetryPolicy(max_retries=5, min_backoff=timedelta(milliseconds=100), max_backoff=timedelta(seconds=30)),
    dead_letters="orders.dlq",  # topic | "file:PATH" | a stream | a function
    offsets="group",  # | ZooKeeperOffsets("localhost:2181", root="/kafkastorm") | "file:PATH"
)
jobs = RabbitMQSpout("amqp://localhost:5672/", queue="jobs", value="json", outputs=["id", "task"])
