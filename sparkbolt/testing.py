"""Testing: runs a user's topology in one process, without Spark, with a clock that only the test moves.

Plans, tasks, frames and the ledger are the same as on Spark; the test only replaces the source of the tuples and the
clock.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sparkbolt.api.causes import MessageOutcome
from sparkbolt.api.component_state import ComponentState
from sparkbolt.api.components import Spout, TopologyContext, rehearsal_path
from sparkbolt.api.config import did_you_mean
from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.api.interfaces import SpoutCollector
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.reports import ErrorReport
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.api.topology import ComponentSpec, Topology, topology_of
from sparkbolt.api.tuples import DEFAULT_STREAM, StreamDef
from sparkbolt.api.unsent import unsent_messages
from sparkbolt.base.engine_door import engine
from sparkbolt.base.ids import tree_key
from sparkbolt.base.tracebacks import folded
from sparkbolt.driver.begun import Begun
from sparkbolt.driver.ledger.ledger import FailedTree, Promotion
from sparkbolt.errors import EngineError, UnknownNameError
from sparkbolt.launch import load  # noqa: F401  with it a topology finds the sinks of its dead letters
from sparkbolt.sim.checkers.dead_letter_sinks import letters_in
from sparkbolt.sim.driver_results import DriverResult, FailedMessage
from sparkbolt.sim.emitted_tuples import EmittedTuple
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.sim.loops import outside_of_loops
from sparkbolt.sim.rehearsal import Rehearsal
from sparkbolt.sim.report import SimulationReport, simulate
from sparkbolt.sim.sources import values_row
from sparkbolt.streams import TopologyBuilder
from sparkbolt.wire.frames import Column, python_values
from sparkbolt.worker.state.task_view import StateOfTasks, TaskView, with_classes

__all__ = ["FailedMessage", "ReportedError", "SimulationReport", "TopologyTestDriver", "simulate"]

Known = TypeVar("Known")
log = logging.getLogger("sparkbolt")
START = datetime(2026, 1, 1, tzinfo=UTC)
MICRO_BATCHES_MAX = 100_000
"""How many micro-batches one call runs at most; then it raises, because the topology does not become idle."""


@dataclass(frozen=True)
class ReportedError:
    """An error that a component raised or reported; on Spark it is logged as a line."""

    component: str
    task: int
    """The task's index within its component."""
    text: str
    traceback: str | None = None


class _FedSpout(Spout):
    """A spout that emits the messages that a test feeds."""

    def __init__(self) -> None:
        self.fed: deque[tuple[str, list[Any], Any, int | None]] = deque()
        self.acked: list[Any] = []
        self.failed: list[Any] = []

    def next_tuple(self, collector: SpoutCollector) -> None:
        if not self.fed:
            return
        stream, values, message_id, direct_to = self.fed.popleft()
        if direct_to is None:
            collector.emit(values, message_id=message_id, stream=stream)
        else:
            collector.emit_direct(direct_to, values, message_id=message_id, stream=stream)

    def ack(self, message_id: Any) -> None:
        self.acked.append(message_id)

    def fail(self, message_id: Any) -> None:
        self.failed.append(message_id)


