"""The handles of user metrics: what they accept, how they are pickled, and which bolts have state with them."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from sparkbolt import BasicBolt
from sparkbolt.api.components import BoltBase
from sparkbolt.api.metric_handles import MetricsRecorder, TaskMetrics
from sparkbolt.api.pickling import Pickling
from sparkbolt.api.statefulness import keeps_state
from sparkbolt.api.user_metrics import (
    LABEL_CHARACTERS_MAX,
    OTHER,
    SERIES_MAX,
    MetricKind,
    UserMetric,
    add_user_metrics,
    metric_value,
)
from sparkbolt.base.codec import decode, encode
from sparkbolt.errors import UnknownNameError


def metrics_of(index: int = 0) -> tuple[MetricsRecorder, TaskMetrics]:
    recorder = MetricsRecorder(clock=iter(np.arange(0, 100, 0.25).tolist()).__next__)
    return recorder, TaskMetrics(recorder, "bolt", index)


def test_a_counter_counts_numbers_of_all_kinds_and_refuses_others() -> None:
    recorder, metrics = metrics_of()
    counter = metrics.counter("rows", "Rows")
    amounts: list[Any] = [1, 2.5, np.int64(3), np.float32(0.5), True]
    for amount in amounts:
        counter.inc(amount)
    with pytest.raises(ValueError, match=r"counter 'rows' got inc\(-1\): a counter does not fall; use a gauge"):
        counter.inc(-1)
    with pytest.raises(ValueError, match="expected a finite number"):
        counter.inc(math.nan)
    with pytest.raises((TypeError, ValueError)):
        counter.inc("many")  # type: ignore[arg-type]
    assert recorder.take()["bolt"]["rows"].series == {(): [8]}
    assert recorder.take()["bolt"]["rows"].series == {}  # each value is taken once


def test_labels_are_given_by_position_or_by_name() -> None:
    recorder, metrics = metrics_of()
    requests = metrics.counter("requests", "", ["method", "status"])
    requests.labels("get", 200).inc()
    requests.labels(status="200", method="get").inc()
    requests.labels("get", "x" * 1000).inc()
    with pytest.raises(ValueError, match=r"write \.labels\(method=\.\.\., status=\.\.\.\)"):
        requests.labels(status=200)
    with pytest.raises(ValueError, match="by position or by name, not both"):
        requests.labels("get", status=200)
    with pytest.raises(ValueError, match=r"has labels: write \.labels\(method=\.\.\., status=\.\.\.\) before the call"):
        requests.inc()
    with pytest.raises(ValueError, match=r"declared without labels: leave \.labels\(\) out"):
        metrics.counter("plain").labels("get")
    assert recorder.take()["bolt"]["requests"].series == {
        ("get", "200"): [2],
        ("get", "x" * LABEL_CHARACTERS_MAX): [1],
    }


def test_a_histogram_counts_values_by_bucket_and_a_timer_measures_blocks() -> None:
    recorder, metrics = metrics_of()
    sizes = metrics.histogram("sizes", buckets=(1, 10, math.inf))
    for value in (0, 1, 5, 50):
        sizes.observe(value)
    timer = metrics.timer("calls")
    with timer.time():
        pass
    with pytest.raises(RuntimeError), timer.time():
        raise RuntimeError
    taken = recorder.take()["bolt"]
    assert (taken["sizes"].buckets, taken["sizes"].series) == ((1, 10), {(): [2, 1, 1, 56]})
    assert metric_value({"bolt": taken}, "calls") == 2
    assert metric_value({"bolt": taken}, "calls_sum") == 0.5


@pytest.mark.parametrize(
    ("declare", "mistake"),
    [
        (lambda to: to.counter("cache-hits"), "has the name 'cache-hits': write 'cache_hits'"),
        (lambda to: to.counter("2nd"), "write 'n2nd'"),
        (lambda to: to.gauge(3), "has the name 3: write 'n3'"),
        (lambda to: to.gauge("__x"), "write 'x'"),
        (lambda to: to.gauge("hits"), "is declared as a counter and as a gauge: give one of them another name"),
        (lambda to: to.counter("hits", "", ["a"]), r"with the labels \[\] and with \['a'\]: declare the same labels"),
        (lambda to: to.timer("calls", buckets=[1, 2]), "with different buckets"),
        (lambda to: to.histogram("x", buckets=[2, 1]), "write their upper bounds, ascending"),
        (lambda to: to.counter("calls_count"), "cannot be told from 'calls': Prometheus adds _count"),
        (lambda to: to.counter("x", "", "status"), r'write a list of their names, such as \["status"\]'),
        (lambda to: to.counter("x", "", {"status": "200"}), r'give the values with \.labels\(status="200"\)'),
        (lambda to: to.counter("x", "", ["component"]), "write 'own_component'"),
        (lambda to: to.counter("x", "", ["a-b"]), "has the label 'a-b'"),
        (lambda to: to.counter("x", "", ["a", "a"]), "has a label twice"),
    ],
)
def test_a_wrong_declaration_says_what_to_write(declare: Any, mistake: str) -> None:
    _, metrics = metrics_of()
    metrics.counter("hits")
    metrics.timer("calls")
    with pytest.raises(ValueError, match=mistake):
        declare(metrics)


def test_a_metric_may_be_declared_again_and_counters_lose_total() -> None:
    recorder, metrics = metrics_of()
    metrics.counter("hits_total").inc()
    metrics.counter("hits").inc()
    taken = {"bolt": recorder.take()["bolt"]}
    assert list(taken["bolt"]) == ["hits"]
    assert metric_value(taken, "hits") == metric_value(taken, "hits_total") == 2


def test_gauges_of_tasks_are_apart_and_the_later_process_counts() -> None:
    sums: dict[str, UserMetric] = {}
    for index, (value, wall_ms) in enumerate([(5, 10.0), (7, 10.0)]):
        recorder = MetricsRecorder(wall_ms=lambda wall_ms=wall_ms: wall_ms)  # type: ignore[misc]
        TaskMetrics(recorder, "bolt", index).gauge("size").set(value)
        add_user_metrics(sums, recorder.take()["bolt"])
    for value, wall_ms in ((3, 30.0), (9, 20.0)):
        recorder = MetricsRecorder(wall_ms=lambda wall_ms=wall_ms: wall_ms)  # type: ignore[misc]
        TaskMetrics(recorder, "bolt", 1).gauge("size").set(value)
        add_user_metrics(sums, recorder.take()["bolt"])
    assert metric_value({"bolt": sums}, "size", {"task": 0}) == 5
    assert metric_value({"bolt": sums}, "size", {"task": 1}) == 3
    assert metric_value({"bolt": sums}, "size") == 8


def test_series_are_bounded_in_a_process_and_over_all() -> None:
    sums: dict[str, UserMetric] = {}
    for start in (0, SERIES_MAX // 2, 10 * SERIES_MAX):
        recorder, metrics = metrics_of()
        counter = metrics.counter("users", "", ["user"])
        for user in range(start, start + SERIES_MAX + 100):
            counter.labels(user).inc()
        taken = recorder.take()["bolt"]["users"]
        assert len(taken.series) == SERIES_MAX + 1
        assert taken.series[OTHER,] == [100]
        add_user_metrics(sums, {"users": taken})
    assert len(sums["users"].series) == SERIES_MAX + 1
    assert sums["users"].overflows
    assert metric_value({"bolt": sums}, "users") == 3 * (SERIES_MAX + 100)


def test_a_component_cannot_declare_metrics_without_end() -> None:
    _, metrics = metrics_of()
    for number in range(SERIES_MAX):
        metrics.counter(f"user_{number}")
    with pytest.raises(ValueError, match="more than 1,000 metrics: use one metric with labels"):
        metrics.counter("another")


def test_a_metric_that_is_declared_in_another_way_later_begins_anew() -> None:
    before = UserMetric(MetricKind.COUNTER, series={(): [9]})
    before.add(UserMetric(MetricKind.GAUGE, labels=("task",), series={("0",): [1, 5]}), room=9)
    assert (before.kind, before.series) == ("gauge", {("0",): [1, 5]})


def test_a_stored_metric_is_read_back() -> None:
    metric = UserMetric(MetricKind.TIMER, "Calls", ("host",), (0.1, 1.0), {("a",): [1, 0, 2, 7.5]})
    assert decode(UserMetric, encode(metric)) == metric
    assert encode(UserMetric(MetricKind.COUNTER)) == {"kind": "counter"}


def test_an_unknown_metric_or_label_is_an_error_that_names_the_nearest() -> None:
    recorder, metrics = metrics_of()
    metrics.counter("cache_hits", "", ["cache"])
    taken = {"bolt": recorder.take()["bolt"]}
    assert metric_value(taken, "cache_hits") == 0
    assert metric_value(taken, "cache_hits", {"cache": "a"}) == 0
    with pytest.raises(UnknownNameError, match=r"'cache_hit'; declared are 'cache_hits': did you mean 'cache_hits'\?"):
        metric_value(taken, "cache_hit")
    with pytest.raises(UnknownNameError, match="no label 'cach'; it has 'cache': did you mean 'cache'"):
        metric_value(taken, "cache_hits", {"cach": "a"})
    with pytest.raises(UnknownNameError, match="component 'other' has not declared a metric 'cache_hits', nor any"):
        metric_value(taken, "cache_hits", component="other")
    with pytest.raises(UnknownNameError):
        metric_value(taken, "cache_hits_sum")


def test_a_handle_is_pickled_as_its_declaration_and_records_for_the_task_that_reads_it() -> None:
    _, metrics = metrics_of()
    labelled = metrics.counter("hits", "Hits", ["cache"]).labels("a")
    timer = metrics.timer("calls", buckets=[1, 2])
    labelled.inc(5)
    data = Pickling({}, {"metrics": metrics}).dumps({"handles": [labelled, timer]})

    recorder, others = metrics_of(index=3)
    read, read_timer = Pickling({}, {"metrics": others}).loads(data)["handles"]
    read.inc()
    read_timer.observe(1.5)
    taken = recorder.take()["bolt"]
    assert taken["hits"].series == {("a",): [1]}
    assert taken["calls"].series == {(): [0, 1, 0, 1.5]}


def test_a_copy_outside_of_its_process_records_what_nobody_takes() -> None:
    recorder, metrics = metrics_of()
    counter = metrics.counter("hits")
    pickle.loads(pickle.dumps(counter)).inc()
    assert recorder.take()["bolt"]["hits"].series == {}


class Stateless(BasicBolt):
    def prepare(self, context: Any) -> None:
        self.hits = context.metrics.counter("hits")
        self.size = context.metrics.gauge("size", documentation="Entries of " + str(context.component))
        self.ok = context.metrics.counter("requests", "Requests", ["status"]).labels(status="200")
        self.calls = context.metrics.timer("calls", buckets=tuple(n / 10 for n in (1, 2, 5)))
        self.bytes = context.metrics.histogram("bytes", "Bytes", ("kind", "host"), buckets=(1, 2))

    def execute(self, tup: Any, collector: Any) -> None:
        with self.calls.time():
            self.hits.inc()
            self.ok.inc(2)
        self.size.set(1)
        self.bytes.labels(kind="a", host="b").observe(3)


class AlsoCounts(BasicBolt):
    def prepare(self, context: Any) -> None:
        self.hits = context.metrics.counter("hits")
        self.total = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.total += 1


class StoresElsewhere(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        self.last = tup.metrics["counter"]


class Chosen(BasicBolt):
    def prepare(self, context: Any) -> None:
        self.hits = context.metrics.counter("hits") if context.index else []

    def execute(self, tup: Any, collector: Any) -> None:
        self.hits.append(tup)


class OwnCounter(BasicBolt):
    def prepare(self, context: Any) -> None:
        self.hits = context.counter(context.metrics)

    def execute(self, tup: Any, collector: Any) -> None:
        self.hits.append(tup)


def test_handles_do_not_make_a_bolt_stateful() -> None:
    assert not keeps_state(Stateless())


@pytest.mark.parametrize("bolt", [AlsoCounts, StoresElsewhere, Chosen, OwnCounter])
def test_other_attributes_still_do(bolt: type[BoltBase]) -> None:
    assert keeps_state(bolt())
