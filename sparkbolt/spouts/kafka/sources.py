"""Sources of a Kafka spout: kafka_partitions by name.

Which question it answers: how is a kafka_partition called in plans, in the ledger and in stories?
Rule: the name is ``topic/partition``. A topic that was made again counts its offsets from the start, so its
kafka_partitions are other sources: ``topic/partition~1`` for the second topic of that name, and so on.

Read before: nothing.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = re.compile(r"(?P<topic>[^/~]+)/(?P<number>\d+)(?:~(?P<turn>\d+))?")


def is_topic(name: str) -> bool:
    """Whether a topic may be called so.

    >>> is_topic("orders.dlq"), is_topic("orders dlq")
    (True, False)
    """
    return re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is not None


class KafkaPartition(NamedTuple):
    """One kafka_partition of one topic, as the brokers name it."""

    topic: str
    number: int

    def __str__(self) -> str:
        """As a source that was never made again is called."""
        return f"{self.topic}/{self.number}"


class Source(NamedTuple):
    """A kafka_partition during the life of one topic of its name.

    >>> Source.parse("orders/3"), str(Source("orders", 3, 2))
    (Source(topic='orders', number=3, turn=0), 'orders/3~2')
    """

    topic: str
    number: int
    turn: int = 0
    """How often the topic was made again, or cut back, while it was read."""

    @classmethod
    def parse(cls, name: str) -> Source:
        """The source of a name.

        Raises:
            ValueError: it is no name of one.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is no source of a Kafka spout, expected 'topic/partition'")
        return cls(match["topic"], int(match["number"]), int(match["turn"] or 0))

    @property
    def place(self) -> KafkaPartition:
        """Where it is."""
        return KafkaPartition(self.topic, self.number)

    def __str__(self) -> str:
        """The name."""
        return f"{self.topic}/{self.number}" + (f"~{self.turn}" if self.turn else "")
