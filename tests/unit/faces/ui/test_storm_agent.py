"""A monitoring agent's check for Storm reads our interface without a change.

The check is written anew after what Datadog's ``storm`` integration does: the requests it makes, in their order, the
fields it reads, what it takes them for, and what makes it raise an error. The server is a real one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from sparkbolt.faces.ui import make_app
from tests.unit.control.fake import NOW_SECS, TOKEN, FakeOperator
from tests.unit.faces.ui.serving import Serving

CLUSTER = ("executorsTotal", "slotsFree", "slotsTotal", "slotsUsed", "supervisors", "tasksTotal", "topologies")
CLUSTER_FLOATS = ("availCpu", "availMem", "cpuAssignedPercentUtil", "memAssignedPercentUtil", "totalCpu", "totalMem")
STATS = ("acked", "emitted", "failed", "transferred")
TOPOLOGY = (
    *("assignedMemOffHeap", "assignedMemOnHeap", "assignedTotalMem", "executorsTotal", "msgTimeout"),
    *("replicationCount", "tasksTotal", "uptimeSeconds", "workersTotal"),
)
TOPOLOGY_FLOATS = ("assignedCpu", "requestedCpu", "requestedMemOffHeap", "requestedMemOnHeap", "samplingPct")
LINE = ("acked", "emitted", "executors", "failed", "requestedMemOffHeap", "requestedMemOnHeap", "tasks", "transferred")
BOLT_FLOATS = ("capacity", "executeLatency", "processLatency", "requestedCpu")
SPOUT_FLOATS = ("completeLatency", "requestedCpu")
WORKER = ("assignedMemOffHeap", "assignedMemOnHeap", "executorsTotal", "uptimeSeconds")
METRICS = (
    *("acked", "complete_ms_avg", "emitted", "executed", "executed_ms_avg", "failed", "process_ms_avg", "transferred"),
)


@dataclass
class Agent:
    """Collects what the check would report: (metric, tags) to value, and the state of each topology."""

    server: Serving
    intervals: tuple[int, ...] = (60,)
    values: dict[tuple[str, ...], float] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)

    def ask(self, path: str, **parameters: Any) -> dict[str, Any]:
        query = f"?{urlencode(parameters)}" if parameters else ""
        status, _, body = self.server.get(path + query)
        found: dict[str, Any] = json.loads(body)
        assert "error" not in found, found
        assert status == 200
        return found

    def report(self, value: Any, *place: str) -> None:
        # The check takes what cannot be read for 0, which would be a silent loss; here it is an error.
        assert value not in (None, ""), place
        self.values[place] = float(value)

    def run(self) -> None:
        cluster = self.ask("/api/v1/cluster/summary")
        major, minor, patch = cluster["stormVersion"].split("-")[0].split(".")
        assert all(part.isdecimal() for part in (major, minor, patch))
        for name in CLUSTER + CLUSTER_FLOATS:
            self.report(cluster[name], "cluster", name)
        self.nimbus()
        for each in self.ask("/api/v1/supervisor/summary")["supervisors"]:
            for name in ("slotsTotal", "slotsUsed", "uptimeSeconds", "totalCpu", "totalMem", "usedCpu", "usedMem"):
                self.report(each[name], "supervisor", each["host"], each["id"], name)
        for topology in self.ask("/api/v1/topology/summary")["topologies"]:
            for interval in self.intervals:
                self.topology(topology["id"], topology["name"], interval)

    def nimbus(self) -> None:
        nimbuses = self.ask("/api/v1/nimbus/summary")["nimbuses"]
        assert nimbuses  # without one the check breaks off
        for each in nimbuses:
            self.report(each["nimbusUpTimeSeconds"], "nimbus", each["host"], "upTimeSeconds")
        leaders = [each for each in nimbuses if each["status"].lower() == "leader"]
        self.report(len(leaders), "nimbus", "numLeaders")

    def topology(self, id_: str, name: str, interval: int) -> None:
        page = self.ask(f"/api/v1/topology/{quote(id_, safe='')}", window=interval)
        for each in STATS:
            self.report(page["topologyStats"][0][each], name, "stats", each)
        self.report(page["topologyStats"][0]["completeLatency"], name, "stats", "completeLatency")
        for each in TOPOLOGY + TOPOLOGY_FLOATS:
            self.report(page[each], name, each)
        assert page["debug"] in (True, False)
        for bolt in page["bolts"]:
            for each in (*LINE, "executed", *BOLT_FLOATS):
                self.report(bolt[each], name, "bolt", bolt["boltId"], each)
            # No error is the default of the check: long ago.
            self.report(bolt["errorLapsedSecs"] or 1e10, name, "bolt", bolt["boltId"], "errorLapsedSecs")
        for spout in page["spouts"]:
            for each in LINE + SPOUT_FLOATS:
                self.report(spout[each], name, "spout", spout["spoutId"], each)
        for worker in page["workers"]:
            place = (name, "worker", f"{worker['host']}:{worker['port']}", worker["supervisorId"])
            for each in (*WORKER, "assignedCpu"):
                self.report(worker[each], *place, each)
            for component, tasks in worker["componentNumTasks"].items():
                self.report(tasks, *place, component)
        self.metrics(id_, name, interval)
        self.checks.setdefault(name, "ok" if page["status"].upper() == "ACTIVE" else "critical")

    def metrics(self, id_: str, name: str, interval: int) -> None:
        page = self.ask(f"/api/v1/topology/{quote(id_, safe='')}/metrics", window=interval)
        for kind in ("bolts", "spouts"):
            for component in page[kind]:
                for each in METRICS:
                    for line in component.get(each, []):
                        place = (name, "metrics", kind, component["id"], line["stream_id"], each)
                        self.report(line["value"], *place, *filter(None, [line.get("component_id")]))


@pytest.fixture
def agent(operator: FakeOperator) -> Iterator[Agent]:
    operator.known.pop()  # the one whose name is a script and has a slash, which no Storm would let in
    with Serving(make_app(operator, token=TOKEN, clock=lambda: NOW_SECS)) as server:  # type: ignore[arg-type]
        yield Agent(server)


def test_check_reads_every_field_and_reports_which_topologies_are_healthy(agent: Agent) -> None:
    agent.run()
    assert agent.checks == {"orders": "ok", "clicks": "critical", "stock": "critical"}
    assert agent.values["cluster", "topologies"] == 3
    assert agent.values["nimbus", "numLeaders"] == 1
    assert agent.values["orders", "tasksTotal"] == 23
    assert agent.values["orders", "stats", "emitted"] > 0
    assert agent.values["orders", "spout", "orders", "completeLatency"] == 3120
    assert agent.values["orders", "bolt", "enrich", "capacity"] > 0.9
    assert agent.values["orders", "bolt", "enrich", "errorLapsedSecs"] == 41
    assert agent.values["orders", "bolt", "validate", "errorLapsedSecs"] == 1e10
    assert agent.values["orders", "worker", "shop-1:6700", "shop-1", "enrich"] == 8
    assert agent.values["orders", "metrics", "spouts", "orders", "default", "complete_ms_avg"] == 3120
    assert agent.values["orders", "metrics", "bolts", "enrich", "default", "process_ms_avg", "validate"] == 6.6


def test_the_check_sees_a_topology_that_was_deactivated_or_restarts(agent: Agent, operator: FakeOperator) -> None:
    operator.known[0]["state"] = "inactive"
    agent.run()
    assert agent.checks["orders"] == "critical"
