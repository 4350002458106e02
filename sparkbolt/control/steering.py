"""Steering: carries out the requests to a running topology.

A request is durable in the checkpoint (``intent``) before it applies, so that it also holds after a crash; only
``kill`` and ``restart`` are not remembered. One thread carries out the requests in order. A request waits ``WAIT_SECS``
for it; if the engine is busy for longer, the answer says that the request was accepted, and it is carried out later.
``document`` never waits: its values may be those of the last micro-batch. ``state`` and ``component_state`` take as
long as Spark needs to read them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.topology import Topology
from sparkbolt.base.codec import MismatchError
from sparkbolt.base.exceptions import line_of
from sparkbolt.control import describe
from sparkbolt.control.books import EVENTS_FILE, ErrorBook, EventBook
from sparkbolt.control.description import DESCRIPTION_FILE, Description, letters_of
from sparkbolt.control.documents import (
    Answer,
    ComponentStateDocument,
    Gist,
    PeekedDocument,
    SeriesDocument,
    StateDocument,
    TopologyDocument,
    TopologyEntry,
    TopologyState,
    accepted,
    done,
    refused,
)
from sparkbolt.control.intent import CONTROL_FILE, Intent, Scale
from sparkbolt.control.kept_state import AsOf, First, component_state_of
from sparkbolt.control.letters.seen import count_seen
from sparkbolt.control.metric_documents import metric_documents
from sparkbolt.control.operable import Operable, TopologyView
from sparkbolt.control.parameters import Row
from sparkbolt.control.problems import verdict_of
from sparkbolt.control.questions import Last, Serial, TimeMs
from sparkbolt.control.registration import Growth, News, Rate
from sparkbolt.control.verbs import OVER, VERBS, Verb
from sparkbolt.control.windows import Shape, micro_batches_of, series_of, slowest_of, span_of, windows_of
from sparkbolt.errors import ConfigError, SparkboltError, WrongUseError
from sparkbolt.observe.history import History
from sparkbolt.wire.peek import Peek

WAIT_SECS = 0.5
"""How long a request waits until it is carried out."""
LOOK_SECS = 0.2
"""How long a beat waits for fresh numbers."""
REQUESTS_MAX = 100
"""How many requests may wait to be carried out."""
FLUSH_SECS = 2.0
"""How long events may wait to be written to the checkpoint."""
LETTERS_SEEN_SECS = 30.0
"""How long the number of dead letters that were replayed or discarded is not read again."""
log = logging.getLogger("sparkbolt")


def _read(operable: Operable, name: str) -> bytes | None:
    """A file of the checkpoint that nothing depends on; None if it cannot be read."""
    try:
        return operable.read(name)
    except Exception as error:  # noqa: BLE001  a file system may raise anything
        log.warning(
            "%s of checkpoint %s cannot be read (%s): a new file replaces it", name, operable.checkpoint, line_of(error)
        )
        return None


class Steering:
    """Handles the requests of operators to one running topology."""

    def __init__(
        self,
        operable: Operable,
        *,
        entry: Callable[[], TopologyEntry],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        wait_secs: float = WAIT_SECS,
    ) -> None:
        """Read the operators' earlier requests; ``apply_first`` applies them.

        Args:
            operable: the topology.
            entry: returns the topology's entry as it was registered last.
            now_ms: the wall clock.
            wait_secs: how long a request waits until it is carried out.
        """
        self.operable, self._entry, self.now_ms, self._wait_secs = operable, entry, now_ms, wait_secs
        where = f"checkpoint {operable.checkpoint}"
        self._intent = Intent.loads(operable.read(CONTROL_FILE), where)
        self._level_before: int | None = None
        self.errors = ErrorBook(socket.gethostname())
        self.events = EventBook(_read(operable, EVENTS_FILE))
        self.listeners: list[Callable[[], None]] = []
        """Called after an event or a change, in the thread that made it; they must not raise."""
        self._rate, self._growths = Rate(), defaultdict[str, Growth](Growth)
        self._seen, self._seen_until_s = 0, 0.0
        self._jobs: queue.Queue[tuple[Callable[[], Answer], Future[Answer]] | None] = queue.Queue(REQUESTS_MAX)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sparkbolt-steering", daemon=True)

    @property
    def intent(self) -> Intent:
        """The operators' requests."""
        return self._intent

    @property
    def topology(self) -> Topology:
        """The topology as it runs."""
        return self.operable.lane.topology

    @property
    def components(self) -> Collection[str]:
        """The ids of its components."""
        return self.topology.components

    # The life of it.

    def apply_first(self) -> None:
        """Apply the requests of earlier runs; called once, before the topology processes anything."""
        intent = self._intent
        self.apply()
        self.note("started", self._started_text())
        self.describe()
        if not intent.active:
            self.operable.deactivate()
            log.warning(
                "topology %r starts inactive, because %s deactivated it: its spouts emit nothing until `sparkbolt "
                "activate %s`",
                self.topology.name,
                intent.by or "a user",
                self.topology.name,
            )

    def describe(self) -> None:
        """Write the description of the topology's shape."""
        try:
            self.operable.write(DESCRIPTION_FILE, self._description().dumps())
        except OSError as error:
            log.warning("the description of topology %r cannot be written: %s", self.topology.name, line_of(error))

    def _description(self) -> Description:
        lane = self.operable.lane
        return Description.of(lane, describe.settings_of(lane, self._intent), self.operable.letters_directory)

    def begin(self) -> None:
        """Begin to carry out requests."""
        self._thread.start()

    def end(self) -> None:
        """Carry out accepted requests, write the events, and end; waits a little for it."""
        self._ended.set()
        try:
            self._jobs.put_nowait(None)
        except queue.Full:
            log.debug("requests are waiting while topology %r ends", self.topology.name)
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(FLUSH_SECS)
        if self._level_before is not None:
            log.setLevel(self._level_before)

    def note(self, kind: str, text: str, by: str | None = None) -> None:
        """Note an event; it is in the checkpoint before the request that caused it is answered, and otherwise soon."""
        self.events.add(kind, text, by, self.now_ms())
        self._tell()

    def _tell(self) -> None:
        for listener in self.listeners:
            listener()

    def news(self) -> News:
        """The entry that each heartbeat writes to the home."""
        look, places = self._look(LOOK_SECS), self.operable.places()
        entry: TopologyEntry = {**self._entry(), "state": look.state, "why": look.why, "gist": self.gist(look)}
        return News(
            state=look.state,
            why=look.why,
            verdict=verdict_of(entry, describe.now_of(look, self.now_ms())),
            spark_ui=places.spark_ui,
            application_id=places.application_id,
            master=places.master,
            gist=entry["gist"],
        )

    def _look(self, patience_secs: float) -> TopologyView:
        look = self.operable.look(patience_secs)
        if look.state == TopologyState.INACTIVE and look.why is None and not self._intent.active:
            return replace(look, why=f"deactivated by {self._intent.by or 'a user'}")
        return look

    def gist(self, look: TopologyView) -> Gist:
        """The few numbers of a list of topologies."""
        gist = describe.gist_of(look, {spec.id: describe.unit_of(spec) for spec in self.topology.spouts})
        gist["given_up"] = max(0, gist["given_up"] - self._letters_seen())
        now_s = time.monotonic()
        grown = {unit: self._growths[unit].seen(lag, now_s) for unit, lag in gist["lags"].items()}
        growth = {unit: by for unit, by in grown.items() if by}
        return {**gist, "lag_growth": growth, "rate": round(self._rate.seen(gist["acked"], now_s), 3)}

    def _letters_seen(self) -> int:
        """How many dead letters were replayed or discarded; it is read again now and then, and after each action."""
        now_s = time.monotonic()
        if now_s >= self._seen_until_s:
            self._seen_until_s = now_s + LETTERS_SEEN_SECS
            places = [place for spec in self.topology.spouts if (place := letters_of(spec)) is not None]
            try:
                self._seen = count_seen(places, self._read_letters)
            except Exception as error:  # noqa: BLE001  a file system may raise anything
                log.debug("the notes on dead letters of %r cannot be read: %s", self.topology.name, line_of(error))
        return self._seen

    def _read_letters(self, name: str) -> bytes | None:
        directory = self.operable.letters_directory
        if directory is None:
            return self.operable.read(name)
        try:
            with open(os.path.join(directory, name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def look_at_letters(self) -> None:
        """Count the dead letters that were replayed or discarded again, because an operator has done something."""
        self._seen_until_s = 0.0

    def last_gist(self) -> Gist | None:
        """The numbers with which the topology ends; None if they are unknown."""
        try:
            return {**self.gist(self.operable.look(0.0)), "rate": 0.0}
        except Exception as error:  # noqa: BLE001  it ends anyway
            log.debug("the last numbers of topology %r cannot be read: %s", self.topology.name, line_of(error))
            return None

    def _started_text(self) -> str:
        kept = [] if self._intent.active else [f"deactivated by {self._intent.by or 'a user'}"]
        kept += [f"{key} changed" for key in self._intent.settings]
        kept += [f"{len(self._intent.traces)} message(s) traced"] if self._intent.traces else []
        return f"version {self.topology.version}" + (f"; changes of operators: {', '.join(kept)}" if kept else "")

    # Requests.

    def ask(self, verb: str, arguments: Mapping[str, Any], by: str) -> Any:
        """Carry out a request, and return its answer, which is JSON.

        Raises:
            ConfigError: there is no such verb, or its arguments are wrong.
        """
        row = VERBS.get(verb) or LIVE.get(verb)
        if row is None or (isinstance(row, Verb) and row.of_letters):
            raise ConfigError(f"there is no request {verb!r}")
        try:
            given = row.read(arguments)
        except MismatchError as mismatch:
            raise ConfigError(f"request {verb!r}: {mismatch.place or 'it'} {mismatch.text}") from None
        if not isinstance(row, Verb):
            return row.act(self, **given)
        over = None if row.while_ending else OVER.get(self.operable.look(0.0).state)
        if over is not None:
            return refused(over)
        answer = row.act(self, by, **given)
        return self._carry_out(answer, row.later) if callable(answer) else answer

    def document(self) -> TopologyDocument:
        """The document of the topology, from values that are available without waiting."""
        look = self._look(0.0)
        entry: TopologyEntry = {**self._entry(), "state": look.state, "why": look.why, "gist": self.gist(look)}
        entry["beat_ms"] = self.now_ms()
        now = describe.now_of(
            look,
            self.now_ms(),
            state=self.operable.state_sizes(),
            memory=self.operable.processes(),
            slowest=slowest_of(self.operable.history() or History(), self.now_ms()),
        )
        entry["verdict"] = verdict_of(entry, now)
        history = self.operable.history() or History()
        components = describe.components_of(self.operable.lane)
        return TopologyDocument(
            entry=entry,
            live=True,
            components=components,
            settings=describe.settings_of(self.operable.lane, self._intent),
            windows=windows_of(history, look.metrics, self.operable.flows(), Shape.of(components), self.now_ms()),
            now=now,
            metrics=metric_documents(look.metrics),
            errors=self.errors.all(),
            events=self.events.all(),
        )

    def series(self, since_ms: TimeMs = None, until_ms: TimeMs = None) -> SeriesDocument:
        """The history between two moments.

        Args:
            since_ms: the start of the range (default: one hour ago).
            until_ms: the end of the range (default: now).
        """
        shape = Shape.of(describe.components_of(self.operable.lane))
        history = self.operable.history() or History()
        return series_of(history, self.events.all(), shape, span_of(since_ms, until_ms, self.now_ms()), self.now_ms())

    def how_long(self) -> str:
        """How long a change lasts, as the end of a sentence."""
        return " after restarts" if self.operable.checkpoint is not None else " until it ends (it has no checkpoint)"

    def apply(self) -> None:
        """Apply the operators' requests."""
        self.operable.override(self._intent.overrides(self.topology))
        self._set_level(self._intent.log_level)

    def _set_level(self, level: str | None) -> None:
        if level is None:
            if self._level_before is not None:
                log.setLevel(self._level_before)
                self._level_before = None
            return
        if self._level_before is None:
            self._level_before = log.level
        log.setLevel(level.upper())

    def micro_batches(self, last: Last = 100) -> list[dict[str, Any]]:
        """The newest micro-batches that were promoted.

        Args:
            last: the maximum number of micro-batches.
        """
        return micro_batches_of(self.operable.history() or History(), last)

    def state(self, as_of: AsOf = None) -> StateDocument:
        """How much its tasks keep.

        Args:
            as_of: a committed micro-batch (default: the last one).
        """
        return self.operable.stored(as_of).sizes()

    def component_state(
        self, component: str, key: str | None = None, first: First = 50, as_of: AsOf = None
    ) -> ComponentStateDocument:
        """What the tasks of a component keep.

        Args:
            component: the component.
            key: one key.
            first: the maximum number of entries.
            as_of: a committed micro-batch (default: the last one).
        """
        return component_state_of(self.operable.stored(as_of), component, key, first)

    def peek(
        self, component: str, stream: str | None = None, match: str = "", after: Serial = 0, last: Last = 100
    ) -> list[PeekedDocument]:
        """The newest tuples that a component has emitted since somebody peeks, and begin or prolong the peek.

        Args:
            component: the component.
            stream: only tuples of this stream.
            match: only tuples with this text in one of their values.
            after: only tuples with a higher serial number.
            last: the maximum number of tuples.
        """
        spec = self.topology.components.get(component)
        if spec is None:
            raise WrongUseError(f"there is no component {component!r}{did_you_mean(component, self.components)}")
        streams = [one.name for one in spec.streams]
        if stream is not None and stream not in streams:
            raise WrongUseError(f"component {component!r} has no stream {stream!r}{did_you_mean(stream, streams)}")
        seen = self.operable.peek(Peek(component, stream, match), after)[-last:]
        return [
            PeekedDocument(
                serial=serial,
                time_ms=one.now_ms,
                micro_batch_id=one.micro_batch_id,
                component=one.component,
                task=one.task,
                stream=one.stream,
                sender=one.sender,
                values=one.values,
            )
            for serial, one in seen
        ]

    # The thread that carries out.

    def _carry_out(self, act: Callable[[], Answer], later: str) -> Answer:
        answer: Future[Answer] = Future()
        if self._ended.is_set():
            return refused(f"topology {self.topology.name!r} is ending")
        try:
            self._jobs.put_nowait((act, answer))
        except queue.Full:
            return refused(f"{REQUESTS_MAX} requests are waiting, which is the maximum: try again later")
        try:
            return answer.result(self._wait_secs)
        except TimeoutError:
            return accepted(f"accepted; the topology is busy, and {later}")

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=FLUSH_SECS)
            except queue.Empty:
                self.flush()
                continue
            if job is None:
                self.flush()
                return
            act, answer = job
            try:
                result = act()
            except Exception as error:  # noqa: BLE001  a full disk, a lost JVM: the answer reports it
                text = str(error) if isinstance(error, SparkboltError) else line_of(error)
                log.error("a request of an operator failed: %s", text)
                result = refused(f"the request failed: {text}")
            self.flush()
            self._tell()
            answer.set_result(result)

    def remember(self, intent: Intent) -> None:
        """Make the operators' requests durable; the deed of a verb calls it before it changes anything."""
        self.operable.write(CONTROL_FILE, intent.dumps())
        self._intent = intent

    def rebalance(self, scale: Scale, by: str) -> Answer:
        """Move to other numbers of tasks and partitions; they are durable before that begins."""
        executors, partitions = scale.executors, scale.spark_partitions
        try:
            steps = self.operable.plan(executors, partitions)
        except SparkboltError as error:
            return refused(str(error))
        if not steps:
            kept = {name: number for name, number in self._intent.executors.items() if name in executors}
            if (kept, partitions) != (self._intent.executors, self._intent.spark_partitions):
                self.remember(replace(self._intent, executors=kept, spark_partitions=partitions))
            return done("no change is needed: it has these tasks and partitions already")
        self.remember(self._intent.rebalance(scale))
        self.operable.rebalance(executors, partitions, f"rebalanced by {by}")
        self.note("rebalanced", "; ".join(steps), by)
        return accepted(f"the topology is being rebalanced: {'; '.join(steps)}; this stays{self.how_long()}")

    def forget_rebalance(self) -> None:
        """The last rebalance could not be done: the next start must not try it again."""
        if self._intent.before is not None:
            self.remember(self._intent.taken_back())

    def settle_rebalance(self) -> None:
        """Something is committed after the last rebalance: soon it is durable that there is no way back."""
        settled = self._intent.before

        def act() -> Answer:
            if self._intent.before is settled:  # otherwise another rebalance was requested meanwhile
                self.remember(replace(self._intent, before=None))
            return done("noted")

        with contextlib.suppress(queue.Full):  # the next start finds that out itself
            self._jobs.put_nowait((act, Future()))

    def flush(self) -> None:
        """Write the events to the checkpoint."""
        if not self.events.dirty:
            return
        try:
            self.operable.write(EVENTS_FILE, self.events.dumps())
        except Exception as error:  # noqa: BLE001  the next event tries again
            log.debug("the events of topology %r cannot be written: %s", self.topology.name, line_of(error))


_QUESTIONS = (
    Steering.document,
    Steering.series,
    Steering.micro_batches,
    Steering.state,
    Steering.component_state,
    Steering.peek,
)
LIVE = {one.__name__: Row.of(one) for one in _QUESTIONS}
"""The questions that a topology answers itself."""
