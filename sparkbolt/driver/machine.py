"""The driver machine: the order of the steps of a driver's life, without I/O.

    begin       take a life's number, load the ledger, open the spouts
    asked       first of all: commit rows and tell spouts their progress; then promote, plan
    confirmed   the plan runs
    ran         execute, then make letters, rows, looped tuples and the entry durable
    committed   commit rows, promote, notify, compact
    query_ended as ``committed``, if Spark has committed the staged micro-batch

Each method of an event is a generator: it yields effects (``effects``), and the shell that runs it performs them. There
are three shells: ``spark``, the simulator, and ``LocalEngine``.

Rule 1: stage, commit, promote. The entry of micro-batch n is the last file that n makes durable before Spark commits n;
n is promoted after that commit, and after its rows are outside. A spout gets a verdict after the promotion.
Rule 2: before a life writes or removes anything that counts, it checks that it is still the newest (``Fence``).
Rule 3: a micro-batch executes until an execution counts; only this one is staged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.base.file_access import Files
from sparkbolt.driver.commits import Commits
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.driver_metrics import DriverMetrics
from sparkbolt.driver.effects import (
    Compact,
    Counts,
    DropLetters,
    Effect,
    Execute,
    Fence,
    LetSpoutsEmit,
    OpenSpouts,
    Remove,
    Steps,
    T,
    TakeLife,
    Tell,
    Wait,
    WriteEntry,
    WriteLetters,
)
from sparkbolt.driver.ledger.agreement import LoggedOffset
from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.driver.ledger.ledger import Ledger, Promotion
from sparkbolt.driver.ledger.ledger_files import check_number, load_ledger
from sparkbolt.driver.ledger.ledger_settings import ledger_settings, settings_of
from sparkbolt.driver.lifecycle import Lifecycle
from sparkbolt.driver.looped_tuples import stored
from sparkbolt.driver.planner import Planner
from sparkbolt.driver.transaction import Transaction
from sparkbolt.layout.lane import Lane
from sparkbolt.observe.recorder import Observed
from sparkbolt.wire.plan import MicroBatchPlan, Offset
from sparkbolt.wire.verdicts import Feedback


def perform_all(steps: Steps[T], perform: Callable[[Effect], Any]) -> T:
    """Perform the effects of an event in their order, and return the value of the event.

    If ``perform`` raises, the steps end there.
    """
    result: Any = None
    with closing(steps):
        while True:
            try:
                effect = steps.send(result)
            except StopIteration as end:
                value: T = end.value
                return value
            result = perform(effect)


class Clocks(Protocol):
    """The clocks of a shell."""

    @property
    def now_ms(self) -> float:
        """The wall clock, in milliseconds since the epoch."""

    @property
    def mono_s(self) -> float:
        """A monotonic clock, in seconds."""


def begin(
    lane: Lane,
    files: Files,
    clock: Clocks,
    last_commit: Callable[[], int],
    logged: Callable[[int], LoggedOffset | None] = lambda _: None,
    *,
    generations: Sequence[Generation] = (),
    where: str = "the checkpoint",
    lifecycle: Lifecycle | None = None,
    metrics: DriverMetrics | None = None,
) -> Steps[DriverMachine]:
    """Begin a life: its number is durable before anything is read.

    Args:
        lane: the topology, laid out.
        files: the checkpoint's; they are only read here.
        clock: the time.
        last_commit: the number of the last micro-batch that Spark has committed; -1 if there is none.
        logged: returns the offset that Spark has logged as the end of a micro-batch; None if there is none.
        generations: the checkpoint's, oldest first; ``lane`` is the layout of the newest one.
        where: the checkpoint, for messages.
        lifecycle: the state of the topology, which outlives this life; None in a driver with one life.
        metrics: what user code records in the driver; it outlives this life, too.

    Raises:
        CheckpointError: an entry that counts is missing or damaged.
    """
    life: int = yield TakeLife()
    settings, committed = ledger_settings(lane), last_commit()
    ledger = load_ledger(
        files,
        committed,
        lambda before, state: Ledger(**(settings if before is None else settings_of(before)), state=state),
        generations,
        where=where,
    )
    check_number(life, ledger.life, where=where)
    ledger.begin_life(life)
    yield DropLetters(committed)
    spouts: Mapping[str, PartitionedSpout] = yield OpenSpouts()
    coordinator = Coordinator(
        lane,
        ledger,
        spouts,
        lifecycle or Lifecycle(),
        now_ms=int(clock.now_ms),
        mono_s=clock.mono_s,
        generations=generations,
    )
    planner = Planner(
        coordinator,
        files,
        where=where,
        last_commit=last_commit if lane.inlets else None,
        logged=logged,
        first=generations[-1].first if generations else 0,
        base=generations[-1].base if generations else 0,
    )
    transaction = Transaction(lane, files) if lane.topology.config.transactional else None
    commits = Commits(lane, files, generations)
    return DriverMachine(coordinator, planner, clock, commits, transaction, metrics or DriverMetrics())


class DriverMachine:
    """One life of the driver; not thread safe: the shell runs one event at a time, under its lock."""

    def __init__(
        self,
        coordinator: Coordinator,
        planner: Planner,
        clock: Clocks,
        commits: Commits,
        transaction: Transaction | None,
        metrics: DriverMetrics,
    ) -> None:
        """Made by ``begin``; ``transaction`` is None if the topology is not transactional."""
        self.coordinator = coordinator
        self.lifecycle = coordinator.lifecycle
        """The state of the topology."""
        self.planner = planner
        self._clock = clock
        self._commits = commits
        self._transaction = transaction
        self.metrics = metrics
        """What user code has recorded in the driver."""
        self._has_inlets = bool(coordinator.lane.inlets)
        self._is_new = True
        """Whether nothing was planned, and the rows of earlier lives may not be outside."""
        self._answered_s: deque[float] = deque(maxlen=2)
        """The monotonic times of the last answer to Spark, and of the one before."""
        self.promoting = False
        """Whether a committed micro-batch is being promoted, and some receivers are not notified yet."""
        self.promoted = False
        """Whether it has promoted a micro-batch."""
        self.running: tuple[int, float] | None = None
        """The micro-batch that Spark runs, and its start on the monotonic clock; None if it runs none."""
        coordinator.is_read_logged = planner.is_read_logged(coordinator.ledger.last_promoted + 1)

    @property
    def ledger(self) -> Ledger:
        """The ledger of this life."""
        return self.coordinator.ledger

    # Spark requests the next plan.

    def asked(self, start: Offset) -> Steps[Offset]:
        """Promote the micro-batch that ends at ``start``, if it is committed; then plan the next one.

        Returns:
            The end of the next micro-batch; ``start`` if there is nothing to do.
        """
        yield from self._take_over()
        number = self.planner.committed(start)
        if self._has_inlets:
            self._look_at_inlets(number)
        if number is not None:
            self.running = None
            yield from self.committed(number)
        end = yield from self._next_end(start, at_once=self._has_inlets and number is not None)
        self._answered_s.append(self._clock.mono_s)
        return end

    def _next_end(self, start: Offset, *, at_once: bool) -> Steps[Offset]:
        waits = True
        while waits:
            self.coordinator.observed.times.planned_ms = self._clock.now_ms
            yield LetSpoutsEmit()
            end = yield from self.next_offset()
            if end is not None:
                return end
            waits = yield Wait(at_once)
        plan = self.planner.plan_nothing(int(self._clock.now_ms), self._clock.mono_s)
        if plan is not None:
            return (yield from self._offset_of(plan))
        self.lifecycle.works(self.coordinator.life)
        return start

    def _look_at_inlets(self, committed: int | None) -> None:
        """Note since when the sources of inlets have had nothing new, if they have.

        Spark polls them before it polls here, and runs a micro-batch if any source has something new. So they had
        nothing if Spark has run none since its last request (``committed`` is None), or one in whose offsets only the
        plan is new.
        """
        since_s = self._answered_s[0] if len(self._answered_s) == 2 else None
        rows = committed is not None and self.planner.has_rows(committed)
        self.coordinator.inlets_quiet_s = None if rows else since_s

    def next_offset(self) -> Steps[Offset | None]:
        """Plan the next micro-batch, or return the plan that is in force; None if there is nothing to do."""
        yield from self._take_over()
        self.planner.look_for_returned()
        yield from self._drop_returned()
        plan = yield from self.coordinator.next_plan(int(self._clock.now_ms), self._clock.mono_s)
        return None if plan is None else (yield from self._offset_of(plan))

    def _offset_of(self, plan: MicroBatchPlan) -> Steps[Offset]:
        end, files = self.planner.offset_of(plan)
        yield from files
        return end

    # The plan runs.

    def confirmed(self, end: Offset) -> MicroBatchPlan:
        """Accept that Spark runs the micro-batch that ends at ``end``, and return its plan."""
        plan = self.planner.confirm(end, self._clock.mono_s)
        self.coordinator.observed.times.confirmed_ms = self._clock.now_ms
        self._runs(plan)
        return plan

    def _runs(self, plan: MicroBatchPlan) -> None:
        self.running = plan.micro_batch_id, self._clock.mono_s
        self.lifecycle.runs(self.coordinator.life)

    def ran(self, micro_batch_id: int) -> Steps[None]:
        """Run a confirmed micro-batch, and stage it; afterwards Spark commits it."""
        plan = self.planner.running(micro_batch_id, int(self._clock.now_ms), self._clock.mono_s)
        if self.running is None:
            self._runs(plan)
        if self._has_inlets:
            self.coordinator.inlets_quiet_s = None
            self.coordinator.is_read_logged = self.planner.has_rows(micro_batch_id)
        feedback = yield from self._executed(plan)
        yield from self.staged(micro_batch_id, feedback)

    def _executed(self, plan: MicroBatchPlan) -> Steps[Feedback]:
        """Execute a plan until an execution counts; each one leaves out the messages that failed in earlier ones."""
        transaction, times = self._transaction, self.coordinator.observed.times
        feedback: Feedback
        if transaction is None:
            feedback = yield Execute(plan)
        else:
            exclusion, repeats = transaction.begin(plan), False
            yield from transaction.outdated(plan.micro_batch_id)
            while True:
                feedback = yield Execute(plan, exclusion, repeats)
                yield Fence(self.coordinator.life)
                left_out = transaction.judge(plan, feedback)
                if left_out is None:
                    break
                yield transaction.abort(plan.micro_batch_id)
                times.aborted_ms, times.repeats = self._clock.now_ms, times.repeats + 1
                exclusion, repeats = left_out, True
        yield Counts(plan, feedback)
        return feedback

    def staged(self, micro_batch_id: int, feedback: Feedback) -> Steps[None]:
        """Stage the feedback of an execution; it replaces an earlier staging of the same micro-batch."""
        times = self.coordinator.observed.times
        times.collected_ms = self._clock.now_ms
        yield Fence(self.coordinator.life)
        if self._transaction is not None:
            self._transaction.settle(feedback)
        self.metrics.stage(micro_batch_id, feedback.metrics)
        entry = self.coordinator.stage(micro_batch_id, feedback)
        yield WriteLetters(micro_batch_id, feedback.letters)
        yield from self._commits.stage(micro_batch_id, feedback.kept)
        if feedback.looping:
            yield stored(micro_batch_id, feedback.looping)
        yield WriteEntry(micro_batch_id, entry)
        times.staged_ms = self._clock.now_ms

    # Spark has committed.

    def committed(self, micro_batch_id: int) -> Steps[Promotion]:
        """Promote a staged micro-batch that Spark has committed."""
        self.promoting = True
        try:
            self.coordinator.observed.times.committed_ms = self._clock.now_ms
            yield from self._commit_rows(micro_batch_id)
            promotion = yield from self.coordinator.promote(micro_batch_id, self._clock.mono_s)
            if self._transaction is not None:
                yield from self._transaction.forget(micro_batch_id)
            self.promoted = True
            self.lifecycle.works(self.coordinator.life)
            reason = self.coordinator.reason_to_stop(promotion)
            if reason is not None:
                self.lifecycle.fail(reason)
            yield Tell(promotion)
            self.coordinator.observed = Observed()
        finally:
            self.promoting = False
        yield from self._drop_returned()
        if (micro_batch_id + 1) % self.coordinator.config.compact_every == 0:
            self.coordinator.returned.is_due = True  # the request of an operator may not have reached this driver
            yield Compact(micro_batch_id, self.ledger.snapshot)
        return promotion

    def query_ended(self, last_commit: int) -> Steps[None]:
        """After the query has ended: promote the staged micro-batch, if Spark has committed it."""
        self.running = None
        number = self.planner.left_over(last_commit)
        if number is not None:
            yield from self.committed(number)

    def _take_over(self) -> Steps[None]:
        """In a new life: bring the rows of earlier lives outside, and only then tell the spouts their progress."""
        if self._is_new:
            yield from self._commit_rows(self.ledger.last_promoted)
            yield from self.coordinator.spout_steps.tell_sources(self.coordinator.spouts, changed=False)
            self._is_new = False

    def _drop_returned(self) -> Steps[None]:
        """Remove the files of returned letters that promoted plans have taken."""
        for number, name in enumerate(list(self.coordinator.returned.done())):
            if number == 0:
                yield Fence(self.coordinator.life)
            yield Remove(name)

    def _commit_rows(self, last_commit: int) -> Steps[None]:
        """Bring the rows of all micro-batches up to ``last_commit`` outside, in the order of their txids."""
        if self._commits.waits:
            yield Fence(self.coordinator.life)
            yield from self._commits.settle(last_commit)
