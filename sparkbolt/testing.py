"""Testing one's own topologies: in one process, without Spark, with a clock that only the test moves.

Which question it answers: what does my topology do with these messages, and what became of each of them?
Rule 1: no rules here. Plans, tasks, frames and the ledger are those that run on Spark; only where tuples come from
and what the time is are the test's.
Rule 2: time stands still unless ``advance`` moves it.

Read before: ``sim.engine``, ``sim.report``.
"""

from __future__ import annotations

import dataclasses
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import EllipsisType, TracebackType
from typing import Any, TypeVar

from sparkbolt.core.driver.ledger.ledger import FailedTree, Promotion
from sparkbolt.core.model.causes import MessageOutcome
from sparkbolt.core.model.components import Spout, TopologyContext, rehearsal_path
from sparkbolt.core.model.config import did_you_mean
from sparkbolt.core.model.dead_letters import DeadLetter
from sparkbolt.core.model.interfaces import SpoutCollector
from sparkbolt.core.model.metrics import TopologyMetrics
from sparkbolt.core.model.reports import ErrorReport
from sparkbolt.core.model.retry import RetryPolicy
from sparkbolt.core.model.topology import ComponentSpec, Topology, TopologyBuilder, topology_of
from sparkbolt.core.model.tuples import DEFAULT_STREAM, StreamDef
from sparkbolt.core.model.unsent import unsent_messages
from sparkbolt.core.protocol.frames import Column, python_values
from sparkbolt.errors import EngineError, UnknownNameError
from sparkbolt.launch import Launch  # noqa: F401  with it a topology finds the sinks of its dead letters
from sparkbolt.sim.checkers.dead_letters import letters_in
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.sim.rehearsal import Rehearsal
from sparkbolt.sim.report import SimulationReport, simulate
from sparkbolt.sim.sources import values_row

__all__ = ["FailedMessage", "ReportedError", "SimulationReport", "TopologyTestDriver", "simulate"]

Known = TypeVar("Known")
START = datetime(2026, 1, 1, tzinfo=UTC)
MICRO_BATCHES_MAX = 100_000
"""How many micro-batches one call runs before it gives up on ever being idle."""


