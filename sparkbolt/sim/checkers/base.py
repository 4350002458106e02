"""Checker: the base of all checkers, and the facts that they share.

A checker only watches. It trusts committed data and the deliveries and acks that it has seen, never the ledger's
reports about itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.api.reports import Fail
from sparkbolt.base.ids import split_key
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.driver.ledger.outages import Outages
from sparkbolt.sim.checkers.trees import ExpectedVerdict, Trees
from sparkbolt.sim.driver import Driver
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.sim.sources import Queue
from sparkbolt.sim.subject import Subject
from sparkbolt.wire.exclusion import Exclusion
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from sparkbolt.wire.verdicts import KeptRows
from sparkbolt.worker.routing import Row
from sparkbolt.worker.state.task_state import DictStore

TRIES_IN_VAIN_MAX = 20
"""After so many micro-batches in a row with only Unavailable a bolt counts as permanently unavailable."""

Records = Mapping[Entry, Sequence[tuple[Any, Any]]]
"""(record, message id) of the entries of ``Spout`` tasks."""


@dataclass(frozen=True)
class Violation:
    """A broken promise."""

    promise: str
    words: str
    key: int | None = None
    """The tree for which it was broken, if it concerns one."""
    component: str | None = None
    """The responsible component, if it is known."""


@dataclass
class Facts:
    """The facts that all checkers share."""

    subject: Subject
    queues: Mapping[int, Queue]
    subjects: dict[int, Subject] = field(default_factory=dict)
    """The topology in each of its shapes, by the number of its generation; empty if it does not change."""
    generations: Generations = field(default_factory=lambda: Generations((Generation(),)))
    """The generations of the checkpoint."""
    trees: Trees = field(default_factory=Trees)
    verdicts: dict[int, ExpectedVerdict] = field(default_factory=dict)
    """The expected verdicts of micro-batches that are committed but not promoted."""
    plans: dict[int, MicroBatchPlan] = field(default_factory=dict)
    """The plan with which each micro-batch was committed."""
    alive: dict[int, Records] = field(default_factory=dict)
    """The records of ``Spout`` tasks with which each micro-batch was committed."""
    running: Records = field(default_factory=dict)
    records: int = 0
    """How many records of ``Spout`` tasks were in plans."""
    stores: Mapping[int, DictStore] = field(default_factory=dict)
    """The committed segments of each task, by its dest."""
    mono_s: float = 0.0
    """The monotonic clock, in seconds."""
    letters: Mapping[str, DeadLetter] = field(default_factory=dict)
    """The dead letters that sinks hold, by id."""
    requests: Mapping[tuple[str, int], DeadLetter] = field(default_factory=dict)
    """The letters that the operator gives back, by file and line of the request."""
    kept: dict[int, list[KeptRows]] = field(default_factory=dict)
    """By micro-batch: the rows of committers with which it was committed."""
    looped: dict[int, list[Row]] = field(default_factory=dict)
    """By micro-batch: the rows with the looped tuples that it delivered."""
    fails: Mapping[int, Fail] = field(default_factory=dict)
    """For each failed tree of the last committed micro-batch the fail; of several, the one that the acker reports."""
    left_out: dict[int, Exclusion] = field(default_factory=dict)
    """By micro-batch of a transactional topology: the trees that failed in it, which must leave nothing behind."""
    outages: Outages = field(default_factory=Outages)
    """The bolts that are unavailable after the last commit, whatever drivers have died since."""
    in_vain: dict[str, int] = field(default_factory=dict)
    """By bolt, in how many micro-batches in a row it was unavailable for all its input."""
    committed: int = -1
    stopped: str | None = None

    @property
    def away(self) -> str | None:
        """A permanently unavailable bolt, so that trees that wait for it never finish; None if there is none."""
        return next((bolt for bolt, tries in self.in_vain.items() if tries >= TRIES_IN_VAIN_MAX), None)

    def where(self, key: int) -> str:
        """Describe a tree in words."""
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

        Returns None if this depends on which task held a tree that timed out, which checkers do not know.
        """
        fail = self.fails.get(key)
        if fail is not None:
            return self.outages.costs_nothing(fail)
        return None if self.outages.out() else False


class Checker:
    """Watches one promise; its findings are in ``violations``."""

    promise = ""

    def __init__(self, facts: Facts) -> None:
        """Start with no events."""
        self.facts = facts
        self.violations: list[Violation] = []

    def broken(self, words: str, key: int | None = None, component: str | None = None) -> None:
        """Record that the promise was broken."""
        self.violations.append(Violation(self.promise, words, key, component))

    def shaped(self) -> None:
        """Called when the topology begins in another shape: a plan that nothing has committed may be made anew."""

    def moved(
        self, had: Mapping[int, DictStore], has: Mapping[int, DictStore], between: tuple[Generation, Generation]
    ) -> None:
        """Called when a generation begins with the state of the one before; both are given by dest."""

    def life_began(self, driver: Driver) -> None:
        """Called when a driver has loaded the durable state."""

    def told(self, driver: Driver) -> None:
        """Called before spouts are notified of verdicts."""

    def begun(self, plan: MicroBatchPlan, records: Records) -> None:
        """Called before a micro-batch runs, also when it runs again."""

    def ran(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome) -> None:
        """Called when all spark_tasks of a micro-batch have run."""

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """Called when a micro-batch is committed; ``verdict`` is the required outcome of its trees."""

    def wrote(self, component: str, txid: int, rows: Sequence[Any]) -> None:
        """Called when a committer gets the rows of a micro-batch."""

    def promoted(self, driver: Driver, promotion: Promotion, verdict: ExpectedVerdict) -> None:
        """Called when a micro-batch is promoted, by the driver that has committed it."""

    def idle(self, driver: Driver, now_ms: int, due_ms: int | None) -> None:
        """Called when there is nothing to do now; the engine would sleep until ``due_ms``, without a limit if None."""

    def ended(self, driver: Driver) -> None:
        """Called when everything is finished."""


def hashable(message_id: Any) -> Any:
    """Return a message id in a form that can be a key."""
    try:
        hash(message_id)
    except TypeError:
        return repr(message_id)
    return message_id
