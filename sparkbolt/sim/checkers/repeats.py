"""Repeats: checks that work which runs twice does the same twice."""

from __future__ import annotations

from collections.abc import Sequence

from sparkbolt.sim.canonical import same
from sparkbolt.sim.checkers.base import Checker, Facts, Records
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.wire.acker import combine, decode_partials
from sparkbolt.wire.frames import FrameKind, decode, kind_of, python_values, unwrap
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from sparkbolt.worker.routing import Row


class TheSameAgain(Checker):
    """A micro-batch that runs again does the same, and so does a spark_task."""

    promise = "the same micro-batch again is the same"

    def __init__(self, facts: Facts) -> None:
        """Start without runs."""
        super().__init__(facts)
        self._number = -1
        self._plan: MicroBatchPlan | None = None
        self._entries: tuple[Entry, ...] = ()
        self._looped: list[Row] = []
        self._made: list[tuple[str, Row]] = []
        self._logged: dict[int, str] = {}

    def shaped(self) -> None:
        """Forget the run of a plan that nothing has committed."""
        if self._plan is not None and self._plan.micro_batch_id > self.facts.committed:
            self._plan = None

    def begun(self, plan: MicroBatchPlan, records: Records) -> None:
        """Check that the plan is the same as in the earlier run."""
        if self._plan is not None and plan.micro_batch_id == self._plan.micro_batch_id and plan != self._plan:
            self.broken(
                f"micro-batch {plan.micro_batch_id} ran with one plan and runs again with another: the offset log's "
                "plan must be taken"
            )

    def ran(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome) -> None:
        """Check that the rows are the same as in the earlier run.

        A life that begins voids the trees of each ``Spout``, so their looped tuples are not delivered again.
        """
        for name, first, second in outcome.repeats:
            self._compare(plan.micro_batch_id, name, first, second)
        alive = tuple(entry for entry in plan.entries if entry.lasting or entry in self.facts.running)
        same = (plan, alive, outcome.looped) == (self._plan, self._entries, self._looped)
        if same and not self.violations:
            names = list(dict.fromkeys(name for name, _ in [*self._made, *outcome.made]))
            for name in names:
                before = [row for made, row in self._made if made == name]
                now = [row for made, row in outcome.made if made == name]
                self._compare(plan.micro_batch_id, name, before, now)
                if self.violations:
                    return
        self._plan, self._entries, self._looped, self._made = plan, alive, outcome.looped, outcome.made

    def _compare(self, number: int, name: str, first: Sequence[Row], second: Sequence[Row]) -> None:
        if sorted(map(_plain, first)) == sorted(map(_plain, second)):
            return
        difference = _difference(first, second)
        if difference is not None:
            task, words = difference
            component, index = self.facts.subject.topology.task_owner(task) if task else ("", 0)
            who = f"{component}[{index}]" if task else "its tasks"
            self.broken(f"{name} of micro-batch {number} ran twice, and {who} {words}", component=component or None)


def _plain(row: Row) -> tuple[int, bytes]:
    return row[0], bytes(row[1])


def _difference(first: Sequence[Row], second: Sequence[Row]) -> tuple[int, str] | None:
    """Return (task number or 0, description) of the first difference between two runs of a spark_task."""
    frames = [
        {
            (dest, *frame.order): frame
            for dest, data in rows
            if kind_of(data) == FrameKind.DATA
            for frame in [decode(data)]
        }
        for rows in (first, second)
    ]
    for place in sorted({*frames[0], *frames[1]}):
        one, other = frames[0].get(place), frames[1].get(place)
        if one is None or other is None:
            return place[1], "sent tuples to other tasks"
        columns = [[list(python_values(column)) for column in frame.columns] for frame in (one, other)]
        if not same(columns[0], columns[1]):
            for a, b in zip(zip(*columns[0], strict=True), zip(*columns[1], strict=True), strict=False):
                if not same(list(a), list(b)):
                    return place[1], f"emitted {list(a)!r:.80} once and {list(b)!r:.80} the other time"
            return place[1], f"emitted {one.rows} tuples once and {other.rows} the other time"
        anchors = [
            [] if frame.anchoring is None else [frame.anchoring.roots.tolist(), frame.anchoring.edges.tolist()]
            for frame in (one, other)
        ]
        if anchors[0] != anchors[1]:
            return place[1], "anchored the same tuples otherwise"
    said = [
        combine(
            [
                decode_partials(unwrap(data, FrameKind.PARTIALS))
                for _, data in rows
                if kind_of(data) == FrameKind.PARTIALS
            ]
        )
        for rows in (first, second)
    ]
    for fail in {fail.key: fail for part in said for fail in part.fails}.values():
        if [fail.key in {f.key for f in part.fails} for part in said] != [True, True]:
            return 0, f"failed a tuple only one of the times ({fail.component}[{fail.task}]: {fail.reason})"
    if said[0].ack_keys.tolist() != said[1].ack_keys.tolist() or said[0].ack_xors.tolist() != said[1].ack_xors.tolist():
        return 0, "acked other tuples"
    return None
