"""A value that JSON or UTF-8 has no place for does not keep the rest from being told."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from sparkbolt.control.documents import TopologyState
from sparkbolt.faces.ui.changes import event_text
from tests.unit.control.fake import entry
from tests.unit.faces.ui.operators import UiOperator

NO_TEXT = "caf\udce9.txt"  # a file name in Latin-1, as Python reads it


@pytest.fixture(autouse=True)
def strange(operator: UiOperator) -> None:
    of = entry("strange", TopologyState.ACTIVE, why=NO_TEXT)
    operator.known.append(of)
    document = operator.documents[operator.known[0]["id"]]
    windows = document["windows"]
    windows["600"]["components"]["lines"]["complete_latency_ms"] = float("nan")
    now = {**document["now"], "lag": {"lines": {NO_TEXT: 3}}}
    operator.documents[of["id"]] = {  # type: ignore[typeddict-item]
        **document, "entry": of, "now": now, "settings": {"lag_secs": float("inf"), "file": NO_TEXT}
    }  # fmt: skip


@pytest.mark.parametrize("path", ["", "/settings", "/lag"])
def test_our_own_interface_tells_it(client: TestClient, path: str) -> None:
    answer = client.get(f"/api/v2/topologies/strange{path}")
    assert answer.status_code == 200
    assert "NaN" not in answer.text
    assert "Infinity" not in answer.text
    assert r"caf\udce9.txt" in answer.text


def test_a_number_that_is_none_is_null(client: TestClient) -> None:
    settings = client.get("/api/v2/topologies/strange/settings").json()["settings"]
    assert settings["lag_secs"] is None


def test_storms_interface_tells_it(client: TestClient) -> None:
    for path in ("topology/strange", "topology/strange/metrics", "topology/summary"):
        assert client.get(f"/api/v1/{path}").status_code == 200


def test_prometheus_reads_it(client: TestClient) -> None:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert 'source="caf?.txt",topology="strange"} 3.0' in answer.text


def test_the_stream_tells_it(client: TestClient) -> None:
    assert event_text("numbers", {"lag": float("nan"), "file": NO_TEXT}).encode()
    assert "null" in event_text("numbers", {"lag": float("nan")})


def test_an_error_that_names_it_is_told(client: TestClient, operator: UiOperator) -> None:
    operator.raises = OSError(NO_TEXT)
    for path in ("/api/v1/topology/strange", "/api/v2/topologies/strange", "/metrics"):
        assert client.get(path).status_code in (500, 503)
