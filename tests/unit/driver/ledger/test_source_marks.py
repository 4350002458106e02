"""Source marks: what the ledger knows of event time outlives the driver."""

from __future__ import annotations

import json

from sparkbolt.api.retry import at_once
from sparkbolt.base.codec import decode
from sparkbolt.driver.ledger.ledger import Ledger, SpoutInfo
from sparkbolt.wire.plan import Entry, MicroBatchPlan
from sparkbolt.wire.stream_sources import NOTHING_YET, StreamSources
from sparkbolt.wire.verdicts import Feedback
from tests.ledgers import restored

SPOUTS = [SpoutInfo("lines", (1,), True, at_once(3))]
TOLD = StreamSources("average", "lines", "default", 40, True, 30, ((0, NOTHING_YET), (1, 40)), True, False, 900)
PLAN = MicroBatchPlan(
    0,
    life=0,
    now_ms=0,
    entries=(Entry(1, 0, "a.txt", 0, 10),),
    streams=(TOLD,),
    open_ranges=((1, 90, 5, "b.txt"),),
)


def owner(task: int) -> tuple[str, int]:
    return "lines", task - 1


def test_a_plan_with_sources_is_unchanged_after_a_round_trip() -> None:
    again = decode(MicroBatchPlan, json.loads(PLAN.dumps()))
    assert again == PLAN
    assert again.sources(owner) == [("lines", "a.txt"), ("lines", "b.txt")]


def test_marks_only_rise_and_are_in_the_log_and_in_the_snapshot() -> None:
    ledger = Ledger(SPOUTS, task_owner=owner)
    reports = [("average", "lines", "default", code, newest) for code, newest in ((-1, 70), (0, 50), (0, 20), (1, 70))]
    entry = ledger.stage(PLAN, Feedback(marks=reports))
    ledger.promote(0)
    replayed = Ledger(SPOUTS, task_owner=owner)
    replayed.replay(entry)
    for one in (ledger, replayed, restored(ledger.snapshot(), SPOUTS, task_owner=owner)):
        marks = one.marks.of("average", "lines", "default")
        assert (marks.newest_ms, marks.sources) == (70, {("lines", "a.txt"): 50, ("lines", "b.txt"): 70})
