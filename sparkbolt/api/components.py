"""Components: the spouts and bolts that users write.

They are values: they are pickled with the topology. ``__init__`` runs once, in the process that builds the topology;
``prepare`` (``open`` of a spout) runs where a task starts.
"""

from __future__ import annotations

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import pyarrow as pa

from sparkbolt.api.arguments import Check, whole
from sparkbolt.api.config import Config
from sparkbolt.api.dead_letters import DeadLetters, DeadLetterSink, RawMessage
from sparkbolt.api.metric_handles import TaskMetrics
from sparkbolt.api.named_fields import Fields
from sparkbolt.api.pickling import never_durable
from sparkbolt.api.ranges import BadRecord, Range, RecordChunk, chunk_of
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.api.trace_context import TracedSource
from sparkbolt.api.tuples import DEFAULT_STREAM, Outputs, Tuple, parse_outputs
from sparkbolt.api.unread_sources import UnreadSources
from sparkbolt.base.exceptions import pass_on

if TYPE_CHECKING:
    from sparkbolt.api.interfaces import (
        BasicCollector,
        BoltCollector,
        ColumnCollector,
        SpoutCollector,
    )
    from sparkbolt.api.reports import SourceView


def rehearsal_path(directory: str, path: str | os.PathLike[str]) -> str:
    """Return the path that replaces ``path`` in a rehearsal: the same path below ``directory``.

    >>> rehearsal_path("/tmp/rehearsal", "/srv/../srv/out")
    '/tmp/rehearsal/srv/out'
    """
    return os.path.join(directory, os.path.abspath(os.path.expanduser(path)).lstrip(os.sep))


