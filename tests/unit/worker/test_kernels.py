"""Compiled kernels do what the Python does that they stand for, bit by bit."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fast import fast
from sparkbolt import BasicBolt, Config, KeyValueState, Topology, TopologyBuilder, bolt
from sparkbolt.api.components import BoltBase, PartitionedSpout
from sparkbolt.api.ranges import Range
from sparkbolt.base import native
from sparkbolt.base.native import kernels
from sparkbolt.base.text_arrays import buffers_of, crc32s, dictionary_of, joined, separated, strings_of
from sparkbolt.errors import EmitError, Unavailable
from sparkbolt.layout.lane import lay_out
from sparkbolt.wire.frames import Moment
from sparkbolt.wire.plan import Entry, Piece
from sparkbolt.worker.environment import environment_of
from sparkbolt.worker.source_reader import run_piece
from sparkbolt.worker.stage import run_level
from sparkbolt.worker.state.task_state import DictStore, KeyValueTable
from sparkbolt.worker.worker import Worker
from tests.native import needs_kernels

pytestmark = needs_kernels


class Text(str):
    """A string that is more than a string."""


class Listed(PartitionedSpout):
    """Emits the values that it is given, one row each."""

    outputs = ["value"]

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> list[Range]:
        return []

    def read(self, range_: Range) -> Iterator[tuple[int, list[Any]]]:
        for position in range(range_.start, range_.end):
            yield position, [self.values[position]]


def topology_of(values: list[Any], split: BoltBase, counts: BoltBase) -> Topology:
    builder = TopologyBuilder("kernels", Config())
    builder.set_spout("values", Listed(values))
    builder.set_bolt("split", split).shuffle_grouping("values")
    builder.set_bolt("count", counts, parallelism=2).fields_grouping("split", ["word"])
    return builder.build()


def outcome(values: list[Any], split: BoltBase, counts: BoltBase, *, compiled: bool) -> list[Any]:
    """All rows that leave the source and the level, and all state, after two micro-batches of the same values."""
    with fast(compiled):
        lane = lay_out(topology_of(values, split, counts), cores=2)
        worker = Worker(environment_of(lane, stamps=count(1).__next__, clock=lambda: 0.0))
        stores: dict[int, DictStore] = {dest: DictStore() for dest in lane.dests.values()}
        seen: list[Any] = []
        for micro_batch_id in range(2):
            moment = Moment(micro_batch_id, 1000 + micro_batch_id)
            task = lane.topology.tasks("values")[0]
            entry = Entry(task, micro_batch_id * len(values), "here", 0, len(values))
            read = run_piece(worker, moment, Piece(0, entry))
            assert worker.bolt(lane.topology.tasks("split")[0]).output.native is (kernels() if compiled else None)
            rows = read.to_rows(lane)
            done = run_level(worker, 1, rows, stores.__getitem__)
            seen += [rows, done.to_rows(lane), [dict(store) for store in stores.values()]]
            seen += [[(fail.cause, fail.reason, fail.key) for fail in result.partials.fails] for result in (read, done)]
        worker.close()
        return seen


def assert_same(values: list[Any], split: BoltBase, counts: BoltBase | None = None) -> list[Any]:
    counts = Counts() if counts is None else counts
    python, compiled = (outcome(values, split, counts, compiled=wanted) for wanted in (False, True))
    assert [without_tracebacks(part) for part in compiled] == [without_tracebacks(part) for part in python]
    return compiled


def without_tracebacks(part: Any) -> Any:
    """The rows but for feedback and partials of failures, which have tracebacks: those name the loop's own lines."""
    return [one for one in part if not (isinstance(one, tuple) and b"Traceback" in repr(one).encode())]


