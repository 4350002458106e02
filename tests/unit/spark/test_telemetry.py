"""Telemetry of a topology on Spark: it hears each promotion, and what is wrong with it harms nothing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.api.reports import Promotion
from sparkbolt.listeners import MicroBatchReport
from sparkbolt.sim.engine import LocalEngine

pytest.importorskip("pyspark")

from tests.unit.spark.lives import NoLock, idle_running, topology


class Sink:
    """Remembers what it gets; raises if asked to."""

    def __init__(self, raises: bool = False) -> None:
        self.heard: list[tuple[int, float]] = []
        self.closed = 0
        self.raises = raises

    def build(self, topology: Any) -> Sink:
        return self

    def micro_batch(self, report: MicroBatchReport) -> None:
        self.heard.append((report.promotion.micro_batch_id, report.elapsed_ms))
        if self.raises:
            raise OSError("no route to the collector")

    def close(self) -> None:
        self.closed += 1
        if self.raises:
            raise OSError("no route to the collector")


class Held(NoLock):
    """A checkpoint that says whether it was closed."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.was_closed = False

    def close(self) -> None:
        self.was_closed = True


def begun(sink: Sink, checkpoint: Held, monkeypatch: pytest.MonkeyPatch, replayed: Promotion | None = None) -> Any:
    """A running topology whose life is a fake."""
    own = topology()
    engine = LocalEngine(own)
    engine.ledger.replayed = replayed
    running = idle_running(own, monkeypatch, checkpoint, engine, telemetry=sink)
    running.start()
    return running


def test_telemetry_receives_each_promotion_and_is_closed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink()
    running = begun(sink, Held(tmp_path), monkeypatch)
    running._coordinator.ledger.metrics.micro_batch_ms = 250.0
    running._promoted(running._coordinator, Promotion(0))
    running._promoted(running._coordinator, Promotion(1))
    assert sink.heard == [(0, 250.0), (1, 250.0)]
    running.close()
    running.close()
    assert sink.closed == 1


def test_promotion_before_a_crash_is_reported_again_rather_than_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = Sink()
    running = begun(sink, Held(tmp_path), monkeypatch, replayed=Promotion(41))
    assert sink.heard == [(41, 0.0)], "how long it took is not known any more"
    running.close()


def test_telemetry_that_raises_is_logged_and_harms_neither_the_topology_nor_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sink, checkpoint = Sink(raises=True), Held(tmp_path)
    running = begun(sink, checkpoint, monkeypatch)
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        running._promoted(running._coordinator, Promotion(0))
        running._promoted(running._coordinator, Promotion(1))
        running.close()
    assert [number for number, _ in sink.heard] == [0, 1]
    assert checkpoint.was_closed
    assert "no route to the collector" in caplog.text
