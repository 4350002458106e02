"""SVG: draws a topology as a picture that is legible on a light and on a dark background.

Components are in columns, by stage and, inside a stage, by the depth of their fusion; ``graph_layout`` does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape

from sparkbolt.api.topology import ComponentSpec, Topology
from sparkbolt.faces.drawing.graph_layout import SMALL_EM, Edge, Layout, Node, lay_out_graph
from sparkbolt.faces.drawing.stages import TIMES, StageView, drawn_lane, label_of, stages_of
from sparkbolt.layout.lane import Lane

MARGIN = 24.0
TITLE = 40.0
FRAME_HEAD = 30.0
FRAME_PAD = 16.0
BOX = 58.0
NAME_EM = 9.4
"""The width of a character of a name, in pixels; rounded up, so that text fits."""

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
class Picture:
    """A topology with the layout of its components."""

    lane: Lane
    layout: Layout
    stage_columns: dict[int, tuple[int, int]]
    """The first and the last column of each level."""

    def spec(self, node: Node) -> ComponentSpec:
        """The component of a box."""
        return self.lane.topology.components[node.name or ""]


def svg_drawing(topology: Topology, *, on_white: bool = False) -> str:
    """The picture, as the text of an SVG file.

    Args:
        topology: the topology.
        on_white: whether its background is white, whatever colours the reader prefers, as in a notebook with a theme.
    """
    return _draw(_picture(drawn_lane(topology)), STYLE if on_white else STYLE + DARK_STYLE)


def _picture(lane: Lane) -> Picture:
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
    boxes = [
        Node(stage_columns[lane.stage_of(spec.id)][0] + depth[spec.id], spec.id, _box_width(spec), BOX)
        for spec in lane.topology.components.values()
    ]
    connections = [
        (subscription.source, spec.id, label_of(subscription))
        for spec in lane.topology.bolts
        for subscription in spec.subscriptions
    ]
    ends = {last for _, last in stage_columns.values()}
    top = MARGIN + TITLE + FRAME_HEAD + FRAME_PAD
    after = [2 * FRAME_PAD if column in ends else 0.0 for column in range(first)]
    layout = lay_out_graph(boxes, connections, left=MARGIN + FRAME_PAD, top=top, after=after)
    return Picture(lane, layout, stage_columns)


def _box_width(spec: ComponentSpec) -> float:
    name = len(spec.id) * NAME_EM + 50
    below = len(type(spec.component).__name__) * SMALL_EM + 46
    badge = len(f"{TIMES}{spec.parallelism}") * SMALL_EM + 16
    return float(max(112.0, name + badge, below + 12))


def _draw(picture: Picture, style: str) -> str:
    layout = picture.layout
    bottom = layout.bottom
    width = layout.lefts[-1] + layout.widths[-1] + FRAME_PAD + MARGIN
    height = bottom + FRAME_PAD + MARGIN
    name = escape(picture.lane.topology.name)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="Topology {escape(name, {chr(34): "&quot;"})}">',
        f"<style>\n{style}</style>",
        f'<text class="title" x="{MARGIN}" y="{MARGIN + 16}">{name}</text>',
    ]
    parts += [_frame(picture, stage, bottom) for stage in stages_of(picture.lane)]
    parts += [_edge(layout, edge) for edge in layout.edges]
    parts += [_label(layout, edge) for edge in layout.edges]
    parts += [_box(layout, node, picture.spec(node)) for node in layout.boxes]
    return "\n".join([*parts, "</svg>\n"])


def _frame(picture: Picture, stage: StageView, bottom: float) -> str:
    first, last = picture.stage_columns[stage.level]
    left = picture.layout.lefts[first] - FRAME_PAD
    right = picture.layout.lefts[last] + picture.layout.widths[last] + FRAME_PAD
    top = MARGIN + TITLE
    kind = "frame stateful" if stage.stateful else "frame"
    head = stage.name + (" · keeps state" if stage.stateful else "")
    return (
        f'<rect class="{kind}" x="{left:.1f}" y="{top}" width="{right - left:.1f}" '
        f'height="{bottom + FRAME_PAD - top:.1f}" rx="14"/>\n'
        f'<text class="head" x="{left + FRAME_PAD:.1f}" y="{top + 21}">{head}</text>'
    )


def _edge(layout: Layout, edge: Edge) -> str:
    x, y = layout.stops(edge)[-1]
    tip = f'<path class="tip" d="M{x + 7:.1f},{y:.1f} l-9,-4.5 l0,9 Z"/>'
    return f'<path class="edge" d="{layout.path(edge)}"/>\n{tip}'


def _label(layout: Layout, edge: Edge) -> str:
    x = layout.label_place(edge)
    return f'<text class="label" x="{x:.1f}" y="{edge.line - 5:.1f}">{escape(edge.label)}</text>'


def _box(layout: Layout, node: Node, spec: ComponentSpec) -> str:
    x, y, width = layout.lefts[node.column], node.y, layout.widths[node.column]
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
