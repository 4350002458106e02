"""The lifecycle of a topology in one driver: its states, and the transitions between them.

``TRANSITIONS`` is the only definition. An event that a state does not list changes nothing, and an order that is such
an event is refused. Reports of a life of the driver change nothing after that life has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from sparkbolt.base.words import Word
from sparkbolt.errors import EngineError


class TopologyState(Word):
    """The state of a topology, as ``sparkbolt list`` shows it."""

    STARTING = "starting"
    ACTIVE = "active"
    INACTIVE = "inactive"
    RESTARTING = "restarting"
    """Its query failed, or a restart was requested, and it begins again."""
    DRAINING = "draining"
    """A stop was requested, and its open trees finish."""
    KILLED = "killed"
    """It was killed, and its open trees finish."""
    ENDED = "ended"
    """It has finished or was stopped."""
    FAILED = "failed"
    DEAD = "dead"
    """It ended without a report: its process is gone, or has not reported for ``BEAT_LOST_SECS``."""

    @property
    def runs(self) -> bool:
        """Whether a process works on it."""
        return self not in (TopologyState.ENDED, TopologyState.FAILED, TopologyState.DEAD)


class LifecycleEvent(Word):
    """The events that change the state of a topology."""

    WORKS = "works"
    """Spark runs its first micro-batch, or has the answer that there is nothing to do."""
    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"
    RESTART = "restart"
    """A restart is requested."""
    QUERY_FAILS = "query fails"
    """Its query failed, and is started again."""
    STOP = "stop"
    KILL = "kill"
    FAIL = "fail"
    """It is given up."""
    END = "end"
    """All its processes and threads end."""


_S, _E = TopologyState, LifecycleEvent
_ENDS = {_E.STOP: _S.DRAINING, _E.KILL: _S.KILLED, _E.FAIL: _S.FAILED, _E.END: _S.ENDED}
_RESTARTS = {_E.RESTART: _S.RESTARTING, _E.QUERY_FAILS: _S.RESTARTING}
TRANSITIONS: Mapping[TopologyState, Mapping[LifecycleEvent, TopologyState]] = {
    _S.STARTING: {
        _E.WORKS: _S.ACTIVE,
        _E.ACTIVATE: _S.STARTING,
        _E.DEACTIVATE: _S.INACTIVE,
        **_RESTARTS,
        **_ENDS,
    },
    _S.ACTIVE: {_E.ACTIVATE: _S.ACTIVE, _E.DEACTIVATE: _S.INACTIVE, **_RESTARTS, **_ENDS},
    _S.INACTIVE: {_E.ACTIVATE: _S.STARTING, _E.DEACTIVATE: _S.INACTIVE, **_RESTARTS, **_ENDS},
    _S.RESTARTING: {
        _E.WORKS: _S.ACTIVE,
        _E.ACTIVATE: _S.RESTARTING,
        _E.DEACTIVATE: _S.RESTARTING,
        **_RESTARTS,
        **_ENDS,
    },
    _S.DRAINING: {_E.DEACTIVATE: _S.DRAINING, _E.QUERY_FAILS: _S.DRAINING, **_ENDS},
    _S.KILLED: {_E.DEACTIVATE: _S.KILLED, _E.QUERY_FAILS: _S.KILLED, **_ENDS, _E.STOP: _S.KILLED},
    _S.FAILED: dict.fromkeys((_E.ACTIVATE, _E.DEACTIVATE, *_ENDS), _S.FAILED),
    _S.ENDED: {_E.END: _S.ENDED},
    _S.DEAD: {},
}
"""By state and event: the next state."""


_SILENT = (_S.INACTIVE, _S.DRAINING, _S.KILLED, _S.FAILED, _S.ENDED)


@dataclass
class Kill:
    """An order to end a topology."""

    why: str
    until_s: float
    """When the open trees must have finished, by the monotonic clock; a later order may only shorten it."""


class Lifecycle:
    """The state of one topology in one driver, over all its lives there."""

    def __init__(self, name: str = "", lock: AbstractContextManager[Any] | None = None) -> None:
        """Begin in the state ``STARTING``.

        Args:
            name: the topology's, for messages.
            lock: guards the state if several threads change it; it may be entered again by the thread that holds it.
        """
        self.lock = nullcontext() if lock is None else lock
        self.state = TopologyState.STARTING
        self.emits = True
        """Whether spouts may emit: by the last order, and never in a state in which they must not."""
        self.closes = False
        """Whether no other micro-batch is planned, since the topology ends."""
        self.opening: list[str] = []
        """The spout tasks whose ``open`` has not returned."""
        self.failure: str | None = None
        """Why it failed."""
        self.killed: Kill | None = None
        """The order that killed it."""
        self.why_restarted: str | None = None
        """Why the life that ended last has ended, in a sentence."""
        self._name = name
        self._restart_is_ordered = False
        self._ended = self._ran = self._worked = -1
        """The newest life that has ended, has run a micro-batch, and works."""

    # Reports of lives.

    def on(self, event: LifecycleEvent) -> bool:
        """Change the state; False if nothing changes, since this state does not know the event."""
        with self.lock:
            after = TRANSITIONS[self.state].get(event)
            if after is None:
                return False
            self.state = after
            if event in (LifecycleEvent.ACTIVATE, LifecycleEvent.DEACTIVATE):
                self.emits = event is LifecycleEvent.ACTIVATE
            self.emits = self.emits and after not in _SILENT
            if event is LifecycleEvent.ACTIVATE:
                self._advance()
            return True

    def _advance(self) -> None:
        """Notice that the topology works."""
        if self.state is TopologyState.STARTING:
            works = self.has_run and not self.opening
        else:
            works = self.state is TopologyState.RESTARTING and not self.begins_again
        if works:
            self.on(LifecycleEvent.WORKS)
            if not self.emits:
                self.on(LifecycleEvent.DEACTIVATE)

    def opened(self, spout: str) -> None:
        """``open`` of a spout task has returned."""
        with self.lock:
            self.opening = [name for name in self.opening if name != spout]
            self._advance()

    def runs(self, life: int) -> None:
        """Spark runs a micro-batch in a life."""
        with self.lock:
            self._ran = max(self._ran, life)
            self._advance()

    def works(self, life: int) -> None:
        """A life has promoted a micro-batch, or has answered that there is nothing to do."""
        with self.lock:
            self._ran, self._worked = max(self._ran, life), max(self._worked, life)
            self._advance()

    @property
    def has_run(self) -> bool:
        """Whether Spark has run a micro-batch, or was answered that there is none, since the last life ended."""
        return self._ran > self._ended

    @property
    def begins_again(self) -> bool:
        """Whether a life has ended, and the one that follows does not work yet."""
        return self._ended >= max(self._worked, 0)

    def restarts_on_order(self, life: int) -> bool:
        """Whether a life ends because a restart was ordered."""
        return self._restart_is_ordered and self._ended == life

    @property
    def trouble(self) -> str | None:
        """Why the topology does not run properly, in a sentence, as far as its state shows it; else None."""
        if self.failure is None and self.begins_again and not self._restart_is_ordered:
            return f"its query failed and is being started again: {self.why_restarted}"
        return self.failure

    # Ends of lives.

    def restart(self, life: int, why: str, *, ordered: bool) -> bool:
        """A life ends, and another one follows; False if this is refused."""
        with self.lock:
            if not self.on(LifecycleEvent.RESTART if ordered else LifecycleEvent.QUERY_FAILS):
                return False
            self._ended, self.why_restarted, self._restart_is_ordered = life, why, ordered
            return True

    def fail(self, why: str) -> None:
        """The topology is given up; the first reason stays."""
        with self.lock:
            if self.on(LifecycleEvent.FAIL):
                self.failure = self.failure or why

    def kill(self, why: str, until_s: float) -> bool:
        """The topology is killed; False if it has ended, or was killed before: then this may shorten the time."""
        with self.lock:
            if self.killed is not None:
                self.killed.until_s = min(self.killed.until_s, until_s)
                return False
            if not self.on(LifecycleEvent.KILL):
                return False
            self.killed = Kill(why, until_s)
            return True

    # Orders.

    def order(self, event: LifecycleEvent, done: str) -> None:
        """Carry out an order; ``done`` is the order as a participle, such as "activated".

        Raises:
            EngineError: the order is refused in this state.
        """
        if not self.on(event):
            raise self.refusal(done)

    def refusal(self, done: str) -> EngineError:
        """Why an order is refused."""
        ends = {TopologyState.KILLED: "was killed", TopologyState.DRAINING: "was asked to stop"}
        if self.state in ends:
            return EngineError(f"topology {self._name!r} {ends[self.state]} and is ending")
        return EngineError(
            f"topology {self._name!r} {'has failed' if self.failure else 'was stopped'} and cannot be {done}: start it "
            "again, with the same checkpoint if it is to go on where it was"
        )