@never_durable
@dataclass
class TopologyContext:
    """The properties of a task and its topology, for user code.

    ``now_ms`` (milliseconds since the epoch, never decreasing) and ``micro_batch_id`` belong to the micro-batch that is
    being processed; both are the same if the micro-batch runs again.
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
    """The streams that the component subscribes to, as (component, stream)."""
    now_ms: int = 0
    micro_batch_id: int = -1
    version: str = ""
    """The version of the topology, 16 hexadecimal digits (``Topology.version``)."""
    rehearsal_directory: str | None = None
    """The directory for files in a rehearsal. Under the simulator and ``TopologyTestDriver`` it exists, no other run
    uses it, and it is removed at the end. On Spark it is None. A component that changes anything else outside itself (a
    table, a server) can check whether it is None."""
    checkpoint_id: str = ""
    """The id of the checkpoint, 32 hexadecimal digits: the same in all runs with it, and another one for each other
    checkpoint, which counts its micro-batches from 0. Together with ``micro_batch_id`` and ``task`` it shows whether
    something was written before. It is empty without a checkpoint, as under the simulator."""
    renamed_from: str | None = None
    """The id that the component had before, if it is declared. What it has stored outside by that id is its own."""
    spark: Any = None
    """The topology's own Spark session, in ``begin`` of a ``Committer``; None everywhere else."""
    metrics: TaskMetrics = field(default_factory=TaskMetrics, repr=False, compare=False)
    """Declares counters, gauges, histograms and timers of your own."""

    def output_path(self, path: str | os.PathLike[str]) -> str:
        """Return the path at which a file or directory for ``path`` must be written.

        On Spark this is ``path`` itself. In a rehearsal it is the same path below ``rehearsal_directory``, in a
        folder that this call creates, so the files at ``path`` itself are never changed. The result differs between
        processes: a bolt that emits the place of its output should emit ``path``.

        >>> TopologyContext("t", "out", 0, 1, 1, Config()).output_path("out/notes.txt")
        'out/notes.txt'
        """
        if self.rehearsal_directory is None:
            return os.fspath(path)
        place = rehearsal_path(self.rehearsal_directory, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        return place

    def component_tasks(self, component: str) -> tuple[int, ...]:
        """Return the task numbers of a component, for ``emit_direct``.

        Raises:
            KeyError: there is no such component.
        """
        return self.tasks[component]


NAMES = Check(
    "a list of names, such as ['word']",
    lambda value: isinstance(value, Sequence | Set) and not isinstance(value, str | bytes),
)

KEYED = Check(
    "True, False or a list of names of attributes, such as ['counts']",
    lambda value: isinstance(value, bool) or (isinstance(value, Sequence | Set) and not isinstance(value, str | bytes)),
)


class Component(ABC):  # noqa: B024  spouts and bolts have no method in common
    """The base of spouts and bolts."""

    outputs: Outputs | None = None
    """The declared streams: the fields of ``default``, or a dict with the fields of each; ``Direct([...])`` marks a
    direct stream. Fields are a list of names, or a class that declares them: a NamedTuple, a dataclass, a TypedDict."""

    transient: ClassVar[Annotated[Sequence[str], NAMES]] = ()
    """Names of attributes that are not durable: ``prepare`` must set them again."""


class Spout(TracedSource, Component):
    """A source whose messages belong to a connection: a queue, a socket (Storm's ``IRichSpout``).

    Each task has its own instance in the driver process; one thread makes all calls to it.

    With a ``retry`` policy, the engine stores each tuple that was emitted with a message id, and emits it again if it
    fails. A message that is given up after its last attempt becomes a dead letter. If the letter goes to the
    checkpoint, ``fail`` is called then; if ``dead_letters`` sends it elsewhere, ``ack`` is called. Without ``retry``
    and ``dead_letters``, ``fail`` is called for every failure, and the spout decides what to do.
    """

    retry: RetryPolicy | None = None
    """How failed messages are retried; ``retry=`` of ``set_spout`` overrides it. It is read from the instance with
    which the topology was built."""
    dead_letters: DeadLetters | None = None
    """Where the dead letters of given-up messages go; ``dead_letters=`` of ``set_spout`` overrides it."""

    rehearsable: ClassVar[bool] = True
    """Set to False if the spout takes messages out of a real queue: a simulation then runs the topology only with input
    that is given for this spout."""

    def open(self, context: TopologyContext) -> None:
        """Called once when the task starts, before all other methods: open connections here."""

    @abstractmethod
    def next_tuple(self, collector: SpoutCollector) -> None:
        """Emit no, one or many tuples, and return soon: ``ack`` and ``fail`` are called by the same thread.

        Called repeatedly while the task is active and below ``max_spout_pending``. An exception is reported, and the
        method is called again after a pause.
        """

    def ack(self, message_id: Any) -> None:
        """Called when a message is done.

        Either its tree is complete and the work is committed, or the message was given up and its dead letter is
        durable. Exactly one of ``ack`` and ``fail`` is called.
        """

    def fail(self, message_id: Any) -> None:
        """Called when the tree of ``message_id`` failed or timed out. Emit the message again, or drop it."""

    def activate(self) -> None:
        """Called before the first ``next_tuple``, and when the topology is activated again."""

    def deactivate(self) -> None:
        """Called when the topology is deactivated: ``next_tuple`` is not called until ``activate``."""

    def close(self) -> None:
        """Called when the topology stops normally; not called after a crash."""

    @property
    def exhausted(self) -> bool:
        """Whether the spout will never emit again; a topology ends when all its spouts are exhausted."""
        return False

    def dead_letter_sink(self, name: str) -> DeadLetterSink | None:
        """Return the sink for a plain name given as ``dead_letters=``, such as a queue; None if the name is unknown."""
        return None


class PartitionedSpout(UnreadSources, TracedSource, Component):
    """A source that can be read again from any position: a file, a log. Its reading scales with the executors.

    The driver only plans which ranges are read; the executors read them. Driver and executors use copies of the same
    object: ``open``, ``next_ranges``, ``finished``, ``on_committed`` and ``close`` run in the driver, in one thread;
    ``prepare``, ``read``, ``read_columns`` and ``cleanup`` run on executors. While a method runs in the driver, nothing
    new is read; a topology that stops abandons a call that does not return.
    """

    first_budget: int = 100
    """How many positions the first micro-batch may cover; the engine adapts the number for later ones."""
    position_unit: str = "positions"
    """The unit of positions, and so of ``lag``: ``"bytes"`` for files, ``"messages"`` for Kafka."""
    dead_letters: DeadLetters | None = None
    """Where the dead letters of given-up messages go; ``dead_letters=`` of ``set_spout`` overrides it."""

    retry: RetryPolicy | None = None
    """How failed messages are retried, as in ``Spout``; None: by the settings of the topology."""

    tracked: bool = True
    """Whether records start trees. False: records are read, but not tracked, so their failures have no effect."""

    once: bool = False
    """Whether each record is emitted at most once. If True, a failed record is given up, and ranges that were planned
    in an earlier life are not read again, even if they were not read in that life."""

    max_uncommitted: Annotated[int, whole()] | None = None
    """A new range of a source is planned only while fewer than this many positions lie between the finished position of
    the source and the end of its planned positions. Retries are planned in any case. None: no limit."""

    def open(self, context: TopologyContext) -> None:
        """Driver: called once in each life, before the first plan, and again if it raises. ``context.index`` is 0."""

    @abstractmethod
    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        """Driver: return the next ranges to read; empty if there is nothing new.

        Args:
            progress: for each source that was ever planned, the end of its planned positions.
            budget: how many positions all ranges together may cover (at least 1); spread them over sources
                and over the ``context.parallelism`` tasks. A range starts at the ``progress`` of its source
                (0 for a new source), and ranges of one source follow one another without a gap. A range may
                start later if the records before it no longer exist.

        The engine may not accept a range (because of ``max_uncommitted``, or while a source is unavailable); in the
        next call, ``progress`` does not include it.
        """

    def finished(self, progress: Mapping[str, int]) -> bool:
        """Driver: whether there will never be another range after ``progress``."""
        return False

    def on_committed(self, progress: Mapping[str, int]) -> None:
        """Driver: called when all records below these positions are finished, durably.

        Called after each promotion that moved a position.
        """

    def on_sources_changed(self, sources: Mapping[str, SourceView]) -> None:
        """Driver: called with the state of sources.

        Called once after ``open``, with all sources that the checkpoint knows, and after each promotion (and after
        ``on_committed``) with the sources that changed. It must return soon: nothing is planned while it runs.
        """

    def on_read(self, reads: Sequence[tuple[Range, int]]) -> None:
        """Driver: called with the ranges of a micro-batch that executors have read, and the number of bytes of each.

        Called after each promotion (before ``on_committed``) if ``read_bytes`` returned a number, with one item for
        each range that was read at least in part, sorted. If reading failed within a range, the range ends there.
        """

    def lag(self) -> Mapping[str, int]:
        """Driver: return for each source the number of its positions that are not finished; empty if unknown.

        Called after each promotion, and on each request for metrics. If it does not return within half a second, the
        metrics contain its last result.
        """
        return {}

    def lag_secs(self) -> Mapping[str, float]:
        """Driver: return for each source how long its oldest unfinished record has been there, in seconds.

        Sources for which this is unknown are missing. Called after each ``lag``.
        """
        return {}

    def take_skipped(self) -> int:
        """Driver: return how many positions were skipped since the last call because the source no longer has them."""
        return 0

    def close(self) -> None:
        """Driver: called when the topology stops normally; not called after a crash."""

    def prepare(self, context: TopologyContext) -> None:
        """Executor: called once in a worker process, before the first read of this task."""

    @abstractmethod
    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        """Executor: yield the records that start within the range, in order, as (position, values).

        The values are emitted on stream ``default``. A position may occur several times in a row: its message then
        becomes several tuples of one tree. The same range must always give the same records. A range of one
        position is used to read one record again.

        An exception ends the range: the last record that was yielded, and all positions after it, are retried as one
        range. If they make no progress in as many attempts as the policy allows, they are given up as one. Therefore,
        yield a ``BadRecord`` for a record that will never be readable, and raise ``SourceUnavailable`` if the source is
        unavailable: the rest of the range is then retried, with the policy's backoff, until the source is available,
        and no new range of that source is read before. If a range is too large to be read at once, raise
        ``EnoughRead``.
        """

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        """Executor: yield the same records in columns, which is faster.

        Each item is (positions: int64[rows], one Arrow array or list for each field). The default implementation
        collects the records of ``read`` into columns.
        """
        fields = next((stream.fields for stream in parse_outputs(self.outputs) if stream.name == DEFAULT_STREAM), ())
        records = None
        while True:
            try:
                records = iter(self.read(range_)) if records is None else records
            except BaseException as error:  # noqa: BLE001  raised again below
                pass_on(error)
                chunk = RecordChunk(error=error)
            else:
                chunk = chunk_of(records, fields)
            for positions, rows in chunk.parts(range_):  # records that were read before the exception are valid
                yield positions, list(zip(*rows, strict=True))
            if chunk.bad is not None:
                yield chunk.bad
            if chunk.error is not None:
                raise chunk.error
            if chunk.is_last:
                return

    def read_bytes(self) -> int | None:
        """Executor: return how many bytes of messages the last range had; None if the driver does not need the number.

        Called once after each new range, even if reading it failed. The driver's copy gets the number by ``on_read``,
        so that it can plan by bytes.
        """
        return None

    def raw(self, range_: Range) -> RawMessage | None:
        """Executor: return the undecoded message at a range of one position, for its dead letter; None without one.

        Called after ``read`` of the same range, whether the record is readable or not. An exception is noted in the
        letter.
        """
        return None

    def dead_letter_sink(self, name: str) -> DeadLetterSink | None:
        """Return the sink for a plain name given as ``dead_letters=``, such as a topic; None if the name is unknown."""
        return None

    def cleanup(self) -> None:
        """Executor: called when a worker process ends normally; not called after a crash."""


class BoltBase(Component):
    """The base of all bolts. A class bolt is durable by default: its attributes survive a crash."""

    stateless: ClassVar[bool] = False
    """Set to True if attributes need not survive a micro-batch: such a bolt can be fused and stores no state."""

    awaited_in_outage: ClassVar[str] = ""
    """What it waits for in an outage, such as ``its database``; ``list``, ``stats`` and the pages then say it."""

    flush_anywhere: ClassVar[bool] = False
    """Set to True if ``flush`` writes nothing under the name of its task. A stateless bolt with a ``flush`` can then be
    fused with its producer: a task runs in several processes and for several ranges, and flushes once in each run."""

    starts_trees: bool = False
    """Set to True if a tuple that the bolt emits without anchors must start a tree, as if a spout had emitted it. A
    window, for example, acks its input when it has stored it, and its output is tracked on its own. The task stores
    such tuples in its state until their trees are finished, and emits them again if they fail, as the retry policy
    allows; the bolt is not notified. The attribute is read from the instance with which the topology was built."""

    keyed: ClassVar[Annotated[bool | Sequence[str], KEYED]] = False
    """Set to True if the bolt keeps what it knows under the keys of its fields groupings, or to the names of the
    attributes of which this is true. If the number of its tasks changes, keys move to the task that gets their tuples.
    With several tasks it is found out from the keys which attributes are keyed; you must declare it for a bolt that has
    one task, or that has other attributes, which then stay with their tasks."""

    state_version: ClassVar[Annotated[int, whole()]] = 1
    """The version of the bolt's attributes, which is stored with them. Raise it when new code needs other attributes
    than a checkpoint has, and define ``migrate``. State of a newer version than the class's is refused."""

    ignores_ticks: ClassVar[bool] = False
    """Set to True if the bolt gets no tick tuples. It is True for the bolts that Sparkbolt ships."""

    inputs: Fields | None = None
    """The fields that the bolt reads, a list or a class as in ``outputs``. ``build`` then checks that each stream to
    which it subscribes has them, and with fitting types, as far as classes declare these."""

    _subscribes: Sequence[tuple[str, str]] = ()
    """(component, stream) of each stream to which ``set_bolt`` subscribes the bolt, by shuffle grouping."""

    def _unfit(self, fields: Sequence[str]) -> str | None:
        """Why no tuple with these fields can be executed, judged by the bolt's arguments; None if it can."""
        return None

    def prepare(self, context: TopologyContext) -> None:
        """Called once when a task starts; stored values of durable attributes then replace those that it has set."""

    def migrate(self, version: int, attributes: dict[str, Any]) -> dict[str, Any] | None:
        """Change the stored attributes of an older ``state_version`` to those of this class.

        Called for each task whose state is of an older version, after ``prepare`` and ``init_state`` and before the
        task's first tuple. The result counts once the micro-batch of that tuple is committed; until then, the method
        may be called again, with the same arguments. It must depend on nothing else. Do not set attributes of ``self``:
        the result replaces them. You may put values into the ``KeyValueState`` that ``init_state`` got.

        An exception ends the topology, with a sentence that names the task and the version; the state does not change.

        Args:
            version: The ``state_version`` of the class that stored the attributes.
            attributes: The stored attributes by name. Transient ones are not stored; a ``KeyValueState`` is its
                object, as always.

        Returns:
            The attributes by name; None if ``attributes`` was changed in place. An attribute that is missing has the
            value that ``prepare`` gave it.
        """
        return None

    # A type checker accepts both forms in a subclass.
    def flush(self, *collector: Any, **_: Any) -> Any:
        """Called once for each task and micro-batch, after the task's last tuple, or window, of the micro-batch.

        Define it as ``flush(self, collector)`` or as ``flush(self)``. The collector is that of ``execute``; an
        ``AsyncBolt`` gets one that belongs to no tuple.

        It is not called in a micro-batch in which the task received nothing. Write the collected data here, before
        anything is committed, under a name made of ``context.micro_batch_id`` and ``context.task``: this pair of
        numbers is unique, and if the micro-batch runs again, the task receives the same tuples again, all in one
        process, and replaces its earlier output. For this reason a bolt with a ``flush`` is not fused (but see
        ``flush_anywhere``).

        Tuples that it yields, or emits by the collector, have no anchors. A ``Bolt`` may anchor to
        tuples that it has kept, and may ack and fail them here. An exception fails all tuples that
        the task got in the micro-batch, and is reported; the task's state is then as before the micro-batch.
        """
        return None

    def cleanup(self) -> None:
        """Called when a worker process ends normally; not called after a crash."""


def defines_flush(component: Component) -> bool:
    """Whether a bolt defines its own ``flush``."""
    if not isinstance(component, BoltBase):
        return False
    return "flush" in vars(component) or type(component).flush is not BoltBase.flush


def flush_takes_collector(bolt: BoltBase) -> bool:
    """Whether a bolt's ``flush`` gets the collector: its first parameter has no default, or is named ``collector``."""
    try:
        parameters = inspect.signature(bolt.flush).parameters.values()
    except (TypeError, ValueError):
        return False
    first = next((one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)), None)
    return first is not None and (first.default is first.empty or first.name == "collector")


