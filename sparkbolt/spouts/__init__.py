"""Built-in spouts: text and JSON line files, a generator, a socket, queues, Kafka, DataFrames of Spark."""

from sparkbolt.connectors.files.json_lines_spout import JsonLinesSpout
from sparkbolt.connectors.files.text_spout import TextSpout
from sparkbolt.connectors.generator_spout import GeneratorSpout
from sparkbolt.connectors.kafka.kafka_spout import KafkaSpout
from sparkbolt.connectors.kafka.zookeeper_offsets import ZooKeeperOffsets
from sparkbolt.connectors.kestrel.kestrel_spout import KestrelSpout
from sparkbolt.connectors.queue_spout import BadMessage, QueueSpout
from sparkbolt.connectors.rabbitmq.rabbitmq_spout import RabbitMQSpout
from sparkbolt.connectors.sockets.socket_spout import SocketSpout
from sparkbolt.connectors.tables.spark_spout import SparkSpout

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
