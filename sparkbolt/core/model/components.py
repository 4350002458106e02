"""Spouts and bolts: what users write.

Which question it answers: which methods does a component have, who calls them, how often?
Rule: ``__init__`` runs once, where the topology is built; ``prepare`` (``open`` of a spout) runs where a task
starts. Components are values: they are pickled with the topology.

Read before: ``tuples``, ``config``.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sparkbolt.core.base.exceptions import pass_on, printed
from sparkbolt.core.model.config import Config
from sparkbolt.core.model.dead_letters import DeadLetters, DeadLetterSink, RawMessage
from sparkbolt.core.model.retry import RetryPolicy
from sparkbolt.core.model.tuples import DEFAULT_STREAM, Outputs, Tuple, parse_outputs
from sparkbolt.errors import EmitError

if TYPE_CHECKING:
    from sparkbolt.core.model.interfaces import (
        BasicCollector,
        BoltCollector,
        ColumnCollector,
        KeyValueState,
        SpoutCollector,
    )
    from sparkbolt.core.model.reports import SourceView


def rehearsal_path(directory: str, path: str | os.PathLike[str]) -> str:
    """What stands for ``path`` in a rehearsal: the same path, below a directory.

    >>> rehearsal_path("/tmp/rehearsal", "/srv/../srv/out")
    '/tmp/rehearsal/srv/out'
    """
    return os.path.join(directory, os.path.abspath(os.path.expanduser(path)).lstrip(os.sep))


@dataclass
class TopologyContext:
    """What a task may know of itself and of its topology.

    ``now_ms`` (milliseconds since the epoch, never going back) and ``micro_batch_id`` are those of the
    micro-batch that is being processed; both are the same when the micro-batch runs again.
    """

    topology: str
    component: str
    index: int
    parallelism: int
    task: int
    """The task's number in the topology, from 1, in the order of component ids."""
    config: Config
    tasks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The task numbers of every component."""
    inputs: tuple[tuple[str, str], ...] = ()
    """The streams that the component gets, as (component, stream)."""
    now_ms: int = 0
    micro_batch_id: int = -1
    version: str = ""
    """What the topology is, in 16 hexadecimal digits (``Topology.version``)."""
    rehearsal_directory: str | None = None
    """Where files go in a rehearsal: under the simulator and ``TopologyTestDriver`` a directory that is there, belongs
    to nobody else and is removed in the end. None on Spark. A component that changes anything else outside of itself
    (a table, a server) may look whether it is None."""

    def output_path(self, path: str | os.PathLike[str]) -> str:
        """Where a file or directory is written that belongs at ``path``.

        On Spark that is ``path`` as it is. In a rehearsal it is the same path below ``rehearsal_directory``, in a
        folder that is made by this call: what stands at ``path`` itself is never touched. It differs from process to
        process: a bolt that emits where it wrote emits ``path``.

        >>> TopologyContext("t", "out", 0, 1, 1, Config()).output_path("out/notes.txt")
        'out/notes.txt'
        """
        if self.rehearsal_directory is None:
            return os.fspath(path)
        place = rehearsal_path(self.rehearsal_directory, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        return place

    def component_tasks(self, component: str) -> tuple[int, ...]:
        """The task numbers of a component, for ``emit_direct``.

        Raises:
            KeyError: there is no such component.
        """
        return self.tasks[component]


class Component(ABC):  # noqa: B024  spouts and bolts have no method in common
    """What spouts and bolts share."""

    outputs: Outputs | None = None
    """The declared streams: a list of fields, or a dict of them; ``Direct([...])`` marks a direct stream."""

    transient: ClassVar[Sequence[str]] = ()
    """Names of attributes that are not durable: ``prepare`` makes them again."""


class Spout(Component):
    """A source whose messages belong to a connection: a queue, a socket (Storm's ``IRichSpout``).

    Each task has an instance of its own in the driver process; all calls of one task come from one thread.

    Where ``retry`` is set, the engine keeps what was emitted with a message id and gives it again itself when it fails.
    A message that is given up becomes a dead letter in the checkpoint, and then ``fail`` is called; where
    ``dead_letters`` sends the letter elsewhere, ``ack`` is. Without ``retry`` and ``dead_letters`` every failure is
    told, and the spout decides.
    """

    retry: RetryPolicy | None = None
    """How what failed is given again; ``retry=`` of ``set_spout`` wins. It is read from the instance that the topology
    was built with."""
    dead_letters: DeadLetters | None = None
    """Where a message goes that is given up, as of ``set_spout``, whose keyword wins."""

    rehearsable: ClassVar[bool] = True
    """Set to False where messages are taken out of a real queue: a simulation runs it only fed."""

    def open(self, context: TopologyContext) -> None:
        """Called once when the task starts, before anything else: open connections here."""

    @abstractmethod
    def next_tuple(self, collector: SpoutCollector) -> None:
        """Emit nothing, one or many tuples, and return soon: acks wait for the same thread.

        Called again and again while the task is active and below ``max_spout_pending``. An exception is
        reported, and the call is made again after a pause.
        """

    def ack(self, message_id: Any) -> None:
        """The message is done: its tree is complete and the work committed, or it was given up and its dead letter is.

        Exactly one of ack and fail is called.
        """

    def fail(self, message_id: Any) -> None:
        """The tree of ``message_id`` failed or timed out. Emit the message again, or do not."""

    def activate(self) -> None:
        """Called before the first ``next_tuple``, and when the topology is activated again."""

    def deactivate(self) -> None:
        """Called when the topology is deactivated: ``next_tuple`` is not called until ``activate``."""

    def close(self) -> None:
        """Called when the topology stops in an orderly way; not after a crash."""

    @property
    def exhausted(self) -> bool:
        """Whether nothing will ever be emitted again; a topology ends when all its spouts are exhausted."""
        return False

    def dead_letter_sink(self, name: str) -> DeadLetterSink | None:
        """What a plain name means that was given as ``dead_letters=``: a queue, for one. None: nothing."""
        return None


POSITION_MAX = (1 << 63) - 1
"""Positions are below it."""
RANGE_POSITIONS_MAX = 1 << 40
"""How many positions a range may have; a task has sequences for so many times more in all (``ids.AGAIN``)."""


@dataclass(frozen=True, order=True)
class Range:
    """Positions ``start`` (inclusive) to ``end`` (exclusive) of one source, to be read by one task.

    A source is whatever counts its own positions: a file (bytes), a kafka_partition (offsets). A record's
    position is where it starts; positions of a source rise and name a record for ever.
    """

    task: int
    """The index of the spout task that reads it."""
    source: str
    start: int
    end: int

    def __post_init__(self) -> None:
        """Refuse a range that is empty or runs backwards, and one with more positions than trees can be numbered."""
        if not 0 <= self.start < self.end:
            raise ValueError(f"range of {self.source!r}: expected 0 <= start < end, got {self.start}, {self.end}")
        if self.end > POSITION_MAX:
            raise ValueError(f"range of {self.source!r}: positions are below 2**63, got {self.end}")
        if self.end - self.start > RANGE_POSITIONS_MAX:
            raise ValueError(
                f"range of {self.source!r}: {self.end - self.start:,} positions from {self.start} on, expected at most "
                f"2**40: a tree is reserved for each of them, be there a record or not. Are they nanoseconds? Count in "
                "milliseconds, or give a position several records; and plan as many positions as `budget` says"
            )


@dataclass(frozen=True)
class BadRecord:
    """A record that cannot be read as one: its tree fails for ``reason``, not the task, and it is not tried again."""

    position: int
    reason: str
    skipped: int = 0
    """How many positions it stands for that are gone at their source: counted as ``skipped`` in the metrics."""


CHUNK_ROWS = 4096
"""How many records of a ``PartitionedSpout`` become columns at once."""


@dataclass
class _Chunk:
    """Records that were read one by one."""

    positions: Any = ()
    rows: list[Sequence[Any]] = field(default_factory=list)
    bad: BadRecord | None = None
    """What came behind them and is none."""
    error: BaseException | None = None
    """What reading raised behind them."""
    is_last: bool = False

    def parts(self, range_: Range) -> Iterator[tuple[Any, list[Sequence[Any]]]]:
        """Positions and rows: what stands before the first misplaced record, and what does not."""
        if not self.rows:
            return
        at = self.positions
        misplaced = (at < range_.start) | (at >= range_.end)
        misplaced[1:] |= at[1:] < at[:-1]
        cut = int(misplaced.argmax()) if misplaced.any() else len(at)
        if cut:
            yield at[:cut], self.rows[:cut]
        if cut < len(at):
            yield at[cut:], self.rows[cut:]


def _chunk_of(records: Iterator[Any], fields: tuple[str, ...]) -> _Chunk:
    """The next records, up to the first that is none."""
    width = len(fields)
    positions: list[int] = []
    chunk = _Chunk(positions)
    rows = chunk.rows
    try:
        for record in records:
            if isinstance(record, BadRecord):
                chunk.bad = record
                break
            position, values = record
            kind = values.__class__
            row = tuple(values) if kind is list or kind is tuple else _row_of(values)  # a reader may use its list again
            if row is not None and len(row) == width:
                positions.append(position)
                rows.append(row)
            else:
                reason = f"the spout read {printed(values):.60} as values, expected a list of {width}, for {fields}"
                chunk.bad = BadRecord(_position(position), reason)
                break
            if len(rows) >= CHUNK_ROWS:
                break
        else:
            chunk.is_last = True
    except BaseException as error:  # noqa: BLE001  raised again behind what was read
        pass_on(error)
        chunk.error = error
    try:
        if set(map(type, positions)) <= {int}:
            chunk.positions = np.array(positions, dtype=np.int64)
            return chunk
    except OverflowError:
        pass
    _cut_off(chunk, positions)
    return chunk


def _row_of(values: Any) -> tuple[Any, ...] | None:
    """What was read as a record's values, as a tuple; None if it is no sequence of them."""
    if isinstance(values, str | bytes | bytearray | Mapping | Set) or not hasattr(values, "__len__"):
        return None
    try:
        return tuple(values)
    except BaseException as error:  # noqa: BLE001  user code may raise anything
        pass_on(error)
        return None


def _cut_off(chunk: _Chunk, positions: list[Any]) -> None:
    """Keep of a chunk what stands before its first record that is none."""
    found: list[int] = []
    for position in positions:
        try:
            found.append(_position(position))
        except EmitError as error:
            chunk.error, chunk.bad = error, None
            break
    chunk.positions = np.array(found, dtype=np.int64)
    del chunk.rows[len(found) :]


def _position(value: Any) -> int:
    """A position, or an EmitError that says that it is none."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and -POSITION_MAX <= value <= POSITION_MAX:
        return int(value)
    raise EmitError(f"the spout read a record at {printed(value):.60}, expected a position (an int)")


class PartitionedSpout(Component):
    """A source that can be read again from any position: a file, a log. It is how sources scale.

    The driver only plans which ranges are read; the executors read them. The same object is used in both
    places, as two copies: ``open``, ``next_ranges``, ``finished``, ``on_committed`` and ``close`` run in the driver, in
    one thread, ``prepare``, ``read``, ``read_columns`` and ``cleanup`` on executors. Until a method returns that the
    driver is in, nothing new is read, and a stop leaves it behind.
    """

    first_budget: int = 1000
    """How many positions the first micro-batch may cover; the engine adapts it from there."""
    dead_letters: DeadLetters | None = None
    """Where a message goes that is given up, as of ``set_spout``, whose keyword wins."""

    retry: RetryPolicy | None = None
    """How what failed is given again, as of ``Spout``; None: as the settings of the topology say."""

    tracked: bool = True
    """Whether records start trees. False: they are read, and nobody hears what becomes of them."""

    once: bool = False
    """Whether each record is given at most once: what failed is given up, and what a plan of an earlier life was to
    read is not read again, even where it was not read then."""

    max_uncommitted: int | None = None
    """No new range of a source is planned that begins so many positions beyond what is finished of it; what waits to be
    given again is. None: no limit."""

    def open(self, context: TopologyContext) -> None:
        """Driver: called once a life, before the first plan, and later again if it raises. ``context.index`` is 0."""

    @abstractmethod
    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        """Driver: which ranges come next; empty if there is nothing new.

        Args:
            progress: for each source that was ever planned, the end of what was planned.
            budget: how many positions all ranges together may cover (at least 1); spread them over sources
                and over the ``context.parallelism`` tasks. A range starts where ``progress`` of its source
                ends (0 for a new one), and ranges of one source follow one another without a gap, though a
                range may start later where records are gone.

        A range may not be taken (``max_uncommitted``, a source that is away); then ``progress`` says so the next time.
        """

    def finished(self, progress: Mapping[str, int]) -> bool:
        """Driver: whether there will never be a further range after ``progress``."""
        return False

    def on_committed(self, progress: Mapping[str, int]) -> None:
        """Driver: all records below these positions are finished, durably.

        Called after each promotion that moved one.
        """

    def on_sources_changed(self, sources: Mapping[str, SourceView]) -> None:
        """Driver: what has become of sources.

        Called once after ``open``, with all that is known from the checkpoint, and after each promotion (and after
        ``on_committed``) with the sources of which anything changed. It must return soon: nothing is planned meanwhile.
        """

    def on_read(self, reads: Sequence[tuple[Range, int]]) -> None:
        """Driver: what executors have read of the ranges of a micro-batch, with its bytes.

        Called after each promotion (before ``on_committed``) where ``read_bytes`` said anything, with one item for each
        range of which something was read, sorted; where reading broke off, the range ends there.
        """

    def lag(self) -> Mapping[str, int]:
        """Driver: for each source how many of its positions are not finished, as far as that is known.

        Called after each promotion and whenever somebody asks for metrics, who gets what it said last where it does not
        answer within half a second. Empty: not known.
        """
        return {}

    def take_skipped(self) -> int:
        """Driver: how many positions were passed over since the last call, because they are gone at their source."""
        return 0

    def close(self) -> None:
        """Driver: called when the topology stops in an orderly way."""

    def prepare(self, context: TopologyContext) -> None:
        """Executor: called once in a worker process, before the first read of this task."""

    @abstractmethod
    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        """Executor: the records that start within the range, in order, as (position, values).

        The values go to stream ``default``. A position may come several times in a row: one message that
        becomes several tuples of one tree. The same range gives the same records, always. A range of one
        position reads one record again.

        An exception breaks the range off: the record that was given last, and all positions behind it, are given
        again as a range, as often as the policy allows without any progress, and are then set aside as one. So give a
        ``BadRecord`` for what will never be readable, and raise ``SourceUnavailable`` where the source is away: what
        was not read is asked for again, with the policy's backoff, until it is there, and nothing new of that source
        meanwhile. A range that turns out too large to be read at once ends with ``EnoughRead``.
        """

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        """Executor: the same records in columns, for speed.

        Each item is (positions as int64 array, one Arrow array or list a field). The default collects
        ``read`` into columns.
        """
        fields = next((stream.fields for stream in parse_outputs(self.outputs) if stream.name == DEFAULT_STREAM), ())
        records = None
        while True:
            try:
                records = iter(self.read(range_)) if records is None else records
            except BaseException as error:  # noqa: BLE001  handed on below
                pass_on(error)
                chunk = _Chunk(error=error)
            else:
                chunk = _chunk_of(records, fields)
            for positions, rows in chunk.parts(range_):  # what was read before it raised counts
                yield positions, list(zip(*rows, strict=True))
            if chunk.bad is not None:
                yield chunk.bad
            if chunk.error is not None:
                raise chunk.error
            if chunk.is_last:
                return

    def read_bytes(self) -> int | None:
        """Executor: how many bytes of messages the range had that was read last; None where the driver need not know.

        Called once after each new range, also where its reading broke off, so that ``on_read`` tells the driver's copy
        how large messages are, without which it cannot plan by bytes.
        """
        return None

    def raw(self, range_: Range) -> RawMessage | None:
        """Executor: the message at a range of one position as it came, for its dead letter; None where there is none.

        Called after ``read`` of the same range, be it readable or not. An exception is noted in the letter.
        """
        return None

    def dead_letter_sink(self, name: str) -> DeadLetterSink | None:
        """What a plain name means that was given as ``dead_letters=``: a topic, for one. None: nothing."""
        return None

    def cleanup(self) -> None:
        """Executor: called when a worker process ends in an orderly way."""


class BoltBase(Component):
    """What all bolts share. A class bolt is durable by default: its attributes outlive a crash."""

    stateless: ClassVar[bool] = False
    """Set to True where attributes need not outlive a micro-batch: such a bolt may be fused and costs no state."""

    flush_anywhere: ClassVar[bool] = False
    """Set to True where ``flush`` writes nothing under the name of its task: then a stateless bolt that has one may be
    fused with its producer nevertheless, where one task number works in several processes at once, and for several
    ranges of a spout one after another. ``flush`` is called once in each of them."""

    starts_trees: bool = False
    """Set to True where what is emitted and belongs to no tree starts one, as from a spout: a window, for one, acks its
    tuples when it has them, and what it emits is another matter. The task keeps such values in its state until their
    trees are finished, and gives them again when they fail, as their policy says; the bolt is not told. The
    attribute is read from the instance that the topology was built with."""

    def prepare(self, context: TopologyContext) -> None:
        """Called once when a task starts; then durable attributes, if there are any, are put over what it made."""

    def flush(self) -> Iterable[Sequence[Any]] | None:
        """Called once a task and micro-batch, after the last tuple, or window, that it gave the task.

        It is not called in a micro-batch that gave the task nothing. What a bolt has gathered is written here, before
        anything is committed, under a name made of ``context.micro_batch_id`` and ``context.task``: no other piece of
        work has the same two numbers, and when the micro-batch runs again, the task gets the same tuples in one piece
        again and replaces what it wrote. So a bolt with a ``flush`` is not fused (but see ``flush_anywhere``).

        What it yields, or emits by the collector that ``execute`` got last, is anchored to nothing. A ``Bolt`` may give
        tuples that it has kept as anchors, and may ack and fail them here. An exception fails the micro-batch's tuples
        of this task that are not settled otherwise, and is reported.
        """
        return None

    def cleanup(self) -> None:
        """Called when a worker process ends in an orderly way; not after a crash."""


def defines_flush(component: Component) -> bool:
    """Whether a bolt has a ``flush`` of its own."""
    if not isinstance(component, BoltBase):
        return False
    return "flush" in vars(component) or type(component).flush is not BoltBase.flush


class Bolt(BoltBase):
    """A bolt that anchors and acks by hand (Storm's ``IRichBolt``)."""

    @abstractmethod
    def execute(self, tup: Tuple, collector: BoltCollector) -> Iterable[Sequence[Any]] | None:
        """Called for each tuple, in the order of frames. An exception fails the tuple and is reported.

        What it yields is emitted anchored to the tuple; acking it is still the bolt's own affair.
        """


class BasicBolt(BoltBase):
    """A bolt whose tuples are anchored to the input and whose input is acked when ``execute`` returns."""

    @abstractmethod
    def execute(self, tup: Tuple, collector: BasicCollector) -> Iterable[Sequence[Any]] | None:
        """Called for each tuple; what it yields is emitted, as in a function bolt.

        ``FailedException`` fails it in silence, any other exception fails it and is reported.
        """


class StatefulBolt(Bolt):
    """A bolt with a ``KeyValueState`` (Storm's ``IStatefulBolt``); any other bolt may define ``init_state`` too."""

    @abstractmethod
    def init_state(self, state: KeyValueState) -> None:
        """Called after ``prepare``, before the first tuple; keep ``state`` in an attribute."""


class AsyncBolt(BoltBase):
    """A bolt whose ``execute`` is a coroutine.

    The tuples of a frame run concurrently; they are anchored and acked as in ``BasicBolt``. A coroutine that is
    cancelled fails its tuple. ``execute`` is the only method that may be a coroutine.
    """

    concurrency: ClassVar[int] = 100
    """How many coroutines of one task run at once, at most."""

    @abstractmethod
    def execute(
        self, tup: Tuple, collector: BasicCollector
    ) -> Awaitable[Iterable[Sequence[Any]] | None] | AsyncIterator[Sequence[Any]]:
        """Called for each tuple; what it emits is anchored to ``tup`` in whatever order coroutines finish.

        It is an ``async def``; what it yields is emitted.
        """


class ColumnBolt(BoltBase):
    """A bolt that gets whole frames as Arrow; all rows are acked when ``execute`` returns, or failed when it raises."""

    dictionaries: Sequence[str] = ()
    """Names of fields that come as ``pa.DictionaryArray``: ``dictionary`` has each distinct value of the frame once,
    and ``indices`` (integers of any width) say which of them each row has. Strings that somebody is grouped by travel
    so anyhow, and to work on a frame's distinct values is much cheaper than to work on all its rows. All other fields
    come as plain arrays."""

    @abstractmethod
    def execute(self, batch: pa.RecordBatch, collector: ColumnCollector) -> None:
        """Called for each frame."""
