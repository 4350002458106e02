"""Task state: the durable state of one task.

Rule 1: everything is a segment, and a segment's content never changes: rewritten content gets a new random stamp and a
new physical key. The directory lists the stamps; it is read once per task and micro-batch.
Rule 2: a worker's cached content is valid if, and only if, its stamp is in the directory. An equal micro-batch id
proves nothing: an earlier attempt at the same micro-batch may have had other content, and the last attempt may have run
in another worker.
Rule 3: nothing is written before ``commit``, which is called once, at the end. The next ``begin`` drops the staged
segments of a failed attempt.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeVar

from sparkbolt.api.pickling import Pickling
from sparkbolt.api.tuples import Tuple
from sparkbolt.base.exceptions import printed
from sparkbolt.errors import StateError, check
from sparkbolt.worker.state.keyvalue import KeyValueTable
from sparkbolt.worker.state.large_dicts import PREFIX as LARGE_DICTS
from sparkbolt.worker.state.plain_reading import loads
from sparkbolt.worker.state.segments import Entries, SegmentStore, physical_key, read_segment
from sparkbolt.worker.state.snapshots import DurableAttributes

__all__ = ["Directory", "DurableAttributes", "KeyValueTable", "SegmentStore", "TaskState"]

T = TypeVar("T")

INLINE_BYTES_MAX = 256
"""Segments of at most this size are stored in the directory itself, which saves two calls of the store."""
INLINE_TOTAL_BYTES_MAX = 64 * 1024
"""The limit for all small segments in the directory; further ones are stored like large ones."""

DIRECTORY_KEY = ""
"""The one key whose content changes."""
_SNAPSHOT = "__snapshot"
_SNAPSHOT_DIGEST = "__snapshot_digest"
_TABLE = "__key_values"
_OWN = "__"


@dataclass
class Directory:
    """The list of a task's segments: the stamps of large ones, and the contents of small ones, by name."""

    stamps: dict[str, int] = field(default_factory=dict)
    """Name to stamp, for segments that are separate in the store."""
    inline: dict[str, bytes] = field(default_factory=dict)
    """Name to content, for segments that are in the directory itself."""

    @classmethod
    def read(cls, store: SegmentStore) -> Directory:
        """Read the directory of a store; it is empty if nothing was ever committed."""
        data = store.get(DIRECTORY_KEY)
        return cls() if data is None else cls(*loads(data))

    def encode(self) -> bytes:
        """The bytes that ``read`` reads."""
        return pickle.dumps((self.stamps, self.inline), 5)


