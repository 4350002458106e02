"""Frames: what goes in comes out, in type, value and order."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.base.ids import edges_of, mix64_array, xor_by_root
from sparkbolt.wire.edges import Anchoring, EdgeOrigins
from sparkbolt.wire.frames import (
    Frame,
    Inbox,
    Moment,
    column_of,
    decode,
    encode,
    moment_of,
    python_values,
)

MOMENT = Moment(12, 1_700_000_000_000)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
)
VALUES = st.one_of(
    PLAIN, st.tuples(PLAIN, PLAIN), st.lists(PLAIN, max_size=3), st.dictionaries(st.text(), PLAIN, max_size=3)
)
COLUMNS = st.one_of(
    st.lists(st.text(), min_size=1, max_size=30),
    st.lists(st.integers(), min_size=1, max_size=30),
    st.lists(st.one_of(st.none(), st.text()), min_size=1, max_size=30),
    st.lists(VALUES, min_size=1, max_size=30),
)


def typed(values: Any) -> list[tuple[type, Any]]:
    """Values with their types, since 1 == 1.0 == True."""
    return [(type(value), value) for value in values]


@given(values=COLUMNS, dictionary=st.booleans())
def test_a_column_keeps_values_and_types(values: list[Any], dictionary: bool) -> None:
    frame = Frame(3, 1, 0, 7, len(values), [column_of(values, dictionary), list(range(len(values)))])
    back = decode(encode(frame, MOMENT))
    assert typed(python_values(back.columns[0])) == typed(values)
    assert list(python_values(back.columns[1])) == list(range(len(values)))
    assert (back.order, back.rows) == (frame.order, frame.rows)


@pytest.mark.parametrize(
    "value", ["\ud800", 1 << 70, (1, 2), {"a": [1]}, decimal.Decimal("1.10"), dt.date(2026, 1, 2), object]
)
def test_only_values_that_arrow_cannot_hold_exactly_are_pickled(value: Any) -> None:
    column = column_of([value, value])
    assert not isinstance(column, pa.Array)
    assert decode(encode(Frame(1, 0, 0, 0, 2, [column]), MOMENT)).columns[0] == [value, value]


@given(
    counts=st.lists(st.integers(0, 4), min_size=1, max_size=40),
    roots=st.integers(1, 5),
    single=st.booleans(),
)
def test_anchors_are_unchanged_after_a_round_trip(counts: list[int], roots: int, single: bool) -> None:
    counts = [1] * len(counts) if single else counts
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    edges = np.arange(offsets[-1], dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    anchoring = Anchoring(np.sort(edges % np.uint64(roots)), edges, None if single else offsets)
    attempts = np.arange(len(counts), dtype=np.uint8)
    values = [str(count) for count in counts]
    back = decode(encode(Frame(1, 2, 3, 4, len(counts), [column_of(values)], anchoring, attempts), MOMENT))
    assert back.anchoring is not None
    assert back.anchoring.roots.tolist() == anchoring.roots.tolist()
    assert back.anchoring.edges.tolist() == edges.tolist()
    assert (back.anchoring.offsets is None) == single
    assert back.attempts is not None
    assert back.attempts.tolist() == attempts.tolist()
    for row in range(len(counts)):
        assert back.roots_of(row) == anchoring.roots[offsets[row] : offsets[row + 1]].tolist()


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=40),
    rows=st.data(),
    ordinal=st.sampled_from([0, 255, 1 << 31]),
    counting=st.booleans(),
    of_roots=st.booleans(),
)
def test_edges_are_recomputed_from_their_inputs(
    counts: list[int], rows: st.DataObject, ordinal: int, counting: bool, of_roots: bool
) -> None:
    parents = mix64_array(np.arange(len(counts), dtype=np.uint64))
    roots = mix64_array(np.arange(len(counts), dtype=np.uint64) // np.uint64(2))
    ordinals = np.arange(sum(counts), dtype=np.uint64) + np.uint64(ordinal)
    salt, root_salt = 0xFEDCBA9876543210, 0x123456789ABCDEF0 if of_roots else None
    if root_salt is not None:
        parents = edges_of(roots, 0, root_salt)
    starts = np.cumsum(counts) - counts
    if counting:
        ordinals = np.concatenate([np.arange(count, dtype=np.uint64) for count in counts]) + np.uint64(ordinal)
    given = ordinal if counting else ordinals
    edge_origins = EdgeOrigins(roots, parents, starts, sum(counts), given, salt, root_salt)
    edges = edges_of(np.repeat(parents, counts), ordinals, edge_origins.salt)
    chosen = np.flatnonzero(rows.draw(st.lists(st.booleans(), min_size=len(edges), max_size=len(edges))))
    anchoring = Anchoring(None, edge_origins.edges(), None, edge_origins)
    frame = Frame(1, 2, 3, 4, len(edges), [list(range(len(edges)))], anchoring)
    frame = frame if len(chosen) == len(edges) else frame.take(chosen)
    back = decode(encode(frame, MOMENT))
    assert back.anchoring is not None
    assert back.anchoring.roots.tolist() == np.repeat(roots, counts)[chosen].tolist()
    assert back.anchoring.edges.tolist() == edges[chosen].tolist()
    expected = xor_by_root(np.repeat(roots, counts)[chosen], edges[chosen])
    for trees in (frame.anchoring.by_tree(), back.anchoring.by_tree()):
        assert [column.tolist() for column in trees] == [column.tolist() for column in expected]


def test_the_trees_of_ten_words_a_line_cost_a_quarter_of_a_byte_a_word() -> None:
    lines = mix64_array(np.arange(1000, dtype=np.uint64))
    edge_origins = EdgeOrigins(lines, edges_of(lines, 0, 9), np.arange(1000) * 10, 10_000, 0, 7, 9)
    words = column_of(["word"] * 10_000, dictionary=True)
    tracked = Frame(1, 0, 0, 0, 10_000, [words], Anchoring(None, edge_origins.edges(), None, edge_origins))
    untracked = Frame(1, 0, 0, 0, 10_000, [words])
    assert len(encode(tracked, MOMENT)) - len(encode(untracked, MOMENT)) < 2_500


@given(st.lists(st.integers(0, 40), min_size=1, max_size=20, unique=True), st.booleans())
def test_edges_that_derive_from_roots_are_not_sent(chosen: list[int], some: bool) -> None:
    roots = mix64_array(np.arange(41, dtype=np.uint64))
    edges = edges_of(roots, 0, 77)
    sent = Frame(1, 2, 3, 4, 41, [list(range(41))], Anchoring(roots, edges, root_salt=77))
    rows = np.array(chosen if some else range(41))
    back = decode(encode(sent.take(rows) if some else sent, MOMENT))
    assert back.anchoring is not None
    assert back.anchoring.roots.tolist() == roots[rows].tolist()
    assert back.anchoring.edges.tolist() == edges[rows].tolist()
    plain = Frame(1, 2, 3, 4, 41, [list(range(41))], Anchoring(roots, edges))
    assert len(encode(plain, MOMENT)) - len(encode(sent, MOMENT)) > 7 * 41


def test_every_row_shows_its_time() -> None:
    assert moment_of(encode(Frame(1, 0, 0, 0, 1, [["a"]]), MOMENT)) == MOMENT


@given(st.permutations(range(12)))
def test_arrival_order_of_frames_has_no_effect(arrival: list[int]) -> None:
    frames = [Frame(i % 2, i % 3, i // 6, i, 1, [[i]]) for i in range(12)]
    ordered = Inbox([frames[i] for i in arrival]).in_order()
    assert [frame.order for frame in ordered] == sorted(frame.order for frame in frames)


def small(sequence: int, texts: list[str], trees: str, attempts: int | None = None) -> Frame:
    rows = len(texts)
    roots = mix64_array(np.arange(1000 * sequence, 1000 * sequence + 2 * rows, dtype=np.uint64))
    edges = mix64_array(roots)
    if trees == "none":
        anchoring = None
    elif trees == "one each":
        anchoring = Anchoring(roots[:rows], edges_of(roots[:rows], 0, 77), root_salt=77)
    elif trees == "some":
        anchoring = Anchoring(roots[:rows], edges[:rows], np.minimum(np.arange(rows + 1), rows))
    else:
        origins = EdgeOrigins(roots[:1], edges[:1], np.zeros(1, dtype=np.intp), rows, 0, 5)
        anchoring = Anchoring(None, origins.edges(), None, origins)
    marks = None if attempts is None else np.full(rows, attempts, dtype=np.uint8)
    numbers = pa.array([sequence * 10 + row for row in range(rows)], type=pa.int64())
    return Frame(1, 0, sequence % 2, sequence, rows, [column_of(texts, True), numbers], anchoring, marks, ((1, 0),))


def rows_of(frame: Frame) -> list[tuple[Any, ...]]:
    """Each row: its values, its attempt, its roots, and the XOR of its edges."""
    marks = [None] * frame.rows if frame.attempts is None else frame.attempts.tolist()
    one_by_one = [frame.take(np.array([row])).anchoring for row in range(frame.rows)]
    edges = [None if one is None else int(np.bitwise_xor.reduce(one.edges)) for one in one_by_one]
    values = zip(*map(python_values, frame.columns), strict=True)
    return list(zip(values, marks, map(frame.roots_of, range(frame.rows)), edges, strict=True))


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(["to", "be", "or"]), min_size=1, max_size=4),
            st.sampled_from(["none", "one each", "some", "derived"]),
            st.sampled_from([None, None, 1, 2]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_joined_frames_have_the_same_rows_trees_and_attempts(
    kinds: list[tuple[list[str], str, int | None]],
) -> None:
    frames = [small(i, *kind) for i, kind in enumerate(kinds)]
    together = Inbox([decode(encode(frame, MOMENT)) for frame in frames]).in_order()
    expected = [row for frame in sorted(frames, key=lambda frame: frame.order) for row in rows_of(frame)]
    assert [row for frame in together for row in rows_of(frame)] == expected
    tracked = {trees != "none" for _, trees, _ in kinds}
    marked = {attempts is not None for _, _, attempts in kinds}
    if len(tracked) == len(marked) == 1:
        assert len(together) == 1
    for frame in together:
        back = decode(encode(frame, MOMENT))
        assert rows_of(back) == rows_of(frame)
