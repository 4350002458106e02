"""The plan: what one micro-batch reads, as Spark's offset; and the records of a ``Spout`` that travel beside it.

Rule 1: a plan holds ranges, and no records except those of dead letters that an operator gives back. Records of a
``Spout`` travel beside it and are lost with their driver.
Rule 2: a plan reserves sequences before anything is read: ``sequence = base + (position - start)``, so gaps and
unknown record counts cost nothing, and no sequence is used twice.
Rule 3: a plan of a dead life keeps its ranges but loses its ``Spout`` records and the ranges that may be read only
once. ``alive_entries`` returns the entries that remain.
Rule 4: values of a record that are not plain are pickled when they are emitted, each record on its own. A record that
cannot be pickled, or is too large, is refused at that moment. A record that cannot be unpickled fails on arrival. In
both cases only its own tree fails. Plain values (text, numbers, bytes, None) travel unchanged; the only cost is the
check of their types.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import cloudpickle

from sparkbolt.base.codec import ROW, SPARSE, MismatchError, decode, encode
from sparkbolt.base.exceptions import line_of, pass_on, printed
from sparkbolt.base.file_access import Files
from sparkbolt.base.ids import tree_key
from sparkbolt.errors import CheckpointError, EmitError
from sparkbolt.wire.returned import ReturnedLetter, is_returned_source
from sparkbolt.wire.stream_sources import SourceRanges, StreamSources

TaskOwner: TypeAlias = Callable[[int], tuple[str, int]]
ASKED_FOR_MAX = 100
"""For at most about this many trees that time out in a micro-batch, the holders report the held tuples."""


def own_source(index: int) -> str:
    """The name of the source that represents the outbox of a bolt's task, by the index of the task.

    A position in this source is the sequence of the value's first attempt.
    """
    return f"kept-{index}"


@dataclass(frozen=True)
class Entry:
    """One piece of a micro-batch, read by one spout task; its records' sequences start at ``base``.

    There are five kinds:

    1. a range of a ``PartitionedSpout``: ``source`` is set;
    2. records of a ``PartitionedSpout`` to be read again, all at the same attempt: ``source`` and ``positions`` are
       set, and the i-th record has the sequence ``base + i``;
    3. records of a ``Spout``: as 1 and 2, but ``source`` is None, and a position is the sequence of the record's first
       attempt;
    4. exhausted messages of either spout, which are read once more for their dead letters: ``letters`` is set too;
    5. dead letters that an operator has given back: as 2, and ``records`` is set too.
    """

    JSON = ROW

    task: int
    base: int
    source: str | None
    start: int
    end: int
    attempt: int = 1
    """The attempt of the records. For a range: the attempt at reading from its start; its records are first
    attempts."""
    positions: tuple[int, ...] | None = None
    once: bool = False
    """Whether no other life may read it, because its spout emits each record at most once."""
    letters: tuple[str, ...] | None = field(default=None, repr=False)
    """The report on each exhausted message (``ExhaustedMessage``, dumped); ``attempt`` then counts the attempts at
    writing the dead letter."""
    records: tuple[str, ...] | None = field(default=None, repr=False)
    """The record of each returned letter (``ReturnedRecord``, dumped)."""

    @property
    def reserved(self) -> int:
        """How many sequences the entry reserves."""
        return len(self.positions) if self.positions is not None else self.end - self.start

    @property
    def lasting(self) -> bool:
        """Whether it may be read in any life: it is neither a ``Spout``'s records nor read ``once``."""
        return self.source is not None and not self.once

    @property
    def first_key(self) -> int:
        """The tree key of the first reserved sequence."""
        return tree_key(self.task, self.base)

    def position_of(self, sequence: int) -> int:
        """The position of the record that has this sequence."""
        offset = sequence - self.base
        return self.positions[offset] if self.positions is not None else self.start + offset


