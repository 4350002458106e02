"""The hop recorder: which hops a stage records, at no cost for trees that succeed.

A frame has the path of its tuples, from the spout to here, once for all of them, so a stage in which a tuple fails
knows the tuple's ancestors. The column of attempts marks retried messages and trees that ``trace`` chose; without such
a column and without failed rows, a stage checks no rows. A stage reports the marked and failed trees with the smallest
roots, so all stages of a micro-batch, and its repeats, choose the same trees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.api.components import TopologyContext
from sparkbolt.api.story import Hop, short_values
from sparkbolt.api.tuples import DEFAULT_STREAM, TRACED, Origin, Tuple
from sparkbolt.base.exceptions import pass_on
from sparkbolt.base.ids import U64, run_starts, unmix64
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.frames import Column, Moment, Path, python_values
from sparkbolt.worker.emissions import Rows
from sparkbolt.worker.failures import Failure
from sparkbolt.worker.results import Work
from sparkbolt.worker.routing import EmittedRows

FAILED_MAX = 100
"""For how many failed trees one stage reports the hops, in one micro-batch."""
TRACED_MAX = 500
"""For how many marked trees one stage reports the hops, in one micro-batch."""

Mask = npt.NDArray[np.bool_]


@dataclass
class _Action:
    """The work of one task on the tuples of one tree."""

    tuples: int = 0
    acked: int = 0
    failed: int = 0
    held: int = 0
    source: str = ""
    values: str = ""
    emitted: dict[str, int] = field(default_factory=dict)


class HopRecorder:
    """Collects the hops of one stage in one micro-batch."""

    def __init__(self, lane: Lane, moment: Moment) -> None:
        """Begin without any hops."""
        self._lane = lane
        self._moment = moment
        self._actions: dict[tuple[int, int], _Action] = {}
        """By (root, task number)."""
        self._failed: set[int] = set()
        self._ceiling = 1 << 64
        """Marked roots from this one on are not among the smallest."""
        self._parents: dict[int, str] = {}
        """By root: the ``traceparent`` of its message."""

    # Recording.

    def worked(self, work: Work) -> None:
        """See ``Subscriber``; called only for work that is followed."""
        done = work.done
        if work.rows.attempts is not None or done.failures:
            self._worked(work.task, work.rows, done.failures, done.held)
        late_acks = done.late_acks if self._lane.traces else [tup for tup in done.late_acks if tup.mark & TRACED]
        self._settled(work.task, late_acks, done.late_fails)
        for sent in work.sent:
            if sent.block.attempts is not None:
                self._emitted(sent.block, work.task)
        for refusal in work.refused:
            for root in refusal.roots:  # they fail because an emission cannot be sent
                if self._may_fail(root):
                    self._pass(root, refusal.path)

    def _worked(self, task: int, rows: Rows, failures: Mapping[int, Failure], held: Mask | None) -> None:
        """Record that a task has worked on rows, if some are marked or failed.

        Args:
            task: the number of the task.
            rows: the rows.
            failures: by row that failed, why.
            held: bool[rows], the rows that were neither acked nor failed; None if there are none.
        """
        if rows.anchoring is None:
            return
        failed = np.zeros(rows.count, dtype=bool)
        failed[list(failures)] = True
        marked = rows.attempts > 1 if rows.attempts is not None else np.zeros(rows.count, dtype=bool)
        source = f"{rows.origin.component}[{rows.origin.task}]"
        told: set[int] = set()
        for root, of_root in _rows_by_root(rows.anchoring.roots, rows.anchoring.offsets, marked):
            if not self._wants(root):
                continue
            told.add(root)
            action = self._action(root, task)
            lost, kept = failed[of_root], held[of_root] if held is not None else np.zeros(len(of_root), dtype=bool)
            action.tuples += len(of_root)
            action.failed += int(lost.sum())
            action.held += int((kept & ~lost).sum())
            action.acked += int((~kept & ~lost).sum())
            row = int(of_root[lost][0] if lost.any() else of_root[0])
            self._show(action, rows, row, source, failures.get(row))
        for row in np.flatnonzero(failed)[:FAILED_MAX].tolist():
            for root, _ in rows.anchors_of(row):
                if self._may_fail(root) and root not in told:
                    action = self._action(root, task)
                    action.failed += 1
                    self._show(action, rows, row, source, None if action.values else failures[row])
                    self._pass(root, rows.path)

    def _emitted(self, block: EmittedRows, sender: int) -> None:
        """Record that a task has emitted rows, some of which are marked."""
        parents, stream = block.parents, block.stream
        if parents is None or block.attempts is None:
            return
        label = _label(stream.name, stream.fields)
        is_spout = self._lane.topology.components[stream.component].is_spout
        for root, of_root in _rows_by_root(parents.roots, parents.offsets, block.attempts > 1):
            if not self._wants(root):
                continue
            action = self._action(root, sender)
            action.emitted[label] = action.emitted.get(label, 0) + len(of_root)
            if is_spout and not action.values:
                action.values = short_values(stream.fields, values_of_row(block.columns, int(of_root[0])))

    def came_with(self, parents: Mapping[int, str]) -> None:
        """Record the ``traceparent`` of messages whose trees are followed, by root."""
        self._parents.update((root, text) for root, text in parents.items() if self._wants(root))

    def _settled(self, task: int, acked: Iterable[Tuple], failed: Iterable[tuple[Tuple, Failure]]) -> None:
        """Record that a task has acked or failed tuples that it had kept."""
        for tup in acked:
            if tup.mark > 1:
                for root in filter(self._wants, (root for root, _ in tup.anchors)):
                    self._action(root, task).acked += 1
        for tup, failure in failed:
            for root, _ in tup.anchors:
                if self._may_fail(root) or tup.mark > 1:
                    action = self._action(root, task)
                    action.failed += 1
                    action.source = f"{tup.source_component}[{tup.source_task}]"
                    action.values = short_values(tup._origin.fields, tup.values(), failure.reason, failure.traceback)

    def holds(self, context: TopologyContext, tuples: Iterable[Tuple], wanted: Iterable[int]) -> None:
        """Record that a task holds tuples of trees that time out.

        Args:
            context: the task's.
            tuples: the tuples that it holds.
            wanted: the roots of the trees that time out.
        """
        asked = set(wanted)
        for tup in tuples:
            for root, _ in tup.anchors:
                if root in asked and self._may_fail(root):
                    action = self._action(root, context.task)
                    action.held += 1
                    if not action.values:
                        action.source = f"{tup.source_component}[{tup.source_task}]"
                        action.values = short_values(tup._origin.fields, tup.values())

    # Reporting.

    def hops(self) -> list[Hop]:
        """The hops, in an order that depends only on the records."""
        self._forget_some(TRACED_MAX)
        told = []
        for (root, number), action in sorted(self._actions.items()):
            component, index = self._lane.topology.task_owner(number)
            hop = Hop(
                unmix64(root),
                self._moment.micro_batch_id,
                self._moment.now_ms,
                self._lane.depths[component],
                component,
                index,
                action.tuples,
                action.acked,
                action.failed,
                action.held,
                action.source,
                action.values,
                tuple(sorted(action.emitted.items())),
                self._parents.get(root, "") if self._lane.depths[component] == 0 else "",
            )
            told.append(hop)
        return told

    def _action(self, root: int, task: int) -> _Action:
        action = self._actions.get((root, task))
        if action is None:
            if len(self._actions) > 4 * TRACED_MAX:
                self._forget_some(TRACED_MAX)
            action = self._actions[root, task] = _Action()
        return action

    def _wants(self, root: int) -> bool:
        return root < self._ceiling or root in self._failed

    def _may_fail(self, root: int) -> bool:
        if len(self._failed) < FAILED_MAX:
            self._failed.add(root)
        return root in self._failed

    def _forget_some(self, limit: int) -> None:
        """Keep the failed trees, and ``limit`` of the others: those with the smallest roots."""
        marked = sorted({root for root, _ in self._actions} - self._failed)
        if len(marked) > limit:
            self._ceiling = marked[limit]
            self._actions = {place: action for place, action in self._actions.items() if self._wants(place[0])}
            self._parents = {root: text for root, text in self._parents.items() if self._wants(root)}

    def _pass(self, root: int, path: Path) -> None:
        """Record that each task on the path has emitted a tuple of the tree, or an ancestor of one."""
        for number, stream in path:
            _, definition = self._lane.topology.stream_at(stream)
            self._action(root, number).emitted.setdefault(_label(definition.name, definition.fields), 0)

    @staticmethod
    def _show(action: _Action, rows: Rows, row: int, source: str, failure: Failure | None) -> None:
        if failure is not None or not action.values:
            why, code = (failure.reason, failure.traceback) if failure is not None else ("", None)
            values = values_of_row(rows.columns, row)
            action.source, action.values = source, short_values(rows.origin.fields, values, why, code)


class Chooser:
    """Chooses which of a spout's tuples are traced, by the setting ``trace``: a share of all trees, or a predicate."""

    def __init__(self, trace: float | Callable[[Tuple], Any], origin: Origin) -> None:
        """Choose by ``trace`` among the tuples of ``origin``."""
        self._share = trace if isinstance(trace, int | float) else 0.0
        self._predicate = None if isinstance(trace, int | float) else trace
        self._origin = origin
        self.error: BaseException | None = None
        """The first exception of the predicate; a tuple for which it raises is not traced."""

    def marks(self, columns: Sequence[Column], roots: U64) -> npt.NDArray[np.uint8] | None:
        """``TRACED`` for each chosen row and 0 for the others, uint8[rows]; None if no row is chosen.

        A share needs no random number: roots are distributed like random numbers, so a tree is chosen if its root is
        small. If one tuple of a message is chosen, all tuples of the message are.

        Args:
            columns: the columns of the rows.
            roots: uint64[rows], the root of each row.
        """
        if self._predicate is not None:
            lists = [python_values(column) for column in columns]
            rows = zip(*lists, strict=True) if lists else ([] for _ in range(len(roots)))
            asked = np.fromiter((self._asks(self._predicate, values) for values in rows), dtype=bool, count=len(roots))
            starts = run_starts(roots)
            whole = np.logical_or.reduceat(asked, starts) if len(starts) else asked
            chosen = np.repeat(whole, np.diff(np.append(starts, len(roots))))
        elif self._share >= 1:
            chosen = np.ones(len(roots), dtype=bool)
        else:
            chosen = roots < np.uint64(int(self._share * 2**64))
        return np.where(chosen, np.uint8(TRACED), np.uint8(0)) if chosen.any() else None

    def _asks(self, predicate: Callable[[Tuple], Any], values: Sequence[Any]) -> bool:
        try:
            return bool(predicate(Tuple.of(self._origin, values)))
        except BaseException as error:  # noqa: BLE001  user code may raise anything
            pass_on(error)
            self.error = self.error or error
            return False


