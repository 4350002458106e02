"""Built-in bolts: they print tuples or write them to files, Kafka or RabbitMQ; and the file sink of dead letters.

Read ``part_files`` first: it explains why a micro-batch that runs again leaves no duplicate rows.
"""

from sparkbolt.bolts.dead_letter_files import FileDeadLetters, read_letters
from sparkbolt.bolts.json_lines import JsonLinesBolt
from sparkbolt.bolts.kafka import KafkaBolt
from sparkbolt.bolts.parquet import ParquetBolt
from sparkbolt.bolts.printing import PrintBolt
from sparkbolt.bolts.rabbitmq import RabbitMQBolt

__all__ = ["FileDeadLetters", "JsonLinesBolt", "KafkaBolt", "ParquetBolt", "PrintBolt", "RabbitMQBolt", "read_letters"]
