"""Effects: the requests of the driver machine to the program that runs it.

The machine changes nothing outside of itself: it yields these values, one by one, and continues when the shell has
performed them. A shell may die before or after each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.api.reports import Promotion
from sparkbolt.base.exceptions import user_code
from sparkbolt.wire.exclusion import Exclusion
from sparkbolt.wire.plan import MicroBatchPlan
from sparkbolt.wire.verdicts import Feedback

Rows: TypeAlias = Callable[[], list[Any]]
"""Makes new rows of a micro-batch with each call: user code may change them."""


@dataclass(frozen=True)
class TakeLife:
    """Take the number of a life, exclusively and durably; the result is the number."""


@dataclass(frozen=True)
class DropLetters:
    """Remove the dead letters of micro-batches after ``last_commit``, which were not committed."""

    last_commit: int


@dataclass(frozen=True)
class OpenSpouts:
    """Open each ``PartitionedSpout``; the result maps components to them."""


@dataclass(frozen=True)
class CallSpout:
    """Call a method of a ``PartitionedSpout``; the result is its return value. Other events may run meanwhile."""

    component: str
    spout: PartitionedSpout
    method: str
    arguments: tuple[Any, ...] = ()

    def __call__(self) -> Any:
        """Call it; ranges that the spout yields one by one become a list."""
        with user_code(f"{self.method} of {self.component!r}"):
            answer = getattr(self.spout, self.method)(*self.arguments)
            return list(answer) if isinstance(answer, Iterator) else answer


@dataclass(frozen=True)
class AskLag:
    """Ask a ``PartitionedSpout`` for its lag; the result is (lag by source, seconds by source, skipped positions)."""

    component: str
    spout: PartitionedSpout

    def __call__(self) -> tuple[Mapping[str, int], Mapping[str, float], int]:
        """Ask it."""
        with user_code(f"lag of {self.component!r}"):
            return self.spout.lag(), self.spout.lag_secs(), self.spout.take_skipped()


@dataclass(frozen=True)
class LetSpoutsEmit:
    """A plan is about to be made: ``Spout`` tasks may emit until then."""


@dataclass(frozen=True)
class Wait:
    """There is nothing to do: wait a little. The result is whether to look again; if not, Spark gets no new plan."""

    at_once: bool = False
    """Whether to answer at once unless the topology is inactive, so that Spark polls its other sources again."""


@dataclass(frozen=True)
class Execute:
    """Run the lane for a plan; the result is its ``Feedback``."""

    plan: MicroBatchPlan
    exclusion: Exclusion | None = None
    """The messages that this execution leaves out; None if the topology is not transactional."""
    repeats: bool = False
    """Whether the execution before it in this life did not count, so that it starts again from the state before."""


@dataclass(frozen=True)
class Counts:
    """The last execution counts: its feedback is about to be staged."""

    plan: MicroBatchPlan
    feedback: Feedback


@dataclass(frozen=True)
class Fence:
    """Check that no later life has begun, before effects that count. Raises ``FencedError`` otherwise."""

    life: int


@dataclass(frozen=True)
class Write:
    """Make a file of the checkpoint durable; it replaces one of the same name."""

    name: str
    data: bytes


@dataclass(frozen=True)
class Remove:
    """Remove a file of the checkpoint, if it exists."""

    name: str


@dataclass(frozen=True)
class WriteLetters:
    """Make the dead letters of a micro-batch durable; they replace those of an earlier run of it."""

    micro_batch_id: int
    letters: Sequence[bytes]


@dataclass(frozen=True)
class WriteEntry:
    """Make the ledger's entry of a micro-batch durable. From now on it counts, once Spark has committed it."""

    micro_batch_id: int
    entry: bytes


@dataclass(frozen=True)
class Commit:
    """Pass the rows of a micro-batch to ``commit`` of a component; done when they are outside."""

    component: str
    txid: int
    rows: Rows
    kept_as: str | None = None
    """The component's id when it kept them, if it has another one now: what it writes to knows it by that id."""


@dataclass(frozen=True)
class Tell:
    """A micro-batch is promoted: spouts, listeners and observers of the topology may get its results."""

    promotion: Promotion


@dataclass(frozen=True)
class Compact:
    """Replace the entries up to a promoted micro-batch by a snapshot of the ledger."""

    micro_batch_id: int
    snapshot: Callable[[], bytes]
    """Makes the snapshot."""


Effect: TypeAlias = (
    TakeLife
    | DropLetters
    | OpenSpouts
    | CallSpout
    | AskLag
    | LetSpoutsEmit
    | Wait
    | Execute
    | Counts
    | Fence
    | Write
    | Remove
    | WriteLetters
    | WriteEntry
    | Commit
    | Tell
    | Compact
)

T = TypeVar("T")
Steps: TypeAlias = Generator[Effect, Any, T]
"""The steps for one event: yields effects, receives their results, and returns a value."""
