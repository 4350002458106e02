"""Attributes that a component was built with: which can be sent and kept as state, and which are a mistake."""

import json
import threading
from typing import Any

import pytest

from sparkbolt import bolt
from sparkbolt.api.components import BasicBolt
from tests.topologies import Count
from tests.unit.api.declared import the_mistake, words


def test_a_component_that_cannot_be_pickled_is_a_mistake_that_names_the_attribute() -> None:
    builder = words()
    count = Count()
    count.fine, count.lock = {}, threading.Lock()  # type: ignore[attr-defined]
    builder.set_bolt("count", count).shuffle_grouping("split")
    assert the_mistake(builder).startswith("bolt 'count': its attribute 'lock' cannot be pickled (TypeError: ")


@pytest.mark.parametrize("is_function", [False, True])
def test_a_variable_outside_a_bolt_that_cannot_be_pickled_is_named(is_function: bool) -> None:
    lock = threading.Lock()

    class Locked(BasicBolt):
        def execute(self, tup: Any, collector: Any) -> None:
            lock.acquire()

    @bolt(outputs=["word"])
    def locked(tup: Any) -> Any:
        lock.acquire()

    builder = words()
    builder.set_bolt("count", locked if is_function else Locked()).shuffle_grouping("split")
    assert the_mistake(builder).startswith("bolt 'count': the variable 'lock' that it uses cannot be pickled")


class Holding(BasicBolt):
    """Keeps state, and something that it was built with."""

    def __init__(self, held: Any) -> None:
        self.held, self.count = held, 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.count += 1


class Preparing(Holding):
    def prepare(self, context: Any) -> None:
        self.count = len(str(self.held))


@pytest.mark.parametrize("cls", [Holding, Preparing])
def test_an_attribute_set_in_init_that_cannot_be_state_is_a_mistake(cls: Any) -> None:
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
