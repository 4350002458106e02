"""``SparkSpout``: its arguments, and when Spark is asked for its columns."""

from __future__ import annotations

from typing import Any

import cloudpickle
import pytest

from sparkbolt import Config, TopologyBuilder, bolt
from sparkbolt.base import engine_door
from sparkbolt.errors import ConfigError
from sparkbolt.layout.lane import lay_out
from sparkbolt.spouts import SparkSpout


@bolt(outputs=["n"])
def same(tup: Any) -> Any:
    yield [tup["n"]]


class Door:
    """Counts how often it is asked for columns."""

    asked = 0

    def columns_of(self, spout: Any) -> list[str]:
        self.asked += 1
        if spout.frame(None) == "gone":
            raise ConfigError("there is no such table")
        return ["n", "word"]


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    door = Door()
    monkeypatch.setattr(engine_door, "_door", lambda name: getattr(door, name))
    return door


def topology(spout: SparkSpout, **settings: Any) -> Any:
    builder = TopologyBuilder("spark", Config())
    builder.set_spout("rows", spout, parallelism=2, **settings)
    builder.set_bolt("same", same).shuffle_grouping("rows")
    return builder.build()


def test_columns_are_queried_once_and_not_at_all_if_outputs_are_given(door: Door) -> None:
    built = topology(SparkSpout(lambda spark: "a frame"))
    assert built.components["rows"].stream("default").fields == ("n", "word")
    assert door.asked == 1
    sent = cloudpickle.loads(cloudpickle.dumps(built))
    assert sent.components["rows"].component.outputs == ["n", "word"]
    topology(SparkSpout(lambda spark: "a frame", outputs=["n"], message_id="n"))
    assert door.asked == 1


def test_tasks_of_a_spark_spout_run_in_the_first_level_with_the_bolts_fused_to_it(door: Door) -> None:
    lane = lay_out(topology(SparkSpout(lambda spark: "a frame")), 2)
    assert [(level.components, level.stateful) for level in lane.levels] == [(("rows",), True)]
    assert lane.fused_into == {"same": "rows"}
    assert lane.level_of == {"rows": 1}
    assert lane.inlets == ("rows",)
    assert lane.inlet_tasks == frozenset(lane.topology.tasks("rows"))
