"""The coordinator: the driver's knowledge of its spouts, and the next plan.

Rule 1: a plan is made from promoted facts alone, so a plan that is made and dropped loses nothing. If the next plan is
requested again before it is confirmed, the coordinator returns the same plan.
Rule 2: a spout receives a verdict once, after its promotion.
Rule 3: the driver handles ranges and exceptions. It handles records only of a ``Spout``, whose messages belong to a
connection.
Rule 4: spouts are called (``CallSpout``) only between complete steps: before a plan takes anything, and after a
promotion is complete. The reason: the engine releases its lock for these calls.

Time is an argument: ``now_ms`` is the wall clock, ``mono_s`` a monotonic one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import numpy as np

from sparkbolt.api.causes import STOPPING
from sparkbolt.api.components import PartitionedSpout, Spout
from sparkbolt.api.dead_letters import CHECKPOINT
from sparkbolt.api.ranges import Range
from sparkbolt.base.ids import empty_u64, split_key
from sparkbolt.base.tracebacks import place_in
from sparkbolt.driver.effects import Steps
from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.driver.ledger.ledger import Ledger, Promotion
from sparkbolt.driver.ledger.ledger_settings import ROTATIONS
from sparkbolt.driver.lifecycle import Lifecycle
from sparkbolt.driver.overrides import Overrides, traced_sequences
from sparkbolt.driver.plan_entries import PlanEntries
from sparkbolt.driver.rate import RateController, positions_read
from sparkbolt.driver.returned_letters import ReturnedLetters
from sparkbolt.driver.source_watermarks import Watermarks
from sparkbolt.driver.spout_buffer import SPOUT_BUFFER_RECORDS_MAX, SpoutBuffer, printed_ids
from sparkbolt.driver.spout_steps import SpoutSteps
from sparkbolt.driver.timers import Ticks, Timers
from sparkbolt.errors import check
from sparkbolt.layout.lane import Lane, policy_of
from sparkbolt.observe.recorder import Observed
from sparkbolt.wire.plan import ASKED_FOR_MAX, Entry, MicroBatchPlan, Record
from sparkbolt.wire.verdicts import Feedback

FIRST_RECORDS = 10
"""How many records of a ``Spout`` the first micro-batch may have; few, because a bolt may take a second for each."""
GROWTH_AT_FIRST = 8.0
"""The largest growth from one micro-batch to the next, until one has reached the target duration."""
EXPIRED_PER_PLAN_MAX = 20_000
"""How many expired trees one plan fails; the rest fails with the next plans."""
OUTBOX_ACKS_PER_PLAN_MAX = 5000
"""How many outbox acks, as intervals, one plan carries; the next plans carry the rest."""
OUTBOX_ACKS_WAIT_SECS = 1.0
"""How long outbox acks wait for a micro-batch that runs for another reason, before one runs for them alone."""
CATCH_UP_SPEED = 0.9
"""The speed of the plans' time while the wall clock is behind it.

