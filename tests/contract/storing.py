"""A topology that stores what it reads in a database: one that may be away, or refuse everything."""

from __future__ import annotations

import time
from typing import Any, Literal

from sparkbolt import BasicBolt, Config, Topology, TopologyBuilder
from tests.contract.parts import Messages, note, notes

ORDERS = 600
PER_MICRO_BATCH = 200
AWAY_SECS = 2.0


class Store(BasicBolt):
    """Notes what it stores; the database is away for some time from the first call on, or refuses everything."""

    stateless = True

    def __init__(self, directory: str, trouble: Literal["refuses", "away"]) -> None:
        self.directory = directory
        self.trouble = trouble

    def execute(self, tup: Any, collector: Any) -> None:
        if self.trouble == "refuses":
            raise ValueError(f"{tup['n']} is no order")
        if not notes(self.directory, "first"):
            note(self.directory, "first", time.time())
        if time.time() < notes(self.directory, "first")[0][0] + AWAY_SECS:
            raise ConnectionError("connection refused")
        note(self.directory, "stored", tup["n"])


def storing(directory: str, trouble: Literal["refuses", "away"], **settings: Any) -> Topology:
    builder = TopologyBuilder("storing", Config(**settings))
    builder.set_spout("orders", Messages(directory, ORDERS, PER_MICRO_BATCH))
    builder.set_bolt("store", Store(directory, trouble)).shuffle_grouping("orders")
    return builder.build()
