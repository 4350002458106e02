"""SVG: draws a topology as a picture, for a document.

Which question it answers: how do tuples flow through the topology?
Rule 1: the same topology gives the same bytes.
Rule 2: the picture is legible on a light and on a dark background: boxes are filled with a light tint only, and text
follows the preferred colour scheme.

Components stand in columns, by stage and, inside a stage, by the depth of their fusion. An edge that skips columns gets
its own place in each of them, so that no edge runs through a box (the layers of Sugiyama, Tagawa and Toda, 1981).
Before its end each edge has its own straight piece, which carries its label.

Read before: ``stages``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from xml.sax.saxutils import escape

from sparkbolt.core.model.lane import Lane
from sparkbolt.core.model.topology import ComponentSpec, Topology
from sparkbolt.drawing.stages import TIMES, StageView, drawn_lane, label_of, stage_level, stages_of

MARGIN = 24.0
TITLE = 40.0
FRAME_HEAD = 30.0
FRAME_PAD = 16.0
BOX = 58.0
ROW_GAP = 26.0
LANE = 24.0
"""The height of an edge's place in a column that it only passes."""
LABEL_STEP = 22.0
GAP_MIN = 84.0
NAME_EM, SMALL_EM = 9.4, 6.7
"""The width of a character of a name, and of smaller text, in pixels; rounded up, so that text fits."""
SWEEPS = 8

STYLE = """\
  svg { color: #1f2937; font-family: ui-sans-serif, system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
  text { fill: currentColor; }
  .title { font-size: 17px; font-weight: 600; }
  .name { font-size: 14px; font-weight: 600; }
  .class { font-size: 11.5px; fill-opacity: .62; }
  .label { font-size: 11.5px; fill-opacity: .78; text-anchor: middle; }
  .head { font-size: 11.5px; fill-opacity: .62; letter-spacing: .02em; }
  .badge { font-size: 11px; font-weight: 600; text-anchor: middle; }
  .frame { fill: #8b95a5; fill-opacity: .07; stroke: #8b95a5; stroke-opacity: .45; }
  .stateful { fill: #d99a2b; fill-opacity: .07; stroke: #d99a2b; stroke-opacity: .6; }
  .spout { fill: #0f9f8f; fill-opacity: .15; stroke: #0f9f8f; stroke-width: 1.5; }
  .bolt { fill: #5b7cfa; fill-opacity: .13; stroke: #5b7cfa; stroke-width: 1.5; }
  .spout-mark { fill: #0f9f8f; }
  .bolt-mark { fill: #5b7cfa; }
  .edge { fill: none; stroke: #8b95a5; stroke-width: 1.5; }
  .tip { fill: #8b95a5; }
"""
DARK_STYLE = "  @media (prefers-color-scheme: dark) { svg { color: #e5e7eb; } }\n"
DROP = "M0,-8.5 C3.5,-3.8 5.6,-1.4 5.6,1.8 A5.6,5.6 0 1 1 -5.6,1.8 C-5.6,-1.4 -3.5,-3.8 0,-8.5 Z"
FLASH = "M2.2,-9 L-5.4,1.6 L-0.6,1.6 L-2.2,9 L5.4,-1.8 L0.6,-1.8 Z"


@dataclass
class Node:
    """A place in a column: a component, or an edge that passes by."""

    column: int
    spec: ComponentSpec | None
    y: float = 0.0
    """The upper edge."""
    befores: list[Node] = field(default_factory=list)
    afters: list[Node] = field(default_factory=list)

    @property
    def height(self) -> float:
        """Its height in the column, in pixels."""
        return BOX if self.spec is not None else LANE

    @property
    def middle(self) -> float:
        """The y coordinate where edges meet it."""
        return self.y + self.height / 2


@dataclass
class Edge:
    """One subscription, as the nodes it runs through."""

    label: str
    path: list[Node]
    line: float = 0.0
    """The height of the straight piece that carries the label."""


@dataclass
class Picture:
    """The layout: the positions of all nodes and edges."""

    lane: Lane
    nodes: list[list[Node]]
    """By column, from top to bottom."""
    edges: list[Edge]
    stage_columns: dict[int, tuple[int, int]]
    """The first and the last column of each level."""
    lefts: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)


def svg_drawing(topology: Topology, *, on_white: bool = False) -> str:
    """The picture, as the text of an SVG file.

    Args:
        topology: the topology.
        on_white: whether it will stand on white, whatever colours are preferred, as in a notebook with a theme.
    """
    picture = _columns(drawn_lane(topology))
    _order(picture)
    _place(picture)
    return _draw(picture, STYLE if on_white else STYLE + DARK_STYLE)


# Columns, edges, order.


