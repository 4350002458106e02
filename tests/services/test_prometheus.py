"""A real Prometheus reads the metrics, and every expression of the dashboard has an answer there."""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from sparkbolt.control.documents import ALL_TIME, TopologyDocument
from sparkbolt.faces.ui import make_app
from tests.patience import TEST_SECS
from tests.promql import expressions, plain
from tests.services.prometheus import Prometheus
from tests.unit.control.fake import TOKEN, FakeOperator
from tests.unit.control.shop import root, window
from tests.unit.faces.ui.serving import Serving, until

pytestmark = [pytest.mark.service, pytest.mark.timeout(TEST_SECS)]


class Growing(FakeOperator):
    """Its topology does something between any two questions."""

    def __init__(self) -> None:
        super().__init__()
        self.follow_a_file()
        self.asked_times = 0

    def document(self, topology: str) -> TopologyDocument:
        found = super().document(topology)
        self.asked_times += 1
        found["windows"][ALL_TIME] = window(ALL_TIME, 140_000.0 + 600 * self.asked_times)
        for numbers in found["windows"][ALL_TIME]["components"].values():
            for buckets in (numbers.get("complete_buckets", []), numbers.get("execute_buckets", [])):
                for bucket in buckets:
                    bucket[1] *= self.asked_times
        # An exemplar that is older than what is stored would be dropped.
        found["now"]["slowest"] = {"root": root(4), "latency_ms": 31_004.5, "time_ms": time.time() * 1000}
        return found


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    app = make_app(Growing(), token=TOKEN, private=True)  # type: ignore[arg-type]  # a fake
    directory = tmp_path_factory.mktemp("services") / "prometheus"
    with Serving(app) as server, Prometheus(directory, f"localhost:{server.port}", TOKEN) as prometheus:
        yield prometheus


def test_it_reads_the_address_with_the_token(prometheus: Prometheus) -> None:
    until(lambda: prometheus.ask("query", query="up")["result"])
    [target] = prometheus.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    [up] = prometheus.ask("query", query='sparkbolt_topology_up{topology="orders"}')["result"]
    assert up["value"][1] == "1"


@pytest.mark.parametrize(("where", "expression"), expressions())
def test_each_expression_of_the_dashboard_has_an_answer(prometheus: Prometheus, where: str, expression: str) -> None:
    query = plain(expression, "20s")

    def values() -> list[float]:
        return [float(each["value"][1]) for each in prometheus.ask("query", query=query)["result"]]

    if where.startswith("annotation"):  # nothing was started while it was read
        assert values() == []
        query = query.partition(" >")[0]
    until(lambda: any(math.isfinite(value) for value in values()))


def test_the_slowest_tree_is_an_exemplar(prometheus: Prometheus) -> None:
    def found() -> list[dict[str, str]]:
        now = time.time()
        asked = {"start": str(now - 60), "end": str(now + 60)}
        answer = prometheus.ask("query_exemplars", query="sparkbolt_complete_latency_seconds_bucket", **asked)
        return [exemplar["labels"] for series in answer for exemplar in series["exemplars"]]

    until(lambda: {"root": root(4)} in found())


def test_prometheus_linter_reports_no_problem() -> None:
    promtool = shutil.which("promtool")
    assert promtool, "apt-get install prometheus"
    app = make_app(Growing(), token=TOKEN)  # type: ignore[arg-type]
    with TestClient(app, base_url="http://localhost") as client:
        text = client.get("/metrics").content
    found = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    assert (found.stdout + found.stderr).decode() == ""
    assert found.returncode == 0
