"""Attributes that a component was built with: which can be sent and kept as state, and which are a mistake."""

import json
import pickle
import threading
from typing import Any

import pytest

from sparkbolt.api.components import BasicBolt
from sparkbolt.errors import StateError
from sparkbolt.worker.state.snapshots import DurableAttributes
from tests.topologies import Count, Split
from tests.unit.api.declared import the_mistake, words


def test_a_component_that_cannot_be_pickled_is_a_mistake_that_names_the_attribute() -> None:
    builder = words()
    count = Count()
    count.fine, count.lock = {}, threading.Lock()  # type: ignore[attr-defined]
    builder.set_bolt("count", count).shuffle_grouping("split")
    assert the_mistake(builder).startswith("bolt 'count': its attribute 'lock' cannot be pickled (TypeError: ")


class Holding(BasicBolt):
    """Keeps state, and something that it was built with."""

    def __init__(self, held: Any) -> None:
        self.held, self.count = held, 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.count += 1


class Leaving(Holding):
    transient = ("held",)


class Preparing(Holding):
    def prepare(self, context: Any) -> None:
        self.count = len(str(self.held))


class Sending(Holding):
    """Is not sent as it is."""

    def __getstate__(self) -> Any:
        return {"held": None, "count": 0}


class Nothing(BasicBolt):
    stateless = True

    def __init__(self, held: Any) -> None:
        self.held = held

    def execute(self, tup: Any, collector: Any) -> None: ...


@pytest.mark.parametrize("cls", [Holding, Preparing])
def test_an_attribute_of_init_that_cannot_be_kept_as_state_is_a_mistake(cls: Any) -> None:
    builder = words()
    builder.set_bolt("count", cls(lambda word: word)).shuffle_grouping("split")
    mistake = the_mistake(builder)
    assert mistake.startswith(
        "bolt 'count': it keeps state, and its attribute 'held' of type builtins.function cannot be kept with it ("
    )
    assert mistake.endswith(
        "): give it a function that a module defines by name, or write transient = ['held'] in its class, which leaves "
        "it out; or stateless = True, if it keeps nothing"
    )
    builder = words()
    builder.set_bolt("count", cls({"deep": [json]})).shuffle_grouping("split")
    mistake = the_mistake(builder)
    assert (
        "its attribute 'held' of type builtins.dict cannot be kept with it (TypeError: cannot pickle 'module'"
        in mistake
    )
    assert "and make it in prepare if it is a connection or the like" in mistake


@pytest.mark.parametrize("cls", [Leaving, Sending, Nothing])
def test_an_attribute_of_init_that_may_never_be_kept_is_no_mistake(cls: Any) -> None:
    builder = words()
    builder.set_bolt("count", cls(lambda word: word)).shuffle_grouping("split")
    assert builder.build()


def test_what_is_no_trouble_once_it_was_sent_is_no_mistake() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(memoryview(b"abc"))
    for held in (memoryview(b"abc"), len, {"a": Split}):
        builder = words()
        builder.set_bolt("count", Holding(held)).shuffle_grouping("split")
        assert builder.build()


def test_what_is_refused_as_state_does_fail_in_a_task() -> None:
    builder = words()
    held = Holding(lambda word: word)
    builder.set_bolt("count", held).shuffle_grouping("split")
    assert the_mistake(builder)
    with pytest.raises(StateError, match=r"attribute 'held' of type builtins\.function cannot be kept"):
        DurableAttributes(held, "count", transient=held.transient)
