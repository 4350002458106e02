"""Operable: the interface through which a running topology is operated from outside.

``look`` and ``state`` never wait for a micro-batch. The other methods may wait: ``steering`` calls them in a separate
thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.progress import Progress
from sparkbolt.control.documents import MemoryDocument, TopologyState
from sparkbolt.control.kept_state import KeptState
from sparkbolt.driver.overrides import Overrides
from sparkbolt.layout.lane import Lane
from sparkbolt.observe.history import History
from sparkbolt.observe.measurements import Flow, FlowCounts
from sparkbolt.wire.peek import Peek, PeekedTuple


@dataclass(frozen=True)
class TopologyView:
    """The numbers of a running topology at a moment."""

    state: TopologyState
    why: str | None = None
    """The reason of its state, or a problem; None if all is well."""
    metrics: TopologyMetrics = field(default_factory=TopologyMetrics)
    """As of the last micro-batch that was promoted, if ``fresh`` is False."""
    fresh: bool = False
    retries: int = 0
    progress: Progress = field(default_factory=Progress)
    outages: tuple[str, ...] = ()
    trouble: str | None = None
    waits_for: str | None = None
    full: tuple[str, ...] = ()
    """Sentences on the components that have reached ``max_spout_pending``."""
    repeats: int = 0
    """How many executions of the running micro-batch were aborted."""


@dataclass(frozen=True)
class Places:
    """Where a topology runs; None: unknown."""

    master: str | None = None
    spark_ui: str | None = None
    application_id: str | None = None


class Operable(Protocol):
    """A running topology, for its operators. All methods may be called from any thread."""

    @property
    def lane(self) -> Lane:
        """The topology, laid out."""

    @property
    def checkpoint(self) -> str | None:
        """The path or URL of the checkpoint; None if it is temporary."""

    @property
    def letters_directory(self) -> str | None:
        """The directory of dead letters, if it is not in the checkpoint; None if it is."""

    def places(self) -> Places:
        """Where it runs."""

    def look(self, patience_secs: float) -> TopologyView:
        """Its present numbers; waits at most ``patience_secs`` for fresh ones, and then returns the last ones."""

    def history(self) -> History | None:
        """The history as it is now; None if there is none. It waits for nothing."""

    def flows(self) -> Mapping[Flow, FlowCounts]:
        """The counts by task and stream since the first start, as of the last micro-batch that was promoted."""

    def processes(self) -> list[MemoryDocument]:
        """The memory of the processes that are known."""

    def state_sizes(self) -> dict[str, int]:
        """Spark's state stores, as in ``NowDocument.state``."""

    def stored(self, as_of: int | None) -> KeptState:
        """What its tasks keep after a committed micro-batch, or after the last one; Spark reads it.

        Raises:
            WrongUseError: there is no such micro-batch.
            StateError: nothing is committed yet.
        """

    def activate(self) -> None:
        """Let spouts emit again.

        Raises:
            EngineError: the topology was stopped.
        """

    def deactivate(self) -> None:
        """Stop spouts from emitting.

        Raises:
            EngineError: the topology was stopped.
        """

    def plan(self, executors: Mapping[str, int], spark_partitions: int | None) -> list[str]:
        """What ``rebalance`` would do, a sentence each; none if nothing changes.

        Raises:
            SparkboltError: it cannot be done; the message says what to do.
        """

    def rebalance(self, executors: Mapping[str, int], spark_partitions: int | None, why: str) -> None:
        """Go on with other numbers of tasks, by component, and in another number of Spark's partitions.

        It takes over the state behind the running micro-batch, and counts as no failure.

        Raises:
            SparkboltError: it cannot be done.
        """

    def override(self, overrides: Overrides) -> None:
        """Apply changed settings, in this life and those that follow.

        Raises:
            EngineError: the topology was stopped.
        """

    def kill(self, wait_secs: float, why: str) -> None:
        """Stop the spouts, let open trees finish for at most ``wait_secs``, and end; returns at once."""

    def savepoint(self, name: str) -> str:
        """Copy the checkpoint as it is after the last micro-batch, and return the place of the copy.

        Raises:
            SparkboltError: it cannot be done; the message says what to do.
            OSError: the copy cannot be written.
        """

    def peek(self, peek: Peek, after: int) -> list[tuple[int, PeekedTuple]]:
        """Begin or prolong a peek, and return its tuples with a serial number above ``after``; it waits for nothing."""

    def take_letters(self) -> None:
        """Look for dead letters that an operator has given back, before the next plan."""

    def restart(self, why: str) -> None:
        """End the query, and begin another life from the checkpoint; it counts as no failure.

        Raises:
            EngineError: the topology was stopped.
        """

    def read(self, name: str) -> bytes | None:
        """A file of the checkpoint; None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Make a file of the checkpoint durable.

        Raises:
            FencedError: another driver has taken over the checkpoint.
            OSError: it cannot be written.
        """
