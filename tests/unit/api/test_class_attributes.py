"""A container of the class that a bolt changes is no state: a topology with one is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.errors import InvalidTopology
from tests.topologies import Numbers


class Counts(BasicBolt):
    outputs = ["n"]
    counts: dict[Any, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts[tup["n"]] = self.counts.get(tup["n"], 0) + 1


class Nested(Counts):
    seen: dict[str, list[Any]] = {"all": []}

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen["all"].append(tup["n"])


class OfTheClass(Counts):
    total: Counter[str] = Counter()

    def flush(self) -> None:
        OfTheClass.total.update(["flushes"])

    def execute(self, tup: Any, collector: Any) -> None:
        pass


class Reads(BasicBolt):
    outputs = ["n"]
    names = {1: "one"}

    def execute(self, tup: Any, collector: Any) -> None:
        found = {}
        found[self.names[1]] = dict(self.names).pop(1)


class Prepared(Counts):
    def prepare(self, context: Any) -> None:
        self.counts = {}


class Cached(Counts):
    transient = ["counts"]


def built(bolt: BasicBolt) -> None:
    builder = TopologyBuilder("shared")
    builder.set_spout("numbers", Numbers(3))
    builder.set_bolt("b", bolt).shuffle_grouping("numbers")
    builder.build()


@pytest.mark.parametrize(
    ("bolt", "method", "name"),
    [(Counts(), "execute", "counts"), (Nested(), "execute", "seen"), (OfTheClass(), "flush", "total")],
)
def test_a_class_level_container_that_a_method_changes_is_refused(bolt: BasicBolt, method: str, name: str) -> None:
    with pytest.raises(
        InvalidTopology, match=f"{method} changes '{name}', which its class holds: .*Set self.{name} in prepare"
    ):
        built(bolt)


@pytest.mark.parametrize("bolt", [Reads(), Prepared(), Cached()])
def test_a_container_that_is_only_read_or_replaced_or_transient_is_accepted(bolt: BasicBolt) -> None:
    built(bolt)
