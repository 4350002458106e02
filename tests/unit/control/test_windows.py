"""Windows and series: sums by component, task and stream, for readers outside."""

from __future__ import annotations

from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.control.documents import ALL_TIME, EventDocument
from sparkbolt.control.windows import (
    ACKER,
    Shape,
    micro_batches_of,
    series_of,
    slowest_of,
    span_of,
    windows_of,
)
from sparkbolt.observe.histogram import Histogram
from sparkbolt.observe.history import Bucket, History, MicroBatchRecord
from sparkbolt.observe.measurements import OWN_TREES, Flow, FlowCounts

NOW = 1_800_000_000_000
SHAPE = Shape({"lines": 1, "split": 2, "idle": 1}, frozenset({"lines"}), {"lines": "default"})
CAME = Flow("split", 0, "lines", "default")


def bucket(secs: float = 10.0) -> Bucket:
    made = Bucket(secs=secs, micro_batches=2, micro_batch_ms=3000.0)
    made.components = {
        "lines": {"emitted": 100, "acked": 90, "failed": 10},
        "split": {"executed": 100, "emitted": 300, "acked": 95, "failed": 5, "execute_ms": 5200.0},
    }
    made.flows = {
        Flow("lines", 0, "", "default"): FlowCounts(emitted=100, transferred=100),
        Flow("lines", 0, "", OWN_TREES): FlowCounts(acked=90, failed=10),
        CAME: FlowCounts(executed=80, acked=75, failed=5, execute_ms=5000.0, process_ms=150.0, processed=75),
        Flow("split", 1, "lines", "default"): FlowCounts(executed=20, acked=20, execute_ms=200.0),
        Flow("split", 0, "", "default"): FlowCounts(emitted=240, transferred=480),
        Flow("split", 1, "", "default"): FlowCounts(emitted=60, transferred=120),
    }
    made.execute["split"] = Histogram()
    made.execute["split"].add(52.0, 100)
    made.complete["lines"] = Histogram()
    made.complete["lines"].add(800.0, 90)
    made.parts_ms = {"read": 500.0, "acker": 1000.0}
    made.gauges = {"open_trees": 7, "lag": 40, "driver": 1000, "jvm": 2000, "workers": 3000}
    made.lag = {"lines": {"a.txt": 40}}
    made.slowest = 800.0, "0123456789abcdef", NOW - 1000
    return made


def history() -> History:
    made = History()
    made.add(bucket(), NOW)
    return made


def totals() -> tuple[TopologyMetrics, dict[Flow, FlowCounts]]:
    counts = {"lines": ComponentMetrics(emitted=1000), "split": ComponentMetrics(executed=1000, execute_ms=10.0)}
    return TopologyMetrics(counts, micro_batches=50), {CAME: FlowCounts(executed=1000)}


def test_busiest_task_sets_the_capacity_of_its_component_and_idle_tasks_are_shown_too() -> None:
    window = windows_of(history(), *totals(), SHAPE, NOW)["600"]
    split = window["components"]["split"]
    assert split["capacity"] == 0.5
    assert split["execute_latency_ms"] == 52.0
    assert split["process_latency_ms"] == 2.0
    assert split["transferred"] == 600
    assert window["components"]["idle"]["executed"] == 0
    assert window["components"]["idle"]["capacity"] == 0.0
    assert [(task["component"], task["task"], task["executed"]) for task in window["tasks"]] == [
        *(("lines", 0, 0), ("split", 0, 80), ("split", 1, 20), ("idle", 0, 0))
    ]


def test_the_trees_of_a_spout_are_shown_on_its_first_stream() -> None:
    window = windows_of(history(), *totals(), SHAPE, NOW)["600"]
    (lines,) = [stream for stream in window["streams"] if stream["component"] == "lines"]
    assert (lines["sender"], lines["stream"]) == ("", "default")
    assert (lines["emitted"], lines["acked"], lines["failed"], lines["complete_latency_ms"]) == (100, 90, 10, 800.0)
    assert window["components"]["lines"]["complete"]["max"] == 800.0
    (buckets,) = window["components"]["lines"]["complete_buckets"]
    assert buckets[1] == 90
    assert buckets[0] >= 800.0


def test_acker_is_shown_as_a_component_with_its_share_of_time() -> None:
    window = windows_of(history(), *totals(), SHAPE, NOW)["600"]
    assert window["components"][ACKER]["capacity"] == 0.1


def test_the_all_time_view_has_the_counts_of_the_ledger_and_the_percentiles_of_the_history() -> None:
    window = windows_of(history(), *totals(), SHAPE, NOW)[ALL_TIME]
    assert window["components"]["split"]["executed"] == 1000
    assert window["micro_batches"] == 50
    assert window["components"]["lines"]["complete"]["max"] == 800.0
    assert window["components"]["split"]["capacity"] == 0.5


def test_a_series_has_one_point_for_each_step_and_the_events_between() -> None:
    known = history()
    events = [
        EventDocument(time_ms=NOW - 10 * 3_600_000, kind="started", text="long ago", by=None),
        EventDocument(time_ms=NOW - 5000, kind="restarted", text="a worker died", by=None),
    ]
    series = series_of(known, events, SHAPE, span_of(None, None, NOW), NOW)
    assert series["step_secs"] == 10
    (point,) = series["points"]
    assert (point["emitted"], point["acked"], point["executed"]) == (100, 90, 100)
    assert point["micro_batch_ms"] == 1500.0
    assert point["capacity"] == {"split": 0.5, ACKER: 0.1}
    assert point["components"]["lines"]["lag"] == 40
    assert point["lags"] == {"lines": {"a.txt": 40}}
    assert point["memory"] == {"driver": 1000, "jvm": 2000, "workers": 3000}
    assert [event["kind"] for event in series["events"]] == ["restarted"]


def test_metrics_have_the_newest_micro_batches_and_the_slowest_tree() -> None:
    known = history()
    for number in range(5):
        known.promoted(MicroBatchRecord(number, NOW, 10.0, [("read", 0.0, 5.0)], {"read": 4.0}))
    assert [one["micro_batch_id"] for one in micro_batches_of(known, 2)] == [3, 4]
    assert micro_batches_of(known, 1)[0]["parts"] == [["read", 0.0, 5.0]]
    assert slowest_of(known, NOW) == {"root": "0123456789abcdef", "latency_ms": 800.0, "time_ms": NOW - 1000}
    assert slowest_of(History(), NOW) is None
