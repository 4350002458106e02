"""Built-in bolts: they print tuples or write them to files, databases, Kafka or RabbitMQ; and lookups.

Read ``part_files`` first: it explains why a micro-batch that runs again leaves no duplicate rows.
"""

from sparkbolt.bolts.dead_letter_files import FileDeadLetters, read_letters
from sparkbolt.bolts.delta import DeltaBolt
from sparkbolt.bolts.iceberg import IcebergBolt
from sparkbolt.bolts.json_lines import JsonLinesBolt
from sparkbolt.bolts.kafka import KafkaBolt
from sparkbolt.bolts.lookup import Lookup
from sparkbolt.bolts.parquet import ParquetBolt
from sparkbolt.bolts.printing import PrintBolt
from sparkbolt.bolts.rabbitmq import RabbitMQBolt
from sparkbolt.bolts.spark_sink import SparkSink
from sparkbolt.bolts.sql import SqlBolt

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
