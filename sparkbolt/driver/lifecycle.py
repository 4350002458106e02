"""The life of a topology in one driver: its states, and the transitions between them.

Rule: ``TRANSITIONS`` is the only definition. An event that a state does not list changes nothing, and an order that is
such an event is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkbolt.base.words import Word


class TopologyState(Word):
    """What a topology does, as ``sparkbolt list`` shows it."""

    STARTING = "starting"
    ACTIVE = "active"
    INACTIVE = "inactive"
    RESTARTING = "restarting"
    """Its query failed, or a restart was asked for, and it begins again."""
    DRAINING = "draining"
    """It was asked to stop, and its open trees finish."""
    KILLED = "killed"
    """It was killed, and its open trees finish."""
    ENDED = "ended"
    """It has finished or was stopped."""
    FAILED = "failed"
    DEAD = "dead"
    """It ended without a word: its process is gone, or gave no sign of life for ``BEAT_LOST_SECS``."""

    @property
    def runs(self) -> bool:
        """Whether a process works on it."""
        return self not in (TopologyState.ENDED, TopologyState.FAILED, TopologyState.DEAD)


class LifecycleEvent(Word):
    """What changes the state of a topology."""

    WORKS = "works"
    """Spark runs its first micro-batch, or has been told that there is nothing to do."""
    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"
    RESTART = "restart"
    """A restart is asked for."""
    QUERY_FAILS = "query fails"
    """Its query failed, and is started again."""
    STOP = "stop"
    KILL = "kill"
    FAIL = "fail"
    """It is given up."""
    END = "end"
    """All that runs for it ends."""


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


@dataclass
class Kill:
    """An order to end a topology."""

    why: str
    until_s: float
    """When the open trees must have finished, by the monotonic clock; a later order may only shorten it."""


class Lifecycle:
    """The state of one topology in one driver; not thread safe: the shell changes it under a lock."""

    def __init__(self) -> None:
        """Begin in the state ``STARTING``."""
        self.state = TopologyState.STARTING
        self.failure: str | None = None
        """Why it failed."""
        self.kill: Kill | None = None
        """The order that killed it."""
        self.restarted: Any = None
        """The life that ended last, while the topology goes on."""
        self.why_restarted: str | None = None
        """Why that life ended, in a sentence."""
        self.asked_to_restart = False
        """Whether that life ended because a restart was asked for."""

    def on(self, event: LifecycleEvent) -> bool:
        """Change the state; False if nothing changes, since this state does not know the event."""
        after = TRANSITIONS[self.state].get(event)
        if after is None:
            return False
        self.state = after
        return True

    def on_restart(self, life: Any, why: str, *, asked: bool) -> bool:
        """A life ends, and another one follows; False if this is refused."""
        if not self.on(LifecycleEvent.RESTART if asked else LifecycleEvent.QUERY_FAILS):
            return False
        self.restarted, self.why_restarted, self.asked_to_restart = life, why, asked
        return True

    def on_failure(self, why: str) -> None:
        """The topology is given up; the first reason stays."""
        if self.on(LifecycleEvent.FAIL):
            self.failure = self.failure or why

    def on_kill(self, why: str, until_s: float) -> bool:
        """The topology is killed; False if it was killed before, whose time this may shorten, or has ended."""
        if self.kill is not None:
            self.kill.until_s = min(self.kill.until_s, until_s)
            return False
        if not self.on(LifecycleEvent.KILL):
            return False
        self.kill = Kill(why, until_s)
        return True
