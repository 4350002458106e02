"""Large dicts of attributes: what is written, what comes back, and what is left to the pickle."""

from __future__ import annotations

import copy
import gc
from collections import Counter, OrderedDict, defaultdict
from itertools import count
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparkbolt.worker.state import large_dicts
from sparkbolt.worker.state.large_dicts import PREFIX
from sparkbolt.worker.state.snapshots import DurableAttributes
from sparkbolt.worker.state.task_state import DictStore, TaskState


class Bolt:
    """Any object with attributes will do."""

    counts: Any
    other: Any


class Worker:
    """A task of a bolt in one worker process."""

    def __init__(self, store: DictStore, **attributes: Any) -> None:
        self.store = store
        self.state = TaskState()
        self.bolt = Bolt()
        vars(self.bolt).update(attributes)
        self.durable = DurableAttributes(self.bolt, "count")

    def begin(self) -> Bolt:
        self.state.begin(self.store)
        if not self.state.instance_is_current:
            self.durable.restore(self.state.snapshot(), self.state)
        return self.bolt

    def stage(self) -> None:
        data = self.durable.capture()
        self.state.set_snapshot(data, self.durable.prove)
        self.durable.stage_large(self.state)
        self.state.make_ready()

    def commit(self) -> int:
        self.stage()
        written = self.state.commit(STAMPS.__next__)
        self.durable.committed()
        return written


STAMPS = count(1)


