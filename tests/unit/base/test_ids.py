"""Ids of many tuples at once are those of single ones, with the kernels and without."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fast import fast
from sparkbolt.api.groupings import Delivery, Emitted, Grouping
from sparkbolt.base.ids import (
    edge_of,
    edges_of,
    edges_of_runs,
    mix64,
    mix64_array,
    unmix64_array,
    xor_of_runs,
)
from sparkbolt.wire.edges import Anchoring, Parents
from sparkbolt.worker.routing import EmittedRows, Route, RoutedRows, StreamRoutes, route
from tests.native import needs_kernels

ANY64 = st.integers(0, (1 << 64) - 1)


@pytest.fixture(scope="module", autouse=True, params=[False, pytest.param(True, marks=needs_kernels)])
def compiled(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Every test here is one of both."""
    with fast(request.param):
        yield request.param


@pytest.mark.parametrize("length", [0, 1, 16_384, 16_385, 40_000])
def test_long_arrays_are_mixed_as_single_numbers_are(length: int) -> None:
    numbers = np.arange(length, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    before = numbers.copy()
    mixed = mix64_array(numbers)
    assert mixed.tolist() == [mix64(number) for number in numbers.tolist()]
    assert unmix64_array(mixed).tolist() == numbers.tolist() == before.tolist()


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_edges_do_not_depend_on_how_wide_ordinals_are(kind: type) -> None:
    parents = mix64_array(np.arange(20_000, dtype=np.uint64))
    ordinals = (np.arange(20_000) % 200).astype(kind)
    expected = [edge_of(*pair, 99) for pair in zip(parents.tolist(), ordinals.tolist(), strict=True)]
    assert edges_of(parents, ordinals, 99).tolist() == expected


@given(st.lists(st.tuples(ANY64, st.integers(1, 9000)), max_size=5), st.integers(0, (1 << 32) - 1), ANY64)
def test_edges_of_runs_equal_those_of_single_deliveries(runs: list[tuple[int, int]], first: int, salt: int) -> None:
    lengths = [length for _, length in runs]
    parents, starts = np.array([parent for parent, _ in runs], np.uint64), np.cumsum([0, *lengths])[:-1]
    edges = edges_of_runs(parents, starts, sum(lengths), first, salt)
    ends = [(parent, ordinal) for parent, length in runs for ordinal in (first, first + length - 1)]
    places = [
        place for start, length in zip(starts.tolist(), lengths, strict=True) for place in (start, start + length - 1)
    ]
    assert edges[places].tolist() == [edge_of(parent, ordinal, salt) for parent, ordinal in ends]
    ordinals = np.concatenate([np.arange(first, first + length, dtype=np.uint64) for length in [0, *lengths]])
    assert edges.tolist() == edges_of(parents.repeat(lengths), ordinals, salt).tolist()


def test_arrays_that_are_parts_of_others_have_the_same_ids() -> None:
    every = np.arange(40, dtype=np.uint64)
    starts = np.arange(20)
    assert edges_of_runs(every[::2], starts, 20, 0, 5).tolist() == [edge_of(parent, 0, 5) for parent in range(0, 40, 2)]
    assert xor_of_runs(every[::2], starts).tolist() == list(range(0, 40, 2))


@given(st.lists(st.lists(ANY64, min_size=1, max_size=4), max_size=8))
def test_each_run_has_its_own_xor(runs: list[list[int]]) -> None:
    starts = np.cumsum([0, *map(len, runs)])[:-1]
    whole = np.array([number for run in runs for number in run], dtype=np.uint64)
    assert xor_of_runs(whole, starts).tolist() == [np.bitwise_xor.reduce(np.array(run, np.uint64)) for run in runs]


class Chosen(Grouping):
    """Any rows, in any order, to task 7; all rows to task 8."""

    def __init__(self, rows: list[int]) -> None:
        self.rows = rows

    def choose_tasks(self, sender_task: int, values: list[object]) -> list[int]:
        raise NotImplementedError

    def deliveries(self, emitted: Emitted, targets: object) -> list[Delivery]:
        return [Delivery(0, 0, np.array(self.rows, dtype=np.intp)), Delivery(1, 1, None)]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12).map(sorted), st.sampled_from([0, 3]), st.data())
def test_continuous_ordinals_within_a_task_give_each_delivery_its_own_edge(
    of: list[int], first: int, data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(of) - 1), unique=True))
    roots = mix64_array(np.arange(6, dtype=np.uint64) // np.uint64(2))
    edges = mix64_array(np.arange(6, dtype=np.uint64) + np.uint64(100))
    anchors = np.array(of)
    stream = StreamRoutes("a", "default", 0, ("n",), False, (Route(0, "b", (7, 8), Chosen(rows), False),), frozenset())
    routed: list[RoutedRows] = []
    for base in (0, 20):  # a parent may emit in several blocks
        parents = Parents(roots, edges, first + base, None, anchors)
        sent_now, account = route(EmittedRows(stream, [list(range(len(of)))], len(of), 0, parents), 1, 5)
        assert account is not None
        routed += sent_now
        for sent in sent_now:
            assert sent.anchoring is not None
            for root, edge in zip(sent.anchoring.roots.tolist(), sent.anchoring.edges.tolist(), strict=True):
                place = int(np.flatnonzero(roots == root)[0])
                account[place] ^= np.uint64(edge)
        trees = Anchoring(roots, account).by_tree()
        assert not trees[1].any()
    given_out = [edge for sent in routed for edge in sent.anchoring.edges.tolist()]
    assert len(set(given_out)) == len(given_out) == 2 * (len(rows) + len(of))
    assert [p.anchoring.roots.tolist() for p in routed[:2]] == [
        roots[anchors[chosen]].tolist() for chosen in (rows, list(range(len(of))))
    ]
