"""Tasks: one instance of a bolt that works on its rows.

Rule 1: one bad tuple fails its own trees, never the micro-batch: an exception becomes a fail with its cause.
Rule 2: a tuple that user code keeps stays unchanged. One object shows row after row only as long as its reference count
proves that user code has not kept it.
Rule 3: a task that has neither acked nor failed a tuple of a tracked tree holds the tuple, and is reported as its
holder.
Rule 4: the loop over rows does as little as possible, because every tuple pays for everything in it. Where there are
compiled kernels (``native``), they run it, with the same results; the Python here is the reference.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from types import GeneratorType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.api.causes import Cause
from sparkbolt.api.committers import take_rows
from sparkbolt.api.components import (
    AsyncBolt,
    BasicBolt,
    Bolt,
    BoltBase,
    ColumnBolt,
    TopologyContext,
    defines_flush,
    flush_takes_collector,
)
from sparkbolt.api.function_bolts import FunctionBolt
from sparkbolt.api.progress import Activity
from sparkbolt.api.reports import ErrorReport
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.api.tuples import AnchorPairs, Tuple
from sparkbolt.base.exceptions import preparing, reason_of, user_code
from sparkbolt.errors import KilledWorkerError
from sparkbolt.wire.edges import Anchoring
from sparkbolt.worker.activity import ActivityMonitor
from sparkbolt.worker.bolt_runtime import BoltRuntime, RuntimeEffects, joined
from sparkbolt.worker.collectors import BasicRowCollector, BoltRowCollector, ColumnBlockCollector
from sparkbolt.worker.column_frames import ColumnFrames
from sparkbolt.worker.coroutines import Coroutines
from sparkbolt.worker.crash_isolation import TaskWatch
from sparkbolt.worker.emissions import Output, Rows
from sparkbolt.worker.failures import Failure, fails_of, failure_of, failure_said, not_tried, stop_without_tree
from sparkbolt.worker.results import Settlements
from sparkbolt.worker.returned_values import emit_all, refuse
from sparkbolt.worker.state.keyvalue import KeyValueTable
from sparkbolt.worker.state.snapshots import noting_made

UNAVAILABLE_MAX = 10
"""After this many tuples in a row for which a bolt was unavailable, the rest of the frame is not tried."""

Failures: TypeAlias = dict[int, Failure]
"""By row that failed: the reason."""


class BoltTask:
    """One task of a bolt."""

    def __init__(self, bolt: BoltBase, context: TopologyContext, output: Output, on_error: str) -> None:
        """Wrap an instance whose ``prepare`` was not called yet."""
        self.bolt = bolt
        self.context = context
        self.output = output
        self.on_error = on_error
        self.inputs: Sequence[tuple[str, str]] = ()
        """(component, stream) of each stream that the bolt subscribes to."""
        self.watch: TaskWatch | None = None
        """Set in a process that may die (``crash_isolation``)."""
        self.monitor: ActivityMonitor | None = None
        """Set if the process's activity is shown."""
        self._by_hand = BoltRowCollector(output)
        self._basic = BasicRowCollector(output)
        self._execute = f"execute of {context.component!r}"
        self._loop = RowLoop(output, self._basic, self._execute)
        self._late: list[Tuple] = []
        self._late_failures: list[tuple[Tuple, object]] = []
        """Tuples kept from earlier rows that were failed now, with the reasons; those acked now are in ``_late``."""
        self._columns = ColumnBlockCollector(output)
        self._coroutines = Coroutines(bolt, output, self._execute) if isinstance(bolt, AsyncBolt) else None
        self.runtime: BoltRuntime | None = None
        """The bolt runtime, if the bolt has one; set by ``prepare``."""
        self.made: set[str] = set()
        """The names of the attributes that ``prepare`` has set."""
        self._rows_acked = self._rows_failed = 0
        """For the rows of this micro-batch."""
        self.flushes = defines_flush(bolt)
        """Whether the bolt has a ``flush`` of its own."""
        self._flush_takes_collector = self.flushes and flush_takes_collector(bolt)
        self._work = self._choose_work()

    def prepare(self) -> None:
        """Prepare the instance."""
        with preparing(f"prepare of {self.context.component!r}"), noting_made(self.bolt, self.made):
            self.bolt.prepare(self.context)
        self.make_runtime()

    def make_runtime(self) -> None:
        """Make the bolt runtime, if the bolt has one; a new one knows nothing but the state to which it is attached."""
        if isinstance(self.bolt, RuntimeBolt):
            self.runtime = self.bolt.runtime(self.context, self.output)
            if self.watch is not None:
                self.runtime.showing = self.watch.window
            self._work = self._work_in_runtime

    @property
    def owned(self) -> dict[str, object]:
        """The objects of the engine that the bolt may keep in its own objects, by token."""
        return {"context": self.context, "metrics": self.context.metrics, "collector": self._collector}

    @property
    def _collector(self) -> Any:
        """The collector that belongs to the task."""
        if isinstance(self.bolt, ColumnBolt):
            return self._columns
        return self._by_hand if isinstance(self.bolt, Bolt) else self._basic

    def use_state(self, state: KeyValueTable) -> None:
        """Store the key-value state that the bolt gets."""
        self._loop.state = state.native

    def cleanup(self) -> None:
        """Call the bolt's ``cleanup``, and close the event loop."""
        with user_code(f"cleanup of {self.context.component!r}"):
            self.bolt.cleanup()
        self.abandon()

    def abandon(self) -> None:
        """Discard the instance as after a crash: without ``cleanup``; only Sparkbolt's event loop is closed."""
        if self._coroutines is not None:
            self._coroutines.close()

    @property
    def current(self) -> tuple[int, list[Any] | None, int]:
        """See ``activity.Working``; read by another thread."""
        if self.runtime is not None:
            return self.runtime.effects.metrics.windows, None, 0
        tup = self._loop.shows
        others = list(self._coroutines.shown.values()) if self._coroutines is not None else []
        if others:
            tup = others[0]
        return (-1, None, 0) if tup is None else (tup._row, list(tup.values()), max(0, len(others) - 1))

    def pieces(self, rows: Rows) -> Iterable[Rows]:
        """The pieces in which user code gets some rows; each is worked on before the next one is requested.

        A ``ColumnBolt`` fails with all rows that it gets at once. So it gets retried messages one by one, and a message
        does not fail again because of another one. A bolt that splits frames needs no such pieces.
        """
        whole = not isinstance(self.bolt, ColumnBolt) or self.bolt.splits_frames
        pieces = (rows,) if whole else rows.with_retries_apart()
        return pieces if self.watch is None else self._watched_pieces(pieces, self.watch)

    def _watched_pieces(self, pieces: Iterable[Rows], watch: TaskWatch) -> Iterator[Rows]:
        for piece in pieces:
            for start, stop in watch.spans(piece.count):
                yield piece.part(start, stop)

    def run(self, rows: Rows) -> Settlements:
        """Run user code on each row; its emissions are left in ``output``."""
        result = Settlements(executed=rows.count)
        held = result.held = self._work(rows, result)
        if self.watch is not None:
            result.failures = {row: self._with_first(failure) for row, failure in result.failures.items()}
        if result.failures or held is not None:
            self._settle_some(rows, result, held)
        else:
            result.acked += rows.count
            if rows.anchoring is not None:
                result.acks.append(rows.anchoring)
        self._rows_acked += result.acked
        self._rows_failed += result.failed
        if isinstance(self.bolt, Bolt):
            self._settle_late(result)
        if self.runtime is not None:
            self._apply_effects(self.runtime, result)
        self._report(result)
        return result

    def _with_first(self, failure: Failure) -> Failure:
        """Add the reason of the repeat to an exception in repeated work: the missing call may have caused it."""
        first = self.watch.first_reason if self.watch is not None else None
        if first is None or failure.cause not in (Cause.EXCEPTION, Cause.EMIT):
            return failure
        reason = f"{failure.reason} (the work was repeated without an earlier call of the same task: {first})"
        return replace(failure, reason=reason)

    def _settle_some(self, rows: Rows, result: Settlements, held: npt.NDArray[np.bool_] | None) -> None:
        """Add the fails, acks and holds of rows that are not all acked."""
        failed = np.zeros(rows.count, dtype=bool)
        for row, failure in result.failures.items():
            failed[row] = True
            self._fail(rows.anchors_of(row), failure, result)
        done = ~failed if held is None else ~(failed | held)
        result.acked += int(done.sum())
        result.failed += len(result.failures)
        if rows.anchoring is not None:
            result.acks.append(Anchoring(*rows.pairs_where(done)))
            if held is not None and bool(held.any()):
                result.holds.append(rows.pairs_where(held & ~failed)[0])

    def _work_in_runtime(self, rows: Rows, result: Settlements) -> npt.NDArray[np.bool_] | None:
        assert self.runtime is not None
        try:
            if self.watch is not None:
                self.watch.piece()
        except KilledWorkerError as error:
            result.failures = dict.fromkeys(range(rows.count), failure_of(error))
            return None
        held = self.runtime.rows(rows, result)
        if self.watch is not None and self.watch.look is not None:
            self.watch.took(rows.unkeepable())
        return held

    def run_between(self, step: Callable[[Settlements], None]) -> Settlements:
        """Run a step of a bolt runtime before or after its rows; its emissions are left in ``output``."""
        result = Settlements()
        if self.watch is not None:
            self.watch.between()
        step(result)
        assert self.runtime is not None
        self._apply_effects(self.runtime, result)
        self._report(result)
        return result

    def _apply_effects(self, runtime: BoltRuntime, result: Settlements) -> None:
        effects, runtime.effects = runtime.effects, RuntimeEffects()
        result.of_windows = effects.metrics
        result.acked += sum(len(edges) for _, edges in effects.acks)
        if effects.acks:
            result.acks.append(Anchoring(*joined(effects.acks)))
        for roots, error in effects.fails:
            failure, trees = self._with_first(replace(failure_of(error), reported=True)), set(roots.tolist())
            self._report_failure(failure, result)
            result.of_trees.append((len(trees), failure))
            parts: list[AnchorPairs] = [((root, 0),) for root in sorted(trees)]
            for anchors in parts or [()]:
                self._fail(anchors, failure, result)
        for text in effects.reports:
            result.reports.append(ErrorReport(self.context.component, self.context.index, text))

    def flush(self, seen: list[Rows]) -> Settlements:
        """Call the bolt's ``flush``, which writes the gathered data; its emissions are left in ``output``.

        An exception fails all rows of the micro-batch.

        Args:
            seen: all rows that the task got in the micro-batch.
        """
        result = Settlements()
        collector = self._begin_flush()
        try:
            with self._flushing(), self.watch.flushing() if self.watch is not None else nullcontext():
                returned = self.bolt.flush(collector) if self._flush_takes_collector else self.bolt.flush()
                if returned is not None:
                    self._emit_flushed(returned)
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            failure = result.flush_failure = self._with_first(replace(failure_of(error), reported=True))
            take_rows(self.bolt)
            self._report_failure(failure, result)
            for rows in seen:
                for row in range(rows.count):
                    self._fail(rows.anchors_of(row), failure, result)
            result.failed += sum(rows.count for rows in seen) - self._rows_failed
            result.acked -= self._rows_acked
        if isinstance(self.bolt, Bolt):
            self._settle_flushed(result)
        else:
            self._report(result)
        self._end_flush()
        self._rows_acked = self._rows_failed = 0
        return result

    def _flushing(self) -> AbstractContextManager[None]:
        return nullcontext() if self.monitor is None else self.monitor.at(Activity.FLUSH, self.context.task)

    def _begin_flush(self) -> Any:
        """Let the collectors accept emissions without anchors, or anchored to tuples that the bolt has kept.

        Returns:
            The collector for ``flush``.
        """
        self._by_hand.begin_flush()
        self._basic.begin_flush()
        self._columns.begin(0)
        return self._collector if self.runtime is None else self.runtime.begin_flush()

    def _end_flush(self) -> None:
        self._basic.end()
        self._columns.end()
        if self.runtime is not None:
            self.runtime.end_flush()

    def _emit_flushed(self, returned: Any) -> None:
        """Emit the values that ``flush`` returned, without anchors."""
        who = f"flush of {self.context.component!r}"
        if isinstance(self.bolt, ColumnBolt):
            refuse(returned, who, "a ColumnBolt emits columns by collector.emit alone")
        emit_all(returned, self._basic.emit, who, single=self.output.single)

    def _settle_flushed(self, result: Settlements) -> None:
        """Add the acks and fails that a bolt which acks by hand made in ``flush``, of tuples that it had kept."""
        collector = self._by_hand
        _, self._late = collector.end()
        self._late_failures, collector.failures = collector.failures, []
        self._settle_late(result)
        self._report(result)

    def _fail(self, anchors: AnchorPairs, failure: Failure, result: Settlements) -> None:
        """Fail the trees of a tuple; a failure without a tree is always reported, because nothing else shows it."""
        if not anchors:
            stop_without_tree(self.context.component, failure, self.on_error)
            if not failure.reported:
                self._report_failure(failure, result)
        owner = self.context.component, self.context.index
        result.fails += fails_of((root for root, _ in anchors), owner, failure, self.context.micro_batch_id)

    def _settle_late(self, result: Settlements) -> None:
        """Add the acks, fails and reset timeouts of tuples that the bolt had kept."""
        collector = self._by_hand
        pairs = [pair for tup in self._late for pair in tup.anchors]
        if pairs:
            columns = np.array(pairs, dtype=np.uint64)
            result.acks.append(Anchoring(columns[:, 0], columns[:, 1]))
        result.acked += len(self._late)
        result.late_acks = self._late
        result.late_fails = [(tup, failure_said(reason)) for tup, reason in self._late_failures]
        for tup, failure in result.late_fails:
            result.failed += 1
            result.of_trees.append((1, failure))
            self._fail(tup.anchors, failure, result)
        roots = [root for tup in collector.touched for root, _ in tup.anchors]
        if roots:
            result.touched.append(np.array(roots, dtype=np.uint64))
        collector.touched.clear()

    def _report_failure(self, failure: Failure, result: Settlements) -> None:
        result.errors += 1
        result.reports.append(
            ErrorReport(self.context.component, self.context.index, failure.reason, failure.traceback)
        )

    def _report(self, result: Settlements) -> None:
        who = self.context.component, self.context.index
        for failure in result.failures.values():
            if failure.reported:
                self._report_failure(failure, result)
        for error in self.output.errors:
            result.errors += 1
            text, trace = reason_of(error)
            result.reports.append(ErrorReport(*who, text or "an error was reported without a word", trace))
        self.output.errors.clear()

    def _choose_work(self) -> Callable[[Rows, Settlements], npt.NDArray[np.bool_] | None]:
        if isinstance(self.bolt, FunctionBolt):
            return self._run_function
        if isinstance(self.bolt, AsyncBolt):
            return self._run_coroutines
        if isinstance(self.bolt, ColumnBolt):
            frames = ColumnFrames(self.bolt, self.output, self._columns, self._execute)
            return lambda rows, result: frames.run(rows, result, self.watch)
        return self._run_by_hand if isinstance(self.bolt, Bolt) else self._run_rows

    def _run_rows(self, rows: Rows, result: Settlements) -> None:
        assert isinstance(self.bolt, BasicBolt)
        self._loop.run(rows, result.failures, self._watched(self.bolt.execute))

    def _run_by_hand(self, rows: Rows, result: Settlements) -> npt.NDArray[np.bool_] | None:
        assert isinstance(self.bolt, Bolt)
        collector = self._by_hand
        collector.begin(rows, self.context.micro_batch_id)
        kept = self._loop.run_by_hand(rows, result.failures, self._watched(self.bolt.execute), collector)
        self._late_failures = []
        for tup, reason in collector.failures:
            if tup._chunk is rows:
                result.failures[tup._row] = failure_said(reason)
            else:
                self._late_failures.append((tup, reason))
        collector.failures.clear()
        status, self._late = collector.end()
        settled = np.frombuffer(status, dtype=np.uint8)
        for tup in kept:
            word = {collector.ACKED: "acked", collector.FAILED: "failed"}.get(status[tup._row])
            tup._settled = "failed" if tup._row in result.failures else word
            tup.detach()
        held = settled == 0
        return held if bool(held.any()) else None

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function that takes a tuple first; if there is a watch, one that notes each row there before."""
        watch = self.watch
        if watch is None:
            return call

        def watched(tup: Tuple, *collector: Any) -> Any:
            watch.row(tup._row)
            return call(tup, *collector)

        return watched

    def _run_function(self, rows: Rows, result: Settlements) -> None:
        assert isinstance(self.bolt, FunctionBolt)
        function, who = self._watched(self.bolt.function), f"{self.context.component!r}"
        self._loop.run_function(rows, result.failures, function, who)

    def _run_coroutines(self, rows: Rows, result: Settlements) -> None:
        assert self._coroutines is not None
        self._coroutines.run(rows, result.failures, self.watch)


class RowLoop:
    """The loop of one task over its rows."""

    def __init__(self, output: Output, basic: BasicRowCollector, who: str) -> None:
        """Emit into ``output``; ``basic`` is the collector of bolts that do not ack by hand, ``who`` names the call."""
        self._output = output
        self._basic = basic
        self._who = who
        self.shows: Tuple | None = None
        """The tuple that user code sees now."""
        self.state: Any = None
        """The form of the task's key-value state for the kernels, if it has one."""

    def run(self, rows: Rows, failures: Failures, execute: Callable[[Tuple, Any], Any]) -> None:
        """Call ``execute`` of a bolt that does not ack by hand."""
        if self._output.native is None:
            self._settle(self._each(rows, failures, execute, None), failures)
        else:
            self._compiled(rows, failures, execute, self._basic, self._who)

    def run_by_hand(
        self, rows: Rows, failures: Failures, execute: Callable[[Tuple, Any], Any], collector: BoltRowCollector
    ) -> list[Tuple]:
        """Call ``execute`` of a bolt that acks by hand; return the tuples that user code has kept."""
        return self._each(rows, failures, execute, collector)

    def run_function(self, rows: Rows, failures: Failures, function: Callable[[Tuple], Any], who: str) -> None:
        """Call the function of a bolt, and emit its results; ``who`` names the call."""
        if self._output.native is not None:
            self._compiled(rows, failures, function, None, who)
            return

        def execute(tup: Tuple, collector: BasicRowCollector) -> None:
            returned = function(tup)
            if returned.__class__ is GeneratorType:
                emit = collector.emit
                for values in returned:
                    emit(values)
            elif returned is not None:
                emit_all(returned, collector.emit, who, single=self._output.single)

        self._settle(self._each(rows, failures, execute, None), failures)

    def _settle(self, kept: list[Tuple], failures: Failures) -> None:
        for tup in kept:
            tup._settled = "failed" if tup._row in failures else "acked"
            tup.detach()

    def _each(
        self,
        rows: Rows,
        failures: Failures,
        execute: Callable[[Tuple, Any], Any],
        by_hand: BoltRowCollector | None,
    ) -> list[Tuple]:
        """Call ``execute`` for each row; return the tuples that user code has kept.

        ``by_hand`` is the collector of a bolt that acks by hand; any other bolt gets a collector that acks for it.
        """
        names = rows.origin.fields
        reference_count = sys.getrefcount
        kept: list[Tuple] = []
        tup = self.shows = Tuple.of_row(rows.origin, rows, 0)
        store = super(Tuple, tup).__setitem__
        basic = self._basic
        collector: Any = by_hand if by_hand is not None else basic
        buffer = basic.begin(tup) if by_hand is None else None
        ends = buffer.begin_rows() if buffer is not None else None
        emitted = buffer.values if buffer is not None else []
        note_end = ends.append if ends is not None else None
        alone = reference_count(tup)
        single = names[0] if len(names) == 1 else None
        for row, values in enumerate(rows.single() if single is not None else rows.values()):
            if reference_count(tup) != alone:
                kept.append(tup)
                tup = self.shows = Tuple.of_row(rows.origin, rows, row)
                store = super(Tuple, tup).__setitem__
                if by_hand is None:
                    basic.show(tup)
            if single is not None:
                store(single, values)
            else:
                for name, value in zip(names, values):  # noqa: B905  strict costs a third of the loop
                    store(name, value)
            tup._row = row
            try:
                returned = execute(tup, collector)
                if returned is not None:
                    emit = partial(by_hand.emit, anchors=tup) if by_hand is not None else basic.emit
                    emit_all(returned, emit, self._who, single=self._output.single)
            except BaseException as error:  # noqa: BLE001  user code may raise anything
                returned = None  # a generator that raised would hold the tuple
                if _failed(failures, rows.count, row, error):
                    if note_end is not None:
                        note_end(len(emitted))
                    break
            if note_end is not None:
                note_end(len(emitted))
        if reference_count(tup) != alone:
            kept.append(tup)
        self.shows = None
        if buffer is not None:
            buffer.end_rows()
        basic.end()
        return kept

    def _compiled(
        self,
        rows: Rows,
        failures: Failures,
        execute: Callable[..., Any],
        collector: BasicRowCollector | None,
        who: str,
    ) -> None:
        """``_each`` for a bolt that does not ack by hand, in compiled code (``run_rows`` of the kernels)."""
        basic = self._basic

        def renew(row: int) -> Tuple:
            tup = self.shows = Tuple.of_row(rows.origin, rows, row)
            basic.show(tup)
            return tup

        def emit_returned(returned: Any) -> None:
            emit_all(returned, basic.emit, who, single=self._output.single)

        kept: list[Tuple] = []
        buffer = basic.begin(Tuple.of_row(rows.origin, rows, 0))
        try:
            self._output.native.run_rows(
                buffer,
                rows.lists(),
                rows.origin.fields,
                rows.count,
                Tuple._row,
                renew,
                execute,
                collector,
                emit_returned,
                partial(_failed, failures, rows.count),
                kept,
                self.state,
            )
        finally:
            self.shows = None
            basic.end()
        self._settle(kept, failures)


def _failed(failures: Failures, count: int, row: int, error: BaseException) -> bool:
    """Note that a row has failed; returns whether the other rows are not tried, and then notes them as failed.

    Args:
        failures: by row that failed: the reason.
        count: how many rows there are.
        row: the row.
        error: the exception of user code.
    """
    failures[row] = failure_of(error)
    if failures[row].cause != Cause.UNAVAILABLE or not _is_away(failures, row):
        return False
    failures.update(dict.fromkeys(range(row + 1, count), not_tried(failures[row])))
    return True


def _is_away(failures: Mapping[int, Failure], row: int) -> bool:
    """Whether the bolt was unavailable for ``UNAVAILABLE_MAX`` rows up to this one, so that the rest is not tried.

    Each try may take a connection's timeout, and a micro-batch has thousands of rows.
    """
    last = range(row, row - UNAVAILABLE_MAX, -1)
    return all(failures[at].cause == Cause.UNAVAILABLE if at in failures else False for at in last)
