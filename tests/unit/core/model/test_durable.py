"""Pickles in checkpoints name classes where they were when the checkpoint was made; they are found where they are."""

from __future__ import annotations

import importlib
import pickle

import pytest

from sparkbolt.core.model.durable import _HOMES, loads
from sparkbolt.core.model.pickling import Pickling
from sparkbolt.core.model.tuples import restore
from sparkbolt.core.worker import outbox

# What earlier versions have written into the state of tasks: what components hold, and what the engine keeps for them.
WRITTEN = [
    ("sparkbolt.core.components", "BasicBolt"),
    ("sparkbolt.core.components", "TopologyContext"),
    ("sparkbolt.core.config", "Config"),
    ("sparkbolt.core.dead_letters", "Attempt"),
    ("sparkbolt.core.dead_letters", "DeadLetter"),
    ("sparkbolt.core.fates", "FailedTree"),
    ("sparkbolt.core.groupings", "GroupingContext"),
    ("sparkbolt.core.metrics", "ComponentMetrics"),
    ("sparkbolt.core.own_trees", "_Piece"),
    ("sparkbolt.core.retry", "RetryPolicy"),
    ("sparkbolt.core.story", "Hop"),
    ("sparkbolt.core.story", "Story"),
    ("sparkbolt.core.tuples", "Origin"),
    ("sparkbolt.core.tuples", "Tuple"),
    ("sparkbolt.core.tuples", "restore"),
    ("sparkbolt.core.worker.own_trees", "_Piece"),
    # what users can import, where it was before it moved within its package
    ("sparkbolt.bolts.letter_files", "FileDeadLetters"),
    ("sparkbolt.core.activity", "Progress"),
    ("sparkbolt.core.promotion", "MicroBatchReport"),
    ("sparkbolt.core.promotion", "Promotion"),
    ("sparkbolt.core.topology", "Topology"),
    ("sparkbolt.spouts.kafka.decoding", "KafkaMessage"),
    ("sparkbolt.spouts.kafka.zookeeper", "ZooKeeperOffsets"),
    # as today
    ("sparkbolt.core.model.components", "TopologyContext"),
    ("sparkbolt.core.model.config", "Config"),
    ("sparkbolt.core.model.tuples", "Origin"),
    ("sparkbolt.core.model.tuples", "restore"),
    ("sparkbolt.core.worker.outbox", "_Piece"),
    ("sparkbolt.windows.policies", "EvictionContext"),
]


@pytest.mark.parametrize(("module", "name"), WRITTEN)
def test_what_a_checkpoint_names_is_found(module: str, name: str) -> None:
    data = b"\x80\x02" + b"c" + f"{module}\n{name}\n".encode() + b"."
    assert loads(data).__name__ == name
    assert (name == restore.__name__) or Pickling({}).loads(data).__name__ == name


def test_a_room_above_says_itself_where_it_was() -> None:
    assert _HOMES["sparkbolt.core.own_trees"] == outbox.__name__


def test_each_old_home_is_gone_and_each_new_one_is_there() -> None:
    for old, new in _HOMES.items():
        importlib.import_module(new)
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(old)


def test_a_class_that_never_was_is_still_an_error() -> None:
    with pytest.raises((ModuleNotFoundError, AttributeError)):
        loads(b"\x80\x02csparkbolt.core.tuples\nNoSuchThing\n.")
    with pytest.raises(ModuleNotFoundError):
        loads(b"\x80\x02cno_such_module_of_users\nConfig\n.")
    assert loads(pickle.dumps({"be": 2})) == {"be": 2}
