"""Faults: the possible faults, their steps, and their form as text.

A fault belongs to a step of a micro-batch and happens once, the next time that step is reached. Faults are drawn before
the first micro-batch, from random numbers that nothing else uses. So one fault can be left out, and all the others
still happen as before.

    ask         Spark asks for the next offset
    plan        the plan is created; it is not yet in the offset log
    planned     the plan is in the offset log
    source      the source's spark_tasks run
    level       the spark_tasks of a level run
    run         all spark_tasks have ended; nothing is staged
    staging     the verdicts are collected; the ledger's entry is not yet written
    staged      the entry is written; the micro-batch is not committed
    committed   the micro-batch is committed, and not promoted
    committing  a committer gets the rows of the committed micro-batch
    promoted    the micro-batch is promoted; spouts are not yet notified
    compacting  a snapshot of the ledger replaces its entries
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sparkbolt.base.words import Word


class Step(Word):
    """A step of a micro-batch; see the table above."""

    ASK = "ask"
    PLAN = "plan"
    PLANNED = "planned"
    SOURCE = "source"
    LEVEL = "level"
    RUN = "run"
    STAGING = "staging"
    STAGED = "staged"
    COMMITTED = "committed"
    COMMITTING = "committing"
    PROMOTED = "promoted"
    COMPACTING = "compacting"


class FaultKind(Word):
    """The kinds of faults."""

    DRIVER_DIES = "driver-dies"
    QUERY_DIES = "query-dies"
    WRITE_FAILS = "write-fails"
    PLANNER_DIES = "planner-dies"
    CLOCK_JUMPS = "clock-jumps"
    QUEUE_GIVES_AGAIN = "queue-gives-again"
    WORKER_DIES = "worker-dies"
    EXECUTOR_DIES = "executor-dies"
    TASK_BREAKS = "task-breaks"
    TASK_REPEATS = "task-repeats"
    CONNECTION_BREAKS = "connection-breaks"
    SLOW = "slow"
    STAGED_TWICE = "staged-twice"
    COMMIT_OUTLIVES = "commit-outlives"
    COMMIT_IS_LATE = "commit-is-late"
    NO_NEWS = "no-news"
    CANNOT_OPEN = "cannot-open"
    TARGET_AWAY = "target-away"
    DIES_OUTSIDE = "dies-outside"
    CHANGES_SHAPE = "changes-shape"
    REBALANCES = "rebalances"


KINDS: dict[Step, dict[FaultKind, str]] = {
    Step.ASK: {FaultKind.NO_NEWS: "the spouts have nothing yet when Spark asks"},
    Step.PLAN: {
        FaultKind.DRIVER_DIES: "the driver dies before the plan is in the offset log",
        FaultKind.WRITE_FAILS: "the plan cannot be written to the offset log, and the query starts again",
        FaultKind.PLANNER_DIES: "the planner dies with the plan, and another asks again",
        FaultKind.CLOCK_JUMPS: "the wall clock jumps",
        FaultKind.QUEUE_GIVES_AGAIN: "queues lose their connections and give again what is not acked",
    },
    Step.PLANNED: {
        FaultKind.DRIVER_DIES: "the driver dies when the plan is in the offset log",
        FaultKind.QUERY_DIES: "the query dies when the plan is in the offset log, and starts again in the same driver",
        FaultKind.CANNOT_OPEN: (
            "the query dies, and a spout cannot be opened when it first starts again in the same driver"
        ),
        FaultKind.PLANNER_DIES: "the planner dies after the plan, and another asks for the spark_partitions",
    },
    Step.SOURCE: {
        FaultKind.WORKER_DIES: "a worker dies in the middle of what a spout read",
        FaultKind.EXECUTOR_DIES: "the executor dies with all its workers while the source is read",
        FaultKind.TASK_REPEATS: "a spark_task of the source runs again after a part of its output was seen",
        FaultKind.CONNECTION_BREAKS: "the connection of a spout breaks while it reads",
    },
    Step.LEVEL: {
        FaultKind.WORKER_DIES: "a worker dies in the middle of a frame",
        FaultKind.EXECUTOR_DIES: "the executor dies with all its workers and what they keep",
        FaultKind.TASK_BREAKS: "a spark_task breaks off; its worker lives on",
        FaultKind.TASK_REPEATS: "a spark_task runs again after a part of its output was seen",
    },
    Step.RUN: {
        FaultKind.DRIVER_DIES: "the driver dies before the micro-batch is staged",
        FaultKind.SLOW: "the micro-batch takes longer than the message timeout",
    },
    Step.STAGING: {
        FaultKind.DRIVER_DIES: "the driver dies between staging and the ledger's entry",
        FaultKind.WRITE_FAILS: "the ledger's entry cannot be written, and the query starts again",
    },
    Step.STAGED: {
        FaultKind.DRIVER_DIES: "the driver dies before the commit",
        FaultKind.COMMIT_OUTLIVES: "the driver dies, and the micro-batch is committed all the same",
        FaultKind.COMMIT_IS_LATE: "the micro-batch is committed after another driver has loaded the ledger",
        FaultKind.WRITE_FAILS: (
            "the commit cannot be written while the driver lives on; the micro-batch is run and staged again"
        ),
        FaultKind.STAGED_TWICE: "the micro-batch is staged twice",
    },
    Step.COMMITTED: {
        FaultKind.DRIVER_DIES: "the driver dies after the commit, before the promotion",
        FaultKind.QUERY_DIES: "the query dies after the commit, and starts again in the same driver",
    },
    Step.COMMITTING: {
        FaultKind.DRIVER_DIES: "the driver dies before the rows of a committer are outside",
        FaultKind.DIES_OUTSIDE: "the driver dies when the rows of a committer are outside, and this is not noted yet",
        FaultKind.TARGET_AWAY: "what a committer writes to is unavailable for a minute",
    },
    Step.PROMOTED: {FaultKind.DRIVER_DIES: "the driver dies after the promotion"},
    Step.COMPACTING: {FaultKind.DRIVER_DIES: "the driver dies in the middle of a compaction"},
}
CHANGES = {
    FaultKind.DRIVER_DIES: (FaultKind.CHANGES_SHAPE, "and the topology starts in another shape"),
    FaultKind.QUERY_DIES: (FaultKind.REBALANCES, "in another shape"),
}
"""The deaths after which the topology may go on in another shape."""
for _kinds in KINDS.values():
    _kinds |= {change: f"{_kinds[death]}, {words}" for death, (change, words) in CHANGES.items() if death in _kinds}
SHAPED = frozenset(change for change, _ in CHANGES.values())
_KNOWN = {(step, kind): None for step, kinds in KINDS.items() for kind in kinds}
PLACES = 1 << 16


@dataclass(frozen=True, order=True)
class Fault:
    """One fault of a history.

    >>> Fault.parse("2:level:worker-dies:517")
    Fault(micro_batch_id=2, step='level', kind='worker-dies', place=517)
    >>> str(Fault(0, Step.RUN, FaultKind.SLOW, 0))
    '0:run:slow:0'
    """

    micro_batch_id: int
    step: Step
    kind: FaultKind
    place: int
    """Selects the spark_task and its progress; the meaning of the number depends on the step."""

    def __str__(self) -> str:
        """Return the form that ``parse`` reads."""
        return f"{self.micro_batch_id}:{self.step}:{self.kind}:{self.place}"

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Parse the text that ``str`` returns.

        Raises:
            ValueError: The text is not a fault; the message lists the valid ones.
        """
        number, _, rest = text.strip().partition(":")
        step, _, rest = rest.partition(":")
        kind, _, place = rest.partition(":")
        if not number.isdigit() or not (place or "0").isdigit() or (step, kind) not in _KNOWN:
            valid = ", ".join(f"{step}:{kind}" for step, kind in _KNOWN)
            raise ValueError(
                f"{text!r} is no fault: expected MICRO_BATCH:STEP:KIND:PLACE, with STEP:KIND one of {valid}"
            )
        return cls(int(number), Step(step), FaultKind(kind), int(place or 0))

    @property
    def words(self) -> str:
        """The fault as a sentence."""
        return f"micro-batch {self.micro_batch_id}: {KINDS[self.step][self.kind]}"


