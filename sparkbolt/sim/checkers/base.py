"""What a checker is, and what all of them know.

Which question it answers: when is a checker told, and of what?
Rule: a checker only watches. It believes what was committed, and what deliveries and acks it has seen, never what the
ledger says of itself.

Read before: ``trees``, ``driver``, ``executors``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkbolt.core.base.ids import split_key
from sparkbolt.core.driver.ledger.ledger import Promotion
from sparkbolt.core.driver.ledger.outages import Outages
from sparkbolt.core.model.dead_letters import DeadLetter
from sparkbolt.core.model.reports import Fail
from sparkbolt.core.protocol.plan import Entry, MicroBatchPlan
from sparkbolt.core.state.task_state import DictStore
from sparkbolt.sim.checkers.trees import ExpectedVerdict, Trees
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.sim.sources import Queue
from sparkbolt.sim.subject import Subject

TRIES_IN_VAIN_MAX = 20
"""In so many micro-batches in a row a bolt says Unavailable for all that it gets; then it will for ever."""

Records = Mapping[Entry, Sequence[tuple[Any, Any]]]
"""(record, message id) of the entries of ``Spout`` tasks."""


@dataclass(frozen=True)
class Violation:
    """A promise that was broken."""

    promise: str
    words: str
    key: int | None = None
    """The tree that it was broken for."""
    component: str | None = None
    """Who is to blame, where that is known."""


@dataclass
class Facts:
    """What all checkers know."""

    subject: Subject
    queues: Mapping[int, Queue]
    trees: Trees = field(default_factory=Trees)
    verdicts: dict[int, ExpectedVerdict] = field(default_factory=dict)
    """What has to become of trees, by committed micro-batch that is not promoted."""
    plans: dict[int, MicroBatchPlan] = field(default_factory=dict)
    """The plan with which each micro-batch was committed."""
    alive: dict[int, Records] = field(default_factory=dict)
    """The records of ``Spout`` tasks with which each micro-batch was committed."""
    running: Records = field(default_factory=dict)
    records: int = 0
    """How many records ``Spout`` tasks have put into plans."""
    stores: Mapping[int, DictStore] = field(default_factory=dict)
    """The committed segments of each task, by its dest."""
    mono_s: float = 0.0
    """The monotonic clock."""
    letters: Mapping[str, DeadLetter] = field(default_factory=dict)
    """The dead letters that sinks hold, by id."""
    fails: Mapping[int, Fail] = field(default_factory=dict)
    """Who failed each tree of the micro-batch that was committed last; of several, whom the acker believes."""
    outages: Outages = field(default_factory=Outages)
    """The bolts that are out as of the last commit, whatever drivers have died since."""
    in_vain: dict[str, int] = field(default_factory=dict)
    """By bolt, in how many micro-batches in a row it was unavailable for all that it got."""
    committed: int = -1
    stopped: str | None = None

    @property
    def away(self) -> str | None:
        """A bolt that is unavailable for ever, so that what waits for it is never finished; None where none is."""
        return next((bolt for bolt, tries in self.in_vain.items() if tries >= TRIES_IN_VAIN_MAX), None)

    def where(self, key: int) -> str:
        """A tree in words."""
        task, sequence = split_key(key)
        component, index = self.subject.topology.task_owner(task)
        for number, plan in self.plans.items():
            for entry in plan.reserving:
                if entry.task == task and entry.base <= sequence < entry.base + entry.reserved:
                    place = f" {entry.source}@{entry.position_of(sequence)}" if entry.source is not None else ""
                    return f"tree {key:x} of {component}[{index}]{place}, attempt {entry.attempt}, micro-batch {number}"
        return f"tree {key:x} of {component}[{index}]"

    def forgiven(self, key: int) -> bool | None:
        """Whether the failure of a tree of the last micro-batch costs no attempt.

        None where that depends on who had a tree that timed out, which nobody here knows.
        """
        fail = self.fails.get(key)
        if fail is not None:
            return self.outages.costs_nothing(fail)
        return None if self.outages.out() else False


class Checker:
    """Watches one promise; what it finds is in ``violations``."""

    promise = ""

    def __init__(self, facts: Facts) -> None:
        """Nothing has happened yet."""
        self.facts = facts
        self.violations: list[Violation] = []

    def broken(self, words: str, key: int | None = None, component: str | None = None) -> None:
        """The promise was broken."""
        self.violations.append(Violation(self.promise, words, key, component))

    def life_began(self, driver: Driver) -> None:
        """A driver has loaded what is durable."""

    def told(self, driver: Driver) -> None:
        """Spouts are about to hear of verdicts."""

    def begun(self, plan: MicroBatchPlan, records: Records) -> None:
        """A micro-batch is about to run, perhaps not for the first time."""

    def ran(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome) -> None:
        """All its spark_tasks have run."""

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """It is committed: the verdict is what has to become of trees."""

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """It is promoted, by the driver that has committed it."""

    def idle(self, driver: Driver, now_ms: int, due_ms: int | None) -> None:
        """There is nothing to do now; the engine would sleep until ``due_ms``, or for ever."""

    def ended(self, driver: Driver) -> None:
        """Everything is finished."""


def hashable(message_id: Any) -> Any:
    """A message id as it can be a key."""
    try:
        hash(message_id)
    except TypeError:
        return repr(message_id)
    return message_id
