"""Durable attributes: what survives, what is shared, what is refused."""

import threading
import types
from collections import Counter

import pytest

from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.errors import StateError
from sparkbolt.worker.state.snapshots import DurableAttributes
from sparkbolt.worker.state.task_state import KeyValueTable


class Bolt:
    """Any object with attributes will do."""


def make(**attributes):
    bolt = Bolt()
    vars(bolt).update(attributes)
    return bolt


def test_attributes_are_restored_over_those_set_in_prepare():
    first = make(counts=Counter())
    durable = DurableAttributes(first, "count")
    first.counts["be"] += 2
    data = durable.capture()
    second = make(counts=Counter(), new="made by prepare")
    DurableAttributes(second, "count").restore(data)
    assert vars(second) == {"counts": Counter(be=2), "new": "made by prepare"}


def test_shared_references_survive():
    shared = [1]
    bolt = make(one=shared, two={"also": shared})
    durable = DurableAttributes(bolt, "b")
    durable.restore(durable.capture())
    bolt.one.append(2)
    assert bolt.two == {"also": [1, 2]}


def test_failed_attempt_leaves_nothing_behind():
    bolt = make(seen=[1], door="open")
    durable = DurableAttributes(bolt, "b", transient=["door"])
    bolt.seen.append(2)
    bolt.extra = "uncommitted"
    bolt.door = "closed"
    durable.restore(None)
    assert vars(bolt) == {"seen": [1], "door": "closed"}
    bolt.seen.append(3)
    data = durable.capture()
    bolt.seen.append(4)
    bolt.extra = "uncommitted"
    durable.restore(data)
    assert vars(bolt) == {"seen": [1, 3], "door": "closed"}


def test_engine_objects_are_restored_by_identity():
    state, context = KeyValueTable(), object()
    bolt = make(state=state, inside=[state, {"c": context}])
    bolt.me = bolt
    bolt.bound = bolt.__init__
    durable = DurableAttributes(bolt, "b", owned={"key_value": state, "context": context})
    data = durable.capture()
    vars(bolt).clear()
    durable.restore(data)
    assert bolt.state is state
    assert bolt.inside[0] is state
    assert bolt.inside[1]["c"] is context
    assert bolt.me is bolt
    assert bolt.bound.__self__ is bolt


def test_an_attribute_that_cannot_be_pickled_is_named():
    with pytest.raises(StateError) as caught:
        DurableAttributes(make(fine=1, lock=threading.Lock()), "join")
    for part in ("'join'", "'lock'", "_thread.lock", "transient = ['lock']", "prepare"):
        assert part in str(caught.value)
    DurableAttributes(make(fine=1, lock=threading.Lock()), "join", transient=["lock"])


def main_module(source: str) -> dict:
    module = types.ModuleType("__main__")
    exec(source, vars(module))
    return vars(module)


SOURCE = """
class Visit:
    class Page:
        pass
    def __init__(self, n):
        self.n = n
    def worth(self):
        return {factor} * self.n

def helper():
    return {factor}

def make_local():
    class Local:
        pass
    return Local()
"""


def test_classes_and_functions_of_main_are_found_by_name_so_that_new_code_meets_old_values():
    old, new = main_module(SOURCE.format(factor=1)), main_module(SOURCE.format(factor=10))
    first = make(visit=old["Visit"](3), kind=old["Visit"], page=old["Visit"].Page(), call=old["helper"])
    data = DurableAttributes(first, "b", namespace=old).capture()
    second = make()
    DurableAttributes(second, "b", namespace=new).restore(data)
    assert second.visit.worth() == 30
    assert second.kind is new["Visit"]
    assert type(second.page) is new["Visit"].Page
    assert second.call() == 10


def test_a_snapshot_with_a_missing_class_is_reported():
    old = main_module(SOURCE.format(factor=1))
    data = DurableAttributes(make(fine=1, visit=old["Visit"](3)), "b", namespace=old).capture()
    with pytest.raises(StateError) as caught:
        DurableAttributes(make(), "b").restore(data)
    assert "bolt 'b': attribute 'visit' of its snapshot cannot be read: __main__.Visit is not there" in str(
        caught.value
    )
    assert "@moved_from('__main__.Visit')" in str(caught.value)


def test_a_stored_tuple_is_restored_with_its_anchors():
    bolt = make(held=Tuple.of(Origin("lines", 0, "default", ("line",)), ["to be"], ((5, 6),)))
    durable = DurableAttributes(bolt, "join")
    durable.restore(durable.capture())
    assert bolt.held["line"] == "to be"
    assert bolt.held.anchors == ((5, 6),)


def test_equal_attributes_give_equal_bytes():
    bolt = make(counts={"a": 1})
    durable = DurableAttributes(bolt, "b")
    assert durable.capture() == durable.capture()


def test_a_deleted_attribute_does_not_reappear_until_it_is_set_again():
    def prepared():
        bolt = make(first=True, count=0)
        return bolt, DurableAttributes(bolt, "b")

    bolt, durable = prepared()
    whole = durable.capture()
    del bolt.first
    data = durable.capture()
    durable.restore(data)
    assert vars(bolt) == {"count": 0}
    assert durable.capture() == data
    bolt, durable = prepared()
    durable.restore(data)
    assert vars(bolt) == {"count": 0}
    bolt.first = False
    again = durable.capture()
    bolt, durable = prepared()
    durable.restore(again)
    assert vars(bolt) == {"first": False, "count": 0}
    assert durable.restore(whole) is None
    assert vars(bolt) == {"first": True, "count": 0}


@pytest.mark.parametrize("transient", [(), ("counts",)])
def test_an_attribute_that_becomes_a_key_value_state_with_the_same_name_is_refused(transient):
    before = make(counts=Counter(be=2), other=1)
    data = DurableAttributes(before, "count").capture()
    state = KeyValueTable()
    owned = {"key_value_state": state}
    now = DurableAttributes(make(counts=state, other=1), "count", owned=owned, transient=transient)
    with pytest.raises(StateError, match=r"'counts' is a KeyValueState now.*raise state_version.*state\.md"):
        now.restore(data)
    renamed = make(table=state, counts=Counter())
    DurableAttributes(renamed, "count", owned={"key_value_state": state}).restore(data)
    assert (renamed.table, renamed.counts) == (state, Counter(be=2))
