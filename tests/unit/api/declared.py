"""Components that do nothing, and a topology to add to: what tests of declarations share."""

import pickle
from typing import Any

import pytest

from sparkbolt.api.components import BasicBolt, PartitionedSpout, Spout
from sparkbolt.api.config import Config
from sparkbolt.api.function_bolts import bolt
from sparkbolt.api.groupings import Grouping
from sparkbolt.api.tuples import Direct
from sparkbolt.errors import InvalidTopology
from sparkbolt.streams import TopologyBuilder
from tests.topologies import Split


class Lines(Spout):
    outputs = {"default": ["line"], "odd": ["why", "where"], "named": Direct(["line"])}

    def next_tuple(self, collector: Any) -> None: ...


class Log(PartitionedSpout):
    outputs = ["line"]

    def next_ranges(self, progress: Any, budget: int) -> Any: ...

    def read(self, range_: Any) -> Any: ...


class Storing(BasicBolt):
    """Stores an attribute, so there is something to keep."""

    outputs = ["word"]

    def execute(self, tup: Any, collector: Any) -> None:
        self.last = tup


class Stateless(Split):
    stateless = True


@bolt(outputs=["word"])
def upper(tup: Any) -> Any:
    yield [tup["word"].upper()]


class Anywhere(Grouping):
    def choose_tasks(self, sender_task: int, values: list[Any]) -> list[int]:
        return []


def words(name: str = "words", config: Config | None = None) -> TopologyBuilder:
    """A builder with a spout "lines" and a bolt "split"; each test adds to it."""
    builder = TopologyBuilder(name, config)
    builder.set_spout("lines", Lines(), parallelism=2)
    builder.set_bolt("split", Split(), parallelism=3).shuffle_grouping("lines")
    return builder


def mistakes(builder: TopologyBuilder) -> list[str]:
    with pytest.raises(InvalidTopology) as caught:
        builder.build()
    assert pickle.loads(pickle.dumps(caught.value)).mistakes == caught.value.mistakes
    return caught.value.mistakes


def the_mistake(builder: TopologyBuilder) -> str:
    found = mistakes(builder)
    assert len(found) == 1, found
    return found[0]