@dataclass(frozen=True, eq=False)
class FailedMessage:
    """A message whose tree failed.

    Equal to another with the same fields, and to ``...``, so that a test may say how many messages failed, or how
    one of several did, without the whole story of each.
    """

    message_id: Any
    cause: str
    """``exception``, ``fail`` (said by a bolt), ``timeout``, ``emit`` (what was emitted cannot travel)."""
    story: str
    """The tree in one line: its root, its spout task, who failed it, when and why."""
    component: str
    """Who failed it; of a timeout, who was seen last with a tuple of the tree that it neither acked nor failed."""
    task: int
    """The task's index within that component."""
    reason: str
    """What the bolt or the exception said."""
    traceback: str | None = None

    def __eq__(self, other: object) -> bool:
        """Whether ``other`` is ``...`` or has the same fields."""
        if isinstance(other, EllipsisType):
            return True
        return isinstance(other, FailedMessage) and dataclasses.astuple(self) == dataclasses.astuple(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class ReportedError:
    """An error that a component raised or reported; on Spark it is a line of the log."""

    component: str
    task: int
    """The task's index within its component."""
    text: str
    traceback: str | None = None


class _FedSpout(Spout):
    """A spout whose messages come from a test's hands."""

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
    """A sink that keeps letters in memory, each once."""

    def __init__(self, kept: dict[str, DeadLetter]) -> None:
        self._kept = kept

    def open(self, context: TopologyContext) -> None:
        """Nothing to open."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        self._kept.update((letter.id, letter) for letter in letters)

    def close(self) -> None:
        """Nothing to close."""


class TopologyTestDriver:
    """Runs a topology for a test: feed it, let it run, see what it emitted and what became of each message.

    Every spout, of either kind, is replaced by one that emits what ``feed`` gives it, on the same streams. Bolts,
    groupings, frames, state, tracking and timeouts are the real ones. What the library's bolts write to files, and
    whoever else asks ``context.output_path``, goes into a directory of the driver's: see ``output_path``. Use it as a
    context manager: at the end bolts are cleaned up.

    >>> from sparkbolt import BasicBolt, TopologyBuilder
    >>> from sparkbolt.spouts import TextSpout
    >>> class Shout(BasicBolt):
    ...     outputs = ["line"]
    ...     def execute(self, tup, collector):
    ...         if not tup["line"]:
    ...             raise ValueError("an empty line")
    ...         collector.emit([tup["line"].upper()])
    >>> builder = TopologyBuilder("shouting")
    >>> builder.set_spout("lines", TextSpout("books/*.txt"))
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
            topology: what ``TopologyBuilder.build`` gave; or a builder, which builds it.
            cores: tasks are laid out as on so many cores.
            seed: of what Spark would draw at random; no result should depend on it.
            start: what time it is; must have a zone.

        Raises:
            ValueError: ``start`` has no zone.
            InvalidTopology: as ``TopologyBuilder.build``.
            TypeError: ``topology`` is neither.
        """
        topology = topology_of(topology)
        if start.tzinfo is None:
            raise ValueError(f"start is {start!r}, expected a datetime with a zone: did you mean tzinfo=UTC?")
        fed = {spec.id: _fed(spec) if spec.is_spout else spec for spec in topology.components.values()}
        self._topology = Topology(topology.name, topology.config, fed)
        self._emitted: list[tuple[str, str, Sequence[Column]]] = []
        self._acked: dict[str, list[Any]] = {spec.id: [] for spec in topology.spouts}
        self._failed: dict[str, list[FailedMessage]] = {spec.id: [] for spec in topology.spouts}
        self._errors: list[ReportedError] = []
        self._given_up: dict[int, list[Any]] = {n: [] for spec in topology.spouts for n in topology.tasks(spec.id)}
        """Of each spout task the ids of messages that wait for their dead letters."""
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
        )
        self._closed = False

    def __enter__(self) -> TopologyTestDriver:
        """The driver itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As ``close``."""
        self.close()

    def close(self) -> None:
        """Clean bolts up; what was seen can still be asked for. A second call does nothing."""
        if not self._closed:
            self._closed = True
            self._engine.close()

    # What a test does.

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

        Messages are emitted in the order in which they were fed to a task, and not before ``max_spout_pending``
        allows it. A message is tried once, whatever the policy: feed it again to see what a replay does. While a bolt
        is ``Unavailable`` it waits, and is given again as on Spark: ``advance`` the time.

        Args:
            component: the spout.
            values: the tuple's values in the order of the fields, or by field; fields not given are None.
            message_id: tracks the tuple's tree; ``acked`` or ``failed`` will name it. None tracks nothing.
            stream: which of the spout's streams.
            task: the index of the spout task.
            direct_to: the task number that gets the tuple; on a direct stream, and only there.

        Raises:
            KeyError: there is no such spout, stream or field; the message says which there are.
            ValueError: the number of values is wrong, or there is no such task.
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

    def run_until_idle(self) -> None:
        """Run micro-batches until there is nothing to do at this time; the time does not move.

        Tuples that a bolt holds, and trees that wait for them, stay as they are.

        Raises:
            EngineError: a component's ``on_error`` is ``stop`` and it raised, or the topology never becomes idle.
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
        """What was fed is read in one micro-batch, whatever pace a source would have to be given at first."""
        coordinator = self._engine.coordinator
        for component, rate in coordinator.rates.items():
            if component not in coordinator.spouts:
                rate.budget = rate.budget_max
                for number in self._topology.tasks(component):
                    coordinator.buffers[number].waiting_max = rate.budget_max

    def advance(self, duration: timedelta) -> None:
        """Run until idle, then let time pass; on the way everything runs at the moment at which it is due.

        What was fed before is processed before the time moves. Tick tuples come one by one, at their times. A
        tree times out as on Spark: between ``message_timeout_secs`` and a thirtieth more.

        Raises:
            ValueError: the duration is negative.
            TypeError: it is no timedelta.
            EngineError: as ``run_until_idle``.
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

    def restart(self) -> None:
        """Kill the driver and its worker as ``kill -9`` would, and start again from what is durable.

        State and the ledger's log outlive it. What was fed and has not finished is gone, neither acked nor failed,
        as records of a queue are whose connection is lost; the queue gives them again: ask ``pending`` before,
        and feed them again. What was emitted, acked, failed and reported so far stays known to the test.
        """
        self._engine.restart()

    # What a test sees.

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self._engine.now_ms / 1000, tz=UTC)

    def emitted(self, component: str, stream: str = DEFAULT_STREAM) -> list[list[Any]]:
        """The values of every tuple that a component emitted on a stream, in the order of emission.

        With several tasks that is the order in which the tasks ran, then each task's own. A spout's tuples count
        once they are on their way. What nobody subscribes to is here too.

        Raises:
            KeyError: there is no such component or stream; the message says which there are.
        """
        self._component(component)
        self._stream(component, stream)
        found: list[list[Any]] = []
        for who, where, columns in self._emitted:
            if (who, where) == (component, stream):
                found += map(list, zip(*map(python_values, columns), strict=True))
        return found

    def executed(self, component: str) -> int:
        """How many tuples, ticks included, were given to the component's ``execute``; KeyError as ``emitted``."""
        return self.metrics().of(self._component(component).id).executed

    def acked(self, spout: str) -> list[Any]:
        """The ids of messages whose trees are complete, in the order of their acks; KeyError for an unknown spout."""
        return list(self._acked[self._spout(spout).id])

    def failed(self, spout: str) -> list[FailedMessage]:
        """The messages whose trees failed, in the order of their fails; KeyError for an unknown spout."""
        return list(self._failed[self._spout(spout).id])

    def dead_letters(self, spout: str) -> list[DeadLetter]:
        """The dead letters of a spout's messages, as they would be in its file, topic, sink or checkpoint.

        A message that was fed is given up when it fails, unless its spout decides itself. Letters that go to a
        stream of the topology are among what the spout has ``emitted`` there, and not here. KeyError as ``acked``.
        """
        component = self._spout(spout).id
        every = [*self._letters.values(), *letters_in(self._engine.letters.values())]
        return [letter for letter in every if letter.component == component]

    def output_path(self, path: str | os.PathLike[str]) -> Path:
        """Where a file or directory is that bolts were to write at ``path``: below a directory of the driver's own.

        What is there stays as long as the driver is referred to, also behind ``close``.
        """
        return Path(rehearsal_path(self._rehearsal.directory, path))

    def unsent(self, component: str) -> list[dict[str, Any]]:
        """The messages that a ``KafkaBolt`` or ``RabbitMQBolt`` would have sent, in order: nothing is sent in a test.

        Each has the parts that the client is given: ``topic``, ``key``, ``value`` and ``headers``, or ``exchange``,
        ``routing_key``, ``body`` and ``headers``. KeyError as ``emitted``.

        >>> from sparkbolt import TopologyBuilder
        >>> from sparkbolt.bolts import KafkaBolt
        >>> from sparkbolt.spouts import TextSpout
        >>> builder = TopologyBuilder("copying")
        >>> builder.set_spout("lines", TextSpout("books/*.txt"))
        >>> _ = builder.set_bolt("out", KafkaBolt("localhost:9092", "lines", value="line")).shuffle_grouping("lines")
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.feed("lines", {"line": "to be"})
        ...     driver.run_until_idle()
        ...     driver.unsent("out")
        [{'topic': 'lines', 'key': None, 'value': b'to be', 'headers': None}]
        """
        return unsent_messages(self._rehearsal.directory).get(self._component(component).id, [])

    def pending(self, spout: str) -> list[Any]:
        """The ids of messages that were fed and are neither acked nor failed, oldest first; KeyError as ``acked``."""
        found: list[Any] = []
        for number in self._topology.tasks(self._spout(spout).id):
            buffer = self._engine.coordinator.buffers[number]
            found += [buffer.message_ids[sequence] for sequence in sorted(buffer.message_ids)]
            found += [message_id for _, message_id in buffer.waiting if message_id is not None]
            found += [message_id for *_, message_id in buffer.again]
            found += [fed[2] for fed in self._spout_task(number).fed if fed[2] is not None]
        return found

    def errors(self) -> list[ReportedError]:
        """What components raised or reported, in the order in which it became known."""
        return list(self._errors)

    def metrics(self) -> TopologyMetrics:
        """The counters, as ``running.metrics()`` gives them on Spark: a copy."""
        return self._engine.ledger.metrics.copy_for(self._topology.components)

    # How it is known.

    def _see(self, component: str, task: int, stream: str, columns: Sequence[Column]) -> None:
        self._emitted.append((component, stream, columns))

    def _learn(self, promotion: Promotion) -> None:
        """Take over what the fed spouts were told; their fails are in the order of the promotion's."""
        self._errors += map(_error, promotion.reports)
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
                if (tree.component, tree.task) != (component, index) or tree.fate == MessageOutcome.RETRY:
                    continue  # what a bolt could not try (``Unavailable``) is pending, and is given again
                message_id = (
                    self._given_up_now(number, tree) if tree.fate == MessageOutcome.DEAD_LETTER else told.popleft()
                )
                if tree.letter:  # the message is among the failed ones since it was given up
                    self._given_up[number].remove(message_id)
                    continue
                fail = tree.fail
                self._failed[component].append(
                    FailedMessage(
                        message_id, fail.cause, tree.story, fail.component, fail.task, fail.reason, fail.traceback
                    )
                )
            spout.acked.clear()
            spout.failed.clear()

    def _given_up_now(self, number: int, tree: FailedTree) -> Any:
        """The id of a message that waits for its dead letter: its spout hears of it when that is written."""
        [message_id] = [one.message_id for one in self._engine.coordinator.buffers[number].dying if one.key == tree.key]
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