The time does not stop, and the wall clock catches up.
"""
LATENCY_SHARE = 0.2
"""The weight of the last micro-batch in the mean latency of trees."""


class Coordinator:
    """Plans and promotions of one life of a topology. Not thread safe: the engine calls it under one lock."""

    def __init__(
        self,
        lane: Lane,
        ledger: Ledger,
        spouts: Mapping[str, PartitionedSpout],
        lifecycle: Lifecycle,
        *,
        now_ms: int,
        mono_s: float,
        generations: Sequence[Generation] = (),
    ) -> None:
        """Begin a life of the topology.

        Args:
            lane: the lane of the topology.
            ledger: replayed up to the last commit; its life has begun.
            spouts: the opened ``PartitionedSpout`` of each component that is one, by id.
            lifecycle: the state of the topology, which says whether spouts may emit.
            now_ms: the wall clock, in milliseconds since the epoch.
            mono_s: a monotonic clock, in seconds.
            generations: the checkpoint's, oldest first.
        """
        self.lane = lane
        self.topology = lane.topology
        self.config = lane.topology.config
        self.ledger = ledger
        self.life = ledger.life
        self.lifecycle = lifecycle
        self.overrides = Overrides()
        """The settings that an operator has changed; ``override`` sets them."""
        self.spouts = spouts
        self.buffers = {
            number: buffer for spec in self.topology.spouts for number, buffer in self._buffers_of(spec).items()
        }
        self.rates = {spec.id: self._rate_of(spec) for spec in self.topology.spouts}
        self._limit_buffers()
        self.given_back: list[tuple[str, int]] = []
        """Of each dead letter that this driver has given back: the spout, and the micro-batch that gave it up."""
        self.in_force: MicroBatchPlan | None = None
        """The plan that was made or confirmed last and is not promoted yet."""
        self._planned_at = mono_s
        self.nothing_new_s: float | None = None
        """The monotonic time of the last request to the spouts without any new entry; None if there were entries."""
        self.inlets_quiet_s: float | None = None
        """A monotonic time since which the inlets' sources had nothing new; the machine sets it."""
        self.bounded_inlets: frozenset[str] = frozenset()
        """The inlets whose sources end; the engine sets it."""
        self.is_read_logged = False
        """Whether Spark's log has a micro-batch that is not committed and reads data that no plan in force has: rows of
        inlets, or ranges that an earlier life planned, until this life runs it again; the machine sets it."""
        self._probing: frozenset[str] = frozenset()
        """The spouts from which the plan in force reads only a probe."""
        self.observed = Observed()
        """The observations of the micro-batch in force, for the history; the engine adds its own times."""
        self._promoted_at = mono_s
        self._timed_at = mono_s
        """The monotonic time at which the plans' time was ``ledger.last_now_ms``."""
        self._emitted: dict[str, int] = {}
        self._timers = Timers(lane.runtime_tasks if ledger.last_promoted >= 0 else lane.timed_tasks)
        self.returned = ReturnedLetters(lane, ledger, generations)
        """The dead letters that operators have given back; the machine reads them."""
        self.spout_steps = SpoutSteps(spouts, lane.inlets, ledger)
        self._watermarks = Watermarks(lane, spouts)
        self._reads: list[tuple[str, Range, int]] = []
        """The ranges that executors have read in the staged micro-batch, as in ``Feedback``."""
        self._fresh = empty_u64()
        """uint64[trees]: keys of trees that become open, or whose timeout starts again, with the staged promotion."""
        self._rotate_every = self.config.message_timeout_secs / (ROTATIONS - 1)
        self._next_rotation = mono_s + self._rotate_every
        every = ((spec.id, spec.config.tick_tuple_freq_secs) for spec in self.topology.bolts)
        self._ticks = Ticks({bolt: secs for bolt, secs in every if secs}, now_ms)

    def _buffers_of(self, spec: Any) -> dict[int, SpoutBuffer]:
        if not isinstance(spec.component, Spout):
            return {}
        limit = self.max_spout_pending(spec.id) or SPOUT_BUFFER_RECORDS_MAX
        keeps, fails = policy_of(spec) is not None, spec.dead_letters == CHECKPOINT
        return {number: SpoutBuffer(number, limit, keeps, fails) for number in self.topology.tasks(spec.id)}

    def _rate_of(self, spec: Any) -> RateController:
        target_ms, spout = float(self.config.micro_batch_target_ms), self.spouts.get(spec.id)
        if spout is not None:
            return RateController(target_ms, spout.first_budget, self.config.micro_batch_bytes_max, GROWTH_AT_FIRST)
        return RateController(target_ms, FIRST_RECORDS, self._records_max(spec.id), GROWTH_AT_FIRST)

    def _records_max(self, component: str) -> int:
        """How many records of a ``Spout`` one micro-batch may have."""
        limit = self.max_spout_pending(component) or SPOUT_BUFFER_RECORDS_MAX
        return limit * len(self.topology.tasks(component))

    def take_over(self, old: Coordinator) -> None:
        """Continue from the coordinator of an earlier life in the same driver, whose spouts are still open."""
        self.override(old.overrides)
        self.given_back = old.given_back
        for number, buffer in self.buffers.items():
            buffer.take_over(old.buffers[number])
        self.ledger.take_over(old.ledger, {number: buffer.unfinished for number, buffer in self.buffers.items()})

    # Changes by an operator.

    def max_spout_pending(self, component: str) -> int | None:
        """How many trees of one task of a component may be open at once; None: there is no limit."""
        own = self.topology.components[component].config.max_spout_pending
        return self.overrides.max_spout_pending.get(component, own)

    @property
    def message_timeout_secs(self) -> float:
        """How long a tree may stay open before it fails."""
        return self.overrides.message_timeout_secs or self.config.message_timeout_secs

    def override(self, overrides: Overrides) -> None:
        """Let these settings apply from the next plan on; settings that they leave out apply as in ``Config``.

        Nothing may be staged: its entry in the log has the terms under which it was staged.
        """
        check(self.ledger.staged is None, f"micro-batch {self.ledger.staged} is staged: promote it first")
        self.overrides = overrides
        target_ms = float(overrides.micro_batch_target_ms or self.config.micro_batch_target_ms)
        for component, rate in self.rates.items():
            partitioned = component in self.spouts
            rate.limit(target_ms, self.config.micro_batch_bytes_max if partitioned else self._records_max(component))
        for number, buffer in self.buffers.items():
            limit = self.max_spout_pending(self.topology.task_owner(number)[0])
            buffer.pending_max = limit or SPOUT_BUFFER_RECORDS_MAX
        self._limit_buffers()
        every = self.message_timeout_secs / (ROTATIONS - 1)
        self._next_rotation += min(0.0, every - self._rotate_every)
        self._rotate_every = every
        terms = self.ledger.messages.terms
        policies = {name: policy_of(self.topology.components[name]) for name in terms.policies}
        self.ledger.messages.terms = replace(terms, policies=overrides.policies(policies))

    def traced_of(self, entry: Entry) -> tuple[int, ...]:
        """The sequences of an entry of the plan in force whose trees an operator wants to be traced."""
        if not self.overrides.traces:
            return ()
        component = self.topology.task_owner(entry.task)[0]
        planned = [] if entry.source is not None else self.buffers[entry.task].planned_of(entry)
        return traced_sequences(self.overrides.traces, component, entry, [one.message_id for one in planned])

    # Plans.

    def next_plan(self, now_ms: int, mono_s: float) -> Steps[MicroBatchPlan | None]:
        """The plan of the next micro-batch, or None if there is nothing to do."""
        if self.in_force is not None:
            return self.in_force
        if self.lifecycle.closes:
            return None
        check(self.ledger.staged is None, f"micro-batch {self.ledger.staged} is staged: promote it before planning")
        self._rotate(mono_s)
        now_ms = self._time_ms(now_ms, mono_s)
        rooms = self._rooms(now_ms)
        held_back = self._held_back()
        offered: dict[str, list[Range]] = {}
        if self.lifecycle.emits and not held_back:
            positions = {component: self._budget(component, rooms.get(component)) for component in self.spouts}
            offered = yield from self.spout_steps.offers(positions, lambda name: len(self.topology.tasks(name)))
        clocks = self._timers.due(now_ms)
        if clocks or any(offered.values()):  # an idle poll costs the same for any number of sources
            yield from self._watermarks.ask(self.ledger.progress, offered)
        offered = offered if self.lifecycle.emits else {}  # it may have been deactivated during a call of a spout
        entries = PlanEntries(self.lane, self.ledger, self.spouts, self.buffers)
        budgets = {
            name: min(self.rates[name].budget, rooms.get(name, 1 << 62)) for name, _ in self._tasks_with_buffers()
        }
        entries.add_retries(now_ms, rooms | budgets)
        if not held_back:
            entries.add_ranges(offered)
            entries.add_records(budgets)
        self.nothing_new_s = None if entries.read or entries.again else mono_s
        ticks = self._ticks.due(now_ms)
        expired = self.ledger.expiring(EXPIRED_PER_PLAN_MAX)
        outbox_acks = self.ledger.outbox_acks.first(OUTBOX_ACKS_PER_PLAN_MAX)
        news = outbox_acks and mono_s >= self._outbox_acks_due(outbox_acks)
        returned, returned_from = self.returned.take() if self.lifecycle.emits else ((), ())
        looped = self.ledger.loops.waiting
        if not (entries.read or entries.again or ticks or expired or clocks or news or returned_from or looped):
            yield from self.spout_steps.ask_finished(lambda: self._is_done)
            return None
        plan = MicroBatchPlan(
            micro_batch_id=self.ledger.last_promoted + 1,
            life=self.life,
            now_ms=now_ms,
            entries=tuple(entries.read),
            ticks=ticks,
            expired=expired,
            void=self.ledger.void,
            asked=self._holders(expired[:ASKED_FOR_MAX]),
            again=tuple(entries.again),
            outbox_acks=outbox_acks,
            clocks=clocks,
            returned=returned,
            returned_from=returned_from,
            looped=looped,
            beyond=self.ledger.loops.beyond(self._hops_max),
        )
        plan = self._with_streams(plan)
        self.in_force, self._planned_at, self._probing = plan, mono_s, frozenset(rooms)
        return plan

    def _hops_max(self, task: int) -> int:
        """In how many micro-batches tuples of a tree of a task may be fed back."""
        spec = self.topology.components.get(self.topology.task_owner(task)[0])
        return self.config.max_hops if spec is None else spec.config.max_hops

    def _with_streams(self, plan: MicroBatchPlan) -> MicroBatchPlan:
        """The plan, with the sources of tuples for windows."""
        plan = replace(plan, open_ranges=self._watermarks.open_ranges(self.ledger))
        return replace(plan, streams=self._watermarks.streams(plan, self.ledger))

    def plan_nothing(self, now_ms: int, mono_s: float) -> MicroBatchPlan:
        """A plan that reads nothing and sends no notices, for a micro-batch that runs although nothing is due."""
        check(self.in_force is None, f"a plan is in force: {self.in_force}")
        number, now_ms = self.ledger.last_promoted + 1, self._time_ms(now_ms, mono_s)
        self.in_force = self._with_streams(MicroBatchPlan(number, self.life, now_ms, void=self.ledger.void))
        self._planned_at = mono_s
        return self.in_force

    def _rooms(self, now_ms: int) -> dict[str, int]:
        """How many messages each component that feeds a bolt in an outage may emit now; others have no limit."""
        allowances = self.ledger.outages.allowances(now_ms)
        return {component: allowance.tuples for component, allowance in allowances.items()}

    def _holders(self, keys: Sequence[int]) -> tuple[int, ...]:
        """The tasks that hold some of these trees and can receive a clock, which requests the held tuples.

        The tuples of a task that is gone are held by some other task of its bolt.
        """
        clocked = set(self.lane.clocked()) if keys else ()
        tasks: set[int] = set()
        for task in self.ledger.holders_of(keys) if keys else ():
            component, _ = self.topology.task_owner(task)
            if component in clocked:
                tasks.update((task,) if task in self.lane.dests else self.topology.tasks(component))
        return tuple(sorted(tasks))

    def confirm(self, plan: MicroBatchPlan, mono_s: float) -> None:
        """Accept the plan that the engine runs, from this life or an earlier one."""
        check(
            plan.micro_batch_id == self.ledger.last_promoted + 1,
            f"micro-batch {plan.micro_batch_id} is about to run, the ledger has promoted {self.ledger.last_promoted}",
        )
        if plan != self.in_force:
            self.in_force = plan
            self._planned_at = mono_s

    def records_of(self, entry: Entry) -> list[Record]:
        """The records of a ``Spout``'s entry in the plan in force, which this life made."""
        planned = self.buffers[entry.task].planned_of(entry)
        check(len(planned) == entry.reserved, f"no records for {entry}")
        return [one.record for one in planned]

    def _rotate(self, mono_s: float) -> None:
        due = 1 + math.floor((mono_s - self._next_rotation) / self._rotate_every)
        if due > 0 and self.config.enable_message_timeouts:
            for _ in range(min(due, ROTATIONS)):  # after this many rotations no tree is left
                self.ledger.expire()
            self._next_rotation += due * self._rotate_every

    def _time_ms(self, now_ms: int, mono_s: float) -> int:
        """The time of a plan that is made now: the wall clock, unless the wall clock was set back.

        If it was set back, the time of the last plan advances with the monotonic clock, so that ticks, windows and
        retries advance too. It advances a little slower, until the wall clock has caught up.
        """
        return max(now_ms, self.ledger.last_now_ms + int((mono_s - self._timed_at) * 1000 * CATCH_UP_SPEED))

    def _held_back(self) -> bool:
        """Whether a bolt that starts trees has reached ``max_spout_pending``; then nothing new is read."""
        for component in self.lane.starters:
            limit = self.max_spout_pending(component)
            if limit is None:
                continue
            unfinished = self.ledger.pending(component) + self.ledger.messages.retries.counts().get(component, 0)
            if unfinished >= limit * len(self.topology.tasks(component)):
                return True
        return False

    def full(self) -> dict[str, str]:
        """The components that wait because they have reached ``max_spout_pending``: a sentence for each.

        It names the task that holds the oldest tree.
        """
        found = {}
        for component in [*(spec.id for spec in self.topology.spouts), *self.lane.starters]:
            limit, tasks = self.max_spout_pending(component), self.topology.tasks(component)
            pending = self.ledger.pending(component)
            if limit is not None and self.lane.tracked and pending >= limit * len(tasks):
                found[component] = (
                    f"{component} waits: {pending:,} trees are open, and max_spout_pending is reached; "
                    f"{self.ledger.oldest_words(component, tasks)}"
                )
        return found

    def _outbox_acks_due(self, outbox_acks: Sequence[tuple[int, int, int]]) -> float:
        """The monotonic time at which a micro-batch runs for outbox acks alone."""
        return self._promoted_at + (OUTBOX_ACKS_WAIT_SECS if len(outbox_acks) < OUTBOX_ACKS_PER_PLAN_MAX else 0.0)

    def _budget(self, component: str, probe: int | None) -> int:
        """How many positions of a spout may be read; with ``probe``, about half of that many messages."""
        rate = self.rates[component]
        limit = self.max_spout_pending(component)
        rooms = [] if probe is None else [probe - probe // 2]
        if limit is not None and self.lane.tracked:
            rooms.append(limit * len(self.topology.tasks(component)) - self.ledger.pending(component))
        return min([rate.budget, *(rate.positions_for(max(0, room)) for room in rooms)])

    def _tasks_with_buffers(self) -> Iterator[tuple[str, Sequence[int]]]:
        for spec in self.topology.spouts:
            if spec.id not in self.spouts:
                yield spec.id, self.topology.tasks(spec.id)

    def _limit_buffers(self) -> None:
        """Limit the waiting records to the expected size of the next two micro-batches.

        A longer queue makes no message finish earlier, and all of it is emitted again when the driver dies.
        """
        for component, numbers in self._tasks_with_buffers():
            rate = self.rates[component]
            waiting_max = math.ceil((rate.budget + rate.outlook) / len(numbers))
            for number in numbers:
                self.buffers[number].waiting_max = min(SPOUT_BUFFER_RECORDS_MAX, waiting_max)

    def next_due_ms(self, now_ms: int, mono_s: float) -> int | None:
        """The wall-clock time at which something is due next; None if nothing will be due.

        That is a tick, a timer, a rotation of open trees, outbox acks, a probe, or a retry.
        """
        time_ms = self._time_ms(now_ms, mono_s)
        allowances = self.ledger.outages.allowances(time_ms)
        probes = {component: allowance.next_probe_ms for component, allowance in allowances.items()}
        retries = [self.ledger.messages.retries.next_due_ms(probes)]
        retries += [when for when in probes.values() if when > time_ms]
        times = [*self._ticks.dues(), *self._timers.dues(), *(when for when in retries if when is not None)]
        speed = CATCH_UP_SPEED if time_ms > now_ms else 1.0
        due = [now_ms + max(0.0, when - time_ms) / speed for when in times]
        if self.config.enable_message_timeouts and self.ledger.open_trees:
            due.append(now_ms + max(1.0, (self._next_rotation - mono_s) * 1000))
        outbox_acks = self.ledger.outbox_acks.first(OUTBOX_ACKS_PER_PLAN_MAX)
        if outbox_acks:
            due.append(now_ms + max(1.0, (self._outbox_acks_due(outbox_acks) - mono_s) * 1000))
        return math.ceil(min(due)) if due else None

    # Verdicts.

    def stage(self, micro_batch_id: int, feedback: Feedback) -> bytes:
        """Stage the feedback of the micro-batch; returns the ledger's log entry, which must be made durable now."""
        plan = self.in_force
        check(
            plan is not None and plan.micro_batch_id == micro_batch_id,
            f"micro-batch {micro_batch_id} comes back, but the plan in force is {plan and plan.micro_batch_id}",
        )
        assert plan is not None
        verdicts = feedback.verdicts
        self._fresh = np.concatenate((verdicts.open_keys[verdicts.open_new], verdicts.touched))
        named = chain(
            (fail.key for fail in verdicts.failed), plan.expired, plan.beyond, (hop.key for hop in feedback.hops)
        )
        printed = printed_ids(self.buffers, named, self.config.stories_max)
        feedback.message_ids = dict(sorted((feedback.message_ids | printed).items()))
        self._timers.reported, self._reads = feedback.timers, feedback.reads
        self.observed.measured = feedback.measured
        return self.ledger.stage(plan, feedback)

    def promote(self, micro_batch_id: int, mono_s: float) -> Steps[Promotion]:
        """Count the verdicts of a committed micro-batch, and pass them on to the spouts."""
        plan, self._promoted_at, self._timed_at = self.in_force, mono_s, self._planned_at
        promotion, self.in_force, self.is_read_logged = self.ledger.promote(micro_batch_id), None, False
        assert plan is not None
        self._rotate(mono_s)
        self.ledger.touch(self._fresh)  # trees that become open with this promotion get their full timeout
        elapsed_ms = (mono_s - self._planned_at) * 1000
        self._time(promotion, elapsed_ms)
        self._pace(plan, elapsed_ms)
        self._ticks.count(plan.ticks, plan.now_ms)
        self._timers.count(plan.clocks)
        self.returned.settle(plan.returned_from)
        for one in plan.returned:
            component, _ = self.topology.task_owner(one.task)
            self.given_back += [(component, attempt.micro_batch_id) for attempt in one.attempts[-1:]]
        self._settle_records(plan)
        self._notify_buffers(promotion)
        steps = self.spout_steps
        for component, items in groupby(self._reads, key=itemgetter(0)):
            yield from steps.tell(component, "on_read", [(range_, size) for _, range_, size in items])
        for component, moved in promotion.progress_moved.items():
            yield from steps.tell(component, "on_committed", moved)
        yield from steps.tell_sources(self.ledger.messages.changed, changed=True)
        yield from steps.see_lag()
        yield from steps.ask_finished(lambda: self._is_done)
        return promotion

    def _time(self, promotion: Promotion, elapsed_ms: float) -> None:
        metrics = self.ledger.metrics
        metrics.micro_batch_ms = elapsed_ms
        for done in promotion.completed:
            latency_ms = elapsed_ms + max(0, self.ledger.last_now_ms - done.born_ms)
            self.observed.completed(done.component, latency_ms, done.trees, done.root)
        if len(promotion.acked_counts):
            before = metrics.complete_latency_ms
            share = LATENCY_SHARE if before is not None else 1.0
            metrics.complete_latency_ms = (before or 0.0) * (1 - share) + elapsed_ms * share

    def _pace(self, plan: MicroBatchPlan, elapsed_ms: float) -> None:
        read = positions_read(plan.alive_entries(self.life), self._reads, self.topology.task_owner)
        for component, rate in self.rates.items():
            emitted = self._emitted_since(component)
            if component not in self._probing:  # the duration of a probe has no meaning for the rate
                rate.observe(elapsed_ms, read[component], emitted)
        self._limit_buffers()

    def _emitted_since(self, component: str) -> int:
        emitted = self.ledger.metrics.of(component).emitted
        before = self._emitted.get(component, 0)
        self._emitted[component] = emitted
        return emitted - before

    def _settle_records(self, plan: MicroBatchPlan) -> None:
        planned = {entry.task for entry in plan.entries} if plan.life == self.life else set[int]()
        for number, buffer in self.buffers.items():
            if number in planned:
                if not self.lane.tracked:  # without ackers messages are acked once sent, as in Storm
                    buffer.acks.extend(one.message_id for one in buffer.planned if one.message_id is not None)
                buffer.planned = []

    def _notify_buffers(self, promotion: Promotion) -> None:
        if not self.buffers:
            return
        for complete, hear in ((promotion.acked, SpoutBuffer.ack), (promotion.letters, SpoutBuffer.written)):
            for first, last, _ in complete:
                task, sequence = split_key(first)
                buffer = self.buffers.get(task)
                if buffer is not None:
                    for finished in range(sequence, split_key(last)[1] + 1):
                        hear(buffer, finished)
        for tree in (*promotion.failed, *promotion.letters_failed):
            buffer = self.buffers.get(split_key(tree.key)[0])
            if buffer is not None:
                buffer.fail(tree)

    def reason_to_stop(self, promotion: Promotion) -> str | None:
        """Why the topology must stop, if an exception failed a tree in a component whose ``on_error`` is ``stop``."""
        for tree in promotion.failed:
            spec = self.topology.components.get(tree.fail.component)
            if spec is not None and spec.config.on_error == "stop" and tree.fail.cause in STOPPING:
                return f"{spec.id!r} raised, and its on_error is 'stop': {tree.story}{place_in(tree.fail.traceback)}"
        return None

    # The end.

    @staticmethod
    def reads(plan: MicroBatchPlan | None) -> bool:
        """Whether a plan reads new tuples, retries any, or delivers looped ones."""
        return plan is not None and bool(plan.reserving or plan.looped)

    @property
    def drained(self) -> bool:
        """Whether every tree is finished and every verdict delivered; retries may still wait, for the next start.

        A plan that only advances time does not count either: if ticks come faster than micro-batches end, such a plan
        is always in force.
        """
        return self.ledger.staged is None and self.only_time_advances

    @property
    def only_time_advances(self) -> bool:
        """Whether the micro-batch that runs, if any, leaves every tree finished."""
        return (
            not self.reads(self.in_force)
            and not self.is_read_logged
            and self.ledger.open_trees == 0
            and not self.ledger.loops.waiting
            and all(buffer.idle for buffer in self.buffers.values())
        )

    @property
    def asked_s(self) -> float | None:
        """A monotonic time at or after which all sources had nothing new; None if a source had something."""
        if not self.lane.inlets or self.nothing_new_s is None:
            return self.nothing_new_s
        return None if self.inlets_quiet_s is None else min(self.nothing_new_s, self.inlets_quiet_s)

    @property
    def retries(self) -> int:
        """How many messages wait to be retried."""
        return self.ledger.retries

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do, now or later: no window waits for its timer either."""
        return (
            self._is_done
            and all(map(self._is_read_out, self.spouts))
            and all(buffer.exhausted for buffer in self.buffers.values())
        )

    @property
    def _is_done(self) -> bool:
        return self.drained and not self.retries and not self._timers.waits and not self.returned.waits

    def _is_read_out(self, component: str) -> bool:
        if component in self.lane.inlets:
            return component in self.bounded_inlets and self.inlets_quiet_s is not None
        return self.spout_steps.is_finished(component)