class Splits(BasicBolt):
    """Emits each part of a value, in the way that its first letter asks for."""

    outputs = {"default": ["word", "n"], "other": ["word"]}

    def execute(self, tup: Any, collector: Any) -> Any:
        value = tup["value"]
        if not isinstance(value, list):
            collector.emit([value, 1])
            return None
        how, *parts = value
        if how == "tuples":
            for part in parts:
                collector.emit((part, len(parts)))
        elif how == "named":
            for part in parts:
                collector.emit([part, None], stream="".join(("def", "ault")))
        elif how == "arrays":
            collector.emit(np.array([1.5, 2.5]))
        elif how == "other":
            collector.emit([parts[0]], "other")
            collector.emit([parts[0], 2.0])
        elif how == "raise":
            collector.emit([parts[0], 3])
            raise ValueError(parts)
        elif how == "short":
            collector.emit([1])
        elif how == "str":
            collector.emit("ab")
        elif how == "by name":
            for part in parts:
                collector.emit({"n": 6, "word": part})
        elif how == "another name":
            collector.emit({"word": 1, "m": 2})
        elif how == "anchors":
            collector.emit([1, 2], anchors=tup)
        elif how == "yield":
            return ([part, 4] for part in parts)
        elif how == "yield by name":
            return ({"n": 7, "word": part} for part in parts)
        elif how == "list":
            return [[part, 5] for part in parts]
        elif how == "coroutine":
            return 5
        elif how == "away":
            raise Unavailable("gone")
        return None


class Counts(BasicBolt):
    outputs = ["word", "count"]

    def init_state(self, state: KeyValueState) -> None:
        self.counts = state

    def execute(self, tup: Any, collector: Any) -> None:
        try:
            hash(tup["word"])
        except TypeError:
            return
        number = self.counts.get(tup["word"], 0) + 1
        self.counts.put(tup["word"], number)
        collector.emit([tup["word"], number])


HOWS = (
    *("tuples", "named", "arrays", "other", "raise", "short", "str", "anchors", "yield", "list", "coroutine", "away"),
    *("by name", "another name", "yield by name"),
)
SCALARS = st.one_of(st.text(max_size=3), st.none(), st.integers(), st.booleans(), st.binary(max_size=2))
LISTS = st.builds(lambda how, parts: [how, *parts], st.sampled_from(HOWS), st.lists(SCALARS, min_size=1, max_size=4))
VALUES = st.one_of(SCALARS, st.builds(Text, st.text(max_size=2)), LISTS)


@given(st.lists(VALUES, min_size=1, max_size=12))
def test_any_values_give_the_same_frames_failures_and_state(values: list[Any]) -> None:
    assert_same(values, Splits())


@pytest.mark.parametrize("how", HOWS)
def test_each_way_to_emit_gives_the_same(how: str) -> None:
    assert_same([["tuples", "be", "or"], [how, "be", "not"], "be"], Splits())


@pytest.mark.parametrize(
    "odd", [None, 7, 2.5, True, b"be", Text("be"), "\ud800", ["be"], "be" * 100_000], ids=lambda odd: f"{odd!r:.9}"
)
def test_strings_become_a_dictionary_until_another_type_arrives(odd: Any) -> None:
    assert_same(["to", "be", "to", odd, "be"], Splits())


def test_a_function_that_yields_values_gives_the_same_result() -> None:
    @bolt(outputs=["word", "n"])
    def split(tup: Any) -> Iterator[Any]:
        for number, word in enumerate(tup["value"].split()):
            if word == "no":
                raise ValueError(word)
            yield [word, number] if word != "odd" else "odd"

    assert_same(["to be or", "no", "be no", "be odd", ""], split)


@pytest.mark.parametrize("wrap", [lambda word: word, lambda word: {"word": word}, lambda word: [word]])
def test_the_value_of_the_only_field_gives_the_same_result(wrap: Any) -> None:
    @bolt(outputs=["word"])
    def split(tup: Any) -> Iterator[Any]:
        for word in tup.value.split():
            yield wrap(word if word != "no" else None)

    assert_same(["to be or", "no", "be no", "be"], split)


def test_a_function_that_returns_values_gives_the_same_result() -> None:
    @bolt(outputs=["word", "n"])
    def split(tup: Any) -> Any:
        return {"none": None, "lists": [["a", 1], ("b", 2)], "str": "a", "number": 5, "one": ["a", 1]}[tup["value"]]

    assert_same(["none", "lists", "str", "number", "one"], split)


