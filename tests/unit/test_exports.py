"""What users touch has a name at the door, a type and a sentence."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest

import sparkbolt
from sparkbolt import BasicBolt, RunningTopology, Spout, Topology, TopologyBuilder, TopologyMetrics

TOUCHED = {
    "BasicCollector", "BoltCollector", "ColumnCollector", "SpoutCollector", "WindowCollector", "TupleWindow",
    "KeyValueState", "RunningTopology", "MicroBatchReport", "TopologyMetrics", "ComponentMetrics", "FailedTree",
    "Story", "Progress", "Promotion", "EnoughRead", "LateTuple", "BoltDeclarer", "Component", "GroupingContext",
}  # fmt: skip


def test_everything_that_users_touch_is_at_the_door() -> None:
    assert set(sparkbolt.__all__) >= TOUCHED
    assert sorted(sparkbolt.__all__) == sorted(set(sparkbolt.__all__))


@pytest.mark.parametrize("name", sorted(set(sparkbolt.__all__)))
def test_what_is_at_the_door_says_what_it_is(name: str) -> None:
    thing = getattr(sparkbolt, name)
    assert inspect.getdoc(thing)
    for attribute, member in vars(thing).items() if inspect.isclass(thing) else ():
        if inspect.isfunction(member) and not attribute.startswith("_"):
            assert inspect.getdoc(member), f"{name}.{attribute}"


def test_start_and_run_are_typed() -> None:
    assert get_type_hints(Topology.start)["return"] is RunningTopology
    assert get_type_hints(Topology.run)["return"] is TopologyMetrics


def test_start_and_run_take_what_those_take_who_do_it() -> None:
    from sparkbolt.cli import program
    from sparkbolt.spark import running

    there = set(inspect.signature(running.start).parameters) - {"topology"}
    assert set(inspect.signature(Topology.start).parameters) - {"self"} == there
    own = set(inspect.signature(program.run).parameters) - {"topology", "options"}
    assert (
        set(inspect.signature(Topology.run).parameters) - {"self"} == there - {"open_secs"} | own
    )  # its limits say it
    assert issubclass(running.RunningTopology, RunningTopology)
    engine = {"start", "run_id", "collected_bytes", "lane"}
    own = {name for name in vars(running.RunningTopology) if not name.startswith("_")}
    assert own - engine <= set(dir(RunningTopology))


class Lines(Spout):
    outputs = ["line"]

    def next_tuple(self, collector: sparkbolt.SpoutCollector) -> None:
        collector.emit(["to be"], message_id=1)


class CountNothing(BasicBolt):
    def execute(self, tup: sparkbolt.Tuple, collector: sparkbolt.BasicCollector) -> None:
        """Nothing."""


def test_a_topology_is_shown_in_a_line() -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("lines", Lines(), parallelism=2)
    builder.set_bolt("count", CountNothing()).shuffle_grouping("lines")
    assert repr(builder.build()) == "<Topology 'words': lines x 2, count x 1>"
    for number in range(40):
        builder.set_bolt(f"more-{number}", CountNothing()).shuffle_grouping("lines")
    text = repr(builder.build())
    assert text.endswith("more-3 x 1, and 36 more>")
    assert "\n" not in text