@dataclass(frozen=True)
class MicroBatchPlan:
    """The instructions for a micro-batch: enough to run it, and to run it again."""

    JSON = SPARSE

    micro_batch_id: int
    life: int
    """The run of the driver that made the plan; records of a ``Spout`` exist in that life only."""
    now_ms: int
    """The micro-batch's time, in milliseconds since the epoch; never less than that of an earlier plan."""
    entries: tuple[Entry, ...] = ()
    ticks: tuple[str, ...] = ()
    """Components whose tasks receive a tick tuple."""
    expired: tuple[int, ...] = ()
    """Keys of open trees that have timed out; the promotion of this micro-batch fails them."""
    void: tuple[tuple[int, int], ...] = ()
    """(task number, sequence): trees of the task below the sequence belong to a dead life and are no longer tracked."""
    asked: tuple[int, ...] = ()
    """Numbers of tasks that hold tuples of the first expired trees; they must report these tuples."""
    again: tuple[Entry, ...] = ()
    """Values that the tasks of bolts that start trees must emit again from their outboxes: entries with
    ``positions``."""
    outbox_acks: tuple[tuple[int, int, int], ...] = ()
    """(task number, start, end): positions [start, end) that the task may drop from its outbox."""
    clocks: tuple[int, ...] = ()
    """Numbers of tasks that receive the time although nothing else may be sent to them."""
    streams: tuple[StreamSources, ...] = ()
    """The input streams of windows whose watermark depends on sources."""
    open_ranges: tuple[tuple[int, int, int, str], ...] = ()
    """(task number, first sequence, number of sequences, source): ranges of earlier plans with open trees, whose tuples
    bolts may still emit; only with ``streams``."""
    returned: tuple[ReturnedLetter, ...] = ()
    """Dead letters whose messages wait in their logs again once the plan is promoted."""
    returned_from: tuple[tuple[str, int], ...] = ()
    """(file, index of the line): the requests for which this plan is the answer."""
    looped: tuple[int, ...] = ()
    """Earlier micro-batches whose tuples for feedback subscriptions this one delivers."""
    beyond: tuple[int, ...] = ()
    """Keys of open trees that have been fed back more than ``max_hops`` times: their tuples are not delivered, and the
    promotion of this micro-batch fails them."""

    def sources(self, owner: TaskOwner) -> list[tuple[str, str]]:
        """(spout, source) of each source that tuples of the micro-batch may come from; its index is its code.

        Args:
            owner: (component, index) of a task number.
        """
        return list(dict.fromkeys((owner(task)[0], source) for task, _, _, source in self._source_ranges()))

    def source_ranges(self, owner: TaskOwner) -> SourceRanges:
        """Which trees that tuples of the micro-batch may belong to come from which source."""
        codes = {place: code for code, place in enumerate(self.sources(owner))}
        return SourceRanges.of(
            (tree_key(task, base), count, codes[owner(task)[0], source])
            for task, base, count, source in self._source_ranges()
        )

    def _source_ranges(self) -> Iterator[tuple[int, int, int, str]]:
        for entry in self.entries:
            if entry.source is not None and entry.letters is None and not is_returned_source(entry.source):
                yield entry.task, entry.base, entry.reserved, entry.source
        yield from self.open_ranges

    @property
    def reserving(self) -> tuple[Entry, ...]:
        """All entries that reserve sequences: those that spouts read, and those that tasks emit again."""
        return (*self.entries, *self.again)

    def alive_entries(self, life: int) -> tuple[Entry, ...]:
        """The entries that may be read in ``life``."""
        return tuple(entry for entry in self.entries if entry.lasting or life == self.life)

    def dumps(self) -> str:
        """The plan as one line of JSON; equal plans give equal text."""
        return json.dumps(encode(self), separators=(",", ":"))


Offset = Mapping[str, Any]
BEFORE_THE_FIRST: Offset = {"micro_batch_id": -1}
"""The constant offset before micro-batch 0; it holds no plan."""


def plan_of(offset: Offset, files: Files, where: str) -> MicroBatchPlan:
    """The plan of an offset.

    Raises:
        CheckpointError: the offset has no plan, or the plan's file is missing.
    """
    if "file" in offset:
        data = files.read(f"plans/{offset['file']}")
        if data is None:
            raise CheckpointError(f"{where}: plans/{offset['file']} is missing, though an offset of Spark's names it")
        offset = json.loads(data)
    try:
        return decode(MicroBatchPlan, offset)
    except MismatchError as error:
        raise CheckpointError(
            f"an offset in the checkpoint holds no plan ({error}): the offset log is damaged"
        ) from None


class Timer(NamedTuple):
    """When a task with a bolt runtime must receive the time."""

    due_ms: int
    """A micro-batch must run for the task at this time, in milliseconds since the epoch, at the latest."""
    waits: bool = True
    """Whether the task will then process tuples that it has already received; a topology is not finished before."""