class Bolt(BoltBase):
    """A bolt that anchors and acks explicitly (Storm's ``IRichBolt``)."""

    @abstractmethod
    def execute(self, tup: Tuple, collector: BoltCollector) -> Any:
        """Called for each tuple, in the order of frames. An exception fails the tuple and is reported.

        Values that it yields are emitted, anchored to the tuple; the bolt must still ack the tuple itself.
        """


class BasicBolt(BoltBase):
    """A bolt whose output is anchored to the input tuple, which is acked when ``execute`` returns."""

    @abstractmethod
    def execute(self, tup: Tuple, collector: BasicCollector) -> Any:
        """Called for each tuple; values that it yields are emitted, as in a function bolt.

        ``FailedException`` fails the tuple without a report; any other exception fails the tuple and is reported.
        """


class AsyncBolt(BoltBase):
    """A bolt whose ``execute`` is a coroutine.

    The tuples of a frame are executed concurrently, and are anchored and acked as in ``BasicBolt``. A coroutine that is
    cancelled fails its tuple. ``execute`` is the only method that may be a coroutine.
    """

    concurrency: ClassVar[Annotated[int, whole()]] = 100
    """The largest number of coroutines of one task that run at once."""

    @abstractmethod
    def execute(self, tup: Tuple, collector: BasicCollector) -> Awaitable[Any] | AsyncIterator[Any]:
        """Called for each tuple; tuples that it emits are anchored to ``tup``, in any order of the coroutines.

        It is an ``async def``; values that it yields are emitted.
        """


