"""What ``topology.start`` refuses before it touches anything."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt import BasicBolt, EngineError, TopologyBuilder
from sparkbolt.spark.running import start
from sparkbolt.spouts import GeneratorSpout


class Nothing(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


class DeadJvm:
    """What py4j gives when nobody listens any more."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")


def test_a_session_whose_jvm_has_died_is_named_and_not_the_checkpoint(tmp_path: Path) -> None:
    builder = TopologyBuilder("nothing")
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(10)), ["number"]))
    builder.set_bolt("nothing", Nothing()).shuffle_grouping("numbers")
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=DeadJvm()))
    with pytest.raises(EngineError, match=r"Spark's JVM has died, .* in a new process"):
        start(builder.build(), spark=session, checkpoint=str(tmp_path / "state"))
    assert not (tmp_path / "state").exists()