_PLAIN = frozenset({int, float, bool, type(None)})
_SHOWN_CHARACTERS_MAX = 1000


@dataclass(frozen=True)
class Packed:
    """Pickled values."""

    data: bytes


@dataclass(frozen=True)
class Refused:
    """Values that cannot be sent."""

    reason: str
    shown: tuple[str, ...]
    """The printed form of each value, shortened."""


@dataclass(frozen=True)
class Record:
    """One emission of a ``Spout``; it travels in the ``InputPartition``."""

    stream: str
    values: Sequence[Any] | Packed | Refused
    tracked: bool
    direct_to: int | None = None
    message_id: str | None = None
    """The printed message id, if the record is read for its dead letter."""

    @classmethod
    def of(cls, stream: str, values: list[Any], tracked: bool, direct_to: int | None, bytes_max: int) -> Record:
        """A record of values that a spout has just emitted.

        Args:
            stream: the stream of the emission.
            values: one for each field of the stream.
            tracked: whether the values start a tree.
            direct_to: the number of the task that receives them; None: the groupings choose.
            bytes_max: the limit of the record's size; the tree of a larger record fails.
        """
        return cls(stream, _packed(values, bytes_max), tracked, direct_to)

    @property
    def size(self) -> int:
        """The approximate size in a partition, in bytes."""
        if isinstance(self.values, Packed):
            return 64 + len(self.values.data)
        if isinstance(self.values, Refused):
            return 64
        return 64 + sum([len(value) if isinstance(value, str | bytes) else 64 for value in self.values])

    def read(self) -> Sequence[Any]:
        """The values.

        Raises:
            EmitError: the values cannot be sent or read; the message has the reason.
        """
        if isinstance(self.values, Refused):
            raise EmitError(self.values.reason)
        if not isinstance(self.values, Packed):
            return self.values
        try:
            values: list[Any] = pickle.loads(self.values.data)
        except BaseException as error:  # unpickling calls user code, which may raise anything
            pass_on(error)
            raise EmitError(
                "the record holds a value that cannot be sent to an executor (it can be pickled, and reading it back "
                f"raises {line_of(error)})"
            ) from error
        return values


def _packed(values: list[Any], bytes_max: int) -> Sequence[Any] | Packed | Refused:
    size = 0
    for value in values:
        kind = type(value)
        if kind is str or kind is bytes:
            size += len(value)
        elif kind not in _PLAIN:
            break
    else:
        return values if size <= bytes_max else _refused(values, _too_large(size, bytes_max))
    try:
        data = _pickled(values)
    except BaseException as error:  # noqa: BLE001  pickling calls user code, which may raise anything
        pass_on(error)
        return _refused(values, f"the record holds a value that cannot be sent to an executor ({line_of(error)})")
    return Packed(data) if len(data) <= bytes_max else _refused(values, _too_large(len(data), bytes_max))


def _refused(values: Sequence[Any], reason: str) -> Refused:
    return Refused(reason, tuple(printed(value)[:_SHOWN_CHARACTERS_MAX] for value in values))


def _too_large(size: int, bytes_max: int) -> str:
    return (
        f"a record of {size:,} bytes cannot be emitted: tuple_bytes_max is {bytes_max:,}; emit a reference to what is "
        "large, such as a path, or raise the limit"
    )


class _ClassError(Exception):
    """The values to be pickled contain an instance of a class."""


class _BuiltIns(pickle.Pickler):
    """Pickles builtin types only."""

    def reducer_override(self, obj: Any) -> Any:
        raise _ClassError


def _pickled(values: list[Any]) -> bytes:
    """Pickle with cloudpickle if a class is among the values; without one, ``pickle`` takes a twentieth of the time."""
    buffer = io.BytesIO()
    try:
        _BuiltIns(buffer, 5).dump(values)
    except _ClassError:
        data: bytes = cloudpickle.dumps(values)
        return data
    return buffer.getvalue()


@dataclass(frozen=True)
class Piece:
    """One entry of a plan, with its index and the records that travel with it."""

    index: int
    entry: Entry
    records: tuple[Record, ...] = ()
    traced: tuple[int, ...] = ()
    """The sequences whose trees an operator wants to be traced, besides those that ``trace`` chooses."""
