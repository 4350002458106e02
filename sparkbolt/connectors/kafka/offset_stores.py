"""OffsetsStore: stores progress outside of the checkpoint, in the consumer group or in a file.

Within one checkpoint the ledger's log is the truth. These stores are written after each promotion, and are read only if
the checkpoint has no progress. Every entry names its topology, so that offsets of another topology are not used by
mistake.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from sparkbolt.base.intervals import Interval, Intervals
from sparkbolt.connectors.kafka.kafka_cluster import Cluster
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.errors import ConfigError
from sparkbolt.files import local

METADATA_CHARACTERS_MAX = 4000
"""Brokers refuse metadata of more than 4,096 bytes, and the client appends one byte."""
FILE_FORMAT = 1

OtherTopology = Literal["refuse", "start_over", "take_over"]


@dataclass(frozen=True)
class Owner:
    """The owner of stored offsets."""

    id: str
    """Unique to a spout of a topology: the topology's name and the spout's id."""
    name: str
    """The topology's name."""
    version: str = ""


@dataclass(frozen=True)
class Stored:
    """The entry of a store for one kafka_partition."""

    offset: int
    """All records below it are finished."""
    owner: Owner | None = None
    """None if the writer did not name itself."""
    finished: Intervals = ()
    """Finished intervals beyond ``offset``."""
    topic: str | None = None
    """The topic that it was written for, if the place does not imply it."""
    topic_id: str | None = None
    """The id of that topic, which distinguishes it from others of its name; None if it was unknown."""


@dataclass(frozen=True)
class Scope:
    """The circumstances under which a store is opened."""

    cluster: Cluster
    group: str
    topics: Sequence[str] | None
    """Names of the topics; None if a pattern gives them."""


class OffsetsStore(Protocol):
    """A place that stores offsets; one thread of the driver makes all calls, and they may block."""

    def open(self, scope: Scope) -> None:
        """Called first. An unusable place raises ``ConfigError``; a problem that may pass raises another exception."""

    def load(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, Stored]:
        """Return the stored entries; kafka_partitions without one are missing."""

    def save(self, offsets: Mapping[KafkaPartition, Stored]) -> None:
        """Store offsets; they are durable when the call returns."""

    def close(self) -> None:
        """Release the store."""


def packed(stored: Stored, characters_max: int = METADATA_CHARACTERS_MAX) -> str:
    """Return the metadata of a committed offset: one JSON object, with as many finished intervals as fit.

    Each interval is two numbers: the distance from the previous interval's end (or the offset) to its start, and its
    length.

    Raises:
        ConfigError: Not even the names fit.

    >>> packed(Stored(40, Owner("word-count/lines", "word-count", "ab12"), [(45, 50), (52, 53)]))
    '{"sparkbolt":1,"id":"word-count/lines","topology":"word-count","version":"ab12","finished":[5,5,2,1]}'
    """
    head, room = _head_and_room(stored, characters_max)
    if room < 0:
        owner_id = stored.owner.id if stored.owner else ""
        raise ConfigError(
            f"the names of topology and spout, {owner_id[:40]!r}..., are {-room} characters too long for what brokers "
            "keep with an offset: use shorter ones, or other offsets="
        )
    steps = [number for step in _steps(stored)[: fitting(stored, characters_max)] for number in step]
    return json.dumps({**head, "finished": steps}, separators=(",", ":"))


def fitting(stored: Stored, characters_max: int = METADATA_CHARACTERS_MAX) -> int:
    """Return how many of the finished intervals ``packed`` keeps.

    >>> fitting(Stored(40, Owner("a/b", "a"), [(45, 50), (52, 53)]), 72)
    1
    """
    _, room = _head_and_room(stored, characters_max)
    lengths = (sum(len(str(number)) + 1 for number in step) for step in _steps(stored))
    return sum(1 for used in itertools.accumulate(lengths) if used <= room)


def _head_and_room(stored: Stored, characters_max: int) -> tuple[dict[str, Any], int]:
    """Return the metadata without intervals, and how many characters are left for them."""
    head = {"sparkbolt": 1, **_names(stored)}
    return head, characters_max - len(json.dumps({**head, "finished": []}, separators=(",", ":")))


def _steps(stored: Stored) -> list[tuple[int, int]]:
    """Return the distance of each finished interval from the one before, and its length."""
    ends = [stored.offset, *(end for _, end in stored.finished)]
    return [(start - at, end - start) for at, (start, end) in zip(ends, stored.finished, strict=False)]


