"""Bolts that come with Sparkbolt: they print, write files, Kafka and RabbitMQ messages; and dead letters.

Read ``part_files`` first: it says why a micro-batch that runs again leaves nothing twice.
"""

from sparkbolt.bolts.dead_letter_files import FileDeadLetters, read_letters
from sparkbolt.bolts.json_lines import JsonLinesBolt
from sparkbolt.bolts.kafka import KafkaBolt
from sparkbolt.bolts.parquet import ParquetBolt
from sparkbolt.bolts.printing import PrintBolt
from sparkbolt.bolts.rabbitmq import RabbitMQBolt

__all__ = ["FileDeadLetters", "JsonLinesBolt", "KafkaBolt", "ParquetBolt", "PrintBolt", "RabbitMQBolt", "read_letters"]
