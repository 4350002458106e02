"""Trees that fail, for their stories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkbolt import (
    BasicBolt,
    Bolt,
    TopologyBuilder,
)
from tests.contract.parts import Messages


class Words(BasicBolt):
    """Three tuples for each message."""

    outputs = ["n", "k"]

    def execute(self, tup: Any, collector: Any) -> None:
        for k in range(3):
            collector.emit([tup["n"], k])


class Trouble(Bolt):
    """Raises for message 1 each time and for message 2 at its first attempt; keeps a tuple of message 3."""

    def prepare(self, context: Any) -> None:
        self.kept: dict[int, Any] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["k"] == 2 and (tup["n"] == 1 or (tup["n"] == 2 and tup.attempt == 1)):
            raise ValueError(f"no {tup['n']}")
        if tup["n"] == 3 and tup["k"] == 0:
            self.kept[tup.attempt] = tup
            return
        collector.ack(tup)


TOLD = 6


def told(builder: TopologyBuilder, directory: str, limits: Sequence[int] = ()) -> None:
    """Add messages whose trees have stories."""
    messages = Messages(directory, TOLD, limits=limits)
    builder.set_spout("told", messages, max_attempts=2, trace=lambda tup: tup["n"] == 4)
    builder.set_bolt("words", Words(), parallelism=2).shuffle_grouping("told")
    builder.set_bolt("trouble", Trouble(), parallelism=2).fields_grouping("words", ["n"])