def unpacked(offset: int, metadata: str) -> Stored:
    """Undo ``packed``; metadata that another program wrote yields no owner.

    >>> unpacked(40, '{"sparkbolt":1,"id":"a/b","topology":"a","version":"","finished":[5,5]}').finished
    [(45, 50)]
    >>> unpacked(40, "consumer-7") == Stored(40)
    True
    """
    try:
        body = json.loads(metadata)
        if body["sparkbolt"] != 1:
            return Stored(offset)
        return _named(offset, body, _intervals(offset, body["finished"]))
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
        """Use the spout's own clients."""
        self._cluster = scope.cluster

    def load(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, Stored]:
        """Return the group's offsets."""
        return {place: unpacked(*found) for place, found in self._cluster.committed(places).items()}

    def save(self, offsets: Mapping[KafkaPartition, Stored]) -> None:
        """Commit the offsets."""
        self._cluster.commit({place: (stored.offset, packed(stored)) for place, stored in offsets.items()})

    def close(self) -> None:
        """Do nothing: the spout owns the clients."""


class FileOffsets:
    """Offsets in a JSON file that is replaced as a whole each time; several spouts may share it."""

    def __init__(self, path: str | Path) -> None:
        """Store the path."""
        self.path = os.path.abspath(os.path.expanduser(path))

    def open(self, scope: Scope) -> None:
        """Check the existing file.

        Raises:
            ConfigError: The file exists and holds something else.
        """
        self._read()
        local.remove_leftovers(os.path.dirname(self.path), os.path.basename(self.path).__eq__)

    def load(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, Stored]:
        """Return the contents of the file."""
        known = self._read()
        return {place: known[place] for place in places if place in known}

    def save(self, offsets: Mapping[KafkaPartition, Stored]) -> None:
        """Replace the file; entries that others have written meanwhile are kept."""
        directory = os.path.dirname(self.path)
        local.make_folder(directory)
        with local.locked(directory):
            known = self._read() | dict(offsets)
            entries = {
                str(place): {"offset": one.offset, **_names(one), "finished": [list(span) for span in one.finished]}
                for place, one in sorted(known.items())
            }
            body = {"sparkbolt": FILE_FORMAT, "offsets": entries}
            local.replace(self.path, lambda file: file.write(json.dumps(body, indent=1).encode()))

    def _read(self) -> dict[KafkaPartition, Stored]:
        known: dict[KafkaPartition, Stored] = {}
        try:
            body = json.loads(Path(self.path).read_text(encoding="utf-8"))
            check_file(body)
            for place, entry in body["offsets"].items():
                topic, _, number = place.rpartition("/")
                spans = [(start, end) for start, end in entry["finished"]]
                known[KafkaPartition(topic, int(number))] = _named(entry["offset"], entry, spans)
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(
                f"{self.path} is no file of offsets ({error}): expected one that a KafkaSpout has written"
            ) from None
        return known

    def close(self) -> None:
        """Do nothing: nothing is open."""


class RehearsedOffsets:
    """A read-only view of a store for rehearsals: saved offsets stay in memory, and the store does not change."""

    def __init__(self, store: OffsetsStore) -> None:
        """Wrap ``store``."""
        self._store = store
        self._saved: dict[KafkaPartition, Stored] = {}

    def open(self, scope: Scope) -> None:
        """Open the store."""
        self._store.open(scope)

    def load(self, places: Sequence[KafkaPartition]) -> dict[KafkaPartition, Stored]:
        """Return the stored entries, and those that were saved here since."""
        own = {place: self._saved[place] for place in places if place in self._saved}
        return self._store.load(places) | own

    def save(self, offsets: Mapping[KafkaPartition, Stored]) -> None:
        """Keep the offsets in memory."""
        self._saved.update(offsets)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def check_file(body: Any) -> None:
    """Refuse a file that does not hold offsets.

    Raises:
        ValueError: It does not.
    """
    if not isinstance(body, dict) or body.get("sparkbolt") != FILE_FORMAT or not isinstance(body.get("offsets"), dict):
        raise ValueError("it has no offsets of this format")


def _names(stored: Stored) -> dict[str, str]:
    """Return the names of an offset's owner, and the id of its topic if it is known."""
    owner = stored.owner or Owner("", "")
    names = {"id": owner.id, "topology": owner.name, "version": owner.version}
    return names if stored.topic_id is None else {**names, "topic_id": stored.topic_id}


def _named(offset: int, names: Mapping[str, Any], finished: Intervals) -> Stored:
    """Undo ``_names``."""
    owner = Owner(str(names["id"]), str(names["topology"]), str(names["version"]))
    return Stored(offset, owner, finished, topic_id=names.get("topic_id"))


def store_of(offsets: Any) -> OffsetsStore:
    """Return the store that a spout's ``offsets=`` means: ``group``, ``file:PATH``, or a store itself.

    Raises:
        ConfigError: It means none of these.
    """
    if offsets == "group":
        return GroupOffsets()
    if isinstance(offsets, str) and offsets.startswith("file:") and len(offsets) > len("file:"):
        return FileOffsets(offsets.removeprefix("file:"))
    if all(hasattr(offsets, method) for method in ("open", "load", "save", "close")):
        store: OffsetsStore = offsets
        return store
    raise ConfigError(f"offsets={offsets!r}: expected 'group', 'file:PATH', or ZooKeeperOffsets(...)")
