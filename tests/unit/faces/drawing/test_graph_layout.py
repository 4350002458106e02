"""The layout of graphs: boxes do not overlap, edges avoid boxes, and the same graph gives the same picture."""

from __future__ import annotations

from itertools import pairwise
from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.faces.drawing.graph_layout import Layout, Node, lay_out_graph

COLUMNS = st.lists(st.integers(1, 5), min_size=1, max_size=5)


def laid_out(sizes: list[int], seed: int, back: int = 0) -> Layout:
    """A graph with so many boxes in each column, and edges that some rule of the seed makes, also over columns.

    ``back`` edges lead from the last box to the first.
    """
    boxes = [Node(column, f"{column}.{row}", 100.0, 40.0) for column, count in enumerate(sizes) for row in range(count)]
    names = {box.name: box.column for box in boxes}
    ways = [
        (str(one), str(other), "shuffle")
        for one, before in names.items()
        for other, after in names.items()
        if before < after and crc32(f"{one} {other} {seed}".encode()) % 3 == 0
    ]
    ways += [(boxes[-1].name or "", boxes[0].name or "", "back")] * back
    return lay_out_graph(boxes, ways, left=10.0, top=20.0)


@given(COLUMNS, st.integers(0, 9))
def test_boxes_in_a_column_do_not_overlap(sizes: list[int], seed: int) -> None:
    layout = laid_out(sizes, seed)
    assert len(layout.boxes) == sum(sizes)
    assert min(node.y for column in layout.nodes for node in column) == 20.0
    for column in layout.nodes:
        for upper, lower in pairwise(column):
            assert upper.y + upper.height <= lower.y + 0.2  # coordinates are rounded
    for (left, width), right in zip(zip(layout.lefts, layout.widths, strict=True), layout.lefts[1:], strict=False):
        assert left + width < right


@given(COLUMNS, st.integers(0, 9))
def test_an_edge_visits_each_column_between_its_ends(sizes: list[int], seed: int) -> None:
    layout = laid_out(sizes, seed)
    for edge in layout.edges:
        columns = [node.column for node in edge.path]
        assert columns == list(range(columns[0], columns[-1] + 1))
        assert all(node.name is None for node in edge.path[1:-1])
        xs = [x for x, _ in layout.stops(edge)]
        assert xs == sorted(xs)


@given(COLUMNS, st.integers(0, 9))
def test_the_same_graph_gives_the_same_coordinates(sizes: list[int], seed: int) -> None:
    one, other = laid_out(sizes, seed), laid_out(sizes, seed)
    assert [layout.path(edge) for layout in (one,) for edge in layout.edges] == [
        other.path(edge) for edge in other.edges
    ]


@given(COLUMNS, st.integers(0, 9), st.integers(1, 3))
def test_edges_that_lead_back_run_below_all_boxes_and_not_on_each_other(
    sizes: list[int], seed: int, count: int
) -> None:
    forward, layout = laid_out(sizes, seed), laid_out(sizes, seed, back=count)
    lines = [edge.line for edge in layout.edges if edge.is_back]
    assert len(set(lines)) == count
    assert min(lines) > max(node.y + node.height for node in layout.boxes)
    assert layout.bottom == max(lines)
    assert [layout.path(edge) for edge in layout.edges if not edge.is_back] == [
        forward.path(edge) for edge in forward.edges
    ]
