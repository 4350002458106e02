"""Tasks: one instance of a bolt at work on its rows.

Which question it answers: how does user code see its tuples, and what becomes of what it says?
Rule 1: one bad tuple fails its own trees, never the micro-batch: an exception is a fail with its cause.
Rule 2: a kept tuple stays whole: one object shows row after row as long as its reference count says that nobody
kept it.
Rule 3: whatever neither acked nor failed a tuple of a tracked tree holds it, and is named for it.

Read before: ``collectors``, ``tuple_batch``, ``failures``.
"""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable
from types import GeneratorType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.core.base.exceptions import preparing, said, user_code
from sparkbolt.core.base.ids import U64, unmix64
from sparkbolt.core.model.components import (
    AsyncBolt,
    BasicBolt,
    Bolt,
    BoltBase,
    ColumnBolt,
    TopologyContext,
    defines_flush,
)
from sparkbolt.core.model.function_bolts import FunctionBolt
from sparkbolt.core.model.metrics import ComponentMetrics
from sparkbolt.core.model.progress import Activity
from sparkbolt.core.model.reports import ErrorReport, Fail
from sparkbolt.core.model.runtime_bolts import RuntimeBolt
from sparkbolt.core.model.tuples import Tuple
from sparkbolt.core.protocol.causes import UNAVAILABLE
from sparkbolt.core.protocol.edges import Anchoring
from sparkbolt.core.protocol.frames import arrow_of
from sparkbolt.core.worker.activity import ActivityMonitor
from sparkbolt.core.worker.bolt_runtime import BoltRuntime, RuntimeEffects, joined
from sparkbolt.core.worker.collectors import BasicRowCollector, BoltRowCollector, ColumnBlockCollector
from sparkbolt.core.worker.crash_isolation import TaskWatch
from sparkbolt.core.worker.emission import Output
from sparkbolt.core.worker.failures import Failure, failure_of, failure_said, not_tried
from sparkbolt.core.worker.returned_values import emit_all, refuse
from sparkbolt.core.worker.tuple_batch import Rows
from sparkbolt.errors import KilledWorkerError

UNAVAILABLE_MAX = 10
"""After so many tuples in a row for which a bolt was unavailable, the rest of a frame is not tried."""


class Sink(Protocol):
    """Where a task's sayings about trees go."""

    def ack(self, roots: U64, xors: U64) -> None:
        """Add to the accounts of roots."""

    def ack_all(self, anchoring: Anchoring) -> None:
        """Add all edges of a block of rows to the accounts of their roots."""

    def hold(self, roots: U64, task: int) -> None:
        """A task holds tuples of these roots."""

    def touch(self, roots: U64) -> None:
        """These roots get a full timeout again."""

    def fail(self, fail: Fail) -> None:
        """A tree failed."""

    def report(self, report: ErrorReport) -> None:
        """Somebody reported an error."""


@dataclass
class Counts:
    """What one task did in one micro-batch."""

    executed: int = 0
    acked: int = 0
    failed: int = 0
    errors: int = 0
    failures: dict[int, Failure] = field(default_factory=dict)
    held: npt.NDArray[np.bool_] | None = None
    """Rows that it neither acked nor failed; None if there are none."""
    late_acks: list[Tuple] = field(default_factory=list)
    late_fails: list[Tuple] = field(default_factory=list)
    """Tuples from earlier that it had kept and now settled."""
    of_windows: ComponentMetrics | None = None
    """What a hosted bolt counts besides."""
    of_trees: list[tuple[int, Failure]] = field(default_factory=list)
    """How many trees, or tuples kept from earlier, were failed besides those of its rows, and why."""
    flush_failure: Failure | None = None
    """Why ``flush``, and with it all that the task got, has failed."""


