"""GeneratorSpout: the same items however they are planned and read again."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.spouts import GeneratorSpout


def context(parallelism: int) -> TopologyContext:
    return TopologyContext("t", "numbers", 0, parallelism, 1, Config())


def share(index: int, parallelism: int) -> Iterator[list[int]]:
    return ([n] for n in range(index, 50, parallelism))


def alone() -> Iterator[list[int]]:
    return ([n] for n in range(50))


def for_ever() -> Iterator[list[int]]:
    return ([n] for n in itertools.count())


def breaks() -> Iterator[list[int]]:
    yield [0]
    raise ValueError("no more")


def drain(spout: GeneratorSpout, parallelism: int, budget: int) -> list[object]:
    spout.open(context(parallelism))
    reader = pickle.loads(pickle.dumps(spout))
    reader.prepare(context(parallelism))
    progress: dict[str, int] = {}
    found: list[object] = []
    while not spout.finished(progress):
        ranges = spout.next_ranges(progress, budget)
        assert sum(range_.end - range_.start for range_ in ranges) <= budget
        for range_ in ranges:
            assert range_.start == progress.get(range_.source, 0)
            progress[range_.source] = range_.end
            found += [r if isinstance(r, BadRecord) else r[1][0] for r in reader.read(range_)]
    return found


@given(parallelism=st.integers(1, 4), budget=st.integers(1, 60), shared=st.booleans())
def test_every_item_is_read_once(parallelism: int, budget: int, shared: bool) -> None:
    spout = GeneratorSpout(share if shared else alone, outputs=["n"])
    assert sorted(drain(spout, parallelism, budget)) == list(range(50))  # type: ignore[type-var]


def test_a_count_ends_an_infinite_generator_and_the_driver_runs_nothing() -> None:
    spout = GeneratorSpout(for_ever, outputs=["n"], count=30)
    assert drain(spout, 2, 7) == list(range(30))
    assert not spout._ahead


def test_an_infinite_generator_is_planned_as_far_as_requested() -> None:
    spout = GeneratorSpout(for_ever, outputs=["n"])
    spout.open(context(1))
    assert spout.next_ranges({"generator-0": 100}, 10) == [Range(0, "generator-0", 100, 110)]
    assert not spout.finished({"generator-0": 110})


@given(ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=8))
def test_any_range_can_be_read_again(ranges: list[tuple[int, int]]) -> None:
    spout = GeneratorSpout(alone, outputs=["n"])
    for start, length in ranges:
        expected = [(n, [n]) for n in range(start, min(50, start + length))]
        assert list(spout.read(Range(0, "generator-0", start, start + length))) == expected


def test_an_exception_fails_its_item_and_ends_the_generator() -> None:
    found = drain(GeneratorSpout(breaks, outputs=["n"]), 1, 10)
    assert found == [0, BadRecord(1, "the generator raised ValueError: no more")]


def test_an_item_of_another_shape_is_a_bad_record() -> None:
    spout = GeneratorSpout(lambda: [["a", "b"], ["ok"]], outputs=["word"])
    bad, good = spout.read(Range(0, "generator-0", 0, 2))
    assert isinstance(bad, BadRecord)
    assert "expected a list of 1 value(s)" in bad.reason
    assert good == (1, ["ok"])


def test_a_list_that_a_generator_uses_again_for_each_item_gives_each_item_its_own_values() -> None:
    def one_list() -> Iterator[list[int]]:
        row = [0]
        for number in range(3):
            row[0] = number
            yield row

    spout = GeneratorSpout(one_list, outputs=["n"])
    spout.prepare(context(1))
    ((_, columns),) = spout.read_columns(Range(0, "generator-0", 0, 3))
    assert [list(column) for column in columns] == [[0, 1, 2]]


class Numbers(GeneratorSpout):
    def __init__(self) -> None:
        super().__init__(list, outputs=["n"])
        self._mine = 7


def test_attributes_of_a_subclass_are_sent_to_executors() -> None:
    assert pickle.loads(pickle.dumps(Numbers()))._mine == 7
