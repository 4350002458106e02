"""Graph layout: the coordinates of the boxes and edges of a directed graph in a picture.

An edge that skips columns gets its own place in each of them, so that no edge runs through a box (the layers of
Sugiyama, Tagawa and Toda, 1981). An edge that leads back, as that of a loop, runs below all boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

ROW_GAP = 26.0
LANE = 24.0
"""The height of an edge's place in a column that it only passes."""
LABEL_STEP = 22.0
BACK_GAP = 30.0
"""How far below the boxes the first edge runs that leads back."""
BACK_BEND = 18.0
"""The distance from a box to the control points of the bend of such an edge."""
GAP_MIN = 84.0
SMALL_EM = 6.7
"""The width of a character of a label, in pixels; rounded up, so that text fits."""
SWEEPS = 8


@dataclass
class Node:
    """A place in a column: a box, or an edge that passes by."""

    column: int
    name: str | None
    """Which box it is; None for an edge that passes."""
    width: float = 40.0
    height: float = LANE
    y: float = 0.0
    """The upper edge."""
    befores: list[Node] = field(default_factory=list)
    afters: list[Node] = field(default_factory=list)

    @property
    def middle(self) -> float:
        """The y coordinate where edges meet it."""
        return self.y + self.height / 2


@dataclass
class Edge:
    """One connection, as the nodes it runs through."""

    label: str
    path: list[Node]
    line: float = 0.0
    """The height of the straight piece that carries the label."""

    @property
    def is_back(self) -> bool:
        """Whether it leads to the same column or an earlier one; then its path has only its two boxes."""
        return self.path[-1].column <= self.path[0].column

    @property
    def gap(self) -> int:
        """The gap in which it has its label: its last one; a gap has the number of the column before it."""
        return self.path[-2].column

    @property
    def ends(self) -> tuple[str, str]:
        """The names of the boxes that it connects."""
        return self.path[0].name or "", self.path[-1].name or ""


@dataclass
class Layout:
    """The positions of all nodes and edges; columns from left to right, each from top to bottom."""

    nodes: list[list[Node]]
    edges: list[Edge]
    lefts: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)

    @property
    def boxes(self) -> list[Node]:
        """All boxes, without the places of edges that pass."""
        return [node for column in self.nodes for node in column if node.name is not None]

    @property
    def bottom(self) -> float:
        """The lowest y coordinate of a box or a label."""
        boxes = max(node.y + node.height for column in self.nodes for node in column)
        return max(boxes, max((edge.line for edge in self.edges), default=0.0))

    def label_place(self, edge: Edge) -> float:
        """The x coordinate of the middle of an edge's label."""
        if edge.is_back:
            start = edge.path[0].column
            return (self.lefts[start] + self.widths[start] + self.lefts[edge.path[-1].column]) / 2
        number = edge.gap
        return (self.lefts[number] + self.widths[number] + self.lefts[number + 1]) / 2

    def path(self, edge: Edge) -> str:
        """The edge as the ``d`` of an SVG path; it ends 7 pixels before its box, where the tip begins."""
        points = self.stops(edge)
        if edge.is_back:
            (x0, y0), (x1, y1) = points
            right, left = x0 + BACK_BEND, x1 - BACK_BEND
            return (
                f"M{x0:.1f},{y0:.1f} C{right:.1f},{y0:.1f} {right:.1f},{edge.line:.1f} {x0:.1f},{edge.line:.1f} "
                f"L{x1:.1f},{edge.line:.1f} C{left:.1f},{edge.line:.1f} {left:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"
            )
        d = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
        for (x0, y0), (x1, y1) in pairwise(points):
            if y0 == y1:
                d += f" L{x1:.1f},{y1:.1f}"
            else:
                bend = (x0 + x1) / 2
                d += f" C{bend:.1f},{y0:.1f} {bend:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"
        return d

    def stops(self, edge: Edge) -> list[tuple[float, float]]:
        """The points that an edge runs through; between them it bends."""
        points = []
        if edge.is_back:
            start, end = edge.path
            right = self.lefts[start.column] + self.widths[start.column]
            return [(right, start.y + 0.75 * start.height), (self.lefts[end.column] - 7, end.y + 0.75 * end.height)]
        for node in edge.path[:-1]:
            right = self.lefts[node.column] + self.widths[node.column]
            if node.name is None:
                points.append((self.lefts[node.column], node.middle))
            points.append((right, node.middle))
        end = edge.path[-1]
        middle, half = self.label_place(edge), len(edge.label) * SMALL_EM / 2 + 4
        points += [(middle - half, edge.line), (middle + half, edge.line)]
        return [*points, (self.lefts[end.column] - 7, end.middle)]


