"""What it costs to give a keyed state to another number of tasks, by its keys; without Spark.

Does a rebalance cost what there is to move?
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.scale_growth import Axis, Cost
from sparkbolt import BasicBolt, KeyValueState, TopologyBuilder
from sparkbolt.api.keyed_state import targets
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.worker.state.division import Division
from sparkbolt.worker.state.task_state import DictStore, TaskState

BEFORE, AFTER = 2, 3
STAMPS = itertools.count(1).__next__


class Count(BasicBolt):
    """Counts words in its key-value state."""

    def init_state(self, state: KeyValueState) -> None:
        """Store it."""
        self.counts = state

    def execute(self, tup: Any, collector: Any) -> None:
        """Nothing is executed here."""


def _division() -> Division:
    builder = TopologyBuilder("divided")
    builder.set_spout("words", GeneratorSpout(list, outputs=["word"]))
    builder.set_bolt("count", Count(), AFTER).fields_grouping("words", ["word"])
    return Division(builder.build().components["count"], BEFORE, AFTER, STAMPS)


def _stores(keys: int, *, plain: bool) -> list[DictStore]:
    words = [f"word{number}" for number in range(keys)]
    homes = targets(words, 1, BEFORE).tolist()
    stores = [DictStore() for _ in range(BEFORE)]
    for index, store in enumerate(stores):
        own = [word for word, home in zip(words, homes, strict=True) if home == index]
        state = TaskState()
        state.begin(store)
        state.key_value().put_many(own, range(len(own)) if plain else [[number] for number in range(len(own))])
        state.make_ready()
        state.commit(STAMPS)
    return stores


def _divided_s(stores: list[DictStore]) -> float:
    """The processor time to divide all stores."""
    division, began = _division(), time.process_time()
    parts = [division.split(index, store) for index, store in enumerate(stores)]
    for part in range(AFTER):
        division.join(part, [(index, some[part]) for index, some in enumerate(parts) if part in some])
    return time.process_time() - began


def _costs(keys: int) -> Mapping[str, Cost]:
    return {
        "a division of counts": Cost(_divided_s(_stores(keys, plain=True))),
        "a division of lists": Cost(_divided_s(_stores(keys, plain=False))),
    }


AXES = (Axis("keys in 2 tasks that become 3", (10_000, 100_000, 1_000_000), _costs),)
