"""State that outlives its code: versions of attributes, and classes that have moved."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from sparkbolt import BasicBolt, KeyValueState, TopologyBuilder, Tuple
from sparkbolt.api.pickling import Pickling
from sparkbolt.api.topology import Topology
from sparkbolt.api.tuples import Origin
from sparkbolt.errors import StateError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.types import BasicCollector
from sparkbolt.windows.content import Content, decode, encode
from sparkbolt.worker.state.large_dicts import ENTRIES_MIN
from sparkbolt.worker.state.snapshots import DurableAttributes
from sparkbolt.worker.state.task_state import DictStore, TaskState

ORIGIN = Origin("orders", 0, "default", ("order",))
STAMPS = iter(range(1, 1_000_000))
SEEN: list[Any] = []


class Count(BasicBolt):
    """Counts words, as its first version did."""

    outputs = ()

    def prepare(self, context: Any) -> None:
        self.seen = Counter[str]()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.seen[tup["word"]] += 1


class CountByTable(BasicBolt):
    """The second version has the counts in a table."""

    outputs = ()
    state_version = 2

    def init_state(self, state: KeyValueState) -> None:
        self.table = state

    def migrate(self, version: int, attributes: dict[str, Any]) -> None:
        SEEN.append((version, sorted(attributes)))
        for word, count in attributes.pop("seen").items():
            self.table.put(word, count)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.table.put(tup["word"], self.table.get(tup["word"], 0) + 1)
        SEEN.append(dict(self.table))


class CountBroken(CountByTable):
    """Its migration has a mistake."""

    def migrate(self, version: int, attributes: dict[str, Any]) -> None:
        self.table.put("half", 1)
        attributes.pop("sen")


def words() -> Iterator[list[str]]:
    for word in ("to", "be", "or", "not", "to", "be"):
        yield [word]


def topology(count: BasicBolt) -> Topology:
    builder = TopologyBuilder("words")
    builder.set_spout("words", GeneratorSpout(words, outputs=["word"]), max_spout_pending=2)
    builder.set_bolt("count", count).global_grouping("words")
    return builder.build()


def instance(cls: type[BasicBolt], **attributes: Any) -> Any:
    bolt = cls()
    vars(bolt).update(attributes)
    return bolt


def snapshot(version: int = 1, **attributes: Any) -> bytes:
    bolt = instance(Count, **attributes)
    bolt.state_version = version
    return DurableAttributes(bolt, "count", transient=["state_version"]).capture()


def steps(engine: LocalEngine, many: int) -> None:
    for _ in range(many):
        engine.step()
        engine.now_ms += 1000


# Versions.


def test_attributes_of_an_older_version_are_migrated_once_and_with_the_micro_batch_of_the_first_tuple() -> None:
    engine = LocalEngine(topology(Count()))
    steps(engine, 2)
    SEEN.clear()
    engine.restart(topology(CountByTable()))
    steps(engine, 6)
    engine.restart(topology(CountByTable()))
    steps(engine, 4)
    assert [seen for seen in SEEN if isinstance(seen, tuple)] == [(1, ["seen"])]
    assert SEEN[-1] == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_a_migration_that_raises_ends_the_topology_and_changes_nothing() -> None:
    engine = LocalEngine(topology(Count()))
    steps(engine, 2)
    before = {dest: dict(store) for dest, store in engine.stores.items()}
    engine.restart(topology(CountBroken()))
    with pytest.raises(StateError) as caught:
        steps(engine, 6)
    for part in ("bolt 'count', task 0", "version 1 has not changed", "KeyError: 'sen'", "test_migration.py:"):
        assert part in str(caught.value)
    assert {dest: dict(store) for dest, store in engine.stores.items()} == before


def test_state_of_a_newer_version_is_refused() -> None:
    durable = DurableAttributes(instance(CountByTable), "count", index=3)
    with pytest.raises(StateError, match=r"'count', task 3: its state is of version 4, .*state_version = 2"):
        durable.restore(snapshot(4, seen=1))


@pytest.mark.parametrize(("result", "attributes"), [(None, {"seen": 8}), ({"new": 9}, {"new": 9})])
def test_migrate_changes_the_attributes_or_returns_others(result: Any, attributes: dict[str, Any]) -> None:
    class Migrated(CountByTable):
        def migrate(self, version: int, attributes: dict[str, Any]) -> Any:
            attributes["seen"] += version
            return result

    bolt = instance(Migrated)
    DurableAttributes(bolt, "count").restore(snapshot(seen=7))
    assert vars(bolt) == attributes


@pytest.mark.parametrize("result", [7, [("a", 1)], {1: 2}])
def test_migrate_that_returns_something_else_is_refused(result: Any) -> None:
    class Odd(CountByTable):
        def migrate(self, version: int, attributes: dict[str, Any]) -> Any:
            return result

    with pytest.raises(StateError, match=r"Odd returned .*, expected a dict of attributes by name, or None"):
        DurableAttributes(instance(Odd), "count").restore(snapshot(seen=7))


def test_a_large_dict_is_migrated_and_written_under_its_new_name() -> None:
    class Renaming(CountByTable):
        def migrate(self, version: int, attributes: dict[str, Any]) -> None:
            attributes["counts"] = attributes.pop("seen")

    store, numbers = DictStore(), {number: number for number in range(ENTRIES_MIN)}

    def commit(state: TaskState, durable: DurableAttributes) -> None:
        state.set_snapshot(durable.capture())
        durable.stage_large(state)
        state.make_ready()
        state.commit(STAMPS.__next__)
        durable.committed()

    for cls, attributes in ((Count, {"seen": dict(numbers)}), (Renaming, {}), (Renaming, {})):
        state, bolt = TaskState(), instance(cls, **attributes)
        state.begin(store)
        durable = DurableAttributes(bolt, "count")
        if cls is Renaming:
            durable.restore(state.snapshot(), state)
            assert vars(bolt) == {"counts": numbers}
        commit(state, durable)
    assert [key for key in store if "dict" in key] == [key for key in store if "dict/counts" in key] != []


# Code that has moved.


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes modules from source; ``gone=`` names one to remove before."""

    def make(name: str, source: str, gone: str = "") -> Any:
        if gone:
            monkeypatch.delitem(sys.modules, gone)
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(source, vars(module))
        return module

    return make


