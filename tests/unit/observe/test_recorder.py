"""The recorder: each promotion adds to the history what the ledger has counted since the last one, once."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbolt import BasicBolt, Spout, TopologyBuilder
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.reports import Completed, Promotion
from sparkbolt.driver.effects import Effect, Tell
from sparkbolt.observe.history import History
from sparkbolt.observe.measurements import OWN_TREES, Flow, Measurements, TimeSpan
from sparkbolt.observe.recorder import MicroBatchTimes, Observed, Recorder
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import TopologyTestDriver

NOW = 1_000_000


def seen(**times: float) -> Observed:
    observed = Observed()
    observed.times = MicroBatchTimes(**times)
    return observed


def test_counts_are_added_once_and_earlier_counts_are_not_added_again() -> None:
    metrics = TopologyMetrics({"lines": ComponentMetrics(acked=100)})
    history = History()
    recorder = Recorder(history, metrics, NOW)
    metrics.of("lines").acked = 130
    recorder.promoted(Promotion(0), metrics, seen(promoted_ms=NOW + 500))
    recorder.beat(metrics, {"jvm": 7}, NOW + 2000)
    found = history.window(60, NOW + 2000)
    assert found.components == {"lines": {"acked": 30}}
    assert found.secs == 2
    assert found.gauges["jvm"] == 7


def test_the_parts_of_a_micro_batch_follow_each_other_and_what_an_earlier_life_did_is_not_invented() -> None:
    history = History()
    recorder = Recorder(history, TopologyMetrics(), NOW)
    measured = Measurements(
        spans={"level 1": TimeSpan(NOW + 50, NOW + 90, 70), "read": TimeSpan(NOW + 20, NOW + 45, 25)}
    )
    times = MicroBatchTimes(NOW, NOW + 10, NOW + 100, NOW + 105, NOW + 120, NOW + 121)
    observed = Observed()
    observed.times, observed.measured = times, measured
    recorder.promoted(Promotion(3), TopologyMetrics(), observed)
    record = history.micro_batches[-1]
    assert [part for part, _, _ in record.parts] == [
        *("plan", "read", "level 1", "acker", "stage", "commit", "promotion")
    ]
    assert record.parts[3] == ("acker", 90, 100)
    assert (record.began_ms, record.elapsed_ms, record.busy_ms) == (NOW, 121, {"read": 25, "level 1": 70})
    recorder.promoted(Promotion(4), TopologyMetrics(), seen(promoted_ms=NOW + 200))
    assert history.micro_batches[-1].parts == []


def test_executions_that_do_not_count_are_reported_as_a_separate_part() -> None:
    history = History()
    recorder = Recorder(history, TopologyMetrics(), NOW)
    observed = Observed()
    observed.times = MicroBatchTimes(NOW, NOW + 10, NOW + 200, NOW + 201, aborted_ms=NOW + 110, repeats=2)
    observed.measured = Measurements(spans={"read": TimeSpan(NOW + 120, NOW + 190, 60)})
    recorder.promoted(Promotion(3), TopologyMetrics(), observed)
    record = history.micro_batches[-1]
    assert record.repeats == 2
    assert record.parts[:3] == [("plan", 0, 10), ("aborted", 10, 110), ("read", 120, 190)]


def test_trees_that_were_acked_belong_to_their_task() -> None:
    history = History()
    recorder = Recorder(history, TopologyMetrics(), NOW)
    promotion = Promotion(0, completed=[Completed("lines", 1, NOW - 5000, 7, 1 << 48)])
    recorder.promoted(promotion, TopologyMetrics(), seen(promoted_ms=NOW))
    assert history.window(60, NOW).flows[Flow("lines", 1, "", OWN_TREES)].acked == 7
    assert history.micro_batches[-1].acked == 7


class Numbers(Spout):
    outputs = ["n"]

    def next_tuple(self, collector: Any) -> None:
        """The driver feeds it."""


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        """Nothing comes of it."""


def test_a_tree_is_counted_with_the_time_from_its_plan_to_the_promotion_of_its_ack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Observed] = []
    perform = LocalEngine.perform

    def performed(engine: LocalEngine, effect: Effect) -> Any:
        if isinstance(effect, Tell):
            told.append(engine.coordinator.observed)
        return perform(engine, effect)

    monkeypatch.setattr(LocalEngine, "perform", performed)
    builder = TopologyBuilder("timed")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("sink", Sink()).shuffle_grouping("numbers")
    with TopologyTestDriver(builder.build()) as driver:
        for number in range(5):
            driver.feed("numbers", [number], message_id=number)
        driver.run_until_idle()
        [observed] = [one for one in told if one.latencies]
        assert observed.latencies["numbers"].count == 5
        assert observed.slowest is not None
