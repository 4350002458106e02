"""Where progress is kept besides the checkpoint: the consumer group, or a file.

Which question it answers: what is written about a kafka_partition, where, and whose is what was found there?
Rule 1: within one checkpoint the ledger's log is the truth; these places are told after each promotion, and are read
where a checkpoint knows nothing.
Rule 2: what was written names its topology, so that offsets of another one are never mixed up with ours.

Read before: ``sources``, ``cluster``.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from sparkbolt.core.base.intervals import Interval, Intervals
from sparkbolt.errors import ConfigError
from sparkbolt.spouts.kafka.driver.cluster import Cluster
from sparkbolt.spouts.kafka.sources import KafkaPartition

METADATA_CHARACTERS_MAX = 4000
"""Brokers refuse more than 4,096 bytes, and the client appends one."""
FILE_FORMAT = 1

OtherTopology = Literal["refuse", "start_over", "take_over"]


@dataclass(frozen=True)
class Owner:
    """Whose offsets they are."""

    id: str
    """Unique to a spout of a topology: its name and the spout's."""
    name: str
    """The topology's name."""
    version: str = ""


@dataclass(frozen=True)
class Stored:
    """What a store holds of one kafka_partition."""

    offset: int
    """All records below it are finished."""
    owner: Owner | None = None
    """None: whoever wrote it did not say."""
    finished: Intervals = ()
    """Intervals beyond ``offset`` that are finished too."""
    topic: str | None = None
    """The topic that it was written for, where that is not part of the name."""
    topic_id: str | None = None
    """The id of that topic, which another one of its name has not; None where it was not known."""


@dataclass(frozen=True)
class Scope:
    """What a store is opened for."""

    cluster: Cluster
    group: str
    topics: Sequence[str] | None
    """By name; None where they are given by a pattern."""


class OffsetsStore(Protocol):
    """A place where offsets are kept; all calls come from one thread of the driver, and may wait."""

    def open(self, scope: Scope) -> None:
        """Called first; what is wrong with the place is a ``ConfigError``, what may pass any other exception."""

    def load(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, Stored]:
        """What is there; places of which nothing is known are left out."""

    def save(self, offsets: Mapping[KafkaPartition, Stored]) -> None:
        """Write; it is durable when the call returns."""

    def close(self) -> None:
        """Let it go."""


def packed(stored: Stored, characters_max: int = METADATA_CHARACTERS_MAX) -> str:
    """The metadata of a committed offset: one JSON object, with as many finished intervals as have room.

    Each interval is two numbers: how far it begins behind the end of the one before (or the offset), and its length.

    Raises:
        ConfigError: not even the names have room.

    >>> packed(Stored(40, Owner("word-count/lines", "word-count", "ab12"), [(45, 50), (52, 53)]))
    '{"sparkbolt":1,"id":"word-count/lines","topology":"word-count","version":"ab12","finished":[5,5,2,1]}'
    """
    owner = stored.owner or Owner("", "")
    head = {"sparkbolt": 1, "id": owner.id, "topology": owner.name, "version": owner.version, **_of_topic(stored)}
    room = characters_max - len(json.dumps({**head, "finished": []}, separators=(",", ":")))
    if room < 0:
        raise ConfigError(
            f"the names of topology and spout, {owner.id[:40]!r}..., are {-room} characters too long for what brokers "
            "keep with an offset: use shorter ones, or other offsets="
        )
    steps: list[int] = []
    at = stored.offset
    for start, end in stored.finished:
        step = [start - at, end - start]
        room -= sum(len(str(number)) + 1 for number in step)
        if room < 0:
            break
        steps += step
        at = end
    return json.dumps({**head, "finished": steps}, separators=(",", ":"))


def unpacked(offset: int, metadata: str) -> Stored:
    """The inverse of ``packed``; metadata that others wrote says nothing of an owner.

    >>> unpacked(40, '{"sparkbolt":1,"id":"a/b","topology":"a","version":"","finished":[5,5]}').finished
    [(45, 50)]
    >>> unpacked(40, "consumer-7") == Stored(40)
    True
    """
    try:
        body = json.loads(metadata)
        if body["sparkbolt"] != 1:
            return Stored(offset)
        owner = Owner(str(body["id"]), str(body["topology"]), str(body["version"]))
        return Stored(offset, owner, _intervals(offset, body["finished"]), topic_id=body.get("topic_id"))
    except (ValueError, TypeError, KeyError):
        return Stored(offset)


def _intervals(at: int, steps: Sequence[int]) -> list[Interval]:
    intervals = []
    for gap, length in zip(steps[::2], steps[1::2], strict=True):
        if gap < 0 or length <= 0:
            raise ValueError(f"steps {gap}, {length} do not rise")
        intervals.append((at + gap, at + gap + length))
        at += gap + length
    return intervals


