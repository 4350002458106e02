"""The row loop: calls user code for one row after another.

Which question it answers: how does user code see its tuples, and which of them fail?
Rule 1: a tuple that user code keeps stays unchanged. One object shows row after row only as long as its reference count
proves that user code has not kept it.
Rule 2: the loop does as little as possible, because every tuple pays for everything in it. Where there are compiled
kernels (``native``), they run it, with the same results; the Python here is the reference.

Read before: ``collectors``, ``tuple_batch``, ``failures``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import GeneratorType
from typing import Any, TypeAlias

from sparkbolt.core.model.causes import Cause
from sparkbolt.core.model.tuples import Tuple
from sparkbolt.core.worker.collectors import BasicRowCollector, BoltRowCollector
from sparkbolt.core.worker.failures import Failure, failure_of, not_tried
from sparkbolt.core.worker.returned_values import emit_all
from sparkbolt.core.worker.tuple_batch import Output, Rows

UNAVAILABLE_MAX = 10
"""After this many tuples in a row for which a bolt was unavailable, the rest of the frame is not tried."""

Failures: TypeAlias = dict[int, Failure]
"""By row that failed: why."""


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
        """What the kernels know of the task's key-value state, if it has one."""

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
        """Call the function of a bolt, and emit what it returns; ``who`` names the call."""
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
                emit_all(returned, collector.emit, who)

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
        tup = self.shows = Tuple.at(rows.origin, rows, 0)
        basic = self._basic
        collector: Any = by_hand if by_hand is not None else basic
        ends = basic.begin(tup) if by_hand is None else None
        emitted = self._output.default.values if ends is not None and self._output.default is not None else []
        note_end = ends.append if ends is not None else None
        alone = reference_count(tup)
        single = names[0] if len(names) == 1 else None
        for row, values in enumerate(rows.single() if single is not None else rows.values()):
            if reference_count(tup) != alone:
                kept.append(tup)
                tup = self.shows = Tuple.at(rows.origin, rows, row)
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
                    emit_all(returned, emit, self._who)
            except BaseException as error:  # noqa: BLE001  user code may raise anything
                returned = None  # a generator that raised would hold the tuple
                if _failed(failures, rows.count, row, error):
                    if ends is not None:
                        ends.extend([len(emitted)] * (rows.count - row))
                    break
            if note_end is not None:
                note_end(len(emitted))
        if reference_count(tup) != alone:
            kept.append(tup)
        self.shows = None
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
        """What ``_each`` does for a bolt that does not ack by hand, by compiled code (``run_rows`` of the kernels)."""
        basic, default = self._basic, self._output.default

        def renew(row: int) -> Tuple:
            tup = self.shows = Tuple.at(rows.origin, rows, row)
            basic.show(tup)
            return tup

        def emit_returned(returned: Any) -> None:
            emit_all(returned, basic.emit, who)

        kept: list[Tuple] = []
        basic.begin(Tuple.at(rows.origin, rows, 0))
        try:
            self._output.native.run_rows(
                default.emitter if default is not None else None,
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
    """Note that a row has failed; returns whether the rest of the rows is not tried, and then notes that, too.

    Args:
        failures: by row that failed: why.
        count: how many rows there are.
        row: the row.
        error: what user code raised.
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
