"""What is given up is told by an ERROR line, also where a driver died between the commit and the telling."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.core.lane import lay_out
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout

pytest.importorskip("pyspark")


class Grim(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        raise ValueError("never")


def test_what_the_last_commit_gave_up_is_told_by_the_driver_that_comes_next(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from sparkbolt.spark.running import RunningTopology

    builder = TopologyBuilder("t")
    builder.set_spout("numbers", GeneratorSpout(lambda: [[1]], outputs=["n"]), max_attempts=1, dead_letters="log:")
    builder.set_bolt("grim", Grim()).shuffle_grouping("numbers")
    topology = builder.build()
    engine = LocalEngine(topology)
    assert engine.step() is not None
    engine.restart()  # whatever was promoted before, this driver has told nobody

    life = SimpleNamespace(host=SimpleNamespace(ledger=engine.ledger))
    monkeypatch.setattr(RunningTopology, "_new_life", lambda running: life)
    monkeypatch.setattr(RunningTopology, "_make_threads", lambda running: [])
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        RunningTopology(topology, lay_out(topology, 2), None, None, None)
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("set aside after 1 attempt(s): ")
    assert "ValueError: never" in line
