"""What Prometheus reads has conventional names and units, every number of the documents, and an exemplar."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_metrics
from starlette.testclient import TestClient

from sparkbolt.api.metric_handles import MetricsRecorder, TaskMetrics
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.control.metric_documents import metric_documents
from sparkbolt.faces.ui import operator_calls
from sparkbolt.faces.ui.prometheus import BUCKETS_SECS, buckets
from tests.unit.control.fake import FakeOperator
from tests.unit.control.shop import HOSTILE, NOW_MS, metrics, root

OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def samples(client: TestClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """By name and labels. Two samples of the same would be an error of Prometheus."""
    text = client.get("/metrics").text
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in plain_metrics(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(client: TestClient, name: str, **labels: str) -> float:
    return samples(client)[name, frozenset({"topology": "orders", **labels}.items())]


def families(client: TestClient) -> dict[str, Any]:
    answer = client.get("/metrics", headers={"accept": OPEN_METRICS})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    return {family.name: family for family in open_metrics(answer.text)}


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("sparkbolt_topology_up", {}, 1),
        ("sparkbolt_topology_answers", {}, 1),
        ("sparkbolt_topology_state", {"state": "active"}, 1),
        ("sparkbolt_topology_state", {"state": "dead"}, 0),
        ("sparkbolt_topology_start_time_seconds", {}, NOW_MS / 1000 - 8400),
        ("sparkbolt_tuples_emitted_total", {"component": "orders", "stream": "default"}, 165_760_000),
        (
            "sparkbolt_tuples_executed_total",
            {"component": "validate", "sender": "orders", "stream": "default"},
            165_760_000,
        ),
        ("sparkbolt_tuples_failed_total", {"component": "enrich", "sender": "validate", "stream": "default"}, 126_000),
        ("sparkbolt_trees_failed_total", {"component": "orders", "stream": "default"}, 126_000),
        ("sparkbolt_trees_retried_total", {"component": "orders"}, 125_998),
        ("sparkbolt_messages_given_up_total", {"component": "orders"}, 2),
        ("sparkbolt_errors_total", {"component": "enrich"}, 126_000),
        ("sparkbolt_execute_seconds_total", {"component": "validate"}, 5_635.84),
        ("sparkbolt_capacity_ratio", {"component": "enrich"}, 0.96),
        ("sparkbolt_open_trees", {}, 5_480),
        ("sparkbolt_waiting_retries", {}, 214),
        ("sparkbolt_pending_trees", {"component": "orders"}, 5_420),
        ("sparkbolt_lag_positions", {"component": "orders", "source": "orders-1"}, 14_118),
        ("sparkbolt_memory_bytes", {"process": "jvm"}, 1_410 << 20),
        ("sparkbolt_state_rows", {}, 88_214),
        ("sparkbolt_state_bytes", {}, 61 << 20),
        ("sparkbolt_watermark_lag_seconds", {"component": "revenue"}, 9),
        ("sparkbolt_late_tuples_total", {"component": "revenue"}, 37),
        ("sparkbolt_open_windows", {"component": "revenue"}, 8_421),
        ("sparkbolt_micro_batches_total", {}, 140_000),
        ("sparkbolt_micro_batch_part_seconds_total", {"part": "level 1"}, 85_400),
        ("sparkbolt_outages", {}, 0),
        ("sparkbolt_hung_calls", {}, 0),
        ("sparkbolt_complete_latency_seconds_bucket", {"component": "orders", "le": "1.0"}, 10),
        ("sparkbolt_complete_latency_seconds_bucket", {"component": "orders", "le": "2.5"}, 80),
        ("sparkbolt_complete_latency_seconds_bucket", {"component": "orders", "le": "+Inf"}, 100),
        ("sparkbolt_complete_latency_seconds_count", {"component": "orders"}, 100),
        ("sparkbolt_complete_latency_seconds_sum", {"component": "orders"}, 312),
        ("sparkbolt_execute_latency_seconds_bucket", {"component": "enrich", "le": "0.00025"}, 4000),
    ],
)
def test_every_number_has_its_name_unit_and_labels(
    client: TestClient, name: str, labels: dict[str, str], expected: float
) -> None:
    assert value(client, name, **labels) == pytest.approx(expected)


def test_the_lag_of_files_is_in_bytes_and_seconds(client: TestClient, operator: FakeOperator) -> None:
    source = "/logs/a.log#17-5-4fd786f4855f5fa2"
    document = operator.documents[operator.known[0]["id"]]
    document["components"][0]["position_unit"] = "bytes"
    document["now"].update(lag={"orders": {source: 5_400_000}}, lag_secs={"orders": {source: 95.2}})
    assert value(client, "sparkbolt_lag_bytes", component="orders", source=source) == 5_400_000
    assert value(client, "sparkbolt_lag_seconds", component="orders", source=source) == 95.2
    assert ("topology", "orders") not in {
        label for name, labels in samples(client) if name == "sparkbolt_lag_positions" for label in labels
    }


def test_labels_of_one_metric_describe_a_topology(client: TestClient, operator: FakeOperator) -> None:
    id_ = operator.known[0]["id"]
    assert value(client, "sparkbolt_topology_info", id=id_, host="shop-1", user="ann", version="0.1.0") == 1


def test_names_follow_the_conventions(client: TestClient) -> None:
    for name, family in families(client).items():
        assert re.fullmatch(r"sparkbolt_[a-z_]+", name)
        assert family.documentation
        assert not re.search(r"_(ms|millis|kb|mb|count|total)$", name)
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
        if family.type == "histogram":
            assert name.endswith("_seconds")


def test_a_dead_topology_is_reported_as_down_and_an_ended_one_is_removed(client: TestClient) -> None:
    found = samples(client)
    topologies = {dict(labels)["topology"] for _, labels in found}
    assert found["sparkbolt_topology_up", frozenset({("topology", "stock")})] == 0
    assert "nightly" not in topologies
    assert ("sparkbolt_open_trees", frozenset({("topology", "stock")})) not in found


def test_the_slowest_tree_is_named_by_its_bucket(client: TestClient) -> None:
    family = families(client)["sparkbolt_complete_latency_seconds"]
    [sample] = [sample for sample in family.samples if sample.exemplar and sample.labels["topology"] == "orders"]
    assert sample.labels["le"] == "30.0"
    assert sample.exemplar.labels == {"root": root(4)}
    assert sample.exemplar.value == 29.31


def test_a_histogram_has_the_same_bounds_for_every_document() -> None:
    few, many = buckets([[4.0, 2]]), buckets([[float(ms), 1] for ms in range(1, 2000)])
    assert [each[0] for each in few] == [each[0] for each in many]
    assert len(few) == len(BUCKETS_SECS) + 1
    assert many[-1][1] == 1999
    counts = [each[1] for each in many]
    assert counts == sorted(counts)


def test_a_hanging_topology_does_not_block_the_scrape_of_others(
    client: TestClient, operator: FakeOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_calls, "ANSWER_SECS", 0.2)
    operator.gate, operator.hangs = threading.Event(), operator.known[-1]["id"]
    found = samples(client)
    assert found["sparkbolt_topology_answers", frozenset({("topology", HOSTILE)})] == 0
    assert found["sparkbolt_topology_answers", frozenset({("topology", "orders")})] == 1
    operator.gate.set()


def test_metrics_of_components_keep_their_names_and_labels(client: TestClient, operator: FakeOperator) -> None:
    operator.documents[operator.known[0]["id"]]["metrics"] = metrics()
    assert value(client, "sparkbolt_user_requests_total", component="enrich", status="200") == 165_000_000
    assert value(client, "sparkbolt_user_cache_entries", component="enrich", task="0") == 5_120
    assert value(client, "sparkbolt_user_timeouts_total", component="enrich") == 0
    counts = {"0.001": 1, "0.01": 3, "0.1": 3, "+Inf": 4}
    for bound, count in counts.items():
        assert value(client, "sparkbolt_user_lookup_bucket", component="enrich", le=bound) == count
    assert value(client, "sparkbolt_user_lookup_count", component="enrich") == 4
    assert value(client, "sparkbolt_user_lookup_sum", component="enrich") == 0.2585
    found = families(client)
    assert found["sparkbolt_user_requests"].type == "counter"
    assert found["sparkbolt_user_requests"].documentation == "Requests to the price service"
    assert found["sparkbolt_user_lookup"].type == "histogram"


def test_one_name_of_several_kinds_becomes_several_metrics(client: TestClient, operator: FakeOperator) -> None:
    recorder = MetricsRecorder()
    TaskMetrics(recorder, "orders", 0).counter("size").inc(2)
    TaskMetrics(recorder, "enrich", 1).gauge("size").set(7)
    counts = {component: ComponentMetrics(user=user) for component, user in recorder.take().items()}
    document = operator.documents[operator.known[0]["id"]]
    document["metrics"] = metric_documents(TopologyMetrics(counts))
    assert value(client, "sparkbolt_user_size_total", component="orders") == 2
    assert value(client, "sparkbolt_user_size_gauge", component="enrich", task="1") == 7
    assert found_kinds(families(client)) == {"sparkbolt_user_size": "counter", "sparkbolt_user_size_gauge": "gauge"}


def found_kinds(found: dict[str, Any]) -> dict[str, str]:
    return {name: family.type for name, family in found.items() if name.startswith("sparkbolt_user_")}