class _Letters:
    """A sink that stores letters in memory, each once."""

    def __init__(self, kept: dict[str, DeadLetter]) -> None:
        self._kept = kept

    def open(self, context: TopologyContext) -> None:
        """Nothing to open."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        self._kept.update((letter.id, letter) for letter in letters)

    def close(self) -> None:
        """Nothing to close."""


class TopologyTestDriver:
    """Runs a topology for a test: feed messages, run, and check what was emitted and how each message ended.

    Each ``Spout`` and each ``PartitionedSpout`` is replaced by a spout that emits what ``feed`` gives it, on the same
    streams. Bolts, groupings, frames, state, tracking and timeouts are the real ones. The files of the library's bolts,
    and of every component that uses ``context.output_path``, are written below a directory of this driver: see
    ``output_path``. Use it as a context manager: at its end the bolts are cleaned up.

    >>> from sparkbolt import BasicBolt, TopologyBuilder
    >>> from sparkbolt.spouts import TextSpout
    >>> class Shout(BasicBolt):
    ...     outputs = ["line"]
    ...     def execute(self, tup, collector):
    ...         if not tup["line"]:
    ...             raise ValueError("an empty line")
    ...         collector.emit([tup["line"].upper()])
    >>> builder = TopologyBuilder("shouting")
    >>> _ = builder.set_spout("lines", TextSpout("books/*.txt"))
    >>> _ = builder.set_bolt("shout", Shout(), parallelism=2).shuffle_grouping("lines")
    >>> with TopologyTestDriver(builder.build()) as driver:
    ...     driver.feed("lines", {"line": "to be"}, message_id=1)
    ...     driver.feed("lines", {"line": ""}, message_id=2)
    ...     driver.run_until_idle()
    ...     driver.emitted("shout"), driver.acked("lines")
    ...     [failure] = driver.failed("lines")
    ...     failure.message_id, failure.cause, failure.reason
    ([['TO BE']], [1])
    (2, 'exception', 'ValueError: an empty line')
    """

    def __init__(
        self, topology: Topology | TopologyBuilder, *, cores: int = 2, seed: int = 0, start: datetime = START
    ) -> None:
        """Begin the topology's first life; nothing runs yet.

        Args:
            topology: a topology that ``TopologyBuilder.build`` returned, or a builder, whose ``build`` is called.
            cores: the tasks are laid out as on this many cores.
            seed: the seed of all choices that are random on Spark; no result should depend on it.
            start: the time at the start; it must have a time zone.

        Raises:
            ValueError: ``start`` has no time zone.
            InvalidTopology: the builder's topology has mistakes, as in ``TopologyBuilder.build``.
            TypeError: ``topology`` is neither a topology nor a builder.
        """
        self._begin(topology, cores, seed, start, None)

    @classmethod
    def from_checkpoint(
        cls,
        topology: Topology | TopologyBuilder,
        checkpoint: str | os.PathLike[str],
        *,
        cores: int = 2,
        seed: int = 0,
        start: datetime | None = None,
    ) -> TopologyTestDriver:
        """Begin with the state that a checkpoint has after its last commit, as a start with this topology would.

        So a test can show that the state of a real run goes on with changed code: other attributes (``migrate``), other
        classes, other numbers of tasks, other windows. Spark reads the state once, which takes some seconds; the
        checkpoint is not changed, and its topology may run. Messages that were open, or waited for a retry, are left
        out: a spout emits what the test feeds.

        Args:
            topology: as for the constructor; so are ``cores`` and ``seed``.
            checkpoint: the directory or URL of the checkpoint.
            cores: the tasks are laid out as on this many cores.
            seed: the seed of all choices that are random on Spark.
            start: the time at the start; by default that of the last micro-batch.

        Raises:
            CheckpointError: the topology cannot go on from the checkpoint, or that is none; the message says why.
            StateError: the state cannot be read, or not be divided among the tasks.
        """
        begun: Begun = engine("begun_from")(os.fspath(checkpoint))
        last = datetime.fromtimestamp(begun.state.last_now_ms / 1000, UTC)
        driver = cls.__new__(cls)
        driver._begin(topology, cores, seed, start or last, begun)
        return driver

    def _begin(
        self, topology: Topology | TopologyBuilder, cores: int, seed: int, start: datetime, begun: Begun | None
    ) -> None:
        topology = topology_of(topology)
        if start.tzinfo is None:
            raise ValueError(f"start is {start!r}, expected a datetime with a zone: did you mean tzinfo=UTC?")
        fed = {spec.id: _fed(spec) if spec.is_spout else spec for spec in topology.components.values()}
        self._topology = Topology(topology.name, topology.config, fed)
        self._emitted: list[tuple[str, str, Sequence[Column]]] = []
        self._acked: dict[str, list[Any]] = {spec.id: [] for spec in topology.spouts}
        self._failed: dict[str, list[FailedMessage]] = {spec.id: [] for spec in topology.spouts}
        self._errors: list[ReportedError] = []
        self._notes: set[str] = set()
        self._letters: dict[str, DeadLetter] = {}
        self._rehearsal = Rehearsal()
        now_ms = (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        self._engine = LocalEngine(
            self._topology,
            cores=cores,
            seed=seed,
            now_ms=now_ms,
            capture=self._see,
            letter_sink=lambda _: _Letters(self._letters),
            rehearsal_directory=self._rehearsal.directory,
            begun=None if begun is None else begun.fed_by(self._topology),
        )
        self._topology = self._engine.topology
        tasks = (number for spec in topology.spouts for number in self._topology.tasks(spec.id))
        self._given_up: dict[int, list[Any]] = {number: [] for number in tasks}
        """By spout task, the ids of the messages that wait until their dead letters are written."""
        self._closed = False

    def __enter__(self) -> TopologyTestDriver:
        """The driver itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As ``close``."""
        __tracebackhide__ = True  # for pytest
        self.close()

    @outside_of_loops
    def close(self) -> None:
        """Clean up the bolts. The results can still be read; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._engine.close()

    # Actions of a test.

    @folded
    def feed(
        self,
        component: str,
        values: Mapping[str, Any] | Sequence[Any],
        *,
        message_id: Any = None,
        stream: str = DEFAULT_STREAM,
        task: int = 0,
        direct_to: int | None = None,
    ) -> None:
        """Give a spout a tuple to emit; it is emitted when the topology runs next, not before.

        A task emits its messages in the order in which they were fed, as far as ``max_spout_pending`` allows. A message
        has one attempt, whatever the retry policy is: feed it again to test a replay. If a bolt raises
        ``Unavailable``, the message waits and is retried as on Spark: ``advance`` the time.

        Args:
            component: the spout.
            values: the tuple's values in the order of the fields, or a mapping by field; missing fields are None.
            message_id: the id under which the tuple's tree is tracked; ``acked`` or ``failed`` lists it at the end.
                With None the tuple is not tracked.
            stream: the name of one of the spout's streams.
            task: the index of the spout task within the spout.
            direct_to: the number of the task that receives the tuple; required for a direct stream, and not allowed
                for any other.

        Raises:
            KeyError: the spout, stream or field does not exist; the message lists those that do.
            ValueError: the number of values is wrong, there is no such task, or ``direct_to`` does not fit the stream.
        """
        spec = self._spout(component)
        definition = self._stream(spec.id, stream)
        if definition.direct != (direct_to is not None):
            which = "direct: give direct_to" if definition.direct else "not direct: leave direct_to out"
            raise ValueError(f"stream {stream!r} of {component!r} is {which}")
        if not 0 <= task < spec.parallelism:
            raise ValueError(f"spout {component!r} has no task {task}: it has tasks 0 to {spec.parallelism - 1}")
        row = values_row(component, definition.fields, values)
        self._spout_task(self._topology.tasks(component)[task]).fed.append((stream, row, message_id, direct_to))

    @outside_of_loops
    def run_until_idle(self) -> None:
        """Run micro-batches until there is nothing left to do at the current time; the time does not move.

        Tuples that a bolt holds, and the trees that wait for them, stay open.

        Raises:
            EngineError: a component whose ``on_error`` is ``stop`` raised, or the topology does not become idle.
        """
        for _ in range(MICRO_BATCHES_MAX):
            self._read_all_at_once()
            promotion = self._engine.step()
            self._errors += map(_error, self._engine.reports())
            if promotion is None:
                return
            self._learn(promotion)
            if self._engine.failure is not None:
                raise EngineError(self._engine.failure)
        raise EngineError(f"topology {self._topology.name!r} is not idle after {MICRO_BATCHES_MAX} micro-batches")

    def _read_all_at_once(self) -> None:
        """Let one micro-batch read all that was fed; on Spark the rate of a new source is limited at first."""
        coordinator = self._engine.coordinator
        for component, rate in coordinator.rates.items():
            if component not in coordinator.spouts:
                rate.budget = rate.budget_max
                for number in self._topology.tasks(component):
                    coordinator.buffers[number].waiting_max = rate.budget_max

    @outside_of_loops
    def advance(self, duration: timedelta) -> None:
        """Run until idle, then move the time forward; everything that becomes due meanwhile runs at its due time.

        Messages that were fed before are processed before the time moves. Each tick tuple is processed at its own time.
        A tree times out as on Spark: after ``message_timeout_secs``, at most a thirtieth of it later.

        Args:
            duration: how far the time moves; not negative.

        Raises:
            ValueError: the duration is negative.
            TypeError: the duration is not a timedelta.
            EngineError: as in ``run_until_idle``.
        """
        if not isinstance(duration, timedelta):
            raise TypeError(f"advance({duration!r:.60}): expected a timedelta: did you mean timedelta(seconds=...)?")
        if duration < timedelta(0):
            raise ValueError(f"advance({duration!r}): time does not go back")
        end = self._engine.now_ms + duration // timedelta(milliseconds=1)
        self.run_until_idle()
        while self._engine.now_ms < end:
            due = self._engine.next_due_ms()
            self._engine.now_ms = end if due is None else min(max(due, self._engine.now_ms + 1), end)
            self.run_until_idle()

    @outside_of_loops
    def restart(self, topology: Topology | TopologyBuilder | None = None) -> None:
        """Kill the driver and its worker as ``kill -9`` would, and start again from the durable state.

        State and the ledger's log survive. Messages that were fed and have not finished are lost; they are neither
        acked nor failed. A spout of a queue loses its messages in the same way when its connection breaks, and the
        queue delivers them again. To test that, read ``pending`` before the restart and feed those messages again.
        All earlier emissions, acks, fails and reports stay available to the test.

        Args:
            topology: The topology that continues, as after a change of the program; None: the same one.
        """
        if topology is None:
            self._engine.restart()
            return
        changed = topology_of(topology)
        fed = {spec.id: _fed(spec) if spec.is_spout else spec for spec in changed.components.values()}
        self._engine.restart(Topology(changed.name, changed.config, fed))
        self._topology = self._engine.topology

    # Checks of a test.

    @property
    def now(self) -> datetime:
        """The current time of the test, in UTC."""
        return datetime.fromtimestamp(self._engine.now_ms / 1000, tz=UTC)

    def emitted(self, component: str, stream: str = DEFAULT_STREAM) -> list[EmittedTuple]:
        """The values of every tuple that a component emitted on a stream, in the order of emission.

        If the component has several tasks, their tuples are in the order in which the tasks ran, and each task's
        tuples in its own order. A spout's tuple is included once it was sent to its subscribers, not when it was fed.
        Streams without subscribers are included too.

        Args:
            component: the id of the spout or bolt.
            stream: the name of one of its streams.

        Returns:
            One list of values for each tuple, in the order of the stream's fields. It is also equal to a mapping that
            has the values by field, and to an instance of a NamedTuple or a dataclass that has them.

        Raises:
            KeyError: the component or stream does not exist; the message lists those that do.
        """
        self._component(component)
        fields = self._stream(component, stream).fields
        tuples: list[EmittedTuple] = []
        for who, where, columns in self._emitted:
            if (who, where) == (component, stream):
                tuples += (EmittedTuple(fields, row) for row in zip(*map(python_values, columns), strict=True))
        return DriverResult(tuples, lambda: self._account(*self._acked))

    def state(self, component: str) -> ComponentState:
        """What the tasks of a bolt keep now: keys and values of its ``KeyValueState``, and its durable attributes.

        KeyError as in ``emitted``; a bolt that keeps nothing has no keys and no attributes.
        """
        numbers = self._topology.tasks(self._component(component).id)
        dests = self._engine.lane.dests
        kept: list[Mapping[str, bytes]] = [self._engine.stores.get(dests.get(number, -1), {}) for number in numbers]
        pickling = with_classes(vars(sys.modules["__main__"]))
        views = [TaskView(store, pickling) for store in kept]
        return StateOfTasks(self._engine.last_commit, len(views), lambda tasks: [views[task] for task in tasks])

    def executed(self, component: str) -> int:
        """How many tuples, ticks included, ``execute`` of the component received; KeyError as in ``emitted``."""
        return self.metrics().of(self._component(component).id).executed

    def acked(self, spout: str) -> list[Any]:
        """The ids of the messages whose trees were acked, in that order; raises KeyError for an unknown spout."""
        component = self._spout(spout).id
        return DriverResult(self._acked[component], lambda: self._account(component))

    def failed(self, spout: str) -> list[FailedMessage]:
        """The messages whose trees failed, in that order; raises KeyError for an unknown spout."""
        component = self._spout(spout).id
        return DriverResult(self._failed[component], lambda: self._account(component))

    def dead_letters(self, spout: str) -> list[DeadLetter]:
        """The dead letters of a spout's messages, as they would be written to its file, topic, sink or checkpoint.

        A message that fails is given up at once, unless its spout handles failures itself. If the spout sends its
        dead letters to a stream of the topology, ``emitted`` returns them for that stream, and this method does not.
        KeyError as in ``acked``.
        """
        component = self._spout(spout).id
        every = [*self._letters.values(), *letters_in(self._engine.letters)]
        return [letter for letter in every if letter.component == component]

    def output_path(self, path: str | os.PathLike[str]) -> Path:
        """The path of a file or directory that bolts write to instead of ``path``, below a directory of this driver.

        The files exist as long as this object is referenced, also after ``close``.
        """
        return Path(rehearsal_path(self._rehearsal.directory, path))

    def unsent(self, component: str) -> list[dict[str, Any]]:
        """The messages that a ``KafkaBolt`` or ``RabbitMQBolt`` would have sent, in order; a test sends nothing.

        Each message is a dict of what the client would receive: ``topic``, ``key``, ``value`` and ``headers`` for
        Kafka; ``exchange``, ``routing_key``, ``body`` and ``headers`` for RabbitMQ. KeyError as in
        ``emitted``.

        >>> from sparkbolt import TopologyBuilder
        >>> from sparkbolt.bolts import KafkaBolt
        >>> from sparkbolt.spouts import TextSpout
        >>> builder = TopologyBuilder("copying")
        >>> _ = builder.set_spout("lines", TextSpout("books/*.txt"))
        >>> _ = builder.set_bolt("out", KafkaBolt("localhost:9092", "lines", value="line")).shuffle_grouping("lines")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.feed("lines", {"line": "to be"})
        ...     driver.run_until_idle()
        ...     driver.unsent("out")
        [{'topic': 'lines', 'key': None, 'value': b'to be', 'headers': None}]
        """
        return unsent_messages(self._rehearsal.directory).get(self._component(component).id, [])

    def committed(self, component: str) -> list[Any]:
        """The rows that the ``commit`` of a ``Committer`` has got, in order; KeyError as in ``emitted``."""
        return list(self._engine.committed.get(self._component(component).id, []))

    def pending(self, spout: str) -> list[Any]:
        """The ids of fed messages that are neither acked nor failed, oldest first; KeyError as in ``acked``."""
        return [message_id for message_id, _ in self._unfinished(self._spout(spout).id)]

    def errors(self) -> list[ReportedError]:
        """The errors that components raised or reported, in the order in which the driver received them."""
        return list(self._errors)

    def metric(self, name: str, labels: Mapping[str, Any] | None = None, component: str | None = None) -> float:
        """The value of a metric that bolts declare with ``context.metrics``, as in ``TopologyMetrics.value``.

        The clock of a test does not move while a bolt works: a timer counts, and its durations are 0.
        """
        return self.metrics().value(name, labels, component)

    def metrics(self) -> TopologyMetrics:
        """A copy of the counters, as ``running.metrics()`` returns them on Spark."""
        return self._engine.metrics()

    # How the results are collected.

    def _unfinished(self, spout: str) -> Iterator[tuple[Any, int | None]]:
        """The ids of a spout's pending messages, each with the key of its tree, or None if no bolt has got it yet."""
        for number in self._topology.tasks(spout):
            buffer = self._engine.coordinator.buffers[number]
            for position in sorted(buffer.unfinished):
                message_id = buffer.unfinished[position].message_id
                if message_id not in self._given_up[number]:
                    yield message_id, tree_key(number, position)
            waiting = [one.message_id for one in buffer.waiting]
            waiting += [fed[2] for fed in self._spout_task(number).fed]
            yield from ((message_id, None) for message_id in waiting if message_id is not None)

    def _account(self, *spouts: str) -> list[str]:
        """What happened to the messages of spouts, in lines: how each failed, where each is that is not finished."""
        ends: list[str] = []
        counts: list[str] = []
        for spout in spouts:
            failed, pending = self._failed[spout], list(self._unfinished(spout))
            for one in failed:
                ends += one.lines("spout" if self._component(one.component).is_spout else "bolt")
            for message_id, key in pending:
                why = "it is not emitted yet: call run_until_idle()"
                if key is not None:
                    why = self._engine.ledger.story(key).why or "it waits for a retry: advance the time"
                ends.append(f"message {message_id!r} is not finished: {why}")
            acked = len(self._acked[spout])
            counts.append(f"spout {spout!r}: {acked} acked, {len(failed)} failed, {len(pending)} not finished")
        known = {one.reason for spout in spouts for one in self._failed[spout]}
        others = dict.fromkeys(
            f"{one.component!r} reported: {one.text}" for one in self._errors if one.text not in known
        )
        return [*ends, *others, *counts]

    def _see(self, component: str, task: int, stream: str, columns: Sequence[Column]) -> None:
        self._emitted.append((component, stream, columns))

    def _learn(self, promotion: Promotion) -> None:
        """Collect the acks and fails of the fed spouts; each spout's fails have the order of the promotion's."""
        for report in promotion.reports:
            if not report.is_note:
                self._errors.append(_error(report))
            elif report.text not in self._notes:
                self._notes.add(report.text)
                log.warning("%s", report.text)
        for number in self._engine.spouts:
            component, index = self._topology.task_owner(number)
            spout = self._spout_task(number)
            for message_id in spout.acked:
                if message_id in self._given_up[number]:
                    self._given_up[number].remove(message_id)
                else:
                    self._acked[component].append(message_id)
            told = deque(message_id for message_id in spout.failed if message_id not in self._given_up[number])
            for tree in promotion.failed:
                if (tree.component, tree.task) != (component, index) or tree.outcome == MessageOutcome.RETRY:
                    continue  # input of an unavailable bolt (``Unavailable``) is pending, and is retried
                message_id = (
                    self._given_up_now(number, tree) if tree.outcome == MessageOutcome.DEAD_LETTER else told.popleft()
                )
                if tree.letter:  # the message was added to the failed ones when it was given up
                    self._given_up[number].remove(message_id)
                    continue
                fail = tree.fail
                self._failed[component].append(
                    FailedMessage(
                        message_id,
                        fail.cause,
                        tree.story,
                        fail.component,
                        fail.task,
                        fail.reason,
                        fail.traceback,
                        tree.attempt,
                    )
                )
            spout.acked.clear()
            spout.failed.clear()

    def _given_up_now(self, number: int, tree: FailedTree) -> Any:
        """The id of a message that waits for its dead letter; its spout is notified when the letter is written."""
        assert tree.position is not None
        message_id = self._engine.coordinator.buffers[number].unfinished[tree.position].message_id
        self._given_up[number].append(message_id)
        return message_id

    def _spout_task(self, number: int) -> _FedSpout:
        spout = self._engine.spouts[number].spout
        assert isinstance(spout, _FedSpout)
        return spout

    def _component(self, component: str) -> ComponentSpec:
        return _known(self._topology.components, component, f"topology {self._topology.name!r} has no component")

    def _spout(self, component: str) -> ComponentSpec:
        spouts = {spec.id: spec for spec in self._topology.spouts}
        return _known(spouts, component, f"topology {self._topology.name!r} has no spout")

    def _stream(self, component: str, stream: str) -> StreamDef:
        streams = {definition.name: definition for definition in self._topology.components[component].streams}
        return _known(streams, stream, f"{component!r} declares no stream")


def _fed(spec: ComponentSpec) -> ComponentSpec:
    retry = None if spec.dead_letters is None else RetryPolicy(max_retries=0)
    return dataclasses.replace(spec, component=_FedSpout(), config=dataclasses.replace(spec.config, retry=retry))


def _known(known: Mapping[str, Known], name: str, complaint: str) -> Known:
    if name not in known:
        there = ", ".join(map(repr, known)) or "none"
        raise UnknownNameError(f"{complaint} {name!r}; there is {there}{did_you_mean(name, known)}")
    return known[name]


def _error(report: ErrorReport) -> ReportedError:
    return ReportedError(report.component, report.task, report.text, report.traceback)