def _rows_by_root(
    roots: U64, offsets: npt.NDArray[np.int64] | None, chosen: Mask
) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield each root of the chosen rows, with its chosen rows, intp[rows]; at most ``TRACED_MAX``, smallest first.

    Args:
        roots: uint64[pairs].
        offsets: int64[rows + 1], ascending; None: one pair for each row.
        chosen: bool[rows].
    """
    rows = np.arange(len(chosen))
    if offsets is not None:
        rows = np.repeat(rows, np.diff(offsets))
    pairs = np.flatnonzero(chosen[rows])
    if len(pairs) == 0:
        return
    pairs = pairs[np.argsort(roots[pairs], kind="stable")]
    starts = run_starts(roots[pairs])
    for start, stop in list(zip(starts, np.append(starts[1:], len(pairs)), strict=True))[:TRACED_MAX]:
        yield int(roots[pairs[start]]), rows[pairs[start:stop]]


def _label(stream: str, fields: Sequence[str]) -> str:
    """The label of a stream: its fields; with its name before them unless it is the default stream."""
    listed = ", ".join(fields)
    return listed if stream == DEFAULT_STREAM else f"{stream}: {listed}"


def values_of_row(columns: Sequence[Column], row: int) -> list[Any]:
    """The values of one row."""
    return [value.as_py() if hasattr(value := column[row], "as_py") else value for column in columns]