class TaskState:
    """The state of one task in one worker process; it is kept as long as the process keeps the bolt's instance.

    In each micro-batch call ``begin``, then any other methods, then ``commit`` once. If the attempt fails, ``commit``
    is not called.

    Args:
        namespace: as in ``Pickling``, for keys and values of ``KeyValueState``.

    >>> store = DictStore()
    >>> state = TaskState()
    >>> state.begin(store)
    >>> state.key_value().put("be", 2)
    >>> state.write("held", b"...")
    >>> _ = state.commit(iter(range(1, 100)).__next__)
    >>> state.begin(store)
    >>> state.key_value().get("be"), state.read("held"), list(state.names())
    (2, b'...', ['held'])
    """

    def __init__(self, namespace: Mapping[str, Any] | None = None) -> None:
        self._store: SegmentStore | None = None
        self._directory = Directory()
        self._staged: dict[str, bytes | None] = {}
        self._staged_decoded: dict[str, Any] = {}
        self._alone: set[str] = set()
        self._decoded: dict[str, tuple[int | bytes, Any]] = {}
        self._snapshot: tuple[int | bytes, bytes] | None = None
        self._namespace = namespace or {}
        self._key_values = {_TABLE: KeyValueTable(Pickling(self._namespace))}
        """Name of the table in the directory to key-value state: the user's, and those of the engine."""
        self._instance_proof: object = _Unproven
        self._instance_current = False

    def begin(self, store: SegmentStore) -> None:
        """Begin a micro-batch: read the directory, and drop staged segments that were not committed.

        Args:
            store: the store of this task; it may be a new object in each micro-batch.
        """
        self._store = store
        self._directory = Directory.read(store)
        self._staged.clear()
        self._staged_decoded.clear()
        for name in [name for name, (proof, _) in self._decoded.items() if proof != self._proof(name)]:
            del self._decoded[name]
        self._instance_current = self._instance_proof == self._snapshot_proof()
        self._instance_proof = _Unproven
        for table, key_value in self._key_values.items():
            key_value._attach(store, self._directory.inline.get(table))

    # The instance and its snapshot.

    @property
    def instance_is_current(self) -> bool:
        """Whether the cached instance equals the last commit; otherwise its attributes must be restored.

        It is true only if this worker ran the task's last commit; it is false after a failed attempt, and at first.
        """
        return self._instance_current

    def snapshot(self) -> bytes | None:
        """The committed snapshot, or None if there is none yet."""
        return self.read(_SNAPSHOT)

    def set_snapshot(self, data: bytes, prove: Callable[[bytes], None] = lambda _: None) -> bool:
        """Stage a snapshot; returns False and stages nothing if it equals the committed one (by its digest).

        Args:
            data: the snapshot.
            prove: called with a snapshot that differs from the committed one; raises if it must not be committed.
        """
        digest = blake2b(data, digest_size=16).digest()
        if self._directory.inline.get(_SNAPSHOT_DIGEST) == digest:
            self._staged.pop(_SNAPSHOT, None)
            self._staged.pop(_SNAPSHOT_DIGEST, None)
            return False
        prove(data)
        self._staged[_SNAPSHOT] = data
        self._staged[_SNAPSHOT_DIGEST] = digest
        return True

    def key_value(self, name: str = "") -> KeyValueTable:
        """The task's key-value state of this name; always the same object.

        Args:
            name: the name of a key-value state of the engine; empty: the user's.
        """
        table = f"{_TABLE}_{name}" if name else _TABLE
        if table not in self._key_values:
            key_value = self._key_values[table] = KeyValueTable(Pickling(self._namespace))
            key_value._attach(self._opened(), self._directory.inline.get(table))
        return self._key_values[table]

    def key_values(self) -> Entries:
        """All committed keys and values of the user's key-value state, as they are stored."""
        return self._key_values[_TABLE]._content()

    def fill_key_values(self, content: Entries, stamps: Callable[[], int]) -> None:
        """Give the empty key-value state of the user's its content, at once.

        Args:
            content: as ``key_values`` returns it.
            stamps: as for ``commit``.
        """
        check(_TABLE not in self._directory.inline, "a key-value state that is not empty was filled")
        self._directory.inline[_TABLE] = self._key_values[_TABLE]._fill(content, stamps)
        self._opened().put(DIRECTORY_KEY, self._directory.encode())
        self._key_values[_TABLE]._attach(self._opened(), self._directory.inline[_TABLE])

    # Named segments.

    def names(self, prefix: str = "") -> Iterator[str]:
        """The names of the segments that begin with ``prefix``, sorted; staged writes and drops are included."""
        names = (self._directory.stamps.keys() | self._directory.inline.keys() | self._staged.keys()) - {
            name for name, data in self._staged.items() if data is None
        }
        return iter(sorted(name for name in names if name.startswith(prefix) and not name.startswith(_OWN)))

    def own_names(self, prefix: str) -> list[str]:
        """The committed segments of the engine whose names begin with ``prefix``, which has two underscores; sorted."""
        check(prefix.startswith(_OWN), f"segments {prefix!r}: names without two underscores are not the engine's")
        names = self._directory.stamps.keys() | self._directory.inline.keys()
        return sorted(name for name in names if name.startswith(prefix))

    def unstage(self, prefix: str) -> None:
        """Undo the staging of the segments whose names begin with ``prefix``."""
        for name in [name for name in self._staged if name.startswith(prefix)]:
            del self._staged[name]
            self._staged_decoded.pop(name, None)
            self._alone.discard(name)

    def read(self, name: str) -> bytes | None:
        """The bytes of a segment, or None if there is none: one call of the store, none for a small one."""
        if name in self._staged:
            return self._staged[name]
        if name in self._directory.inline:
            return self._directory.inline[name]
        stamp = self._directory.stamps.get(name)
        if stamp is None:
            return None
        return read_segment(self._opened(), name, stamp)

    def load(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        """The decoded content of a segment, cached in this worker as long as the segment does not change.

        The result must not be changed in place, because it outlives an attempt that fails. None if there is no segment.
        """
        if name in self._staged_decoded:
            known: T = self._staged_decoded[name]
            return known
        if name not in self._staged and name in self._decoded:
            cached: T = self._decoded[name][1]
            return cached
        data = self.read(name)
        if data is None:
            return None
        value = decode(data)
        if name in self._staged:
            self._staged_decoded[name] = value
        else:
            self._decoded[name] = (self._proof(name) or 0, value)
        return value

    def write(self, name: str, data: bytes, decoded: Any = None) -> None:
        """Stage the content of a segment.

        Args:
            name: any name that does not begin with two underscores.
            data: the whole content.
            decoded: what ``load`` returns without decoding, if not None; it is never changed in place.
        """
        check(not name.startswith(_OWN), f"segment {name!r}: names with two underscores are the state's own")
        self.write_own(name, data, decoded)

    def write_own(self, name: str, data: bytes, decoded: Any = None, *, alone: bool = False) -> None:
        """Stage the content of a segment of the engine, whose name begins with two underscores.

        Args:
            name: the name of the segment.
            data: the whole content.
            decoded: as in ``write``.
            alone: never store it in the directory itself, however small it is. Then ``load`` returns the object
                ``decoded`` only if this write was the last one, even if other writes had the same content.
        """
        self._staged[name] = data
        self._staged_decoded.pop(name, None)
        if alone:
            self._alone.add(name)
        if decoded is not None:
            self._staged_decoded[name] = decoded

    def drop(self, name: str) -> None:
        """Stage the removal of a segment, the bolt's or the engine's, if it exists."""
        self._staged[name] = None
        self._staged_decoded.pop(name, None)

    # The end of the micro-batch.

    def make_ready(self) -> None:
        """Encode the data for ``commit``, so that ``commit`` does not raise; it may be called several times.

        Raises:
            StateError: a key or value cannot be kept.
        """
        for key_value in self._key_values.values():
            key_value._make_ready()

    def check_held_once(self, tuples: Sequence[Tuple]) -> None:
        """Check that no tuple that may still be acked is stored in two places that are pickled separately.

        It would be restored as two tuples with the same edge, and two acks of one edge cancel each other.

        Args:
            tuples: the tuples in the attributes of the instance.

        Raises:
            StateError: a tuple is in the attributes and in the key-value state, or under two of its keys.
        """
        held = self._key_values[_TABLE]._tuples()
        if not held:
            return
        anchors = {tup.anchors for tup in tuples if tup._settled is None and tup.anchors}
        for tup in held:
            if tup._settled is None and tup.anchors:
                if tup.anchors in anchors:
                    raise StateError(
                        f"{printed(tup):.200} is held twice, in the key-value state and elsewhere (an attribute, or "
                        "another key): it would come back as two tuples whose acks cancel each other: keep the tuple "
                        "in one place, and its key or its values in the other"
                    )
                anchors.add(tup.anchors)

    def commit(self, stamps: Callable[[], int]) -> int:
        """Write the changes, the directory last; writes nothing if nothing changed.

        Args:
            stamps: returns a random number below 2**64 on each call, never 0 and never the same number twice.

        Returns:
            The number of bytes written.

        Raises:
            StateError: a key or value cannot be pickled; then nothing of this attempt counts.
        """
        store = self._opened()
        committed = {table: key_value._commit(stamps) for table, key_value in self._key_values.items()}
        if not self._staged and all(key_values is None for key_values in committed.values()):
            self._instance_proof = self._snapshot_proof()
            return 0
        written = 0
        for table, key_values in committed.items():
            if key_values is not None:
                self._directory.inline[table] = key_values[0]
                written += key_values[1]
        room = INLINE_TOTAL_BYTES_MAX - sum(
            len(data)
            for name, data in self._directory.inline.items()
            if not name.startswith(_TABLE) and name not in self._staged
        )
        for name, data in self._staged.items():
            self._remove(name)
            if data is None:
                continue
            apart = name == _SNAPSHOT or name in self._alone
            if name == _SNAPSHOT_DIGEST or (not apart and len(data) <= min(INLINE_BYTES_MAX, room)):
                self._directory.inline[name] = data
                room -= len(data)
            else:
                self._directory.stamps[name] = stamp = stamps()
                store.put(physical_key(name, stamp), data)
                written += len(data)
        for name, value in self._staged_decoded.items():
            self._decoded[name] = (self._proof(name) or 0, value)
        self._staged.clear()
        self._staged_decoded.clear()
        directory = self._directory.encode()
        store.put(DIRECTORY_KEY, directory)
        self._instance_proof = self._snapshot_proof()
        return written + len(directory)

    def _remove(self, name: str) -> None:
        self._decoded.pop(name, None)
        self._directory.inline.pop(name, None)
        stamp = self._directory.stamps.pop(name, None)
        if stamp is not None:
            self._opened().delete(physical_key(name, stamp))

    def _proof(self, name: str) -> int | bytes | None:
        """The proof of the content of a segment: its stamp, or the content itself if it is inline."""
        return self._directory.stamps.get(name, self._directory.inline.get(name))

    def _snapshot_proof(self) -> object:
        """The proof of the attributes of the instance: the stamps of the snapshot and of the large dicts."""
        stamps = self._directory.stamps
        apart = [stamp for name, stamp in stamps.items() if name.startswith(LARGE_DICTS)]
        return (stamps.get(_SNAPSHOT), *sorted(apart)) if apart else stamps.get(_SNAPSHOT)

    def _opened(self) -> SegmentStore:
        check(self._store is not None, "a TaskState was used before its micro-batch began")
        assert self._store is not None
        return self._store


class _Unproven:
    """Equals no stamp and not None: the cached instance may contain uncommitted values."""


class DictStore(dict[str, bytes]):
    """A ``SegmentStore`` in memory, for the simulator."""

    def put(self, key: str, value: bytes) -> None:
        """Set the value of a key."""
        self[key] = value

    def delete(self, key: str) -> None:
        """Remove a key if it exists."""
        self.pop(key, None)
