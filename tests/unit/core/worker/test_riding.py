"""What the stages of a micro-batch report rides with the frames of tasks, and comes by itself behind the last level."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, KeyValueState, TopologyBuilder
from sparkbolt.core.model.lane import Lane, lay_out
from sparkbolt.core.protocol.acker import gather
from sparkbolt.core.protocol.frames import FrameKind, Moment, kind_of
from sparkbolt.core.protocol.plan import Entry
from sparkbolt.core.state.task_state import DictStore
from sparkbolt.core.worker.environment import environment_of
from sparkbolt.core.worker.results import Row
from sparkbolt.core.worker.source_reader import run_entry
from sparkbolt.core.worker.stage import run_level
from sparkbolt.core.worker.worker import Worker
from tests.unit.core.worker.test_kernels import Listed

LEVELS, VALUES = 2, [f"word {number % 7}" for number in range(100)]
NOWHERE = "goes nowhere"


class Keep(BasicBolt):
    outputs = ["word"]

    def init_state(self, state: KeyValueState) -> None:
        self.seen = state

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen.put(tup[0], self.seen.get(tup[0], 0) + 1)
        if tup[0] != NOWHERE:
            collector.emit([tup[0]])


def lane_of(values: list[str]) -> Lane:
    builder = TopologyBuilder("riding", Config(acker_tasks=3))
    builder.set_spout("values", Listed(values))
    builder.set_bolt("first", Keep(), parallelism=3).fields_grouping("values", ["value"])
    builder.set_bolt("second", Keep(), parallelism=3).fields_grouping("first", ["word"])
    return lay_out(builder.build(), cores=2)


def stages(lane: Lane, stores: dict[int, DictStore]) -> list[list[Row]]:
    """The rows that leave the source and each level; a stage of a level gets the rows of one dest, as on Spark."""
    worker = Worker(environment_of(lane, stamps=count(1).__next__, clock=lambda: 0.0))
    spout = lane.topology.components["values"].component
    entry = Entry(lane.topology.tasks("values")[0], 0, "here", 0, len(spout.values))
    passed = [run_entry(worker, Moment(0, 1000), 0, entry).to_rows(lane)]
    for level in range(1, LEVELS + 1):
        by_dest: dict[int, list[Row]] = {}
        for row in passed[-1]:
            by_dest.setdefault(row[0], []).append(row)
        results = [run_level(worker, level, rows, stores.__getitem__) for rows in by_dest.values()]
        passed.append([row for result in results for row in result.to_rows(lane)])
    worker.close()
    return passed


def dests_of(rows: list[Row], *kinds: FrameKind) -> set[int]:
    return {dest for dest, data in rows if kind_of(data) in kinds}


@pytest.fixture
def lane() -> Lane:
    return lane_of(VALUES)


def test_reports_go_to_no_dest_of_their_own_before_the_last_level(lane: Lane) -> None:
    *before, last = stages(lane, {dest: DictStore() for dest in lane.dests.values()})
    for level, rows in enumerate(before, start=1):
        tuples = dests_of(rows, FrameKind.DATA)
        assert {dest for dest, _ in rows} == tuples <= lane.dests_of_level(level)
        assert dests_of(rows, FrameKind.PARTIALS)
        assert dests_of(rows, FrameKind.FEEDBACK)
    assert dests_of(last, FrameKind.PARTIALS) <= set(lane.acker_dests)
    assert dests_of(last, FrameKind.FEEDBACK) == {lane.feedback_dest}


def test_all_reports_arrive_and_each_tree_is_complete(lane: Lane) -> None:
    feedback = gather(data for _, data in stages(lane, {dest: DictStore() for dest in lane.dests.values()})[-1])
    assert {name: counts.executed for name, counts in feedback.metrics.items()} == {
        "values": 0,
        "first": len(VALUES),
        "second": len(VALUES),
    }
    assert int(feedback.verdicts.done_counts.sum()) == len(VALUES)


def test_where_a_level_has_no_frames_reports_pass_it_and_touch_no_state() -> None:
    lane = lane_of([NOWHERE] * 9)
    stores = {dest: DictStore() for dest in lane.dests.values()}
    _, first, second = stages(lane, stores)
    assert first == second
    assert {dest for dest, _ in first} <= {*lane.acker_dests, lane.feedback_dest}
    touched = {dest for dest, store in stores.items() if store}
    assert len(touched) == 1
    assert touched <= lane.dests_of_level(1)
