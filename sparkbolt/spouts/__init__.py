"""Built-in spouts: text and JSON line files, a generator, a socket, queues, Kafka, DataFrames of Spark.

Read in this order: ``text`` (the spout), ``planning``, ``following`` and ``followed`` (its driver side), ``identity``,
``unpacking``, ``lines`` (its executor side); for queues ``queue``, ``decoding``, ``rabbitmq_link``, ``rabbitmq``,
``kestrel_link``, ``kestrel``.
"""

from sparkbolt.spouts.generator import GeneratorSpout
from sparkbolt.spouts.json_lines import JsonLinesSpout
from sparkbolt.spouts.kafka import KafkaSpout, ZooKeeperOffsets
from sparkbolt.spouts.kestrel import KestrelSpout
from sparkbolt.spouts.queue import BadMessage, QueueSpout
from sparkbolt.spouts.rabbitmq import RabbitMQSpout
from sparkbolt.spouts.spark import SparkSpout
from sparkbolt.spouts.tcp import SocketSpout
from sparkbolt.spouts.text import TextSpout

__all__ = [
    "BadMessage",
    "GeneratorSpout",
    "JsonLinesSpout",
    "KafkaSpout",
    "KestrelSpout",
    "QueueSpout",
    "RabbitMQSpout",
    "SocketSpout",
    "SparkSpout",
    "TextSpout",
    "ZooKeeperOffsets",
]
