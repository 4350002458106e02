"""Start: decides where to begin with a kafka_partition that the checkpoint does not know.

The first row of the table that applies decides (Storm's ``FirstPollOffsetStrategy``):

======================================== ================= ============ =================== ===================
stored elsewhere                         earliest          latest       time, given offsets uncommitted-...
======================================== ================= ============ =================== ===================
by another topology, ``refuse``          an error          an error     an error            an error
by another topology, ``take_over``       stored            stored       stored              stored
by another topology, ``start_over``      first             end          as given            first or end
by this spout of this topology           stored            stored       stored              stored
without the name of an owner             first             end          as given            stored
nothing, found while the topology ran    first             first        first               first
nothing                                  first             end          as given            first or end
======================================== ================= ============ =================== ===================

A kafka_partition that appears while the topology runs is read from its first record, whatever ``start`` says, so that
records that were produced before the spout found it are not skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias, cast, get_args

from sparkbolt.base.words import Word
from sparkbolt.connectors.kafka.kafka_cluster import Topics, is_among
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition, Source
from sparkbolt.connectors.kafka.offset_stores import OtherTopology, Owner, Stored
from sparkbolt.errors import ConfigError

StartName = Literal["earliest", "latest", "uncommitted-earliest", "uncommitted-latest"]
StartSpec: TypeAlias = StartName | datetime | Mapping[Any, int]
"""A name, a time with a time zone, or offsets by ``(topic, partition)`` or ``"topic/partition"``."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StartAt(Word):
    """Where to begin, if no offset is given."""

    STORED = "stored"
    """At the stored offset."""
    FIRST = "first"
    """At the first record that exists."""
    END = "end"
    """After the last record."""
    TIME = "time"
    """At the given time."""


Where: TypeAlias = int | StartAt


@dataclass(frozen=True)
class Start:
    """The user's choice, checked."""

    name: StartName | None = "uncommitted-earliest"
    timestamp_ms: int | None = None
    offsets: Mapping[KafkaPartition, int] | None = None

    @classmethod
    def parse(cls, start: Any, topics: Topics) -> Start:
        """Parse the ``start=`` argument of a spout that reads ``topics``.

        A time before 1970 is the beginning: Kafka counts from 1970 on, and gives negative times other meanings.

        Raises:
            ConfigError: It is invalid, or has an offset of a topic that the spout does not read.

        >>> Start.parse({"orders/1": 17}, ("orders",)).offsets
        {KafkaPartition(topic='orders', number=1): 17}
        """
        expected = f"expected one of {', '.join(map(repr, get_args(StartName)))}, a datetime with a zone, or offsets"
        if isinstance(start, str) and start in get_args(StartName):
            return cls(cast("StartName", start))
        if isinstance(start, datetime):
            if start.utcoffset() is None:
                raise ConfigError(f"start={start!r} has no zone: give one, as in datetime.now(UTC)")
            timestamp_ms = (start - EPOCH) // timedelta(milliseconds=1)
            return cls("earliest") if timestamp_ms < 0 else cls(None, timestamp_ms=timestamp_ms)
        if isinstance(start, Mapping):
            try:
                names = {(key if isinstance(key, str) else str(KafkaPartition(*key))): at for key, at in start.items()}
                offsets = {Source.parse(name).place: int(offset) for name, offset in names.items()}
            except (TypeError, ValueError) as error:
                raise ConfigError(f"start={start!r}: {error}; {expected} as {{'topic/0': 17}}") from None
            if min(offsets.values(), default=0) < 0:
                raise ConfigError(f"start={start!r}: an offset is not negative")
            for place in offsets:
                if not is_among(topics, place.topic):
                    raise ConfigError(
                        f"start={start!r}: {str(place)!r} is of a topic that the spout does not read; its topics are "
                        + (repr(topics.pattern) if isinstance(topics, re.Pattern) else ", ".join(map(repr, topics)))
                    )
            return cls(None, offsets=offsets)
        raise ConfigError(f"start={start!r}: {expected}")

    def where(
        self, place: KafkaPartition, stored: Stored | None, owner: Owner, *, other: OtherTopology, new: bool
    ) -> Where:
        """Return where to begin, according to the table.

        Args:
            place: The kafka_partition.
            stored: The entry that is stored elsewhere.
            owner: The identity of this spout.
            other: How to treat offsets of another topology.
            new: Whether the kafka_partition was found while the topology ran.

        Raises:
            ConfigError: The offsets belong to another topology, and ``other`` is ``refuse``.
        """
        uncommitted = self.name is not None and self.name.startswith("uncommitted")
        if stored is not None:
            mismatch = _mismatch(place, stored, owner)
            if mismatch and other == "refuse":
                raise ConfigError(
                    f"offset {stored.offset} of {place} {mismatch}, expected {owner.id!r}: use another group, or say "
                    "other_topology='start_over' or 'take_over'"
                )
            ours = stored.owner is not None and not mismatch
            if (mismatch and other == "take_over") or ours or (stored.owner is None and not mismatch and uncommitted):
                return StartAt.STORED
        if new and stored is None:
            return StartAt.FIRST
        if self.offsets is not None:
            return self.offsets.get(place, StartAt.FIRST)
        if self.timestamp_ms is not None:
            return StartAt.TIME
        return StartAt.END if self.name is not None and self.name.endswith("latest") else StartAt.FIRST


def _mismatch(place: KafkaPartition, stored: Stored, owner: Owner) -> str | None:
    """Describe the owner of a stored offset if it is not ours; None if it is ours or has no owner."""
    if stored.topic is not None and stored.topic != place.topic:
        return f"was stored for topic {stored.topic!r}"
    if stored.owner is not None and stored.owner.id != owner.id:
        return f"was stored by topology {stored.owner.name or '?'!r} as {stored.owner.id!r}"
    return None