def lay_out_graph(
    boxes: Sequence[Node],
    connections: Sequence[tuple[str, str, str]],
    *,
    left: float,
    top: float,
    after: Sequence[float] = (),
) -> Layout:
    """Place boxes and edges.

    Args:
        boxes: each with its column, name, width and height; columns begin at 0.
        connections: (name of the box where it starts, name of the box where it ends, label).
        left: the x coordinate of the first column, in pixels.
        top: the y coordinate of the highest box.
        after: by column, additional pixels after it.
    """
    nodes: list[list[Node]] = [[] for _ in range(max(box.column for box in boxes) + 1)]
    by_name = {}
    for box in boxes:
        nodes[box.column].append(box)
        by_name[box.name] = box
    edges = []
    for start_name, end_name, label in connections:
        start, end = by_name[start_name], by_name[end_name]
        passing = [Node(column, None) for column in range(start.column + 1, end.column)]
        for node in passing:
            nodes[node.column].append(node)
        path = [start, *passing, end]
        for one, other in pairwise(path) if start.column < end.column else ():
            one.afters.append(other)
            other.befores.append(one)
        edges.append(Edge(label, path))
    layout = Layout(nodes, edges)
    _order(layout)
    _place(layout, left, top, after)
    return layout


def _order(layout: Layout) -> None:
    """Order each column by the mean place of its neighbours, in several sweeps; keep the one with fewest crossings."""
    best, fewest = [list(column) for column in layout.nodes], _crossings(layout.nodes)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in layout.nodes if forward else layout.nodes[::-1]:
            places = {id(node): place for other in layout.nodes for place, node in enumerate(other)}
            means = {}
            for node in column:
                near = node.befores if forward else node.afters
                own = places[id(node)]
                means[id(node)] = sum(places[id(other)] for other in near) / len(near) if near else float(own)
            column.sort(key=lambda node: means[id(node)])
        crossings = _crossings(layout.nodes)
        if crossings < fewest:
            best, fewest = [list(column) for column in layout.nodes], crossings
    layout.nodes = best


def _crossings(columns: list[list[Node]]) -> int:
    places = {id(node): place for column in columns for place, node in enumerate(column)}
    count = 0
    for column in columns:
        pairs = [(places[id(node)], places[id(after)]) for node in column for after in node.afters]
        count += sum((a - c) * (b - d) < 0 for place, (a, b) in enumerate(pairs) for c, d in pairs[place + 1 :])
    return count


def _place(layout: Layout, left: float, top: float, after: Sequence[float]) -> None:
    for column in layout.nodes:
        y = top
        for node in column:
            node.y = y
            y += node.height + ROW_GAP
    for _ in range(SWEEPS):
        for column in layout.nodes:
            _settle(column, top, [node.befores for node in column])
        for column in layout.nodes[::-1]:
            _settle(column, top, [node.afters for node in column])
    highest = min(node.y for column in layout.nodes for node in column)
    for column in layout.nodes:
        for node in column:
            node.y = round(node.y - highest + top, 1)
    _give_lines(layout)
    x = left
    for number, column in enumerate(layout.nodes):
        width = max((node.width for node in column if node.name is not None), default=40.0)
        layout.lefts.append(x)
        layout.widths.append(width)
        forward = (edge for edge in layout.edges if not edge.is_back)
        longest = max((len(edge.label) for edge in forward if edge.gap == number), default=0)
        more = after[number] if number < len(after) else 0.0
        x += width + max(GAP_MIN, longest * SMALL_EM + 64) + more


def _settle(column: list[Node], top: float, neighbours: list[list[Node]]) -> None:
    """Move the nodes of a column towards their neighbours, but keep their order and minimum distances."""
    wanted = []
    for node, near in zip(column, neighbours, strict=True):
        middle = sum(other.middle for other in near) / len(near) if near else node.middle
        wanted.append(middle - node.height / 2)
    downwards, y = [], top - 10_000
    for node, want in zip(column, wanted, strict=True):
        y = max(y, want)
        downwards.append(y)
        y += node.height + ROW_GAP
    upwards, y = [], float("inf")
    for node, want in zip(column[::-1], wanted[::-1], strict=True):
        y = min(y - node.height - ROW_GAP, want)
        upwards.append(y)
    for node, low, high in zip(column, downwards, upwards[::-1], strict=True):
        node.y = (low + high) / 2


def _give_lines(layout: Layout) -> None:
    """Set the heights of the labels in each gap so that they do not overlap."""
    for number in range(len(layout.nodes) - 1):
        labelled = [edge for edge in layout.edges if not edge.is_back and edge.gap == number]
        wanted = {id(edge): (edge.path[-2].middle + edge.path[-1].middle) / 2 for edge in labelled}
        labelled.sort(key=lambda edge: (wanted[id(edge)], edge.path[-2].middle))
        ys: list[float] = []
        for edge in labelled:
            ys.append(max(wanted[id(edge)], ys[-1] + LABEL_STEP) if ys else wanted[id(edge)])
        shift = sum(y - wanted[id(edge)] for edge, y in zip(labelled, ys, strict=True)) / max(1, len(ys))
        for edge, y in zip(labelled, ys, strict=True):
            edge.line = round(y - shift, 1)
    below = layout.bottom + BACK_GAP
    for place, edge in enumerate(edge for edge in layout.edges if edge.is_back):
        edge.line = round(below + place * LABEL_STEP, 1)
