"""What a running topology tells of itself: its counters, its state, its outages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt.api.outage import Outage, Phase
from sparkbolt.errors import EngineError
from sparkbolt.sim.engine import LocalEngine

pytest.importorskip("pyspark")

from sparkbolt.spark import running_on_spark as running_module
from tests.unit.spark.lives import Lives, NoLock, idle_running, topology
from tests.unit.spark.lives import start as start


def test_a_topology_is_up_when_its_query_works_and_in_trouble_when_it_has_failed_since(start: Any) -> None:
    lives = Lives()
    running = start(lives)
    life = lives.await_begun(1)
    not_yet = "Spark has run no micro-batch since the start"
    assert (running.waits_for, running.trouble) == (not_yet, None)
    running._lifecycle.works(life.coordinator.life)
    assert (running.waits_for, running.trouble) == (None, None)
    life.query.end(ValueError("a query may end"))
    again = lives.await_begun(2)
    said = "its query failed and is being started again: ValueError: a query may end"
    assert (running.waits_for, running.trouble) == (not_yet, said)
    running._lifecycle.runs(again.coordinator.life)
    assert (running.waits_for, running.trouble) == (None, said), "it runs a micro-batch, which may fail again"
    running._lifecycle.works(again.coordinator.life)
    assert (running.waits_for, running.trouble) == (None, None)


def test_a_topology_waits_for_its_spouts_and_reports_why_one_is_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    running = idle_running(topology(), monkeypatch)
    running._lifecycle.opening = ["a[0]"]
    running._supervisor.threads = [SimpleNamespace(trouble="open of spout a[0] raised")]  # type: ignore[list-item]
    assert (running.waits_for, running.trouble) == ("a[0]: open has not returned", "open of spout a[0] raised")


def test_a_bolt_that_is_out_is_reported_with_its_reason_and_its_next_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    running = idle_running(topology(), monkeypatch)
    assert running.outages == []
    outages = running._coordinator.ledger.outages
    outages.known["pass"] = Outage(Phase.OUT, since_ms=1_000, next_probe_ms=53_000)
    outages.reasons["pass"] = {"": ("ConnectionError: refused", 3)}
    monkeypatch.setattr(running_module, "now_ms", lambda: 41_000)
    out = "pass waits since 00:00 UTC (ConnectionError: refused), next probe in 12 s"
    assert running.outages == [out]
    with monkeypatch.context() as patch:
        patch.setattr(type(running.topology.component("pass").component), "awaited_in_outage", "its database")
        assert running.outages == [out.replace("waits", "waits for its database")]
    running._supervisor.life.commit_waits = "commit 3 of sink waits: the disk is full"
    assert running.outages == [out, "commit 3 of sink waits: the disk is full"]


def test_the_next_driver_has_the_counters_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine(topology())
    while engine.step() is not None:
        pass
    engine.restart()
    running = idle_running(engine.topology, monkeypatch, engine=engine)
    metrics = running.metrics()
    assert metrics.micro_batches > 0
    assert (metrics.components["numbers"].acked, metrics.components["pass"].executed) == (2, 2)


def test_a_running_topology_reports_its_state_and_accepts_no_orders_once_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = idle_running(topology(), monkeypatch, NoLock(tmp_path))
    running.start()
    assert repr(running) == f"<RunningTopology 't': running, checkpoint {tmp_path}>"
    running.deactivate()
    running.activate()
    running.stop()
    assert repr(running) == f"<RunningTopology 't': stopped, checkpoint {tmp_path}>"
    for order in (running.activate, running.deactivate):
        with pytest.raises(EngineError, match=r"topology 't' was stopped and cannot be (de)?activated"):
            order()
    running.stop()
