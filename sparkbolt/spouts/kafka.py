"""Kafka beyond its spout: dead letters, and tests without a broker."""

from sparkbolt.connectors.kafka.kafka_dead_letters import KafkaDeadLetters
from sparkbolt.connectors.kafka.kafka_spout import KafkaSpout
from sparkbolt.connectors.kafka.message_decoder import KafkaMessage
from sparkbolt.connectors.kafka.mock_kafka import MockKafka
from sparkbolt.connectors.kafka.zookeeper_offsets import ZooKeeperOffsets

__all__ = ["KafkaDeadLetters", "KafkaMessage", "KafkaSpout", "MockKafka", "ZooKeeperOffsets"]
