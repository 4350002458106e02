"""The bolt runtime: what a task of a bolt with its own runtime does in a micro-batch.

In each micro-batch that has tuples for it, or in which its timer is due, the runtime is attached to its state, does the
work that is due, gets its rows, and sets its next timer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.base.ids import MAX_SEQUENCE, SEQUENCE_BITS, U64, unmix64_array
from sparkbolt.wire.plan import Timer
from sparkbolt.wire.stream_sources import SourceRanges, StreamSources

if TYPE_CHECKING:
    from sparkbolt.worker.emissions import Rows
    from sparkbolt.worker.results import Settlements
    from sparkbolt.worker.state.task_state import TaskState


@dataclass
class RuntimeEffects:
    """The effects of a runtime besides its present rows: on other trees, in the log and in the counts."""

    acks: list[tuple[U64, U64]] = field(default_factory=list)
    """(roots, edges), each uint64[pairs], of earlier tuples that are acked now."""
    fails: list[tuple[U64, BaseException]] = field(default_factory=list)
    """(roots, uint64[trees], of trees that fail; the reason)."""
    reports: list[str] = field(default_factory=list)
    """Texts to log; they are not errors."""
    metrics: ComponentMetrics = field(default_factory=ComponentMetrics)


class BoltRuntime(ABC):
    """The runtime of one task of a bolt with its own runtime.

    In a micro-batch its methods are called in the order in which they are defined here: ``rows`` once for each frame,
    the others at most once. Their emissions go into the ``Output`` that ``RuntimeBolt.runtime`` got.
    """

    def __init__(self) -> None:
        self.effects = RuntimeEffects()
        """The engine takes the effects after each call and replaces them with empty ones."""
        self.timer: Timer | None = None
        """When the task has to run next; None: when it gets rows."""
        self.marks: list[tuple[str, str, str, int, int]] = []
        """The newest timestamps of the tuples of this micro-batch (``source_marks.Report``)."""
        self.has_run = False
        """Whether user code has run in this micro-batch; the engine resets it when the micro-batch begins."""
        self.showing: Callable[[], AbstractContextManager[None]] = nullcontext
        """To be entered around each call of user code. It raises ``KilledWorkerError`` for a call that has killed its
        worker before and must not be repeated."""

    @abstractmethod
    def attach(self, state: TaskState) -> None:
        """Begin a micro-batch with the task's last committed state."""

    def hear(self, streams: Sequence[StreamSources], ranges: SourceRanges | None) -> None:  # noqa: B027
        """Called after ``attach`` with the sources of the input streams that the plan names, as in ``Clock``."""

    @abstractmethod
    def forget(self, is_void: Callable[[U64], npt.NDArray[np.bool_]]) -> None:
        """Drop tuples all of whose trees are void; called only in a micro-batch whose plan names void trees.

        Args:
            is_void: bool[roots] for an array of roots, uint64[roots].
        """

    @abstractmethod
    def begin(self, result: Settlements) -> None:
        """Do the work that is due at ``context.now_ms``, before this micro-batch's rows."""

    @abstractmethod
    def rows(self, rows: Rows, result: Settlements) -> npt.NDArray[np.bool_] | None:
        """Take in some rows; called once for each frame.

        Returns:
            Which rows are held, bool[rows]; None if none is. A row that is neither held nor in ``result.failures`` is
            acked.
        """

    @abstractmethod
    def end(self, result: Settlements) -> None:
        """Do the work that is due after this micro-batch's rows, and set ``timer``."""

    @abstractmethod
    def begin_flush(self) -> Any:
        """Called before ``flush`` of the bolt: emissions from now on have no anchors; return the bolt's collector."""

    def end_flush(self) -> None:  # noqa: B027
        """Called after ``flush`` of the bolt: nothing may be emitted from now on."""

    @abstractmethod
    def save(self) -> None:
        """Write the changes to the state; the state is committed next."""


def void_roots(void: Mapping[int, int]) -> Callable[[U64], npt.NDArray[np.bool_]]:
    """Return a function that finds the void roots of an array.

    Args:
        void: by task number, the sequence below which the task's trees are void.

    Returns:
        From roots, uint64[roots], to bool[roots].
    """

    def is_void(roots: U64) -> npt.NDArray[np.bool_]:
        keys = unmix64_array(roots)
        tasks, sequences = keys >> np.uint64(SEQUENCE_BITS), keys & np.uint64(MAX_SEQUENCE)
        found = np.zeros(len(keys), dtype=bool)
        for task, below in void.items():
            found |= (tasks == task) & (sequences < below)
        return found

    return is_void


def joined(pairs: Sequence[tuple[U64, U64]]) -> tuple[U64, U64]:
    """Concatenate (roots, edges), each uint64[pairs], into one such pair of arrays."""
    if not pairs:
        nothing = np.empty(0, dtype=np.uint64)
        return nothing, nothing
    return np.concatenate([roots for roots, _ in pairs]), np.concatenate([edges for _, edges in pairs])