def segments(store: DictStore) -> list[str]:
    return sorted(name for name in store if PREFIX in name)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dicts are large from three entries on."""
    monkeypatch.setattr(large_dicts, "ENTRIES_MIN", 3)


def test_a_commit_writes_only_the_touched_part_of_a_counter() -> None:
    store = DictStore()
    worker = Worker(store, counts=Counter())
    worker.begin().counts.update(f"word {number}" for number in range(100_000))
    whole = worker.commit()
    worker.begin().counts.update(["word 7", "a new word"])
    assert worker.commit() < whole / 100
    worker.begin()
    assert worker.commit() == 0, "nothing was touched"
    other = Worker(store, counts=Counter()).begin()
    assert type(other.counts) is Counter
    assert list(other.counts.items()) == list(worker.bolt.counts.items())
    assert (other.counts["word 7"], other.counts["a new word"]) == (2, 1)


@pytest.mark.usefixtures("small")
def test_a_new_line_of_changes_starts_when_the_changes_have_as_many_entries_as_the_dict() -> None:
    store = DictStore()
    worker = Worker(store, counts={})
    worker.begin().counts.update(a=1, b=1, c=1, d=1)
    worker.commit()
    lengths = []
    for number in range(8):
        worker.begin().counts.update(a=number + 300, b=number + 300)
        worker.commit()
        lengths.append(len(segments(store)))
    assert lengths == [2, 3, 1, 2, 3, 1, 2, 3]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "make",
    [
        lambda: {"a": [1], "b": 2, "c": 3},
        lambda: {"a": 1, 2.5: 2, "c": 3},
        lambda: {"a": 1, True: 2, "c": 3},
        lambda: {"a": 1, ("b", (1,)): 2, "c": 3},
        lambda: OrderedDict(a=1, b=2, c=3),
        lambda: {"a": 1, "b": 2},
    ],
    ids=["a list", "a float as key", "a bool as key", "a tuple in a tuple", "another type", "few entries"],
)
def test_what_may_change_or_be_confused_is_pickled_with_the_rest(make: Any) -> None:
    store = DictStore()
    worker = Worker(store, counts=None)
    worker.begin().counts = make()
    worker.commit()
    assert segments(store) == []
    assert Worker(store, counts=None).begin().counts == make()


@pytest.mark.usefixtures("small")
def test_a_dict_that_is_shared_is_pickled_with_the_rest_and_stays_shared() -> None:
    store = DictStore()
    worker = Worker(store, counts={"a": 1, "b": 2, "c": 3}, other=None)
    worker.begin()
    worker.commit()
    assert len(segments(store)) == 1
    worker.begin().other = [worker.bolt.counts]
    worker.commit()
    assert segments(store) == []
    bolt = Worker(store, counts={}, other=None).begin()
    assert bolt.other[0] is bolt.counts
    worker.begin().other = None
    worker.commit()
    assert len(segments(store)) == 1


@pytest.mark.usefixtures("small")
def test_each_kind_of_dict_comes_back_as_it_was() -> None:
    store = DictStore()
    worker = Worker(store, counts=None, other=None)
    worker.begin().counts = defaultdict(int, {"a": 1, ("b", 2): None, b"c": 2.5})
    worker.bolt.other = Counter({"a": 1, None: True, 7: "x"})
    worker.commit()
    assert len(segments(store)) == 2
    bolt = Worker(store, counts=None, other=None).begin()
    assert bolt.counts == {"a": 1, ("b", 2): None, b"c": 2.5}
    assert bolt.counts["new"] == 0
    assert bolt.other == Counter({"a": 1, None: True, 7: "x"})


@pytest.mark.usefixtures("small")
def test_a_worker_that_missed_the_last_commit_reads_it_even_if_only_a_large_dict_changed() -> None:
    store = DictStore()
    one, two = Worker(store, counts={}), Worker(store, counts={})
    one.begin().counts.update(a=1, b=2, c=3)
    one.commit()
    assert two.begin().counts == {"a": 1, "b": 2, "c": 3}
    two.bolt.counts["a"] = 1000
    two.commit()
    assert one.begin().counts == {"a": 1000, "b": 2, "c": 3}


@pytest.mark.usefixtures("small")
def test_a_dict_that_changes_while_it_is_looked_at_is_committed_as_it_was_at_one_moment() -> None:
    store = DictStore()
    worker = Worker(store, counts={number: number for number in range(1000)})
    numbers = count(1000)

    def change(phase: str, info: Any) -> None:
        counts = worker.bolt.counts
        for _ in range(3):
            counts.pop(next(iter(counts)))
            number = next(numbers)
            counts[number] = number

    worker.begin()
    before = gc.get_threshold()
    gc.callbacks.append(change)
    gc.set_threshold(1)
    try:
        worker.commit()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(change)
    committed = Worker(store, counts={}).begin().counts
    assert len(committed) == 1000
    assert all(key == value for key, value in committed.items())


KEYS = st.sampled_from([*"abcdef", 1, 2, None, ("a", 1), b"a"])
VALUES = st.one_of(st.integers(0, 1000), st.text(max_size=2), st.floats(), st.none(), st.booleans())


class Committed(RuleBasedStateMachine):
    """Two workers take turns, fail, and commit; what comes back is what was committed, in its order."""

    @initialize()
    def start(self) -> None:
        self.before, large_dicts.ENTRIES_MIN = large_dicts.ENTRIES_MIN, 2
        self.store = DictStore()
        self.workers = [Worker(self.store, counts={}, other=None) for _ in range(2)]
        self.committed: dict[str, Any] = {"counts": {}, "other": None}
        self.begin(0)

    def teardown(self) -> None:
        if hasattr(self, "before"):
            large_dicts.ENTRIES_MIN = self.before

    @rule(number=st.integers(0, 1))
    def begin(self, number: int) -> None:
        """The attempt before, if it did not commit, has failed."""
        self.worker = self.workers[number]
        bolt = self.worker.begin()
        assert ordered(vars(bolt)) == ordered(self.committed)

    @rule(key=KEYS, value=VALUES)
    def put(self, key: Any, value: Any) -> None:
        self.worker.bolt.counts[key] = value

    @rule(key=KEYS)
    def remove(self, key: Any) -> None:
        self.worker.bolt.counts.pop(key, None)

    @rule(key=KEYS)
    def move_to_the_end(self, key: Any) -> None:
        counts = self.worker.bolt.counts
        if key in counts:
            counts[key] = counts.pop(key)

    @rule(kind=st.sampled_from([dict, Counter]))
    def replace(self, kind: Any) -> None:
        self.worker.bolt.counts = kind(self.worker.bolt.counts)

    @rule(other=st.sampled_from([None, "shared", "own"]))
    def set_other(self, other: str | None) -> None:
        bolt = self.worker.bolt
        bolt.other = {"shared": bolt.counts, "own": {"x": 1, "y": 2, "z": [3]}}.get(other or "")

    @rule()
    def stage(self) -> None:
        self.worker.stage()

    @rule(number=st.integers(0, 1))
    def commit(self, number: int) -> None:
        self.worker.commit()
        self.committed = copy.deepcopy(vars(self.worker.bolt))
        self.begin(number)

    @invariant()
    def nothing_is_left_behind(self) -> None:
        if hasattr(self, "store"):
            assert len(segments(self.store)) <= 2 * (1 + large_dicts.CHANGES_MAX)


def ordered(attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        name: (type(value), [(type(key), repr(item)) for key, item in value.items()], list(map(repr, value)))
        if isinstance(value, dict)
        else value
        for name, value in attributes.items()
    }


TestCommitted = Committed.TestCase
