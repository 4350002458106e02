"""Sources of a Kafka spout: kafka_partitions by name.

Which question it answers: how is a kafka_partition called in plans, in the ledger and in stories?
Rule: the name is ``topic/partition``. A topic that was made again counts its offsets from the start, so its
kafka_partitions are other sources: ``topic/partition~1`` for the second topic of that name, and so on. Which topic the
positions of a source are of is planned once, as a *mark*: a source without records, ``topic/partition#id``.

Read before: nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_MARK = "#"
_NAME = re.compile(r"(?P<topic>[^/~]+)/(?P<number>\d+)(?:~(?P<turn>\d+))?")


def is_topic(name: object) -> bool:
    """Whether a topic may be called so.

    >>> is_topic("orders.dlq"), is_topic("orders dlq")
    (True, False)
    """
    return isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) is not None


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

    @classmethod
    def of(cls, name: str | None) -> Source | None:
        """The source of a name; None where it is no name of one, as where the spout is another one."""
        return cls.parse(name) if name is not None and _NAME.fullmatch(name) else None

    @property
    def place(self) -> KafkaPartition:
        """Where it is."""
        return KafkaPartition(self.topic, self.number)

    def __str__(self) -> str:
        """The name."""
        return f"{self.topic}/{self.number}" + (f"~{self.turn}" if self.turn else "")


def mark_of(source: Source, topic_id: str) -> str:
    """The name of the mark that a source's positions are of the topic with this id.

    Its position is the source's turn: so the last position of all marks of a kafka_partition is that of its newest one.

    >>> mark_of(Source("orders", 3, 2), "Xk5q")
    'orders/3#Xk5q'
    """
    return f"{source.place}{_MARK}{topic_id}"


def is_mark(name: str) -> bool:
    """Whether a name of a source is that of a mark."""
    return _MARK in name


def marked(progress: Mapping[str, int]) -> dict[tuple[str, int], str]:
    """The id of the topic by (kafka_partition, turn), as the marks in a spout's progress tell it.

    >>> marked({"orders/3": 40, "orders/3#Xk5q": 1, "orders/3#Yw8a": 2})
    {('orders/3', 0): 'Xk5q', ('orders/3', 1): 'Yw8a'}
    """
    names: Iterable[str] = filter(is_mark, progress)
    parts = ((name.split(_MARK, 1), progress[name]) for name in names)
    return {(place, end - 1): topic_id for (place, topic_id), end in parts}
