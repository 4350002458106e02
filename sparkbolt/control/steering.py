"""Steering: what becomes of a request to a running topology.

Rule 1: what is asked for is durable in the checkpoint (``intent``) before it applies, so that it also holds after a
crash. ``kill`` and ``restart`` are not remembered: a topology that was killed runs when it is started again.
Rule 2: requests are carried out one after another, by one thread. A request waits ``WAIT_SECS`` for it; if the thread
is not done then, since the engine is busy, the answer says that it was accepted, and it is carried out later.
Rule 3: ``document`` waits for nothing: what the engine does not show at once is as of the last micro-batch.
"""

from __future__ import annotations

import inspect
import logging
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.topology_changes import changes, differs
from sparkbolt.base.exceptions import line_of
from sparkbolt.control import describe
from sparkbolt.control.books import EVENTS_FILE, ErrorBook, EventBook
from sparkbolt.control.description import DESCRIPTION_FILE, Description
from sparkbolt.control.documents import Answer, Gist, SeriesDocument, TopologyDocument, TopologyEntry, TopologyState
from sparkbolt.control.intent import (
    CONTROL_FILE,
    MESSAGE_CHARACTERS_MAX,
    RESET,
    TRACES_MAX,
    Intent,
    Trace,
    checked_setting,
)
from sparkbolt.control.operable import Operable, TopologyView
from sparkbolt.control.registration import News, Rate
from sparkbolt.control.windows import Shape, micro_batches_of, series_of, slowest_of, span_of, windows_of
from sparkbolt.errors import ConfigError, SparkboltError
from sparkbolt.observe.history import History

WAIT_SECS = 0.5
"""How long a request waits until it is carried out."""
LOOK_SECS = 0.2
"""How long a beat waits for fresh numbers."""
REQUESTS_MAX = 100
"""How many requests may wait to be carried out."""
FLUSH_SECS = 2.0
"""How long events may wait to be written to the checkpoint."""
log = logging.getLogger("sparkbolt")


TEXTS = ("component", "key", "value", "message", "kind", "text")
"""Arguments that are texts, in any request."""


def done(text: str) -> Answer:
    """It is so now."""
    return Answer(done=True, refused=False, text=text)


def accepted(text: str) -> Answer:
    """It will be so."""
    return Answer(done=False, refused=False, text=text)


def refused(text: str) -> Answer:
    """It will not be so."""
    return Answer(done=False, refused=True, text=text)


def _moment(arguments: Mapping[str, Any], name: str) -> int | None:
    value = arguments.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ConfigError(f"{name} is {value!r:.100}, expected a whole number")
    return value


