"""What a user holds of a topology that runs.

Which question it answers: what can be asked of a running topology, and what can be done to it?
Rule: it says nothing of what runs the topology; ``spark.running`` does it on Spark.

Read before: ``topology``, ``promotion``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sparkbolt.core.model.metrics import TopologyMetrics
from sparkbolt.core.model.reports import FailedTree, MicroBatchReport
from sparkbolt.core.model.story import Story

if TYPE_CHECKING:
    from sparkbolt.core.model.progress import Progress
    from sparkbolt.core.model.topology import Topology


class RunningTopology(ABC):
    """A topology that runs; ``topology.start()`` gives it. Entered as a context, it is stopped at the end.

    All methods may be called from any thread.
    """

    topology: Topology
    """What runs."""

    # What it is at.

    @abstractmethod
    def metrics(self) -> TopologyMetrics:
        """A copy of the counters: totals since the topology's first start with its checkpoint.

        ``components`` has an entry for each component from the start on.
        """

    @abstractmethod
    def on_micro_batch(self, listener: Callable[[MicroBatchReport], None]) -> None:
        """Have ``listener`` called with each micro-batch that is committed.

        All listeners are called in one thread, for which the engine waits, so they must return soon. One that raises is
        logged, and called again with the next micro-batch.
        """

    @property
    @abstractmethod
    def failed(self) -> Sequence[FailedTree]:
        """The newest trees that failed, with their stories, also those that were given again."""

    @property
    @abstractmethod
    def set_aside(self) -> Sequence[FailedTree]:
        """The newest trees that were given up after their last attempt, with their stories."""

    @property
    @abstractmethod
    def set_aside_here(self) -> dict[str, int]:
        """How many messages of each spout were given up since ``start``; only of those that have some."""

    @property
    @abstractmethod
    def dead_letters_directory(self) -> str:
        """Where the letters are of messages that were given up and whose spouts say nothing of dead letters.

        It is there once there is one; ``sparkbolt dlq`` reads it.
        """

    @property
    @abstractmethod
    def traced(self) -> Sequence[Story]:
        """The stories of the newest trees that were traced and acked."""

    @property
    @abstractmethod
    def retries(self) -> int:
        """How many messages wait to be given again."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether it runs, or is going to be started again by itself after a failure."""

    @property
    @abstractmethod
    def failure(self) -> str | None:
        """Why it failed for good, in a sentence; None if it did not."""

    @abstractmethod
    def progress(self) -> Progress:
        """How far the micro-batch has come that runs and is not committed yet."""

    @property
    @abstractmethod
    def trouble(self) -> str | None:
        """Why the topology does not run as it should just now, in a sentence; None if it does."""

    @property
    @abstractmethod
    def waits_for(self) -> str | None:
        """What the topology waits for before it is up, in a sentence; None once it is."""

    @property
    @abstractmethod
    def outages(self) -> Sequence[str]:
        """The bolts that are out just now, a sentence each: for how long, why, and when they are tried next."""

    # What it is to do.

    @abstractmethod
    def activate(self) -> None:
        """Let spouts emit again after ``deactivate``.

        Raises:
            EngineError: it was stopped.
        """

    @abstractmethod
    def deactivate(self) -> None:
        """Let spouts rest; what is under way goes on.

        Raises:
            EngineError: it was stopped.
        """

    @abstractmethod
    def stop(self, drain: bool = True, timeout_secs: float | None = None) -> bool:
        """Stop it; it cannot be started again, but its topology can, with the same checkpoint.

        Args:
            drain: let trees that are open finish first; else they are left for replay.
            timeout_secs: how long to wait for them; None for ``message_timeout_secs``.

        Returns:
            Whether no tree was left open. In a listener or a spout of the topology, which it would wait for, it returns
            False at once, and another thread stops the topology.
        """

    @abstractmethod
    def close(self) -> None:
        """End everything at once; what is open is left for replay."""

    # Waiting for it.

    @abstractmethod
    def await_idle(self, timeout_secs: float | None = None) -> bool:
        """Wait until every tree is finished and nothing new has come; False where the time is over first.

        Raises:
            EngineError: it failed, or was stopped.
        """

    @abstractmethod
    def await_finished(self, timeout_secs: float | None = None) -> bool:
        """Wait until all spouts are exhausted and every tree is finished; False where the time is over first.

        Raises:
            EngineError: it failed, or was stopped.
        """

    @abstractmethod
    def await_drained(self, timeout_secs: float | None = None) -> bool:
        """Wait until no tree is open; False where the time is over first. Call ``deactivate`` before it.

        Raises:
            EngineError: it failed, or was stopped.
        """

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop it, without waiting for open trees if an exception leaves the block."""
        self.stop(drain=error is None)
