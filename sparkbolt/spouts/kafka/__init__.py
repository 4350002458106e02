"""Kafka: reads topics as a spout.

Read in this order: ``spout``, then its driver side (``driver``: ``planning``, ``sizing``, ``starting``, ``offsets``,
``cluster``, ``watching``) and its executor side (``executor``: ``reading``, ``decoding``).
"""

from sparkbolt.spouts.kafka.dead_letters import KafkaDeadLetters
from sparkbolt.spouts.kafka.driver.zookeeper import ZooKeeperOffsets
from sparkbolt.spouts.kafka.executor.decoding import KafkaMessage
from sparkbolt.spouts.kafka.mock import MockKafka
from sparkbolt.spouts.kafka.spout import KafkaSpout

__all__ = ["KafkaDeadLetters", "KafkaMessage", "KafkaSpout", "MockKafka", "ZooKeeperOffsets"]