def test_emissions_of_a_finalizer_that_runs_meanwhile_do_no_harm() -> None:
    class Emits:
        def __init__(self, emit: Any) -> None:
            self.emit, self.itself = emit, self

        def __del__(self) -> None:
            with suppress(EmitError):
                self.emit(["late", 0])

    class Litters(BasicBolt):
        outputs = ["word", "n"]

        def execute(self, tup: Any, collector: Any) -> None:
            for number in range(50):
                Emits(collector.emit)
                collector.emit([f"word {number}" if number < 40 else number, []])

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        outcome(["a", "b"], Litters(), Counts(), compiled=True)
    finally:
        gc.set_threshold(*before)


@given(st.lists(st.text(max_size=20)), st.integers(0, 3))
def test_texts_are_numbered_as_arrow_numbers_them(texts: list[str], skipped: int) -> None:
    array = pa.array(texts, pa.string()).slice(skipped)
    with fast(wanted=True):
        numbered = dictionary_of(array)
    assert numbered.equals(array.dictionary_encode())
    assert numbered.type == array.dictionary_encode().type


def test_kernels_of_another_version_are_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "KERNELS", 0)
    kernels.cache_clear()
    try:
        assert kernels() is None
    finally:
        kernels.cache_clear()
    assert "pip install --upgrade 'sparkbolt[fast]'" in caplog.text


@given(st.lists(st.text(max_size=12), max_size=40), st.integers(0, 3))
def test_strings_and_their_checksums_are_the_same(texts: list[str], skipped: int) -> None:
    array = pa.array(texts, pa.string()).slice(skipped)
    for compiled in (False, True):
        with fast(compiled):
            assert strings_of(array) == texts[skipped:]
            assert crc32s(array).tolist() == [crc32(text.encode()) for text in texts[skipped:]]
            data = joined(array) if len(array) else None
            assert data is None or separated(data).to_pylist() == texts[skipped:]


def numbers_of(dirty: dict[Any, Any]) -> Any:
    """A key-value state that has all there is."""
    state = kernels().KeyValues(dirty, {}.__getitem__, dirty.__setitem__, object())
    state.numbers = kernels().TextNumbers()
    state.numbers.current = state.numbers.complete = True
    return state


def test_uncommitted_numbers_are_undone() -> None:
    state = numbers_of({})
    numbers = state.numbers
    state.put("to", 1)
    state.put("be", 2)
    numbers.commit()
    state.put("to", 5)
    state.put("or", 7)
    assert (numbers.fresh, numbers.uncommitted, len(numbers)) == (1, 2, 3)
    assert numbers.content() == ({"to": 1, "be": 2}, {"to": 5, "or": 7})
    assert numbers.without_committed(["to", "or", "not", None]) == ["or", "not", None]
    numbers.undo()
    assert numbers.content() == ({"to": 1, "be": 2}, {})
    assert (len(numbers), sorted(numbers.keys()), numbers.find_value("or")) == (2, ["be", "to"], None)
    state.put("or", 8)
    assert (len(numbers), state.get("or")) == (3, 8)


def test_what_was_put_before_newer_values_came_is_undone_to_those() -> None:
    state = numbers_of({})
    state.put("be", 1)
    text = pa.array(["be", "or"])
    state.numbers.apply(*buffers_of(text), np.array([7, 8]), True)
    assert (state.get("be"), state.get("or"), state.numbers.fresh) == (1, 8, 0)
    state.numbers.undo()
    assert (state.get("be"), state.get("or"), len(state.numbers)) == (7, 8, 2)


def test_no_put_of_another_thread_is_lost_when_the_numbers_are_left() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for turn in range(20):
            state = KeyValueTable()
            state.put_many([f"k{number}" for number in range(2_000)], [0] * 2_000)
            wrong: list[Any] = []
            begun = threading.Barrier(3)

            def count(name: str, state: KeyValueTable = state, wrong: list[Any] = wrong, begun: Any = begun) -> None:
                begun.wait()
                for number in range(2_000):
                    state.put(name, number)
                    if state.get(name) != number:
                        wrong.append((name, number))

            threads = [threading.Thread(target=count, args=(name,)) for name in "ab"]
            for thread in threads:
                thread.start()
            begun.wait()
            state.put(None, turn)
            for thread in threads:
                thread.join()
            assert not wrong
            assert (state.get("a"), state.get("b"), state.get(None), len(state)) == (1_999, 1_999, turn, 2_003)
    finally:
        sys.setswitchinterval(before)
