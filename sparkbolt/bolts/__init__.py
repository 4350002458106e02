"""Bolts that come with Sparkbolt: they print, write JSON lines and Parquet, and publish to RabbitMQ.

Read ``part_files`` first: it says why a micro-batch that runs again leaves nothing twice.
"""

from sparkbolt.bolts.json_lines import JsonLinesBolt
from sparkbolt.bolts.parquet import ParquetBolt
from sparkbolt.bolts.printing import PrintBolt
from sparkbolt.bolts.rabbitmq import RabbitMQBolt

__all__ = ["JsonLinesBolt", "ParquetBolt", "PrintBolt", "RabbitMQBolt"]