ORDER = "class Order:\n    def __init__(self, n): self.n = n\n    def __eq__(self, o): return self.n == o.n\n"


def pickles(value: Any) -> tuple[bytes, DictStore, bytes]:
    """A value in an attribute, in a key-value state, and in a window."""
    state, store = TaskState(), DictStore()
    state.begin(store)
    state.key_value().put("one", [value])
    state.make_ready()
    state.commit(STAMPS.__next__)
    return snapshot(seen=1, last=value), store, encode(Content((ORIGIN,), None, [[value]], np.array([0])))


def values(data: bytes, store: DictStore, window: bytes) -> list[Any]:
    state = TaskState()
    state.begin(store)
    bolt = instance(Count)
    DurableAttributes(bolt, "count").restore(data)
    return [bolt.last, state.key_value().get("one")[0], decode(window).columns[0][0]]


def test_a_class_that_has_moved_reads_what_was_stored_under_its_earlier_name(modules: Any) -> None:
    stored = pickles(modules("store", ORDER).Order(5))
    new = modules("orders", f"from sparkbolt import moved_from\n@moved_from('store.Order')\n{ORDER}", gone="store")
    assert [(type(value), value.n) for value in values(*stored)] == [(new.Order, 5)] * 3
    again = pickles(values(*stored)[0])
    assert b"store" not in again[0]
    assert b"orders" in again[0]


def test_a_package_that_has_moved_reads_what_was_stored_in_its_modules(modules: Any) -> None:
    modules("old_shop", "")
    stored = pickles(modules("old_shop.orders", ORDER).Order(5))
    modules("shop", "__moved_from__ = 'old_shop'", gone="old_shop")
    new = modules("shop.orders", ORDER, gone="old_shop.orders")
    assert [(type(value), value.n) for value in values(*stored)] == [(new.Order, 5)] * 3


def test_a_class_of_the_main_program_may_move_to_a_module_and_back(modules: Any) -> None:
    main: dict[str, Any] = {"__name__": "__main__"}
    exec(ORDER, main)
    pickling = Pickling(main)
    data = pickling.dumps(main["Order"](5))
    module = modules("shop", f"__moved_from__ = '__main__'\n{ORDER}")
    assert type(Pickling({}).loads(data)) is module.Order
    data = Pickling({}).dumps(module.Order(5))
    sys.modules.pop("shop")
    assert type(Pickling({**main, "__moved_from__": "shop"}).loads(data)) is main["Order"]
    del main["Order"].__init__
    main["Order"].__moved_from__ = ("shop.Order",)  # as cloudpickle ships a decorated class to an executor
    assert type(Pickling(main).loads(data)) is main["Order"]


def test_a_class_that_still_has_its_name_is_preferred_to_one_that_had_it(modules: Any) -> None:
    data = Pickling({}).dumps(modules("till", ORDER).Order(5))
    modules("receipts", f"from sparkbolt import moved_from\n@moved_from('till.Order')\n{ORDER}")
    assert type(Pickling({}).loads(data)) is sys.modules["till"].Order


def test_a_key_value_state_names_the_key_or_the_class_that_is_missing(modules: Any) -> None:
    order = modules("counter", ORDER).Order(5)
    _, store, _ = pickles(order)
    sys.modules.pop("counter")
    state = TaskState()
    state.begin(store)
    with pytest.raises(StateError, match=r"value of 'one' cannot be read: counter.Order is not there: .*@moved_from"):
        state.key_value().get("one")


def test_shared_values_stay_shared_when_attributes_are_pickled_one_after_the_other() -> None:
    shared = ["a"]
    read = Pickling({}).load_attributes(Pickling({}).dump_attributes({"one": shared, "two": {"too": shared}}))
    assert read["one"] is read["two"]["too"]
    assert Pickling({}).load_attributes(Pickling({}).dumps({"first": 1})) == {"first": 1}