class ColumnBolt(BoltBase):
    """A bolt that gets whole frames as Arrow; all rows are acked if ``execute`` returns, and failed if it raises.

    A message that is retried arrives in a frame of its own, without those with which it has failed.
    """

    dictionaries: Annotated[Sequence[str], NAMES] = ()
    """Names of fields that are passed as ``pa.DictionaryArray``: ``dictionary`` has each distinct value of the frame
    once, and ``indices`` (integers of any width) has each row's index into it. It is much cheaper to work on the
    distinct values than on all rows, and strings that a grouping uses are sent in this form anyway. All other fields
    are passed as plain arrays."""

    splits_frames: ClassVar[bool] = False
    """Set to True if ``execute`` changes nothing when it raises. A frame for which it raises, or whose values have no
    common type, is then passed again in halves, down to the single tuple that fails; its earlier emissions are
    dropped."""

    _otherwise: ClassVar[str] = "use a bolt that takes tuples"
    """The advice in the error for a column that Arrow cannot hold."""

    @property
    def _kinds(self) -> Mapping[str, Any]:
        """By field, the Arrow type that its values must have; the type of any other field is inferred."""
        return {}

    @abstractmethod
    def execute(self, batch: pa.RecordBatch, collector: ColumnCollector) -> None:
        """Called for each frame."""