def _read(operable: Operable, name: str) -> bytes | None:
    """A file of the checkpoint that nothing depends on; None if it cannot be read."""
    try:
        return operable.read(name)
    except Exception as error:  # noqa: BLE001  a file system may fail in its own way
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
        """Read what operators have asked for earlier; ``apply_first`` lets it apply.

        Args:
            operable: the topology.
            entry: returns the topology's entry as it was registered last.
            now_ms: the wall clock.
            wait_secs: how long a request waits until it is carried out.
        """
        self._operable, self._entry, self._now_ms, self._wait_secs = operable, entry, now_ms, wait_secs
        where = f"checkpoint {operable.checkpoint}"
        self._intent = Intent.loads(operable.read(CONTROL_FILE), where)
        self._level_before: int | None = None
        self.errors = ErrorBook(socket.gethostname())
        self.events = EventBook(_read(operable, EVENTS_FILE))
        self.listeners: list[Callable[[], None]] = []
        """Called after an event or a change, in the thread that made it; they must not raise."""
        self._rate = Rate()
        self._jobs: queue.Queue[tuple[Callable[[], Answer], Future[Answer]] | None] = queue.Queue(REQUESTS_MAX)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sparkbolt-steering", daemon=True)

    @property
    def intent(self) -> Intent:
        """What operators have asked for."""
        return self._intent

    @property
    def _topology(self) -> Any:
        return self._operable.lane.topology

    # The life of it.

    def apply_first(self) -> None:
        """Let apply what was asked for in earlier runs; called once, before the topology processes anything."""
        intent = self._intent
        self._set_level(intent.log_level)
        self._operable.override(intent.overrides(self._topology))
        self.note("started", self._started_text())
        try:
            self._operable.write(DESCRIPTION_FILE, self._description().dumps())
        except OSError as error:
            log.warning("the description of topology %r cannot be written: %s", self._topology.name, line_of(error))
        if not intent.active:
            self._operable.set_active(False)
            log.warning(
                "topology %r starts inactive, because %s deactivated it: its spouts emit nothing until `sparkbolt "
                "activate %s`",
                self._topology.name,
                intent.by or "a user",
                self._topology.name,
            )

    def _description(self) -> Description:
        lane = self._operable.lane
        return Description.of(lane, describe.settings_of(lane, self._intent), self._operable.letters_directory)

    def begin(self) -> None:
        """Begin to carry out requests."""
        self._thread.start()

    def end(self) -> None:
        """Carry out what was accepted, write the events, and end; waits a little for it."""
        self._ended.set()
        try:
            self._jobs.put_nowait(None)
        except queue.Full:
            log.debug("requests are waiting while topology %r ends", self._topology.name)
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(FLUSH_SECS)
        if self._level_before is not None:
            log.setLevel(self._level_before)

    def note(self, kind: str, text: str, by: str | None = None) -> None:
        """Note an event; it is in the checkpoint before the request that caused it is answered, and otherwise soon."""
        self.events.add(kind, text, by, self._now_ms())
        self._tell()

    def _tell(self) -> None:
        for listener in self.listeners:
            listener()

    def news(self) -> News:
        """The entry that each heartbeat writes to the home."""
        look, places = self._look(LOOK_SECS), self._operable.places()
        return News(
            state=look.state,
            why=look.why,
            spark_ui=places.spark_ui,
            application_id=places.application_id,
            master=places.master,
            gist=self.gist(look),
        )

    def _look(self, patience_secs: float) -> TopologyView:
        look = self._operable.look(patience_secs)
        if look.state == TopologyState.INACTIVE and look.why is None and not self._intent.active:
            return replace(look, why=f"deactivated by {self._intent.by or 'a user'}")
        return look

    def gist(self, look: TopologyView) -> Gist:
        """The few numbers of a list of topologies."""
        gist = describe.gist_of(look, [spec.id for spec in self._topology.spouts])
        return {**gist, "rate": round(self._rate.seen(gist["acked"], time.monotonic()), 3)}

    def last_gist(self) -> Gist | None:
        """The numbers with which the topology ends; None if they cannot be told."""
        try:
            return {**self.gist(self._operable.look(0.0)), "rate": 0.0}
        except Exception as error:  # noqa: BLE001  it ends all the same
            log.debug("the last numbers of topology %r cannot be read: %s", self._topology.name, line_of(error))
            return None

    def _started_text(self) -> str:
        kept = [] if self._intent.active else [f"deactivated by {self._intent.by or 'a user'}"]
        kept += [f"{key} changed" for key in self._intent.settings]
        kept += [f"{len(self._intent.traces)} message(s) traced"] if self._intent.traces else []
        return f"version {self._topology.version}" + (f"; changes of operators: {', '.join(kept)}" if kept else "")

    # Requests.

    def ask(self, verb: str, arguments: Mapping[str, Any], by: str) -> Any:
        """Carry out a request, and return its answer, which is JSON.

        Raises:
            ConfigError: there is no such verb, or its arguments are wrong.
        """
        if verb == "ping":
            return {"id": self._entry()["id"], "time_ms": self._now_ms()}
        if verb == "document":
            return self.document()
        if verb == "series":
            return self.series(_moment(arguments, "since_ms"), _moment(arguments, "until_ms"))
        if verb == "micro_batches":
            return micro_batches_of(self._operable.history() or History(), _moment(arguments, "last") or 0)
        acts: Mapping[str, Callable[..., Answer]] = {
            "activate": self.activate,
            "deactivate": self.deactivate,
            "kill": self.kill,
            "restart": self.restart,
            "set": self.set,
            "rebalance": self.rebalance,
            "trace": self.trace,
            "note": self.note_of,
        }
        act = acts.get(verb)
        if act is None:
            raise ConfigError(f"there is no request {verb!r}")
        for name in TEXTS:
            if not isinstance(arguments.get(name), str | None):
                raise ConfigError(f"request {verb!r}: {name} is {arguments[name]!r:.100}, expected a text")
        try:
            inspect.signature(act).bind(**arguments, by=by)
        except TypeError as error:
            raise ConfigError(f"request {verb!r}: its arguments are wrong ({error})") from None
        return act(**arguments, by=by)

    def document(self) -> TopologyDocument:
        """The document of the topology, from values that are available without waiting."""
        look = self._look(0.0)
        entry: TopologyEntry = {**self._entry(), "state": look.state, "why": look.why, "gist": self.gist(look)}
        entry["beat_ms"] = self._now_ms()
        history = self._operable.history() or History()
        components = describe.components_of(self._operable.lane)
        return TopologyDocument(
            entry=entry,
            live=True,
            components=components,
            settings=describe.settings_of(self._operable.lane, self._intent),
            windows=windows_of(history, look.metrics, self._operable.flows(), Shape.of(components), self._now_ms()),
            now=describe.now_of(
                look,
                self._now_ms(),
                state=self._operable.state_sizes(),
                memory=self._operable.processes(),
                slowest=slowest_of(history, self._now_ms()),
            ),
            errors=self.errors.all(),
            events=self.events.all(),
        )

    def series(self, since_ms: int | None, until_ms: int | None) -> SeriesDocument:
        """The history between two moments."""
        shape = Shape.of(describe.components_of(self._operable.lane))
        history = self._operable.history() or History()
        return series_of(history, self.events.all(), shape, span_of(since_ms, until_ms, self._now_ms()), self._now_ms())

    def activate(self, *, by: str) -> Answer:
        """Start the spouts again after ``deactivate``."""
        return self._carry_out(lambda: self._set_active(True, by), "its spouts start as soon as it handles the request")

    def deactivate(self, *, by: str) -> Answer:
        """Stop the spouts until ``activate``, also after restarts."""
        return self._carry_out(lambda: self._set_active(False, by), "its spouts stop as soon as it handles the request")

    def _set_active(self, active: bool, by: str) -> Answer:
        before = self._operable.look(0.0).state
        if before in (TopologyState.KILLED, TopologyState.ENDED):
            return refused("the topology was killed and is ending")
        if before is TopologyState.DRAINING:
            return refused("the topology is stopping")
        self._remember(replace(self._intent, active=active, by=by, since_ms=self._now_ms()))
        word = "active" if active else "inactive"
        if before == (TopologyState.ACTIVE if active else TopologyState.INACTIVE):
            self._operable.set_active(active)
            return done(f"the topology is already {word}, and stays {word}{self._how_long()}")
        self.note("activated" if active else "deactivated", "its spouts emit" if active else "its spouts stop", by)
        self._flush()  # before anybody sees the new state: a driver that is killed then has told who did it
        self._operable.set_active(active)
        log.warning("topology %r is %s by %s", self._topology.name, "activated" if active else "deactivated", by)
        text = "its spouts emit" if active else "its spouts emit nothing, and open trees finish"
        return done(f"the topology is {word}: {text}. It stays {word}{self._how_long()}")

    def _how_long(self) -> str:
        return " after restarts" if self._operable.checkpoint is not None else " until it ends (it has no checkpoint)"

    def kill(self, *, wait_secs: Any = None, by: str) -> Answer:
        """Stop the spouts, let open trees finish, and end the topology."""
        if wait_secs is not None and not (isinstance(wait_secs, int | float) and 0 <= wait_secs < 1e9):
            raise ConfigError(f"kill: wait_secs is {wait_secs!r}, expected a number of seconds of at least 0")
        secs = self._message_timeout_secs() if wait_secs is None else float(wait_secs)
        look = self._operable.look(0.0)
        self._operable.kill(secs, f"killed by {by}")
        self.note("killed", f"its open trees have up to {secs:g} s to finish", by)
        trees = look.metrics.open_trees
        return accepted(
            f"the topology is killed: its spouts emit nothing, {trees:,} open tree(s) have up to {secs:g} s to finish, "
            "and then it ends; unfinished trees are left for replay"
        )

    def _message_timeout_secs(self) -> float:
        own = self._intent.overrides(self._topology).message_timeout_secs
        return float(own or self._topology.config.message_timeout_secs)

    def restart(self, *, by: str) -> Answer:
        """Restart the query from the checkpoint."""

        def act() -> Answer:
            self._operable.restart(f"restarted by {by}")
            self.note("restarted", "the query restarts from the checkpoint", by)
            return accepted("the query restarts from the checkpoint; a running micro-batch is cancelled and runs again")

        return self._carry_out(act, "it restarts as soon as it handles the request")

    def set(self, *, key: str, value: str, component: str | None = None, by: str) -> Answer:
        """Change a setting."""
        if component is not None and component not in self._topology.components:
            hint = did_you_mean(component, self._topology.components)
            return refused(f"there is no component {component!r}{hint}")
        try:
            name, where, parsed = checked_setting(self._topology, str(key), str(value), component)
        except ConfigError as error:
            return refused(str(error))

        def act() -> Answer:
            if parsed == RESET:
                self._remember(self._intent.without_setting(name, component))
            else:
                self._remember(self._intent.with_setting(name, where, parsed))
            self._operable.override(self._intent.overrides(self._topology))
            self._set_level(self._intent.log_level)
            whose = f" of {where!r}" if where else ""
            shown = "as in its Config" if parsed == RESET else "without a limit" if parsed is None else str(parsed)
            self.note("set", f"{name}{whose} is {shown}", by)
            log.warning("topology %r: %s%s is %s now, set by %s", self._topology.name, name, whose, shown, by)
            return done(f"{name}{whose} is now {shown}, and stays {shown}{self._how_long()}")

        return self._carry_out(act, "the change applies as soon as it handles the request")

    def _set_level(self, level: str | None) -> None:
        if level is None:
            if self._level_before is not None:
                log.setLevel(self._level_before)
                self._level_before = None
            return
        if self._level_before is None:
            self._level_before = log.level
        log.setLevel(level.upper())

    def rebalance(self, *, by: str, **wanted: Any) -> Answer:
        """Refuse another parallelism with the message of a start, and say which changes a restart can apply."""
        parallelism = wanted.get("parallelism", {})
        if not isinstance(parallelism, dict):
            raise ConfigError("rebalance: parallelism is not an object that maps components to numbers")
        mistakes, other = [], dict[str, int]()
        for name, number in parallelism.items():
            if name not in self._topology.components:
                mistakes.append(f"there is no component {name!r}{did_you_mean(name, self._topology.components)}")
            elif not isinstance(number, int) or isinstance(number, bool) or number < 1:
                mistakes.append(f"parallelism of {name!r} is {number!r}, expected a number of at least 1")
            elif number != self._topology.components[name].parallelism:
                other[name] = number
        can = (
            "a restart can change the code of components, their settings in Config (`sparkbolt set` changes some of "
            "them at once), and the number of Spark's cores (--master)"
        )
        if mistakes:
            return refused("; ".join(mistakes))
        if other:
            before = self._topology.fingerprint()
            after = {**before, "components": {**before["components"]}}
            for name, number in other.items():
                after["components"][name] = {**before["components"][name], "parallelism": number}
            place = self._operable.checkpoint or "of this run"
            return refused(f"{differs(place, changes(before, after))}\n{can}")
        if wanted.get("workers") is not None:
            return refused(f"Spark sets the number of processes: use --master and Spark's configuration; {can}")
        return done(f"no change is needed: every component already has this parallelism; {can}")

    def trace(self, *, message: str, component: str | None = None, stop: Any = False, by: str) -> Answer:
        """Record the hops of messages with this id, or at this ``source@position``, from now on."""
        if not 0 < len(message) <= MESSAGE_CHARACTERS_MAX:
            raise ConfigError(f"trace: expected a message id, or source@position, of 1 to {MESSAGE_CHARACTERS_MAX}")
        spouts = [spec.id for spec in self._topology.spouts]
        if component is not None and component not in spouts:
            return refused(f"there is no spout {component!r}: the spouts are {', '.join(spouts)}")
        if not self._operable.lane.tracked:
            return refused("the topology does not track tuples (acker_tasks=0), so it has no trees to trace")

        def act() -> Answer:
            if stop:
                self._remember(self._intent.without_trace(message))
                dropped = None
            else:
                intent, dropped = self._intent.with_trace(Trace(message, component, by, self._now_ms()))
                self._remember(intent)
            self._operable.override(self._intent.overrides(self._topology))
            self.note("traced", f"message {message} is {'no longer ' if stop else ''}traced", by)
            if stop:
                return done(f"message {message} is no longer traced")
            more = (
                f"; {dropped.message} is no longer traced, because the limit is {TRACES_MAX} messages"
                if dropped
                else ""
            )
            return done(
                f"from now on, the hops of message {message} are recorded: its story shows them after it is acked or "
                f"has failed{more}"
            )

        return self._carry_out(act, "its hops are recorded as soon as it handles the request")

    def note_of(self, *, kind: str, text: str, by: str) -> Answer:
        """Note what an operator did with the topology's dead letters."""
        if kind != "letters":
            raise ConfigError(f"note: operators cannot add an event of kind {kind!r}")

        def act() -> Answer:
            self.note(kind, str(text), by)
            return done("noted")

        return self._carry_out(act, "the event is recorded as soon as it handles the request")

    # The thread that carries out.

    def _carry_out(self, act: Callable[[], Answer], later: str) -> Answer:
        answer: Future[Answer] = Future()
        if self._ended.is_set():
            return refused(f"topology {self._topology.name!r} is ending")
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
                self._flush()
                continue
            if job is None:
                self._flush()
                return
            act, answer = job
            try:
                result = act()
            except Exception as error:  # noqa: BLE001  a full disk, a lost JVM: who asked is told
                text = str(error) if isinstance(error, SparkboltError) else line_of(error)
                log.error("a request of an operator failed: %s", text)
                result = refused(f"the request failed: {text}")
            self._flush()
            self._tell()
            answer.set_result(result)

    def _remember(self, intent: Intent) -> None:
        self._operable.write(CONTROL_FILE, intent.dumps())
        self._intent = intent

    def _flush(self) -> None:
        if not self.events.dirty:
            return
        try:
            self._operable.write(EVENTS_FILE, self.events.dumps())
        except Exception as error:  # noqa: BLE001  the next event tries again
            log.debug("the events of topology %r cannot be written: %s", self._topology.name, line_of(error))
