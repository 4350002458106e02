"""KafkaPartition and Source: names of kafka_partitions, as the brokers and as the ledger know them.

The name of a source is ``topic/partition``. A topic that was deleted and created again counts its offsets from the
start, so its kafka_partitions are other sources: ``topic/partition~1`` for the second topic of that name, and so on. A
*mark* stores to which topic the positions of a source belong: it is a source without records, ``topic/partition#id``,
which is planned once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_MARK = "#"
_NAME = re.compile(r"(?P<topic>[^/~]+)/(?P<number>\d+)(?:~(?P<turn>\d+))?")


def is_topic(name: object) -> bool:
    """Whether a topic may have this name.

    >>> is_topic("orders.dlq"), is_topic("orders dlq")
    (True, False)
    """
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is not None


class KafkaPartition(NamedTuple):
    """One kafka_partition of one topic, as the brokers identify it."""

    topic: str
    number: int

    def __str__(self) -> str:
        """Return the name of its first source: ``topic/partition``."""
        return f"{self.topic}/{self.number}"


class Source(NamedTuple):
    """A kafka_partition of one particular topic among those that had the same name.

    >>> Source.parse("orders/3"), str(Source("orders", 3, 2))
    (Source(topic='orders', number=3, turn=0), 'orders/3~2')
    """

    topic: str
    number: int
    turn: int = 0
    """How often the topic was created again, or its log truncated, while it was read."""

    @classmethod
    def parse(cls, name: str) -> Source:
        """Return the source with this name.

        Raises:
            ValueError: It is not the name of a source.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise ValueError(f"{name!r} is no source of a Kafka spout, expected 'topic/partition'")
        return cls(match["topic"], int(match["number"]), int(match["turn"] or 0))

    @classmethod
    def of(cls, name: str | None) -> Source | None:
        """Return the source with this name, or None if it is not the name of one, such as another spout's source."""
        return cls.parse(name) if name is not None and _NAME.fullmatch(name) else None

    @property
    def place(self) -> KafkaPartition:
        """The kafka_partition of the source."""
        return KafkaPartition(self.topic, self.number)

    def __str__(self) -> str:
        """Return the name."""
        return f"{self.topic}/{self.number}" + (f"~{self.turn}" if self.turn else "")


def mark_of(source: Source, topic_id: str) -> str:
    """Return the name of the mark that assigns a source's positions to the topic with this id.

    The mark's position is the source's turn; so the highest position among a kafka_partition's marks is the newest one.

    >>> mark_of(Source("orders", 3, 2), "Xk5q")
    'orders/3#Xk5q'
    """
    return f"{source.place}{_MARK}{topic_id}"


def is_mark(name: str) -> bool:
    """Whether the name of a source is that of a mark."""
    return _MARK in name


def marked(progress: Mapping[str, int]) -> dict[tuple[str, int], str]:
    """Return topic ids by (kafka_partition, turn), from the marks in a spout's progress.

    >>> marked({"orders/3": 40, "orders/3#Xk5q": 1, "orders/3#Yw8a": 2})
    {('orders/3', 0): 'Xk5q', ('orders/3', 1): 'Yw8a'}
    """
    names: Iterable[str] = filter(is_mark, progress)
    parts = ((name.split(_MARK, 1), progress[name]) for name in names)
    return {(place, end - 1): topic_id for (place, topic_id), end in parts}
