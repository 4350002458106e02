"""Running topologies: the handle with which you observe and control a running topology.

The interface does not depend on the engine; ``spark.running`` implements it on Spark.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from sparkbolt.api.component_state import ComponentState
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.reports import FailedTree, MicroBatchReport
from sparkbolt.api.story import Story
from sparkbolt.base.engine_door import engine

if TYPE_CHECKING:
    from sparkbolt.api.progress import Progress
    from sparkbolt.api.topology import Topology


WAIT_SECS = 0.5
"""How long a thread of ``RunningTopology.wait`` waits before it looks whether it is still awaited."""


class TelemetrySink(Protocol):
    """Receives the reports of one topology, to send them to another system; ``Telemetry.build`` returns it.

    >>> class Counts:
    ...     def __init__(self) -> None: self.failed = 0
    ...     def micro_batch(self, report): self.failed += len(report.promotion.failed)
    ...     def close(self): print(f"{self.failed} trees failed")
    >>> sink: TelemetrySink = Counts()
    >>> sink.close()
    0 trees failed
    """

    def micro_batch(self, report: MicroBatchReport) -> None:
        """Take the report of a committed micro-batch; it must not wait for the other system.

        After a crash of the driver, it may get the report of the last micro-batch a second time.
        """

    def close(self) -> None:
        """Send the remaining reports, and end; called once, when the topology ends."""


class Telemetry(Protocol):
    """The type of ``telemetry=`` of ``Topology.start``, such as ``sparkbolt.telemetry.OpenTelemetry``."""

    def build(self, topology: Topology) -> TelemetrySink:
        """Return a sink for a topology that starts.

        Raises:
            ConfigError: the telemetry cannot be used as it is configured.
        """


class RunningTopology(ABC):
    """A running topology; ``Topology.start`` returns it. Used in a ``with`` statement, it is stopped at the end.

    All methods may be called from any thread. Methods block, except ``wait``, which is for asyncio, as is
    ``async with``. A notebook shows it as a table of its state and counts at that moment.

    >>> from sparkbolt import TopologyBuilder, bolt
    >>> from sparkbolt.spouts import GeneratorSpout
    >>> @bolt(outputs=["square"])
    ... def square(tup): yield [tup["n"] ** 2]
    >>> builder = TopologyBuilder("squares")
    >>> _ = builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(20)), outputs=["n"]))
    >>> _ = builder.set_bolt("square", square).shuffle_grouping("numbers")
    >>> with builder.build().start() as running:
    ...     running.await_finished(timeout_secs=300)
    ...     running.metrics().components["square"].executed
    True
    20
    """

    topology: Topology
    """The topology that runs."""

    # Observing it.

    @abstractmethod
    def metrics(self) -> TopologyMetrics:
        """Return a copy of the counts: totals since the topology's first start with its checkpoint.

        ``components`` has an entry for each component from the start on.
        """

    @abstractmethod
    def state(self, component: str, as_of: int | None = None) -> ComponentState:
        """Return what the tasks of a bolt keep, after a committed micro-batch.

        Spark reads it from the checkpoint when you first need it; that takes about a second, and the topology does not
        wait.

        Args:
            component: The id of the bolt.
            as_of: A committed micro-batch; None: the last one.

        Raises:
            WrongUseError: There is no such bolt, it keeps no state, or there is no such micro-batch.
            StateError: Nothing is committed yet.
        """

    @abstractmethod
    def savepoint(self, name: str) -> str:
        """Copy the checkpoint as it is after the last micro-batch, while the topology goes on.

        ``Topology.start(savepoint=...)`` begins another checkpoint from the copy.

        Args:
            name: The name of the copy, made of letters, digits, ``.``, ``_`` and ``-``.

        Returns:
            The directory or URL of the copy, in the folder ``savepoints`` of the checkpoint.

        Raises:
            EngineError: The topology has no checkpoint, or has ended.
            CheckpointError: Nothing is committed yet, or the copy is not whole.
            WrongUseError: There is a savepoint of this name, or it cannot have this name.
        """

    @abstractmethod
    def on_micro_batch(self, listener: Callable[[MicroBatchReport], None]) -> None:
        """Call ``listener`` after each committed micro-batch.

        All listeners are called in one thread, for which the engine waits, so they must return soon. If a listener
        raises, the exception is logged, and the listener is called again after the next micro-batch.
        """

    @property
    @abstractmethod
    def failed(self) -> Sequence[FailedTree]:
        """The newest trees that failed, with their stories, including those whose messages were retried."""

    @property
    @abstractmethod
    def given_up(self) -> Sequence[FailedTree]:
        """The newest trees that were given up after their last attempt, with their stories."""

    @property
    @abstractmethod
    def given_up_here(self) -> dict[str, int]:
        """How many messages of each spout were given up since ``start`` and not given back.

        Spouts without any are left out.
        """

    @property
    @abstractmethod
    def dead_letters_directory(self) -> str:
        """The directory of the dead letters of spouts for which ``dead_letters`` is not set.

        It is created with the first dead letter; ``sparkbolt dlq`` reads it.
        """

    @property
    @abstractmethod
    def traced(self) -> Sequence[Story]:
        """The stories of the newest trees that were traced and acked."""

    @property
    @abstractmethod
    def retries(self) -> int:
        """How many messages wait for a retry."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Whether the topology runs, or will restart automatically after a failure."""

    @property
    @abstractmethod
    def failure(self) -> str | None:
        """Why the topology failed finally, in a sentence; None if it did not."""

    @property
    @abstractmethod
    def killed(self) -> str | None:
        """Who has killed the topology from outside, as in "killed by alice"; None if it was not killed.

        A topology that was killed ends when its open trees have finished, or their time is over.
        """

    @abstractmethod
    def exits(self, exit_code: int) -> None:
        """Report to operators the exit code of the topology's process; called after ``stop``."""

    @abstractmethod
    def progress(self) -> Progress:
        """Return how far the current micro-batch, which is not committed yet, has come."""

    @property
    @abstractmethod
    def trouble(self) -> str | None:
        """Why the topology does not run properly at the moment, in a sentence; None if it does."""

    @property
    @abstractmethod
    def waits_for(self) -> str | None:
        """The reason for which a start waits, in a sentence; None when the topology has started."""

    @property
    @abstractmethod
    def outages(self) -> Sequence[str]:
        """The bolts with an outage at the moment, one sentence each: since when, why, and when the next probe is."""

    # Controlling it.

    @abstractmethod
    def activate(self) -> None:
        """Let spouts emit again after ``deactivate``.

        Raises:
            EngineError: the topology was stopped.
        """

    @abstractmethod
    def deactivate(self) -> None:
        """Stop spouts from emitting; tuples that were emitted before are processed further.

        Raises:
            EngineError: the topology was stopped.
        """

    @abstractmethod
    def stop(self, drain: bool = True, timeout_secs: float | None = None) -> bool:
        """Stop this run; it cannot be restarted, but the topology can be started again with the same checkpoint.

        Args:
            drain: whether to let open trees finish first; if not, their messages are left for replay.
            timeout_secs: how long to wait for open trees; None for ``message_timeout_secs``.

        Returns:
            Whether no tree was left open. If a listener or a spout of the topology calls it, it returns False at once,
            and another thread stops the topology.
        """

    @abstractmethod
    def close(self) -> None:
        """End the run at once; the messages of open trees are left for replay."""

    # Waiting for it.

    @abstractmethod
    def await_idle(self, timeout_secs: float | None = None) -> bool:
        """Wait until every tree is finished and there is nothing new; return False if the timeout expires first.

        Raises:
            EngineError: the topology failed, or was stopped.
        """

    @abstractmethod
    def await_finished(self, timeout_secs: float | None = None) -> bool:
        """Wait until all spouts are exhausted and every tree is finished; return False if the timeout expires first.

        Raises:
            EngineError: the topology failed, or was stopped.
        """

    @abstractmethod
    def await_drained(self, timeout_secs: float | None = None) -> bool:
        """Wait until no tree is open; return False if the timeout expires first. Call ``deactivate`` before it.

        Raises:
            EngineError: the topology failed, or was stopped.
        """

    async def wait(self, timeout_secs: float | None = None) -> bool:
        """Wait as ``await_finished`` does, in asyncio: ``await running.wait()`` leaves the event loop free.

        If the awaiting task is cancelled, the topology goes on. In code without asyncio, call ``await_finished``.

        Raises:
            EngineError: the topology failed, or was stopped.
        """
        now = asyncio.get_running_loop().time
        until = None if timeout_secs is None else now() + timeout_secs
        while True:
            left = WAIT_SECS if until is None else min(WAIT_SECS, max(0.0, until - now()))
            if await asyncio.to_thread(self.await_finished, left):
                return True
            if until is not None and now() >= until:
                return False

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the state, the counts and the latencies at this moment."""
        return str(engine("running_html")(self))

    def __enter__(self) -> Self:
        """Return the running topology itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the topology; if an exception leaves the block, do not wait for open trees."""
        self.stop(drain=error is None)

    async def __aenter__(self) -> Self:
        """Return the running topology itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """As ``__exit__``, without blocking the event loop."""
        await asyncio.to_thread(self.__exit__, kind, error, traceback)