class GroupOffsets:
    """Offsets in the consumer group, where Kafka's own tools show them."""

    def open(self, scope: Scope) -> None:
        """Use the spout's own connection."""
        self._cluster = scope.cluster

    def load(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, Stored]:
        """The group's offsets."""
        return {place: unpacked(*found) for place, found in self._cluster.committed(places).items()}

    def save(self, offsets: Mapping[KafkaPartition, Stored]) -> None:
        """Commit."""
        self._cluster.commit({place: (stored.offset, packed(stored)) for place, stored in offsets.items()})

    def close(self) -> None:
        """Nothing: the connection is the spout's."""


class FileOffsets:
    """Offsets in a file of JSON, replaced as a whole each time; several spouts may share it."""

    def __init__(self, path: str | Path) -> None:
        """Keep the path."""
        self.path = os.path.abspath(os.path.expanduser(path))

    def open(self, scope: Scope) -> None:
        """Look at what is there.

        Raises:
            ConfigError: the file is there and holds something else.
        """
        self._read()

    def load(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, Stored]:
        """What the file says."""
        known = self._read()
        return {place: known[place] for place in places if place in known}

    def save(self, offsets: Mapping[KafkaPartition, Stored]) -> None:
        """Replace the file, with what others have written into it meanwhile."""
        directory = os.path.dirname(self.path)
        os.makedirs(directory, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            known = self._read() | dict(offsets)
            body = {"sparkbolt": FILE_FORMAT, "offsets": {str(p): _entry(s) for p, s in sorted(known.items())}}
            unfinished = f"{self.path}.tmp"
            with open(unfinished, "w", encoding="utf-8") as file:
                json.dump(body, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, self.path)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _read(self) -> dict[KafkaPartition, Stored]:
        known: dict[KafkaPartition, Stored] = {}
        try:
            body = json.loads(Path(self.path).read_text(encoding="utf-8"))
            check_file(body)
            for place, entry in body["offsets"].items():
                topic, _, number = place.rpartition("/")
                owner = Owner(entry["id"], entry["topology"], entry["version"])
                spans = [(start, end) for start, end in entry["finished"]]
                found = Stored(entry["offset"], owner, spans, topic_id=entry.get("topic_id"))
                known[KafkaPartition(topic, int(number))] = found
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"{self.path} is no file of offsets ({error}): expected one that a KafkaSpout has written"
            ) from None
        return known

    def close(self) -> None:
        """Nothing is open."""


class RehearsedOffsets:
    """A store that is only read while a topology is tried: what is saved stays in memory, and nobody's offsets move."""

    def __init__(self, store: OffsetsStore) -> None:
        """Read ``store``."""
        self._store = store
        self._saved: dict[KafkaPartition, Stored] = {}

    def open(self, scope: Scope) -> None:
        """As of the store."""
        self._store.open(scope)

    def load(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, Stored]:
        """What is there, and what was saved here since."""
        own = {place: self._saved[place] for place in places if place in self._saved}
        return self._store.load(places) | own

    def save(self, offsets: Mapping[KafkaPartition, Stored]) -> None:
        """Keep it in memory."""
        self._saved.update(offsets)

    def close(self) -> None:
        """As of the store."""
        self._store.close()


def check_file(body: Any) -> None:
    """Refuse what is no file of offsets.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(body, dict) or body.get("sparkbolt") != FILE_FORMAT or not isinstance(body.get("offsets"), dict):
        raise ValueError("it has no offsets of this format")


def _entry(stored: Stored) -> dict[str, Any]:
    owner = stored.owner or Owner("", "")
    return {
        "offset": stored.offset,
        "id": owner.id,
        "topology": owner.name,
        "version": owner.version,
        "finished": [list(span) for span in stored.finished],
        **_of_topic(stored),
    }


def _of_topic(stored: Stored) -> dict[str, str]:
    return {} if stored.topic_id is None else {"topic_id": stored.topic_id}


def store_of(offsets: Any) -> OffsetsStore:
    """The store that ``offsets=`` of a spout means: ``group``, ``file:PATH``, or a store itself.

    Raises:
        ConfigError: it means none.
    """
    if offsets == "group":
        return GroupOffsets()
    if isinstance(offsets, str) and offsets.startswith("file:") and len(offsets) > len("file:"):
        return FileOffsets(offsets.removeprefix("file:"))
    if all(hasattr(offsets, method) for method in ("open", "load", "save", "close")):
        store: OffsetsStore = offsets
        return store
    raise ConfigError(f"offsets={offsets!r}: expected 'group', 'file:PATH', or ZooKeeperOffsets(...)")
