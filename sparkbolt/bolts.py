"""Built-in bolts: they print tuples, write them to files, databases, Kafka or RabbitMQ, or look up values."""

from sparkbolt.connectors.files.dead_letter_files import FileDeadLetters, read_letters
from sparkbolt.connectors.files.json_lines_bolt import JsonLinesBolt
from sparkbolt.connectors.kafka.kafka_bolt import KafkaBolt
from sparkbolt.connectors.lookup.lookup import Lookup
from sparkbolt.connectors.print_bolt import PrintBolt
from sparkbolt.connectors.rabbitmq.rabbitmq_bolt import RabbitMQBolt
from sparkbolt.connectors.sql.sql_bolt import SqlBolt
from sparkbolt.connectors.tables.delta_bolt import DeltaBolt
from sparkbolt.connectors.tables.iceberg_bolt import IcebergBolt
from sparkbolt.connectors.tables.parquet_bolt import ParquetBolt
from sparkbolt.connectors.tables.spark_sink import SparkSink

__all__ = [
    "DeltaBolt",
    "FileDeadLetters",
    "IcebergBolt",
    "JsonLinesBolt",
    "KafkaBolt",
    "Lookup",
    "ParquetBolt",
    "PrintBolt",
    "RabbitMQBolt",
    "SparkSink",
    "SqlBolt",
    "read_letters",
]
