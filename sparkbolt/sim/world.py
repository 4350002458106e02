"""World: a driver, a query and executors in virtual time, with all faults that happen between them.

Rule 1: no rules here. Spark's calls are those of ``spark_loop``; the driver is ``driver.machine``, whose effects are
performed here.
Rule 2: all randomness comes from the seed, and is drawn separately for each micro-batch, so that leaving out a fault
changes nothing before it.
Rule 3: there are two phases. While faults are on, nothing wrong may happen; then faults are off, and everything must
finish.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from sparkbolt.api.causes import Cause
from sparkbolt.api.reports import Fail
from sparkbolt.driver.durable_effects import perform_on_files
from sparkbolt.driver.effects import (
    AskLag,
    CallSpout,
    Commit,
    Compact,
    Counts,
    Effect,
    Execute,
    LetSpoutsEmit,
    OpenSpouts,
    Remove,
    Steps,
    T,
    TakeLife,
    Tell,
    Wait,
    Write,
    WriteEntry,
    WriteLetters,
)
from sparkbolt.driver.ledger.generations import Generations
from sparkbolt.driver.ledger.ledger import Promotion
from sparkbolt.driver.ledger.ledger_files import Tenure, cut_back
from sparkbolt.driver.lifecycle import Lifecycle, LifecycleEvent
from sparkbolt.driver.machine import begin, perform_all
from sparkbolt.errors import OutdatedLifeError, check
from sparkbolt.sim.checkers.acks import Checkers
from sparkbolt.sim.checkers.dead_letter_sinks import SimulatedSink, letters_in
from sparkbolt.sim.committing import LocalCommitters
from sparkbolt.sim.driver import WHERE, Driver, DriverDied, Durable, QueryDied
from sparkbolt.sim.executors import Executors, MicroBatchOutcome
from sparkbolt.sim.faults import SHAPED, Fault, FaultKind, Pending, Step
from sparkbolt.sim.give_backs import GiveBacks
from sparkbolt.sim.observer import AttemptObserver, Sightings
from sparkbolt.sim.sources import Queue
from sparkbolt.sim.spark_loop import ConcurrentLogError, MicroBatchLoop
from sparkbolt.sim.spouts import close_ranged, open_ranged
from sparkbolt.sim.subject import Subject
from sparkbolt.wire.acker import gather
from sparkbolt.wire.exclusion import NOTHING_EXCLUDED
from sparkbolt.wire.plan import BEFORE_THE_FIRST, MicroBatchPlan, Offset, Piece
from sparkbolt.wire.verdicts import Feedback
from sparkbolt.worker.routing import Row

START_MS = 1_767_225_600_000
"""The time at which every simulation begins: 2026-01-01, in milliseconds since the epoch."""
MICRO_BATCH_MS = 300
MICRO_BATCHES_MAX = 2000
"""A world that has not finished after this many micro-batches never finishes."""
IDLE_TURNS_MAX = 2000
QUIET_TURNS_MAX = 60
"""After this many turns without new messages, an endless source is assumed to have no more now."""
STAGING_CHANGES = 4
"""A driver that dies while it stages has changed fewer files than this, and never the entry."""
AWAY_MS = 60_000
JUMP_MS_MAX = 3_600_000
RESTARTS_MAX = 20
"""More starts of a query than this without a commit between them count as a failure."""

Ready = tuple[MicroBatchPlan, list[list[Piece]]]
"""The plan to run, and the share of each spark_task of the source."""


class World:
    """One topology under one seed."""

    def __init__(
        self,
        subject: Subject,
        seed: int,
        faults: Sequence[Fault],
        *,
        micro_batches: int,
        checkers: Checkers,
        stories: bool = False,
        trails: bool = False,
        give_backs: int = 0,
    ) -> None:
        """Begin the first life.

        Args:
            subject: The topology.
            seed: Determines everything that is random, except the faults.
            faults: The faults to happen, in this order if they are at the same step.
            micro_batches: About how many micro-batches read the messages; later ones read all that is left.
            checkers: The checkers that watch.
            stories: As in ``AttemptObserver``.
            trails: As in ``AttemptObserver``.
            give_backs: The most requests of an operator to give dead letters back.
        """
        self.subject = subject
        self.seed = seed
        self.pending = Pending(faults)
        self.checkers = checkers
        self.now_ms = START_MS
        self.mono_s = 0.0
        self.durable = Durable()
        spouts = subject.lane.topology
        self.durable.queues = {
            number: Queue(messages, spouts.components[spouts.task_owner(number)[0]].config.max_attempts or 3)
            for number, messages in subject.queued.items()
        }
        checkers.facts.queues = self.durable.queues
        checkers.facts.stores = self.durable.stores
        checkers.facts.letters = self.durable.letters
        self._operator = GiveBacks(seed, give_backs, self.durable.files, self.durable.letters)
        checkers.facts.requests = self._operator.requests
        self.executions = 0
        self.trail: list[tuple[str, int]] = []
        self.details: list[tuple[str, ...]] = []
        self._micro_batches = micro_batches
        self._quiet_turns = 0
        self._ran: tuple[MicroBatchPlan, MicroBatchOutcome] | None = None
        self._shares: list[list[Piece]] = []
        """The share of each spark_task of the source in the plan to run."""
        self._looped: Sequence[Row] = ()
        """The rows with the looped tuples that the plan to run delivers."""
        self._random = random.Random()
        self._outcome = MicroBatchOutcome()
        """The outcome of the last execution."""
        self._waited = False
        """Whether there was nothing to do when Spark asked last."""
        self._staging: tuple[Fault, int] | None = None
        """The fault that happens while the micro-batch is staged, and how many files change before it."""
        self._aborted: tuple[MicroBatchPlan | None, list[Sightings]] = None, []
        """The observations of the aborted executions of the newest transactional micro-batch, in all lives."""
        self._late: tuple[MicroBatchPlan, MicroBatchOutcome, Callable[[], None]] | None = None
        """What a dead driver still commits after the next one has begun; the last of it does so."""
        self._shape = 0
        """Which of the shapes the topology starts in."""
        self._dead: list[Driver] = []
        """Simulated drivers that have died: their spouts are closed at the end."""
        self._dies_after_commit = False
        self._cannot_open = False
        """Whether a spout raises in ``open`` when the query starts again."""
        self._restarts = 0
        """How many times the query was started since the last commit."""
        stamps = random.Random(seed)
        self._stamps = lambda: stamps.getrandbits(63) + 1
        self.observer = AttemptObserver(subject.lane, stories=stories, trails=trails)
        self._sink = SimulatedSink(self.durable.letters, self.observer)
        self._lay_out()
        self._begin_life()

    def _lay_out(self) -> None:
        """Run the topology, as it is now, on new executors."""
        self._environment = self.subject.environment_with(self._stamps, self.observer, self._sink)
        self.executors = Executors(self.subject.lane, self._environment, self.observer, self.durable.stores)

    def _take_shape(self) -> None:
        """Begin a generation, if the topology starts in another shape, or if the newest one has committed nothing."""
        durable, facts = self.durable, self.checkers.facts
        known = durable.generations if facts.subjects else Generations()
        self.subject, generations = self.subject.begun(
            self._shape, known, durable.last_commit, is_planned=durable.is_planned
        )
        if durable.keep(generations):
            self.observer.lane = self.subject.lane
            self.checkers.shaped(self.subject, generations)
        unmoved = generations.unmoved(durable.last_commit)
        if unmoved is not None:
            before, newest = unmoved
            has = self.subject.moved(durable.states, unmoved, self._stamps)
            self.checkers.moved(durable.states[before.folder], has, unmoved)
            durable.states[newest.folder] = has
        facts.stores = durable.stores
        self._lay_out()

    def _begin_life(self, before: Driver | None = None) -> None:
        if before is None:
            self._tenure = Tenure(self.durable.files)
            cut_back(self.durable.files, self.durable.last_commit)
        if self.subject.shapes:
            self._take_shape()
        self._committers = LocalCommitters(self.subject.lane, self._environment)
        lifecycle = Lifecycle() if before is None else before.lifecycle
        durable = self.durable
        steps = begin(
            self.subject.lane,
            durable.files,
            self,
            lambda: durable.last_commit,
            durable.logged,
            generations=durable.generations if self.subject.shapes else (),
            where=WHERE,
            lifecycle=lifecycle,
        )
        machine = self._perform_all(steps)
        self.driver = Driver(self.subject, self._environment, self.durable, machine, self._tenure, before)
        self._limit_buffers()
        self.checkers.life_began(self.driver)
        if self._late is not None:
            plan, outcome, commit_late = self._late
            self._late = None
            commit_late()
            if self.durable.last_commit == plan.micro_batch_id:
                self._count(plan, outcome)
        self._loop = MicroBatchLoop[Ready](self.durable.log, self)

    def _limit_buffers(self) -> None:
        """Let each ``Spout`` of the user, which may be endless, give only some messages to each micro-batch."""
        share = max(1, self.subject.messages_max // self._micro_batches)
        for buffer in self.driver.coordinator.buffers.values():
            buffer.pending_max = min(buffer.pending_max, share)

    # The two phases.

    def run(self) -> str | None:
        """Run until everything is finished; return why it does not finish, or None.

        The run also ends if the topology stops itself, or if a bolt is permanently unavailable (``Facts.away``).
        """
        idle = 0
        while self.executions < MICRO_BATCHES_MAX and idle < IDLE_TURNS_MAX:
            if self.checkers.violations:
                return None
            if self.stopped is not None or self.checkers.facts.away is not None:
                return None
            self._give_back()
            enough = self._enough() and not self.driver.coordinator.returned.waits
            self.driver.lifecycle.on(LifecycleEvent.DEACTIVATE if enough else LifecycleEvent.ACTIVATE)
            if self._quiet and not self._give_back(at_end=True):
                return None
            if self._turn():
                idle = 0
                continue
            coordinator = self.driver.coordinator
            if coordinator.finished or (enough and coordinator.drained and not coordinator.retries):
                if self._give_back(at_end=True):
                    continue
                return None
            idle += 1
            self._quiet_turns += 1
            due = self.driver.coordinator.next_due_ms(self.now_ms, self.mono_s)
            self.checkers.idle(self.driver, self.now_ms, due)
            self._pass(max(1, due - self.now_ms) if due is not None else MICRO_BATCH_MS)
        return f"it does not finish: {self.executions} micro-batches were run, {self._rest()}"

    def _give_back(self, *, at_end: bool = False) -> bool:
        """Let the operator act, and the driver look at the requests; return whether there is a new one."""
        acts = self._operator.act(at_end=at_end)
        if acts:
            self.driver.coordinator.returned.is_due, self._quiet_turns = True, 0
        return acts

    @property
    def _quiet(self) -> bool:
        """Whether nothing new has arrived for long, and everything that was read waits only for the topology.

        A source that is followed never ends. Without message timeouts a tree that is never acked stays open.
        """
        coordinator = self.driver.coordinator
        still = coordinator.drained or (
            not coordinator.config.enable_message_timeouts and coordinator.ledger.staged is None
        )
        waits = coordinator.retries or coordinator.returned.waits
        return self._quiet_turns >= QUIET_TURNS_MAX and still and not waits

    @property
    def stopped(self) -> str | None:
        """Why the topology stopped itself, as ``on_error="stop"`` demands; None if it did not."""
        return self.checkers.facts.stopped

    def _rest(self) -> str:
        ledger = self.driver.ledger
        return f"{ledger.open_trees} trees are open, {self.driver.coordinator.retries} records wait to be read again"

    def _enough(self) -> bool:
        """Whether possibly endless spouts have given enough: then only open trees are finished, and none begin."""
        queues = [queue for queue in self.durable.queues.values() if len(queue.done) < len(queue.messages)]
        own = len(self.driver.coordinator.buffers) > len(self.durable.queues)
        return own and not queues and self.checkers.facts.records >= self.subject.messages_max

    def _pass(self, ms: int) -> None:
        self.now_ms += ms
        self.mono_s += ms / 1000
        self.checkers.facts.mono_s = self.mono_s

    # One micro-batch.

    def _turn(self) -> bool:
        """Run one micro-batch, unless a fault ends it; return False if there is nothing to do now."""
        try:
            return self._loop.trigger()
        except DriverDied:
            self._new_driver()
        except (QueryDied, OutdatedLifeError, ConcurrentLogError):
            try:
                self._begin_again()
            except DriverDied:
                self._new_driver()
        return True

    def _new_driver(self) -> None:
        self._dead.append(self.driver)
        self.executors.die()
        for queue in self.durable.queues.values():
            queue.lose_connection(noticed=False)
        self._operator.act()
        is_begun = False
        while not is_begun:
            with suppress(DriverDied):  # as it may while it changes its shape
                self._begin_life()
                is_begun = True
        self.durable.files.changes_left = None

    def _begin_again(self) -> None:
        """Begin another life in the same driver, because the query has ended; its ``Spout`` tasks go on."""
        self._restarts += 1
        self.driver.lifecycle.restart(self.driver.ledger.life, "its query died", ordered=False)
        check(self._restarts <= RESTARTS_MAX, f"the query was started {self._restarts} times without a commit")
        self._still_ours()
        self._perform_all(self.driver.machine.query_ended(self.durable.last_commit))
        self._hear()
        self.executors.die()
        if self._cannot_open:  # that life has taken its number, but ends before it has a coordinator
            self._cannot_open = False
            self.durable.take_life(self.driver.tenure)
            self._still_ours()
        self._begin_life(self.driver)
        self.durable.files.changes_left = None

    def _still_ours(self) -> None:
        self.driver.tenure.check()

    @property
    def _first(self) -> int:
        """The micro-batch that is Spark's number 0."""
        return self.durable.generations[-1].first

    # Spark's loop calls these.

    def initial_offset(self) -> Offset:
        """Return the offset before the first micro-batch in Spark's folder."""
        return {**BEFORE_THE_FIRST, "micro_batch_id": self._first - 1}

    def latest_offset(self, start: Offset) -> Offset:
        """Return the end of the next micro-batch."""
        self._waited = False
        offset = self._perform_all(self.driver.machine.asked(start))
        if self._waited:
            return offset
        fault = self._step(self.driver.ledger.last_promoted + 1, Step.PLAN)
        if fault is not None and fault.kind == FaultKind.PLANNER_DIES:
            self.now_ms += 1
            again = self._perform_all(self.driver.machine.next_offset())
            self.now_ms -= 1
            assert again is not None, "a plan that was made is there until it is confirmed"
            return again
        if fault is not None and fault.kind == FaultKind.CLOCK_JUMPS:
            self.now_ms = max(1, self.now_ms + fault.place * 7919 % (2 * JUMP_MS_MAX) - JUMP_MS_MAX)
        elif fault is not None and fault.kind == FaultKind.QUEUE_GIVES_AGAIN:
            for queue in self.durable.queues.values():
                queue.lose_connection()
        return offset

    def commit(self, end: Offset) -> None:
        """Do nothing: the start of the next request has the same information, and has it earlier."""

    def spark_partitions(self, start: Offset, end: Offset) -> Ready:
        """Return the plan that Spark runs, and the share of each spark_task of the source."""
        machine = self.driver.machine
        plan = machine.confirmed(end)
        self._looped = machine.planner.looped(plan)
        return plan, machine.planner.shares(plan, self.subject.lane.spark_partitions)

    def run_micro_batch(self, batch_id: int, parts: Ready) -> None:
        """Run the spark_tasks of a micro-batch, and ``foreachBatch``."""
        plan, self._shares = parts
        micro_batch_id = self._first + batch_id
        check(plan.micro_batch_id == micro_batch_id, f"Spark runs {micro_batch_id} with the plan of another: {plan}")
        self._quiet_turns = 0 if plan.reserving else self._quiet_turns + 1
        self.executions += 1
        self._random = random.Random(f"{self.seed}/{micro_batch_id}/{self.executions}")
        self.checkers.begun(plan, self.driver.records_of(plan))
        self._pass(MICRO_BATCH_MS)
        self._perform_all(self.driver.machine.ran(micro_batch_id))
        self._ran = plan, self._outcome
        self._hear()
        self._is_staged(plan)

    def _is_staged(self, plan: MicroBatchPlan) -> None:
        fault = self.pending.take(plan.micro_batch_id, Step.STAGED)
        kind = fault.kind if fault is not None else None
        if kind == FaultKind.STAGED_TWICE:
            feedback = gather(data for _, data in self._outcome.rows)
            self._perform_all(self.driver.machine.staged(plan.micro_batch_id, feedback))
        elif fault is not None:
            if kind == FaultKind.COMMIT_IS_LATE or (kind == FaultKind.CHANGES_SHAPE and fault.place % 3 == 0):
                log, number = self.durable.log, plan.micro_batch_id - self._first
                self._late = plan, self._outcome, lambda: log.commits.add(number)
            self._happen(fault)
        self._dies_after_commit = kind == FaultKind.COMMIT_OUTLIVES

    def at(self, step: str, batch_id: int) -> None:
        """Let faults happen where Spark writes a file of its logs."""
        micro_batch_id = self._first + batch_id
        if step == "logged":
            fault = self._step(micro_batch_id, Step.PLANNED)
            if fault is not None and fault.kind == FaultKind.CANNOT_OPEN:
                self._cannot_open = True
                raise QueryDied
        if step == "committed":
            assert self._ran is not None
            self._count(*self._ran)
            self._restarts = 0
            if self._dies_after_commit:
                self._dies_after_commit = False
                raise DriverDied
            self._step(micro_batch_id, Step.COMMITTED)

    def _count(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome) -> None:
        """Record that a micro-batch is committed, and its state with it."""
        self.durable.stores.update(outcome.stores)
        self.durable.letters.update((letter.id, letter) for letter in letters_in(outcome.letters))
        self.checkers.committed(plan, outcome)

    # The effects of the driver machine.

    def _perform_all(self, steps: Steps[T]) -> T:
        return perform_all(steps, self._perform)

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case TakeLife():
                return self.durable.take_life(self._tenure)
            case OpenSpouts():
                return open_ranged(self.subject.lane, self._environment)
            case CallSpout() | AskLag():
                return effect()
            case LetSpoutsEmit():
                self._let_spouts_emit(self.driver.ledger.last_promoted + 1)
            case Wait():
                self._waited = True
                return False
            case Execute():
                return self._executed(effect)
            case Counts(plan, feedback):
                self._counts(plan, feedback)
            case Commit():
                self._commit_outside(effect)
            case Tell(promotion):
                self._tell(promotion)
            case Compact():
                self._compact(effect)
            case _:
                self._may_die_staging(effect)
                perform_on_files(effect, self.durable.files, self.durable.files, self._tenure)
        return None

    def _let_spouts_emit(self, number: int) -> None:
        self._hear()
        if self._step(number, Step.ASK) is None:
            for task in self.driver.spouts.values():
                task.turn(self.driver.lifecycle.emits)
            self._set_budgets(number)
        else:
            for component in self.subject.positions:
                self.driver.coordinator.rates[component].budget = 0

    def _hear(self) -> None:
        """Notify ``Spout`` tasks of verdicts; on Spark their own threads are notified at any time."""
        if self.driver.spouts:
            self.checkers.told(self.driver)
            for task in self.driver.spouts.values():
                task.hear()

    def _set_budgets(self, number: int) -> None:
        """Limit the messages of a micro-batch while faults are on, so that there are several; then read the rest."""
        random_ = random.Random(self.seed * 1000 + number) if number < self._micro_batches - 1 else None
        for component, rate in self.driver.coordinator.rates.items():
            share = total = self.subject.positions.get(component, self.subject.messages_max)
            if random_ is not None:
                share = random_.randint(1, max(1, 2 * total // self._micro_batches))
            rate.budget = max(1, share)

    def _executed(self, effect: Execute) -> Feedback:
        """Run the spark_tasks of a plan."""
        plan, exclusion = effect.plan, effect.exclusion
        if effect.repeats:
            self._aborted[1].extend(self._outcome.sightings)
            self._step(plan.micro_batch_id, Step.RUN)
        elif exclusion is not None and self._aborted[0] != plan:
            self._aborted = plan, []
        exclusion = exclusion or NOTHING_EXCLUDED
        self._outcome = self.executors.run(plan, self._shares, self.pending, self._random, exclusion, self._looped)
        self._outcome.exclusion = exclusion
        return gather(data for _, data in self._outcome.rows)

    def _counts(self, plan: MicroBatchPlan, feedback: Feedback) -> None:
        outcome = self._outcome
        if self.subject.topology.config.transactional:
            _bring_failures(self._aborted[1], outcome.sightings)
        for seen in outcome.sightings:
            self.trail += seen.trail
            self.details += seen.details
        self.checkers.ran(plan, outcome)
        self._give_back()
        fault = self._step(plan.micro_batch_id, Step.RUN)
        if fault is not None and fault.kind == FaultKind.SLOW:
            self._pass(int(self.subject.topology.config.message_timeout_secs * 1500))
        outcome.healths, outcome.letters, outcome.kept = feedback.healths, list(feedback.letters), feedback.kept

    def _may_die_staging(self, effect: Effect) -> None:
        """Let a fault happen between the files that a staged micro-batch changes; the last of them is its entry."""
        if isinstance(effect, WriteLetters):
            fault = self.pending.take(effect.micro_batch_id, Step.STAGING)
            self._staging = None if fault is None else (fault, fault.place % STAGING_CHANGES)
        if self._staging is not None and isinstance(effect, WriteLetters | Write | Remove | WriteEntry):
            fault, left = self._staging
            self._staging = fault, left - 1
            if left == 0 or isinstance(effect, WriteEntry):
                self._staging = None
                self._happen(fault)

    def _commit_outside(self, effect: Commit) -> None:
        """Let faults happen while a committer gets its rows; wait for an unavailable target."""
        fault = self._step(effect.txid - 1, Step.COMMITTING)  # txids begin at 1, micro-batches at 0
        kind = fault.kind if fault is not None else None
        if kind == FaultKind.TARGET_AWAY:
            self._pass(AWAY_MS)
        self.checkers.wrote(effect.kept_as or effect.component, effect.txid, effect.rows())
        self._committers.commit(effect)
        if kind == FaultKind.DIES_OUTSIDE:
            raise DriverDied

    def _tell(self, promotion: Promotion) -> None:
        self.checkers.promoted(self.driver, promotion)
        self._step(promotion.micro_batch_id, Step.PROMOTED)

    def _compact(self, effect: Compact) -> None:
        files = self.durable.files
        fault = self.pending.take(effect.micro_batch_id, Step.COMPACTING)
        if fault is not None:
            files.changes_left = fault.place % 4
        perform_on_files(effect, files, files, self._tenure)
        if fault is not None:
            files.changes_left = None
            self._happen(fault)

    def _step(self, number: int, step: Step) -> Fault | None:
        """Return the fault that happens at a step, if any; a death is raised."""
        fault = self.pending.take(number, step)
        if fault is not None:
            self._happen(fault)
        return fault

    def _happen(self, fault: Fault) -> None:
        """Raise a fault that is a death; the topology may go on in another shape after it."""
        last = self.durable.last_commit
        if fault.kind in SHAPED and self.subject.shapes and last >= 0:  # before that, it begins anew
            back = fault.place % 4 == 0 and last < self.durable.generations[-1].base
            self._shape = min(max(0, self._shape + (-1 if back else 1)), len(self.subject.shapes) - 1)
            self.durable.files.changes_left = fault.place // 8 % 8 if fault.place % 2 else None
        if fault.kind in (FaultKind.DRIVER_DIES, FaultKind.CHANGES_SHAPE, FaultKind.COMMIT_IS_LATE):
            raise DriverDied
        if fault.kind in (FaultKind.QUERY_DIES, FaultKind.WRITE_FAILS, FaultKind.REBALANCES):
            raise QueryDied

    def close(self) -> None:
        """End all processes; the topology's connections are closed as in a crash."""
        self.executors.die()
        for driver in (*self._dead, self.driver):
            close_ranged(driver.coordinator.spouts)


def _bring_failures(aborted: Iterable[Sightings], counting: Iterable[Sightings]) -> None:
    """Replace the failures of excluded trees by those that were seen in aborted executions."""
    fails: dict[int, list[Fail]] = {}
    for seen in aborted:
        for fail in seen.fails:
            if fail.cause != Cause.EXCLUDED:
                fails.setdefault(fail.key, []).append(fail)
    for seen in counting:
        brought = [fails.get(fail.key, [fail]) if fail.cause == Cause.EXCLUDED else [fail] for fail in seen.fails]
        seen.fails = [fail for several in brought for fail in several]