def _columns(lane: Lane) -> Picture:
    depth: dict[str, int] = {}
    for id_ in lane.topology.components:
        at, count = id_, 0
        while at in lane.fused_into:
            at, count = lane.fused_into[at], count + 1
        depth[id_] = count
    stage_columns: dict[int, tuple[int, int]] = {}
    first = 0
    for stage in stages_of(lane):
        last = first + max(depth[id_] for id_ in stage.components)
        stage_columns[stage.level] = (first, last)
        first = last + 1
    nodes: list[list[Node]] = [[] for _ in range(first)]
    boxes: dict[str, Node] = {}
    for spec in lane.topology.components.values():
        column = stage_columns[stage_level(lane, spec.id)][0] + depth[spec.id]
        boxes[spec.id] = Node(column, spec)
        nodes[column].append(boxes[spec.id])
    edges = []
    for spec in lane.topology.bolts:
        for subscription in spec.subscriptions:
            start, end = boxes[subscription.source], boxes[spec.id]
            passing = [Node(column, None) for column in range(start.column + 1, end.column)]
            for node in passing:
                nodes[node.column].append(node)
            path = [start, *passing, end]
            for before, after in pairwise(path):
                before.afters.append(after)
                after.befores.append(before)
            edges.append(Edge(label_of(subscription.stream, subscription.grouping), path))
    return Picture(lane, nodes, edges, stage_columns)


def _order(picture: Picture) -> None:
    """Order each column by the mean place of its neighbours, in several sweeps; keep the one with fewest crossings."""
    best, fewest = [list(column) for column in picture.nodes], _crossings(picture.nodes)
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        for column in picture.nodes if forward else picture.nodes[::-1]:
            places = {id(node): place for other in picture.nodes for place, node in enumerate(other)}
            means = {}
            for node in column:
                near = node.befores if forward else node.afters
                own = places[id(node)]
                means[id(node)] = sum(places[id(other)] for other in near) / len(near) if near else float(own)
            column.sort(key=lambda node: means[id(node)])
        crossings = _crossings(picture.nodes)
        if crossings < fewest:
            best, fewest = [list(column) for column in picture.nodes], crossings
    picture.nodes = best


def _crossings(columns: list[list[Node]]) -> int:
    places = {id(node): place for column in columns for place, node in enumerate(column)}
    count = 0
    for column in columns:
        pairs = [(places[id(node)], places[id(after)]) for node in column for after in node.afters]
        count += sum((a - c) * (b - d) < 0 for place, (a, b) in enumerate(pairs) for c, d in pairs[place + 1 :])
    return count


# Coordinates.


def _place(picture: Picture) -> None:
    top = MARGIN + TITLE + FRAME_HEAD + FRAME_PAD
    for column in picture.nodes:
        y = top
        for node in column:
            node.y = y
            y += node.height + ROW_GAP
    for _ in range(SWEEPS):
        for column in picture.nodes:
            _settle(column, top, [node.befores for node in column])
        for column in picture.nodes[::-1]:
            _settle(column, top, [node.afters for node in column])
    highest = min(node.y for column in picture.nodes for node in column)
    for column in picture.nodes:
        for node in column:
            node.y = round(node.y - highest + top, 1)
    _give_lines(picture)
    x = MARGIN + FRAME_PAD
    ends = {last for _, last in picture.stage_columns.values()}
    for number, column in enumerate(picture.nodes):
        width = max((_box_width(node.spec) for node in column if node.spec is not None), default=40.0)
        picture.lefts.append(x)
        picture.widths.append(width)
        longest = max((len(edge.label) for edge in picture.edges if _labelled_gap(edge) == number), default=0)
        gap = max(GAP_MIN, longest * SMALL_EM + 64)
        x += width + gap + (2 * FRAME_PAD if number in ends else 0)


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


def _labelled_gap(edge: Edge) -> int:
    """The gap in which an edge has its label: its last one; a gap has the number of the column before it."""
    return edge.path[-2].column


def _give_lines(picture: Picture) -> None:
    """Set the heights of the labels in each gap so that they do not overlap."""
    for number in range(len(picture.nodes) - 1):
        labelled = [edge for edge in picture.edges if _labelled_gap(edge) == number]
        wanted = {id(edge): (edge.path[-2].middle + edge.path[-1].middle) / 2 for edge in labelled}
        labelled.sort(key=lambda edge: (wanted[id(edge)], edge.path[-2].middle))
        ys: list[float] = []
        for edge in labelled:
            ys.append(max(wanted[id(edge)], ys[-1] + LABEL_STEP) if ys else wanted[id(edge)])
        shift = sum(y - wanted[id(edge)] for edge, y in zip(labelled, ys, strict=True)) / max(1, len(ys))
        for edge, y in zip(labelled, ys, strict=True):
            edge.line = round(y - shift, 1)


