"""The lifecycle of a topology, as any thread of its driver may change it."""

from __future__ import annotations

import threading
from typing import Any

from sparkbolt.driver.lifecycle import Lifecycle, LifecycleEvent, TopologyState
from sparkbolt.errors import EngineError


class SharedLifecycle(Lifecycle):
    """A lifecycle with a lock, which refuses orders in words."""

    def __init__(self, name: str) -> None:
        """Begin; ``name`` is that of the topology."""
        super().__init__()
        self._name = name
        self._lock = threading.RLock()
        self.stopping = threading.Event()
        """Set when everything that runs for the topology begins to end."""

    def on(self, event: LifecycleEvent) -> bool:
        """As in the base class."""
        with self._lock:
            return super().on(event)

    def on_restart(self, life: Any, why: str, *, asked: bool) -> bool:
        """As in the base class."""
        with self._lock:
            return super().on_restart(life, why, asked=asked)

    def on_kill(self, why: str, until_s: float) -> bool:
        """As in the base class."""
        with self._lock:
            return super().on_kill(why, until_s)

    def end(self) -> bool:
        """Everything that runs for the topology ends; whether this is the first call."""
        with self._lock:
            first = not self.stopping.is_set()
            self.stopping.set()
            self.on(LifecycleEvent.END)
            return first

    def restarts_on_order(self, life: Any) -> bool:
        """Whether the query of a life has ended because a restart was asked for."""
        return self.restarted is life and self.asked_to_restart and not self.stopping.is_set()

    def order(self, event: LifecycleEvent, done: str) -> None:
        """Carry out an order; ``done`` is what is ordered, such as "activated".

        Raises:
            EngineError: the order is refused in this state.
        """
        if not self.on(event):
            raise self.refusal(done)

    def refuse_if_stopped(self, done: str) -> None:
        """Refuse an order to a topology that was stopped.

        Raises:
            EngineError: the topology was stopped.
        """
        if self.stopping.is_set():
            raise self.refusal(done)

    def refusal(self, done: str) -> EngineError:
        """Why an order is refused."""
        if self.stopping.is_set():
            return EngineError(
                f"topology {self._name!r} was stopped and cannot be {done}: start it again, with the same checkpoint "
                "if it is to go on where it was"
            )
        words = {TopologyState.FAILED: "has failed", TopologyState.KILLED: "was killed"}
        return EngineError(f"topology {self._name!r} {words.get(self.state, 'was asked to stop')} and is ending")
