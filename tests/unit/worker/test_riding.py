"""What stages report goes to tasks of the next level, and behind the last one to ackers; each part is read once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from typing import Any

import pytest

from sparkbolt import BasicBolt, Bolt, Config, KeyValueState, TopologyBuilder
from sparkbolt.api.components import BoltBase
from sparkbolt.layout.lane import Lane, lay_out
from sparkbolt.wire.acker import gather
from sparkbolt.wire.frames import FrameKind, Moment, kind_of
from sparkbolt.wire.plan import Entry, Piece
from sparkbolt.worker.environment import environment_of
from sparkbolt.worker.routing import Row
from sparkbolt.worker.source_reader import run_piece
from sparkbolt.worker.stage import run_level
from sparkbolt.worker.state.task_state import DictStore
from sparkbolt.worker.worker import Worker
from tests.unit.worker.test_kernels import Listed

LEVELS, VALUES = 2, [f"word {number % 7}" for number in range(100)]
NOWHERE = "goes nowhere"


AWAY: set[str] = set()
"""What the service of ``LookUp`` does not know at the moment."""


class LookUp(BasicBolt):
    outputs = ["word"]

    def execute(self, tup: Any, collector: Any) -> None:
        if tup[0] in AWAY:
            raise OSError("the service is away")
        collector.emit([tup[0]])


class Keep(BasicBolt):
    outputs = ["word"]

    def init_state(self, state: KeyValueState) -> None:
        self.seen = state

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen.put(tup[0], self.seen.get(tup[0], 0) + 1)
        if tup[0] != NOWHERE:
            collector.emit([tup[0]])


class Holds(Bolt):
    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.held.append(tup)


def lane_of(values: list[str], last: BoltBase) -> Lane:
    builder = TopologyBuilder("riding", Config(acker_tasks=3))
    builder.set_spout("values", Listed(values))
    builder.set_bolt("look up", LookUp()).shuffle_grouping("values")
    builder.set_bolt("first", Keep(), parallelism=3).fields_grouping("look up", ["word"])
    builder.set_bolt("second", last, parallelism=3).fields_grouping("first", ["word"])
    return lay_out(builder.build(), cores=2)


class Run:
    """One micro-batch. A stage of a level gets the rows of one dest, as on Spark."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.stores = {dest: DictStore() for dest in lane.dests.values()}
        self.worker = Worker(environment_of(lane, stamps=count(1).__next__, clock=lambda: 0.0))

    def source(self) -> list[Row]:
        spout = self.lane.topology.components["values"].component
        entry = Entry(self.lane.topology.tasks("values")[0], 0, "here", 0, len(spout.values))
        return run_piece(self.worker, Moment(0, 1000), Piece(0, entry)).to_rows(self.lane)

    def level(self, number: int, rows: list[Row]) -> list[Row]:
        by_dest: dict[int, list[Row]] = {}
        for row in rows:
            by_dest.setdefault(row[0], []).append(row)
        results = [run_level(self.worker, number, rows, self.stores.__getitem__) for rows in by_dest.values()]
        return [row for result in results for row in result.to_rows(self.lane)]


def stages(run: Run) -> list[list[Row]]:
    """The rows that leave the source and each level."""
    passed = [run.source()]
    for level in range(1, LEVELS + 1):
        passed.append(run.level(level, passed[-1]))
    run.worker.close()
    return passed


def dests_of(rows: list[Row], *kinds: FrameKind) -> set[int]:
    return {dest for dest, data in rows if kind_of(data) in kinds}


@pytest.fixture(autouse=True)
def all_known() -> Iterator[None]:
    yield
    AWAY.clear()


def test_reports_go_to_tasks_of_the_next_level_and_to_ackers_behind_the_last() -> None:
    lane = lane_of(VALUES, Keep())
    *before, last = stages(Run(lane))
    for level, rows in enumerate(before, start=1):
        assert dests_of(rows, FrameKind.PARTIALS) | dests_of(rows, FrameKind.FEEDBACK) <= lane.dests_of_level(level)
        assert dests_of(rows, FrameKind.PARTIALS)
    assert dests_of(last, FrameKind.PARTIALS) <= set(lane.acker_dests)
    assert dests_of(last, FrameKind.FEEDBACK) == {lane.feedback_dest}


def test_all_reports_arrive_and_each_tree_is_complete() -> None:
    feedback = gather(data for _, data in stages(Run(lane_of(VALUES, Keep())))[-1])
    executed = {name: counts.executed for name, counts in feedback.metrics.items()}
    assert executed == {"values": 0, **dict.fromkeys(["look up", "first", "second"], len(VALUES))}
    assert int(feedback.verdicts.done_counts.sum()) == len(VALUES)


def test_a_task_that_gets_only_reports_does_not_run() -> None:
    run = Run(lane_of([NOWHERE] * 9, Keep()))
    feedback = gather(data for _, data in stages(run)[-1])
    assert int(feedback.verdicts.done_counts.sum()) == 9
    touched = {dest for dest, store in run.stores.items() if store}
    assert len(touched) == 1
    assert touched <= run.lane.dests_of_level(1)


@pytest.mark.parametrize("last", [Keep(), Holds()], ids=["acks", "holds"])
@pytest.mark.parametrize("away", [set(VALUES), {VALUES[0]}, {NOWHERE, *VALUES[1:3]}], ids=len)
def test_each_tree_is_reported_once_whichever_attempt_a_reader_has_read(last: BoltBase, away: set[str]) -> None:
    """A machine is lost: Spark repeats a stage for those who have not read from it, and the repeat goes another way."""
    lane = lane_of(VALUES, last)
    run = Run(lane)
    AWAY.update(away)
    attempts = [run.source()]
    AWAY.clear()
    attempts.append(run.source())
    dests = sorted({dest for rows in attempts for dest, _ in rows})
    for chosen in product((0, 1), repeat=len(dests)):
        attempt_of = dict(zip(dests, chosen, strict=True))
        run = Run(lane)
        rows = [row for number, rows in enumerate(attempts) for row in rows if attempt_of[row[0]] == number]
        for level in range(1, LEVELS + 1):
            rows = run.level(level, rows)
        feedback = gather(data for _, data in rows)
        verdicts = feedback.verdicts
        done, failed = int(verdicts.done_counts.sum()), len(verdicts.init_failed)
        assert done + failed + int(verdicts.open_new.sum()) == len(VALUES), attempt_of
        assert done == 0 or not isinstance(last, Holds), "acked, and somebody holds it"
        assert feedback.metrics["look up"].executed == len(VALUES)
