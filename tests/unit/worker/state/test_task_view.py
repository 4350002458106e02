"""Task view: all that a task keeps is shown, and no code that its segments name runs."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sparkbolt import BasicBolt, KeyValueState
from sparkbolt.api.keyed_state import likely_tasks
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.errors import StateError, WrongUseError
from sparkbolt.worker.state.large_dicts import ENTRIES_MIN
from sparkbolt.worker.state.plain_reading import _UNCHANGING, loads
from sparkbolt.worker.state.snapshots import DurableAttributes
from sparkbolt.worker.state.state_rows import keys_named, rows_of, spelled
from sparkbolt.worker.state.task_state import DIRECTORY_KEY, DictStore, TaskState
from sparkbolt.worker.state.task_view import StateOfTasks, TaskView, with_classes

STAMPS = itertools.count(1).__next__


class Price:
    """A class of the user's."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Price) and other.cents == self.cents

    def __hash__(self) -> int:
        return hash(self.cents)


class Keeper(BasicBolt):
    """A bolt with state of every kind."""

    def init_state(self, state: KeyValueState) -> None:
        self.table = state

    def execute(self, tup: Any, collector: Any) -> None:
        pass


class Opener:
    """Its pickle makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def stored(entries: dict[Any, Any], attributes: dict[str, Any], deleted: list[Any]) -> DictStore:
    store, bolt = DictStore(), Keeper()
    for keys in ([*entries, *deleted], []):  # two micro-batches; the second deletes
        state = TaskState()
        state.begin(store)
        bolt.init_state(state.key_value())
        durable = DurableAttributes(bolt, "keeper", owned={"key_value_state": state.key_value()})
        vars(bolt).update(attributes)
        for key in keys:
            state.key_value().put(key, entries.get(key))
        for key in deleted if not keys else []:
            state.key_value().delete(key)
        state.set_snapshot(durable.capture())
        durable.stage_large(state)
        state.write("window/1", b"w" * 300)
        state.make_ready()
        state.commit(STAMPS)
    return store


@pytest.mark.parametrize("entries", [{f"w{n}": n for n in range(3000)}, {"a": [1], ("b", 2): {"c": Decimal(3)}}])
def test_a_view_has_the_keys_and_values_that_were_committed(entries: dict[Any, Any]) -> None:
    view = TaskView(stored(entries, {}, ["gone"]))
    assert dict(view.items()) == entries
    assert len(view) == len(entries)
    assert [view.get(key) for key in entries] == list(entries.values())
    assert view.get("gone", "no") == "no"


def test_a_view_has_the_attributes_and_the_sizes_of_the_rest() -> None:
    large = {f"k{n}": n for n in range(ENTRIES_MIN + 5)}
    plain = {
        "count": Counter("abca"),
        "by": defaultdict(list, {"x": [1]}),
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "id": UUID(int=7),
        "part": Fraction(1, 3),
        "both": ({1}, frozenset({2}), bytearray(b"x"), 2j),
    }
    view = TaskView(stored({}, {**plain, "large": dict(large)}, []))
    attributes = view.attributes()
    assert attributes.pop("large") == large
    assert attributes == plain, "what the engine owns, the table, is none"
    assert view.others() == {"window": 300}


def test_objects_of_other_classes_are_shown_and_the_users_classes_are_loaded_if_asked() -> None:
    held = Tuple.of(Origin("words", 0, "default", ("word",)), ["be"])
    store = stored({Price(1): Price(2)}, {"price": Price(5), "held": [held]}, [])
    view = TaskView(store)
    assert repr(view.attributes()["price"]) == f"{Price.__module__}.Price(cents=5)"
    assert "words" in repr(view.attributes()["held"])
    assert [tuple(map(repr, pair)) for pair in view.items()] == [
        (f"{Price.__module__}.Price(cents=1)", f"{Price.__module__}.Price(cents=2)")
    ]
    own = TaskView(store, with_classes({}))
    assert dict(own.items()) == {Price(1): Price(2)}
    attributes = own.attributes()
    assert attributes.keys() == {"price", "held"}
    assert (attributes["price"], attributes["held"][0]["word"]) == (Price(5), "be")


def test_no_code_runs_that_segments_name(tmp_path: Path) -> None:
    made = tmp_path / "made"
    evil = pickle.dumps(Opener(made), 5)
    loads(evil)
    store = stored({"a": [1]}, {"count": 1}, [])
    snapshot = next(name for name in store if name.startswith("__snapshot@"))
    TaskView(DictStore(store) | {snapshot: evil})
    for name in store:
        try:
            view = TaskView(DictStore(DictStore(store) | {name: evil}))
            view.attributes()
            dict(view.items())
        except (StateError, TypeError, ValueError):
            continue
    with pytest.raises(StateError, match="the state of a task is damaged"):
        TaskView({DIRECTORY_KEY: evil})
    assert not made.exists()
    pickle.loads(evil)
    assert made.exists()  # so it would have been made


def test_the_state_of_a_bolt_reads_a_task_once_and_only_if_it_is_needed() -> None:
    views = [TaskView(stored({key: 1}, {}, [])) for key in ("be", "or", "not", "to")]
    read: list[int] = []

    def reads(tasks: Sequence[int]) -> list[TaskView]:
        read.extend(tasks)
        return [views[task] for task in tasks]

    state = StateOfTasks(7, len(views), reads)
    views[likely_tasks(["that"], 4)[0]] = TaskView(stored({"that": 2}, {}, []))
    assert [state.get("that"), state.get("that")] == [2, 2]
    assert read == likely_tasks(["that"], 4) != [0], "the task that a fields grouping chooses"
    assert state.get("nothing", 0) == 0
    assert (len(state), sorted(read)) == (4, [0, 1, 2, 3])
    with pytest.raises(WrongUseError, match="to_df needs Spark"):
        state.to_df()


def test_all_rows_can_be_written_whatever_texts_a_task_keeps() -> None:
    view = TaskView(stored({"\ud800": "\udfff", "\u00e9": [float("nan"), b"x"], 3: datetime(2026, 1, 2)}, {"a": 1}, []))
    rows = list(rows_of(view))
    assert [(row.attribute, row.key) for row in rows] == [
        ("a", None),
        (None, "3"),
        (None, '"\u00e9"'),
        (None, '"\\ud800"'),
    ]
    assert [row.value for row in rows] == ["1", '"2026-01-02T00:00:00"', '["nan", "b\'x\'"]', '"\\udfff"']
    assert all(text.encode() for row in rows for text in row if text)


def test_a_key_is_spelled_as_it_is_typed() -> None:
    keys = ["be", "7", 7, 1.5, True, None, "true", "", ("be", 7), ("2026-01-02", ("a",)), "[", "NaN"]
    assert [keys_named(spelled(key))[0] for key in keys] == keys
    assert [type(keys_named(spelled(key))[0]) for key in keys] == list(map(type, keys))
    for text in ('{"a": 1}', '[{"a": 1}]', "[" * 100_000, "[" * 900 + "]" * 900):
        assert keys_named(text) == [text], "no key can be what this JSON means"
    moment = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert moment in keys_named(moment.isoformat())
    assert ("be", moment.date()) in keys_named('["be", "2026-01-02"]')


@pytest.mark.parametrize("known", list(_UNCHANGING.values()), ids=list(_UNCHANGING))
def test_a_pickle_cannot_change_a_type_that_it_gets(known: type) -> None:
    with pytest.raises(TypeError):
        known.update = None