def _box_width(spec: ComponentSpec) -> float:
    name = len(spec.id) * NAME_EM + 50
    below = len(type(spec.component).__name__) * SMALL_EM + 46
    badge = len(f"{TIMES}{spec.parallelism}") * SMALL_EM + 16
    return float(max(112.0, name + badge, below + 12))


# Drawing.


def _draw(picture: Picture, style: str) -> str:
    boxes = [node for column in picture.nodes for node in column]
    bottom = max(max(node.y + node.height for node in boxes), max((edge.line for edge in picture.edges), default=0.0))
    width = picture.lefts[-1] + picture.widths[-1] + FRAME_PAD + MARGIN
    height = bottom + FRAME_PAD + MARGIN
    name = escape(picture.lane.topology.name)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="Topology {escape(name, {chr(34): "&quot;"})}">',
        f"<style>\n{style}</style>",
        f'<text class="title" x="{MARGIN}" y="{MARGIN + 16}">{name}</text>',
    ]
    parts += [_frame(picture, stage, bottom) for stage in stages_of(picture.lane)]
    parts += [_edge(picture, edge) for edge in picture.edges]
    parts += [_label(picture, edge) for edge in picture.edges]
    parts += [_box(picture, node) for node in boxes if node.spec is not None]
    return "\n".join([*parts, "</svg>\n"])


def _frame(picture: Picture, stage: StageView, bottom: float) -> str:
    first, last = picture.stage_columns[stage.level]
    left = picture.lefts[first] - FRAME_PAD
    right = picture.lefts[last] + picture.widths[last] + FRAME_PAD
    top = MARGIN + TITLE
    kind = "frame stateful" if stage.stateful else "frame"
    head = stage.name + (" · keeps state" if stage.stateful else "")
    return (
        f'<rect class="{kind}" x="{left:.1f}" y="{top}" width="{right - left:.1f}" '
        f'height="{bottom + FRAME_PAD - top:.1f}" rx="14"/>\n'
        f'<text class="head" x="{left + FRAME_PAD:.1f}" y="{top + 21}">{head}</text>'
    )


def _stops(picture: Picture, edge: Edge) -> list[tuple[float, float]]:
    """The points that an edge runs through; between them it bends."""
    points = []
    for node in edge.path[:-1]:
        right = picture.lefts[node.column] + picture.widths[node.column]
        if node.spec is None:
            points.append((picture.lefts[node.column], node.middle))
        points.append((right, node.middle))
    end = edge.path[-1]
    middle, half = _label_place(picture, edge), len(edge.label) * SMALL_EM / 2 + 4
    points += [(middle - half, edge.line), (middle + half, edge.line)]
    return [*points, (picture.lefts[end.column] - 7, end.middle)]


def _label_place(picture: Picture, edge: Edge) -> float:
    number = _labelled_gap(edge)
    return (picture.lefts[number] + picture.widths[number] + picture.lefts[number + 1]) / 2


def _edge(picture: Picture, edge: Edge) -> str:
    points = _stops(picture, edge)
    d = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in pairwise(points):
        if y0 == y1:
            d += f" L{x1:.1f},{y1:.1f}"
        else:
            bend = (x0 + x1) / 2
            d += f" C{bend:.1f},{y0:.1f} {bend:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"
    x, y = points[-1]
    tip = f'<path class="tip" d="M{x + 7:.1f},{y:.1f} l-9,-4.5 l0,9 Z"/>'
    return f'<path class="edge" d="{d}"/>\n{tip}'


def _label(picture: Picture, edge: Edge) -> str:
    x = _label_place(picture, edge)
    return f'<text class="label" x="{x:.1f}" y="{edge.line - 5:.1f}">{escape(edge.label)}</text>'


def _box(picture: Picture, node: Node) -> str:
    spec = node.spec
    assert spec is not None
    x, y, width = picture.lefts[node.column], node.y, picture.widths[node.column]
    kind, mark = ("spout", DROP) if spec.is_spout else ("bolt", FLASH)
    badge = f"{TIMES}{spec.parallelism}"
    return "\n".join(
        (
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BOX}" '
            f'rx="{BOX / 2 if spec.is_spout else 10}"/>',
            f'<path class="{kind}-mark" transform="translate({x + 23:.1f},{y + BOX / 2:.1f})" d="{mark}"/>',
            f'<text class="name" x="{x + 40:.1f}" y="{y + 26:.1f}">{escape(spec.id)}</text>',
            f'<text class="class" x="{x + 40:.1f}" y="{y + 43:.1f}">{escape(type(spec.component).__name__)}</text>',
            f'<text class="badge" x="{x + width - 22:.1f}" y="{y + 25:.1f}">{badge}</text>',
        )
    )
