"""What Storm's interface has, ours has, under its names, of its types and with its errors."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from sparkbolt.control.documents import Answer
from tests.unit.control.fake import FakeOperator

INT, STR, NUMBER, BOOL, LIST, DICT = (int,), (str,), (int, float), (bool,), (list,), (dict,)
LATENCY = "a latency, or a capacity"
MAYBE_INT, MAYBE_STR = (int, type(None)), (str, type(None))

ERROR = {"lastError": STR, "errorHost": STR, "errorPort": MAYBE_INT, "errorTime": MAYBE_INT}
ERROR |= {"errorLapsedSecs": MAYBE_INT, "errorWorkerLogLink": STR}
COUNTS = {"emitted": INT, "transferred": INT, "acked": INT, "failed": INT}
REQUESTED = {"requestedMemOnHeap": NUMBER, "requestedMemOffHeap": NUMBER, "requestedCpu": NUMBER}
ASSIGNED = {
    "assignedMemOnHeap": NUMBER,
    "assignedMemOffHeap": NUMBER,
    "assignedTotalMem": NUMBER,
    "assignedCpu": NUMBER,
}
EXECUTED = {"executed": INT, "executeLatency": LATENCY, "processLatency": LATENCY}
UPTIME = {"uptime": STR, "uptimeSeconds": INT}
LINE = {**COUNTS, **REQUESTED, **ERROR, "executors": INT, "tasks": INT}
EXECUTOR = {"id": STR, "encodedId": STR, "host": STR, "port": INT, "workerLogLink": STR, **UPTIME, **COUNTS}
STATS = {"window": STR, "windowPretty": STR, **COUNTS}
WORKER: dict[str, Any] = {
    "supervisorId": STR, "host": STR, "port": INT, "topologyId": STR, "topologyName": STR, "executorsTotal": INT,
    "assignedMemOnHeap": NUMBER, "assignedMemOffHeap": NUMBER, "assignedCpu": NUMBER, "componentNumTasks": DICT,
    "workerLogLink": STR, **UPTIME,
}  # fmt: skip
HEAD: dict[str, Any] = {
    "id": STR, "name": STR, "status": STR, "tasksTotal": INT, "workersTotal": INT, "executorsTotal": INT,
    "replicationCount": INT, "owner": STR, **UPTIME, **REQUESTED, **ASSIGNED,
}  # fmt: skip
SUPERVISOR: dict[str, Any] = {
    "id": STR, "host": STR, "slotsTotal": INT, "slotsUsed": INT, "totalMem": NUMBER, "totalCpu": NUMBER,
    "usedMem": NUMBER, "usedCpu": NUMBER, **UPTIME,
}  # fmt: skip
STREAM = {"stream_id": STR, "value": INT}
CAME = {"component_id": STR, **STREAM}
COMPONENT: dict[str, Any] = {
    "id": STR, "encodedId": STR, "name": STR, "executors": INT, "tasks": INT, "topologyId": STR, "topologyStatus": STR,
    "encodedTopologyId": STR, "window": STR, "componentType": STR, "windowHint": STR, "debug": BOOL,
    "samplingPct": NUMBER, "eventLogLink": STR, "profilingAndDebuggingCapable": BOOL, "profileActionEnabled": BOOL,
    "profilerActive": LIST, "schedulerDisplayResource": BOOL, **REQUESTED,
    "componentErrors": [
        {"errorTime": INT, "errorHost": STR, "errorPort": INT, "errorLapsedSecs": INT, "error": STR,
         "errorWorkerLogLink": STR},
    ],
}  # fmt: skip
# From docs/STORM-UI-REST-API.md of Storm 2: the fields of each answer, and their types.
FIELDS: dict[str, dict[str, Any]] = {
    "cluster/summary": {
        "stormVersion": STR, "supervisors": INT, "topologies": INT, "slotsTotal": INT, "slotsUsed": INT,
        "slotsFree": INT, "executorsTotal": INT, "tasksTotal": INT, "schedulerDisplayResource": BOOL,
        "totalMem": NUMBER, "totalCpu": NUMBER, "availMem": NUMBER, "availCpu": NUMBER,
        "memAssignedPercentUtil": STR, "cpuAssignedPercentUtil": STR,
    },
    "supervisor/summary": {"supervisors": [SUPERVISOR], "schedulerDisplayResource": BOOL},
    "nimbus/summary": {
        "nimbuses": [
            {"host": STR, "port": INT, "status": STR, "nimbusUpTime": STR, "nimbusUpTimeSeconds": STR,
             "nimbusLogLink": STR, "version": STR}
        ]
    },
    "history/summary": {"topo-history": LIST},
    "topology/summary": {"topologies": [HEAD], "schedulerDisplayResource": BOOL},
    "topology/orders": {
        **HEAD, "msgTimeout": INT, "window": STR, "windowHint": STR, "debug": BOOL, "samplingPct": NUMBER,
        "schedulerDisplayResource": BOOL, "configuration": DICT, "workers": [WORKER],
        "topologyStats": [{**STATS, "completeLatency": LATENCY}],
        "spouts": [{**LINE, "spoutId": STR, "encodedSpoutId": STR, "completeLatency": LATENCY}],
        "bolts": [{**LINE, **EXECUTED, "boltId": STR, "encodedBoltId": STR, "capacity": LATENCY}],
    },
    "topology/orders/metrics": {
        "window": STR, "windowHint": STR, "window-hint": STR,
        "spouts": [
            {"id": STR, "emitted": [STREAM], "transferred": [STREAM], "acked": [STREAM], "failed": [STREAM],
             "complete_ms_avg": [{"stream_id": STR, "value": LATENCY}]}
        ],
        "bolts": [
            {"id": STR, "emitted": [STREAM], "transferred": [STREAM], "acked": [CAME], "failed": [CAME],
             "executed": [CAME], "process_ms_avg": [{**CAME, "value": LATENCY}],
             "executed_ms_avg": [{**CAME, "value": LATENCY}]}
        ],
    },
    "topology/orders/component/orders": {
        **COMPONENT,
        "spoutSummary": [{**STATS, "completeLatency": LATENCY}],
        "outputStats": [{"stream": STR, **COUNTS, "completeLatency": LATENCY}],
        "executorStats": [{**EXECUTOR, "completeLatency": LATENCY}],
    },
    "topology/orders/component/enrich": {
        **COMPONENT,
        "boltStats": [{**STATS, **EXECUTED, "capacity": LATENCY}],
        "inputStats": [
            {"component": STR, "encodedComponentId": STR, "stream": STR, **EXECUTED, "acked": INT, "failed": INT}
        ],
        "outputStats": [{"stream": STR, "emitted": INT, "transferred": INT}],
        "executorStats": [{**EXECUTOR, **EXECUTED, "capacity": LATENCY}],
    },
}  # fmt: skip


def check(value: Any, wanted: Any, place: str) -> None:
    """A value has the fields that are wanted, each of its type."""
    if wanted == LATENCY:
        assert isinstance(value, str), place
        assert value == f"{float(value):.3f}", place
    elif isinstance(wanted, dict):
        for name, kind in wanted.items():
            assert name in value, f"{place}.{name}"
            check(value[name], kind, f"{place}.{name}")
    elif isinstance(wanted, list):
        assert value or "bolts[]" in place, f"{place} is empty"  # a bolt may emit nothing
        for each in value:
            check(each, wanted[0], f"{place}[]")
    else:
        assert isinstance(value, wanted), f"{place}: {value!r}"
        assert not isinstance(value, bool) or wanted == BOOL, place


def get(client: TestClient, path: str) -> Any:
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", FIELDS)
def test_every_page_has_the_fields_and_types_of_storm(client: TestClient, path: str) -> None:
    page = get(client, path)
    check(page, FIELDS[path], path)
    assert "error" not in page  # by this readers know an error


def test_a_topologys_page_has_its_numbers(client: TestClient) -> None:
    page = get(client, "topology/orders?window=600")
    assert [page[name] for name in ("window", "windowHint", "status", "msgTimeout")] == ["600", "10m 0s", "ACTIVE", 30]
    assert (page["uptime"], page["uptimeSeconds"]) == ("2h 20m 0s", 8400)
    spout = page["spouts"][0]
    assert spout["completeLatency"] == "3120.000"
    assert spout["acked"] == 709_860
    enrich = next(bolt for bolt in page["bolts"] if bolt["boltId"] == "enrich")
    assert [enrich[name] for name in ("capacity", "executeLatency", "processLatency")] == ["0.960", "6.400", "6.600"]
    assert (enrich["lastError"], enrich["errorLapsedSecs"]) == ("KeyError: 'sku'", 41)
    validate = next(bolt for bolt in page["bolts"] if bolt["boltId"] == "validate")
    assert (validate["lastError"], validate["errorPort"], validate["errorTime"]) == ("", None, None)


def test_topology_totals_count_the_trees_of_its_spouts(client: TestClient) -> None:
    stats = {line["window"]: line for line in get(client, "topology/orders")["topologyStats"]}
    assert list(stats) == ["600", "10800", "86400", ":all-time"]
    assert [line["windowPretty"] for line in stats.values()] == ["10m 0s", "3h 0m 0s", "1d 0h 0m 0s", "All time"]
    assert stats["600"]["acked"] == 727_620
    assert stats["600"]["failed"] == 540
    assert stats["600"]["completeLatency"] == "3093.639"


def test_requested_window_comes_first(client: TestClient) -> None:
    for window in ("10800", "60"):
        assert get(client, f"topology/orders?window={window}")["topologyStats"][0]["window"] == window
        page = get(client, f"topology/orders/component/enrich?window={window}")
        assert page["boltStats"][0]["window"] == window


def test_system_components_are_shown_on_demand(client: TestClient) -> None:
    bolts = [bolt["boltId"] for bolt in get(client, "topology/orders")["bolts"]]
    with_system = [bolt["boltId"] for bolt in get(client, "topology/orders?sys=1")["bolts"]]
    assert "__acker" not in bolts
    assert with_system == [*bolts, "__acker"]


@pytest.mark.parametrize("path", ["topology/no", "topology/orders/component/no", "topology/no/metrics"])
def test_missing_resource_gives_the_error_of_storm(client: TestClient, path: str) -> None:
    answer = client.get(f"/api/v1/{path}")
    assert answer.status_code == 500
    assert answer.json()["error"] == "500 Server Error"
    assert "no" in answer.json()["errorMessage"]


def test_a_dead_topology_is_listed_until_it_restarts(client: TestClient, operator: FakeOperator) -> None:
    listed = {each["name"]: each["status"] for each in get(client, "topology/summary")["topologies"]}
    assert listed["orders"] == "ACTIVE"
    assert listed["stock"] == "DEAD"
    assert "nightly" not in listed  # it ended well
    history = get(client, "history/summary")["topo-history"]
    assert {"orders", "stock", "nightly"} <= {id_.partition("-")[0] for id_ in history}
    assert get(client, "topology/nightly")["status"] == "KILLED"


@pytest.mark.parametrize(
    ("path", "operation", "asked"),
    [
        ("activate", "activate", {}),
        ("deactivate", "deactivate", {}),
        ("kill/30", "kill", {"wait_secs": 30.0}),
        (
            "rebalance/0",
            "rebalance",
            {"wait_secs": 0.0, "num_workers": None, "executors": None, "spark_partitions": None, "reset": False},
        ),
    ],
)
def test_changes_use_the_same_requests_and_answers_as_storm(
    writer: TestClient, operator: FakeOperator, path: str, operation: str, asked: dict[str, Any]
) -> None:
    id_ = operator.known[0]["id"]
    answer = writer.post(f"/api/v1/topology/{id_}/{path}")
    assert answer.json() == {"topologyOperation": operation, "topologyId": id_, "status": "success"}
    assert operator.asked == [(operation, id_, asked, "rest from testclient")]


def test_the_options_of_a_rebalance_reach_the_operator(writer: TestClient, operator: FakeOperator) -> None:
    body = {"rebalanceOptions": {"numWorkers": 2, "executors": {"validate": 7}}, "callback": "foo"}
    writer.post("/api/v1/topology/orders/rebalance/0", json=body)
    assert operator.asked[0][2] == {
        "wait_secs": 0.0,
        "num_workers": 2,
        "executors": {"validate": 7},
        "spark_partitions": None,
        "reset": False,
    }


def test_a_change_that_is_refused_is_an_error_with_the_reason(writer: TestClient, operator: FakeOperator) -> None:
    operator.answers["rebalance"] = Answer(done=False, refused=True, text="the parallelism of split is fixed")
    answer = writer.post("/api/v1/topology/orders/rebalance/0")
    assert answer.status_code == 500
    assert answer.json() == {"error": "500 Server Error", "errorMessage": "the parallelism of split is fixed"}