class BoltTask:
    """One task of a bolt."""

    def __init__(self, bolt: BoltBase, context: TopologyContext, output: Output, on_error: str) -> None:
        """Wrap an instance; ``bolt.prepare`` has not been called yet."""
        self.bolt = bolt
        self.context = context
        self.output = output
        self.on_error = on_error
        self.watch: TaskWatch | None = None
        """Set in a process that may die (``crashes``)."""
        self.monitor: ActivityMonitor | None = None
        """Set where somebody looks what the process is at."""
        self._shows: Tuple | None = None
        """What ``execute`` sees now."""
        self._shown_too: dict[int, Tuple] = {}
        """By row, what coroutines see now."""
        self._by_hand = BoltRowCollector(output)
        self._basic = BasicRowCollector(output)
        self._late: list[Tuple] = []
        self._late_failures: list[tuple[Tuple, object]] = []
        """Tuples kept from earlier that were acked or failed now; with why."""
        self._columns = ColumnBlockCollector(output)
        self._runner: asyncio.Runner | None = None
        self.runtime: BoltRuntime | None = None
        """What runs a hosted bolt, from ``prepare`` on."""
        self._execute = f"execute of {context.component!r}"
        self.flushes = defines_flush(bolt)
        """Whether the bolt has a ``flush`` of its own."""
        self._work = self._choose_work()

    def prepare(self) -> None:
        """Prepare the instance."""
        with preparing(f"prepare of {self.context.component!r}"):
            self.bolt.prepare(self.context)
        if isinstance(self.bolt, RuntimeBolt):
            self.runtime = self.bolt.runtime(self.context, self.output)
            if self.watch is not None:
                self.runtime.showing = self.watch.window
            self._work = self._work_in_runtime

    def cleanup(self) -> None:
        """Clean up in an orderly way."""
        with user_code(f"cleanup of {self.context.component!r}"):
            self.bolt.cleanup()
        self.abandon()

    def abandon(self) -> None:
        """The instance is thrown away, as after a crash: no ``cleanup``, only the event loop, which is ours, ends."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            with suppress(SystemExit):  # of a task that is cancelled by it; the loop is closed all the same
                runner.close()

    @property
    def current(self) -> tuple[int, list[Any] | None, int]:
        """(the number of what user code sees now, its values, how many others it sees besides); for another thread."""
        if self.runtime is not None:
            return self.runtime.told.metrics.windows, None, 0
        tup, others = self._shows, list(self._shown_too.values())
        if others:
            tup = others[0]
        return (-1, None, 0) if tup is None else (tup._row, tup.values, max(0, len(others) - 1))

    def run(self, rows: Rows, sink: Sink) -> Counts:
        """Run user code on each row; emissions are left in ``output``."""
        counts = Counts(executed=rows.count)
        held = counts.held = self._work(rows, counts)
        if counts.failures or held is not None:
            self._settle_some(rows, counts, held, sink)
        else:
            counts.acked += rows.count
            if rows.anchoring is not None:
                sink.ack_all(rows.anchoring)
        if isinstance(self.bolt, Bolt):
            self._settle_late(counts, sink)
        if self.runtime is not None:
            self._apply_effects(self.runtime, counts, sink)
        self._report(counts, sink)
        return counts

    def _settle_some(self, rows: Rows, counts: Counts, held: npt.NDArray[np.bool_] | None, sink: Sink) -> None:
        """Fails, acks and holds of rows that are not all acked."""
        failed = np.zeros(rows.count, dtype=bool)
        for row, failure in counts.failures.items():
            failed[row] = True
            self._fail(rows.anchors_of(row), failure, sink)
        done = ~failed if held is None else ~(failed | held)
        counts.acked += int(done.sum())
        counts.failed += len(counts.failures)
        if rows.anchoring is not None:
            sink.ack(*rows.pairs_where(done))
            if held is not None and bool(held.any()):
                sink.hold(rows.pairs_where(held & ~failed)[0], self.context.task)

    def _work_in_runtime(self, rows: Rows, counts: Counts) -> npt.NDArray[np.bool_] | None:
        assert self.runtime is not None
        try:
            if self.watch is not None:
                self.watch.piece()
        except KilledWorkerError as error:
            counts.failures = dict.fromkeys(range(rows.count), failure_of(error))
            return None
        held = self.runtime.rows(rows, counts)
        if self.watch is not None and self.watch.look is not None:
            self.watch.took(rows.unkeepable())
        return held

    def run_between(self, step: Callable[[Counts], None], sink: Sink) -> Counts:
        """A step of a hosted bolt before or behind its rows, as ``run``."""
        counts = Counts()
        if self.watch is not None:
            self.watch.between()
        step(counts)
        assert self.runtime is not None
        self._apply_effects(self.runtime, counts, sink)
        self._report(counts, sink)
        return counts

    def _apply_effects(self, runtime: BoltRuntime, counts: Counts, sink: Sink) -> None:
        told, runtime.told = runtime.told, RuntimeEffects()
        counts.of_windows = told.metrics
        counts.acked += sum(len(edges) for _, edges in told.acks)
        if told.acks:
            sink.ack(*joined(told.acks))
        for roots, error in told.fails:
            failure = failure_of(error)
            counts.errors += failure.reported
            sink.report(ErrorReport(self.context.component, self.context.index, failure.reason, failure.traceback))
            counts.of_trees.append((len(set(roots.tolist())), failure))
            for root in dict.fromkeys(roots.tolist()):
                self._fail(((root, 0),), failure, sink)
        for text in told.reports:
            sink.report(ErrorReport(self.context.component, self.context.index, text))

    def flush(self, seen: list[Rows], sink: Sink) -> Counts:
        """Let the bolt write what it gathered; emissions are left in ``output``.

        An exception fails all rows of the micro-batch.
        """
        counts = Counts()
        self._begin_flush()
        try:
            with self._flushing(), self.watch.flushing() if self.watch is not None else nullcontext():
                returned = self.bolt.flush()
                if returned is not None:
                    self._emit_flushed(returned)
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            failure = counts.flush_failure = failure_of(error)
            sink.report(ErrorReport(self.context.component, self.context.index, failure.reason, failure.traceback))
            counts.errors += 1
            for rows in seen:
                for row in range(rows.count):
                    self._fail(rows.anchors_of(row), failure, sink)
                counts.failed += rows.count
                counts.acked -= rows.count
        if isinstance(self.bolt, Bolt):
            self._settle_flushed(counts, sink)
        else:
            self._report(counts, sink)
        self._end_flush()
        return counts

    def _flushing(self) -> AbstractContextManager[None]:
        return nullcontext() if self.monitor is None else self.monitor.at(Activity.FLUSH, self.context.task)

    def _begin_flush(self) -> None:
        """Let all collectors take what is anchored to nothing, or to tuples that were kept."""
        self._by_hand.begin_flush()
        self._basic.begin_flush()
        self._columns.begin(0)
        if self.runtime is not None:
            self.runtime.begin_flush()

    def _end_flush(self) -> None:
        self._basic.end()
        self._columns.end()
        if self.runtime is not None:
            self.runtime.end_flush()

    def _emit_flushed(self, returned: Any) -> None:
        """Emit what ``flush`` gave, anchored to nothing."""
        who = f"flush of {self.context.component!r}"
        if isinstance(self.bolt, ColumnBolt):
            refuse(returned, who, "a ColumnBolt emits columns by collector.emit alone")
        emit_all(returned, self._basic.emit, who)

    def _settle_flushed(self, counts: Counts, sink: Sink) -> None:
        """What a bolt that acks by hand said in ``flush`` of tuples that it had kept."""
        collector = self._by_hand
        _, self._late = collector.end()
        self._late_failures, collector.failures = collector.failures, []
        self._settle_late(counts, sink)
        self._report(counts, sink)

    def _fail(self, anchors: tuple[tuple[int, int], ...], failure: Failure, sink: Sink) -> None:
        for root, _ in anchors:
            sink.fail(
                Fail(
                    key=unmix64(root),
                    component=self.context.component,
                    task=self.context.index,
                    cause=failure.cause,
                    reason=failure.reason,
                    micro_batch_id=self.context.micro_batch_id,
                    traceback=failure.traceback,
                )
            )

    def _settle_late(self, counts: Counts, sink: Sink) -> None:
        """Acks, fails and new timeouts of tuples that were kept."""
        collector = self._by_hand
        pairs = [pair for tup in self._late for pair in tup.anchors]
        if pairs:
            sink.ack(
                np.array([root for root, _ in pairs], dtype=np.uint64), np.array([e for _, e in pairs], dtype=np.uint64)
            )
        counts.acked += len(self._late)
        counts.late_acks = self._late
        counts.late_fails = [tup for tup, _ in self._late_failures]
        for tup, reason in self._late_failures:
            counts.failed += 1
            failure = failure_said(reason)
            counts.of_trees.append((1, failure))
            self._fail(tup.anchors, failure, sink)
        roots = [root for tup in collector.touched for root, _ in tup.anchors]
        if roots:
            sink.touch(np.array(roots, dtype=np.uint64))
        collector.touched.clear()

    def _report(self, counts: Counts, sink: Sink) -> None:
        who = self.context.component, self.context.index
        for failure in counts.failures.values():
            if failure.reported:
                counts.errors += 1
                sink.report(ErrorReport(*who, failure.reason, failure.traceback))
        for error in self.output.errors:
            counts.errors += 1
            text, trace = said(error)
            sink.report(ErrorReport(*who, text or "an error was reported without a word", trace))
        self.output.errors.clear()

    def _choose_work(self) -> Callable[[Rows, Counts], npt.NDArray[np.bool_] | None]:
        if isinstance(self.bolt, FunctionBolt):
            return self._run_function
        if isinstance(self.bolt, AsyncBolt):
            return self._run_async
        if isinstance(self.bolt, ColumnBolt):
            return self._run_columns
        return self._run_by_hand if isinstance(self.bolt, Bolt) else self._run_rows

    def _run_rows(self, rows: Rows, counts: Counts) -> None:
        assert isinstance(self.bolt, BasicBolt)
        self._each(rows, counts, self._watched(self.bolt.execute), None)

    def _run_by_hand(self, rows: Rows, counts: Counts) -> npt.NDArray[np.bool_] | None:
        assert isinstance(self.bolt, Bolt)
        collector = self._by_hand
        collector.begin(rows, self.context.micro_batch_id)
        kept = self._each(rows, counts, self._watched(self.bolt.execute), collector)
        self._late_failures = []
        for tup, reason in collector.failures:
            if tup._chunk is rows:
                counts.failures[tup._row] = failure_said(reason)
            else:
                self._late_failures.append((tup, reason))
        collector.failures.clear()
        status, self._late = collector.end()
        settled = np.frombuffer(status, dtype=np.uint8)
        for tup in kept:
            word = {collector.ACKED: "acked", collector.FAILED: "failed"}.get(status[tup._row])
            tup._settled = "failed" if tup._row in counts.failures else word
            tup.detach()
        held = settled == 0
        return held if bool(held.any()) else None

    def _watched(self, execute: Callable[[Tuple, Any], Any]) -> Callable[[Tuple, Any], Any]:
        """``execute``, or one that tells the watch of each row first, where there is a watch."""
        watch = self.watch
        if watch is None:
            return execute

        def watched(tup: Tuple, collector: Any) -> Any:
            watch.row(tup._row)
            return execute(tup, collector)

        return watched

    def _each(
        self,
        rows: Rows,
        counts: Counts,
        execute: Callable[[Tuple, Any], Any],
        by_hand: BoltRowCollector | None,
    ) -> list[Tuple]:
        """Call ``execute`` for each row; return the tuples that user code has kept.

        ``by_hand`` is the collector of a bolt that acks by hand; any other bolt gets one that acks for it. The
        loop is as bare as it is because everything in it is paid for every tuple.
        """
        names = rows.origin.fields
        reference_count = sys.getrefcount
        failures = counts.failures
        kept: list[Tuple] = []
        tup = self._shows = Tuple.at(rows.origin, rows, 0)
        basic = self._basic
        collector: Any = by_hand if by_hand is not None else basic
        ends = basic.begin(tup) if by_hand is None else None
        emitted = self.output.default.values if ends is not None and self.output.default is not None else []
        note_end = ends.append if ends is not None else None
        alone = reference_count(tup)
        single = names[0] if len(names) == 1 else None
        for row, values in enumerate(rows.single() if single is not None else rows.values()):
            if reference_count(tup) != alone:
                kept.append(tup)
                tup = self._shows = Tuple.at(rows.origin, rows, row)
                if by_hand is None:
                    basic.show(tup)
            if single is not None:
                tup[single] = values
            else:
                for name, value in zip(names, values):  # noqa: B905  strict costs a third of the loop
                    tup[name] = value
            tup._row = row
            try:
                returned = execute(tup, collector)
                if returned is not None:
                    emit = partial(by_hand.emit, anchors=tup) if by_hand is not None else basic.emit
                    emit_all(returned, emit, self._execute)
            except BaseException as error:  # noqa: BLE001  user code may raise anything
                failures[row] = failure_of(error)
                returned = None  # a generator that broke off would hold the tuple
                if failures[row].cause == UNAVAILABLE and _is_away(failures, row):
                    failures.update(dict.fromkeys(range(row + 1, rows.count), not_tried(failures[row])))
                    if ends is not None:
                        ends.extend([len(emitted)] * (rows.count - row))
                    break
            if note_end is not None:
                note_end(len(emitted))
        if reference_count(tup) != alone:
            kept.append(tup)
        self._shows = None
        basic.end()
        if by_hand is None:
            for tup in kept:
                tup._settled = "failed" if tup._row in failures else "acked"
                tup.detach()
        return kept

    def _run_function(self, rows: Rows, counts: Counts) -> None:
        assert isinstance(self.bolt, FunctionBolt)
        function, who = self.bolt.function, f"{self.context.component!r}"

        def execute(tup: Tuple, collector: BasicRowCollector) -> None:
            returned = function(tup)
            if returned.__class__ is GeneratorType:
                emit = collector.emit
                for values in returned:
                    emit(values)
            elif returned is not None:
                emit_all(returned, collector.emit, who)

        self._each(rows, counts, self._watched(execute), None)

    def _run_columns(self, rows: Rows, counts: Counts) -> None:
        assert isinstance(self.bolt, ColumnBolt)
        self._columns.begin(rows.count)
        try:
            if self.watch is not None:
                self.watch.piece()
            named = zip(rows.origin.fields, rows.columns, strict=True)
            coded, hint = self.bolt.dictionaries, "use a bolt that takes tuples"
            arrays = [arrow_of(name, column, hint, name in coded) for name, column in named]
            batch = pa.RecordBatch.from_arrays(arrays, names=list(rows.origin.fields))
            returned: Any = self.bolt.execute(batch, self._columns)
            refuse(returned, self._execute, "a ColumnBolt emits columns by collector.emit alone")
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            failure = failure_of(error)
            counts.failures = dict.fromkeys(range(rows.count), failure)
            self._drop_emitted()
        self._columns.end()

    def _drop_emitted(self) -> None:
        for out in self.output.streams.values():
            out.columns.clear()

    def _run_async(self, rows: Rows, counts: Counts) -> None:
        if self._runner is None:
            self._runner = asyncio.Runner()
            weakref.finalize(self, self._runner.get_loop().close)  # also of a task that nobody has cleaned up
        loop = self._runner.get_loop()
        # Not Runner.run, which makes a cancellation of Ctrl-C: here it ends what it meets, as in any other bolt.
        work = loop.create_task(self._all_coroutines(rows, counts))
        while not work.done():
            # User code has stopped the loop, which is not its own; or a task that it made has exited. asyncio raises
            # that here, too, besides where the task is awaited, which is where it fails its tuple. Ctrl-C passes.
            with suppress(RuntimeError, SystemExit):
                loop.run_until_complete(work)
        work.result()

    async def _all_coroutines(self, rows: Rows, counts: Counts) -> None:
        bolt = self.bolt
        assert isinstance(bolt, AsyncBolt)
        watch = self.watch
        # Where a coroutine may kill the process, they run one by one, so that it is known which one did.
        free = asyncio.Semaphore(max(1, bolt.concurrency) if watch is None else 1)

        running: set[asyncio.Task[None]] = set()
        broken: list[BaseException] = []

        async def one(tup: Tuple, collector: BasicRowCollector) -> None:
            try:
                if watch is not None:
                    watch.row(tup._row)
                self._shown_too[tup._row] = tup
                await self._run_coroutine(bolt.execute(tup, collector), collector)
            except BaseException as error:  # noqa: BLE001  a coroutine that is cancelled has not done its work either
                counts.failures[tup._row] = failure_of(error)
            finally:
                self._shown_too.pop(tup._row, None)

        def ended(tup: Tuple, collector: BasicRowCollector, task: asyncio.Task[None]) -> None:
            running.discard(task)
            collector.end()
            free.release()
            if task.cancelled():  # it was so before it began, or has cancelled itself
                counts.failures.setdefault(tup._row, failure_of(asyncio.CancelledError("its coroutine was cancelled")))
            elif (error := task.exception()) is not None:  # no tuple's affair
                broken.append(error)

        tuples = []
        for row, values in enumerate(rows.values()):
            await _uncancelled(free.acquire)
            if broken:
                break
            tup = Tuple.at(rows.origin, rows, row)
            tup.update(zip(rows.origin.fields, values, strict=True))
            tuples.append(tup)
            collector = BasicRowCollector(self.output, tup)
            task = asyncio.get_running_loop().create_task(one(tup, collector))
            running.add(task)
            task.add_done_callback(partial(ended, tup, collector))
        while running:
            await _uncancelled(partial(asyncio.wait, set(running)))
        if broken:
            raise broken[0]
        for tup in tuples:
            tup._settled = "failed" if tup._row in counts.failures else "acked"
            tup.detach()

    async def _run_coroutine(self, called: Any, collector: BasicRowCollector) -> None:
        """Run what ``execute`` of an ``AsyncBolt`` gave, and emit what comes of it."""
        if isinstance(called, AsyncGenerator):
            async with aclosing(called):
                async for values in called:
                    collector.emit(values)
            return
        returned = await called if isawaitable(called) else called
        if returned is not None:
            emit_all(returned, collector.emit, self._execute)


async def _uncancelled(wait: Callable[[], Awaitable[Any]]) -> None:
    """Wait, whatever user code cancels: it may mean its own coroutines, and never the loop's other work."""
    while True:
        try:
            await wait()
            return
        except asyncio.CancelledError:
            continue


def _is_away(failures: Mapping[int, Failure], row: int) -> bool:
    """Whether so many rows up to this one were all unavailable that the rest need not be tried.

    Each try may take a connection's timeout, and a micro-batch has thousands of rows.
    """
    last = range(row, row - UNAVAILABLE_MAX, -1)
    return all(failures[at].cause == UNAVAILABLE if at in failures else False for at in last)
