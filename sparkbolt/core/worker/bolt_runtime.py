"""The runtime of a bolt with a runtime: what a task of it does in a micro-batch.

Which question it answers: how does the engine run a bolt, such as a windowed one, that decides itself what its user
code sees and when?
Rule: in each micro-batch that gives it tuples, or in which it is due, it is attached to its state, told the time, given
its rows, and asked when it has to be told the time next.

Read before: ``runtime_bolts``, ``collectors``, ``state``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sparkbolt.core.base.ids import MAX_SEQUENCE, SEQUENCE_BITS, U64, unmix64_array
from sparkbolt.core.model.metrics import ComponentMetrics
from sparkbolt.core.protocol.plan import Timer

if TYPE_CHECKING:
    from sparkbolt.core.state.task_state import TaskState
    from sparkbolt.core.worker.results import TaskResult
    from sparkbolt.core.worker.tuple_batch import Rows


@dataclass
class RuntimeEffects:
    """What a task with a runtime says of trees that are not those of the rows it was given."""

    acks: list[tuple[U64, U64]] = field(default_factory=list)
    """(roots, edges) of tuples from earlier that are done now."""
    fails: list[tuple[U64, BaseException]] = field(default_factory=list)
    """Roots of trees that fail, and why."""
    reports: list[str] = field(default_factory=list)
    """What is to be logged; it is no error."""
    metrics: ComponentMetrics = field(default_factory=ComponentMetrics)


class BoltRuntime(ABC):
    """What runs one task of such a bolt.

    All methods are called once a micro-batch, in the order in which they stand here. What they emit goes into the
    ``Output`` that ``RuntimeBolt.runtime`` was given.
    """

    def __init__(self) -> None:
        self.effects = RuntimeEffects()
        """The engine takes them after each call and puts empty ones in their place."""
        self.timer: Timer | None = None
        """When the task has to be told the time; None: not until rows come."""
        self.has_run = False
        """Whether user code has run in this micro-batch; the engine sets it back when the micro-batch begins."""
        self.showing: Callable[[], AbstractContextManager[None]] = nullcontext
        """To be entered around each call of user code; raises KilledWorkerError where the call had killed its worker
        and is not to be made again."""

    @abstractmethod
    def attach(self, state: TaskState) -> None:
        """The micro-batch begins: ``state`` is that of the task, as it was committed last."""

    @abstractmethod
    def forget(self, is_void: Callable[[U64], npt.NDArray[np.bool_]]) -> None:
        """Drop tuples all of whose trees are void; called in a micro-batch that says that some are."""

    @abstractmethod
    def begin(self, result: TaskResult) -> None:
        """Do what is due at ``context.now_ms``, before this micro-batch's rows."""

    @abstractmethod
    def rows(self, rows: Rows, result: TaskResult) -> npt.NDArray[np.bool_] | None:
        """Take in some rows; called once a frame.

        Returns:
            Which rows are held; None if none is. A row that is neither held nor in ``result.failures`` is acked.
        """

    @abstractmethod
    def end(self, result: TaskResult) -> None:
        """Do what is due behind this micro-batch's rows, and set ``timer``."""

    def begin_flush(self) -> None:  # noqa: B027  most emit nothing
        """``flush`` of the bolt is called next: what is emitted from now on is anchored to nothing."""

    def end_flush(self) -> None:  # noqa: B027
        """``flush`` has been called: nothing is emitted from now on."""

    @abstractmethod
    def save(self) -> None:
        """Write to the state what has changed; it is committed next."""


def void_roots(void: Mapping[int, int]) -> Callable[[U64], npt.NDArray[np.bool_]]:
    """Says of roots which are void: those of a task below a sequence."""

    def is_void(roots: U64) -> npt.NDArray[np.bool_]:
        keys = unmix64_array(roots)
        tasks, sequences = keys >> np.uint64(SEQUENCE_BITS), keys & np.uint64(MAX_SEQUENCE)
        found = np.zeros(len(keys), dtype=bool)
        for task, below in void.items():
            found |= (tasks == task) & (sequences < below)
        return found

    return is_void


def joined(pairs: Sequence[tuple[U64, U64]]) -> tuple[U64, U64]:
    """All pairs as one."""
    if not pairs:
        nothing = np.empty(0, dtype=np.uint64)
        return nothing, nothing
    return np.concatenate([roots for roots, _ in pairs]), np.concatenate([edges for _, edges in pairs])