def draw(
    random_: random.Random,
    micro_batches: int,
    *,
    queues: bool,
    committers: bool,
    shapes: bool = False,
    faults_max: int = 4,
) -> tuple[Fault, ...]:
    """Draw the faults of one seed, in the order of their micro-batches.

    Args:
        random_: The source of random numbers.
        micro_batches: Faults happen only in this many first micro-batches.
        queues: Whether there are queues that can deliver messages again.
        committers: Whether there are committers.
        shapes: Whether the topology changes its shape; then about half of the faults are changes.
        faults_max: The most faults that are drawn.
    """
    steps = [step for step in KINDS if committers or step != Step.COMMITTING]
    faults = []
    for _ in range(random_.randint(0, faults_max)):
        step = random_.choice(steps)
        kinds = [kind for kind in KINDS[step] if queues or kind != FaultKind.QUEUE_GIVES_AGAIN]
        chosen = [kind for kind in kinds if kind in SHAPED]
        if not shapes or not chosen or random_.random() < 0.5:
            chosen = [kind for kind in kinds if kind not in SHAPED]
        faults.append(Fault(random_.randrange(micro_batches), step, random_.choice(chosen), random_.randrange(PLACES)))
    return tuple(sorted(faults))


class Pending:
    """The faults that have not happened yet."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        """Start with all faults pending."""
        self._waiting: dict[tuple[int, Step], list[Fault]] = {}
        self.happened: list[Fault] = []
        for fault in faults:
            self._waiting.setdefault((fault.micro_batch_id, fault.step), []).append(fault)

    def take(self, micro_batch_id: int, step: Step) -> Fault | None:
        """Return the fault that happens at this step now, if any; each fault is returned once."""
        waiting = self._waiting.get((micro_batch_id, step))
        if not waiting:
            return None
        fault = waiting.pop(0)
        self.happened.append(fault)
        return fault


def history_of(texts: str | Sequence[str | Fault]) -> tuple[Fault, ...]:
    """Parse the faults of ``simulate``: a comma-separated str, or a sequence.

    >>> [str(fault) for fault in history_of("0:run:slow:0,1:plan:driver-dies:0")]
    ['0:run:slow:0', '1:plan:driver-dies:0']
    """
    parts: Sequence[str | Fault] = (
        [text for text in texts.split(",") if text.strip()] if isinstance(texts, str) else texts
    )
    return tuple(part if isinstance(part, Fault) else Fault.parse(part) for part in parts)
