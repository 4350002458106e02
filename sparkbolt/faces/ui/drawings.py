"""Drawings: a topology with its rates, and one tree with its hops, as SVG.

The same documents give the same drawing, and each shape of a topology is laid out once. Everything that a colour or a
width shows is also text. There are no inline styles, and every name is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from markupsafe import Markup, escape

from sparkbolt.control.documents import ComponentDocument, Numbers, TopologyDocument
from sparkbolt.faces.drawing.graph_layout import SMALL_EM, Edge, Layout, Node, lay_out_graph
from sparkbolt.faces.ui import shown
from sparkbolt.faces.ui.urls import part_of_path

BOX = 66.0
BOX_WIDTH = 192.0
HOP = 62.0
MARGIN = 16.0
SOURCE = 74.0
"""The room before the spouts, for messages that wait to be read."""
NAME_EM = 8.6
BROAD = 1200.0
"""The maximum width of a drawing; a wider drawing is scaled down while it stays legible."""
NAME_MAX = 28
"""A longer name is cut in a drawing; its title has all of it."""
HOPS_MAX = 60
"""So many hops of a tree are drawn; its table has all."""

Shape = tuple[tuple[tuple[str, int, str], ...], tuple[tuple[str, str, str], ...]]
"""(id, depth, class) of each component; (sender, bolt, label) of each subscription."""


def cut(name: str, most: int = NAME_MAX) -> str:
    """A name that fits into a box.

    >>> cut("a" * 40, 10)
    'aaaaaaaaa…'
    """
    return name if len(name) <= most else f"{name[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def width_of(value: float) -> float:
    """The width of an edge in pixels: 1.2 for nothing, about 1.2 more for each power of ten.

    >>> width_of(0), width_of(9), width_of(10**9)
    (1.2, 2.4, 8.0)
    """
    return round(min(8.0, 1.2 + 1.2 * math.log10(1 + max(0.0, value))), 1)


@lru_cache(maxsize=64)
def _flow_layout(shape: Shape) -> Layout:
    components, subscriptions = shape
    boxes = [
        Node(depth, id_, max(BOX_WIDTH, len(cut(id_)) * NAME_EM + 70, len(cut(kind)) * SMALL_EM + 30), BOX)
        for id_, depth, kind in components
    ]
    return lay_out_graph(boxes, subscriptions, left=MARGIN + SOURCE, top=MARGIN)


def depths_of(components: Sequence[ComponentDocument]) -> dict[str, int]:
    """The longest distance of each component from the spouts, in this order; without the components of the system."""
    inputs = {one["id"]: one["inputs"] for one in components if one["kind"] != "system"}
    found: dict[str, int] = {}

    def depth(id_: str) -> int:
        if id_ not in found:
            found[id_] = 1 + max(
                (depth(way["component"]) for way in inputs[id_] if way["component"] in inputs and not way["feedback"]),
                default=-1,
            )
        return found[id_]

    return dict(sorted(((id_, depth(id_)) for id_ in inputs), key=lambda each: each[1]))


def _shape(components: Sequence[ComponentDocument]) -> Shape:
    depths = depths_of(components)
    shown_ones = [one for one in components if one["id"] in depths]
    edges = [
        (way["component"], one["id"], label_of(way))
        for one in shown_ones
        for way in one["inputs"]
        if way["component"] in depths
    ]
    return tuple((one["id"], depths[one["id"]], one["type"].rpartition(".")[2]) for one in shown_ones), tuple(edges)


def label_of(way: Mapping[str, Any]) -> str:
    """The label of a subscription: its grouping with its fields, preceded by the stream unless that is ``default``.

    >>> label_of({"stream": "late", "grouping": "FIELDS", "fields": ["word"], "feedback": True})
    'late: fields(word), feedback'
    """
    grouping = str(way["grouping"]).lower().replace("_", " ")
    fields = f"({', '.join(way['fields'])})" if way["fields"] else ""
    back = ", feedback" if way["feedback"] else ""
    stream = "" if way["stream"] == "default" else f"{way['stream']}: "
    return cut(f"{stream}{grouping}{fields}{back}", 36)


def flow(document: TopologyDocument, window: str, base: str) -> Markup:
    """The topology as a picture: boxes in the colour of their capacity, with rates; an edge's width is its rate.

    Args:
        document: the topology.
        window: the window of the rates.
        base: the topology's path, to which its boxes lead.
    """
    if not any(one["kind"] != "system" for one in document["components"]):
        return Markup('<p class="empty">The topology has not reported its components yet.</p>')
    layout = _flow_layout(_shape(document["components"]))
    by_id = {one["id"]: one for one in document["components"]}
    sums = document["windows"].get(window)
    secs = sums["secs"] if sums else 0.0
    numbers: Mapping[str, Numbers] = sums["components"] if sums else {}
    carried: dict[tuple[str, str], float] = {}
    for stream in sums["streams"] if sums and secs else []:
        if stream["sender"]:
            way = (stream["sender"], stream["component"])
            carried[way] = carried.get(way, 0.0) + stream["executed"] / secs
    width = layout.lefts[-1] + layout.widths[-1] + MARGIN
    height = layout.bottom + MARGIN
    parts = [_svg("flow broad" if width > BROAD else "flow", width, height, f"Flow of {document['entry']['name']}")]
    parts += [_flow_edge(layout, edge, carried.get(edge.ends)) for edge in layout.edges]
    for node in layout.boxes:
        one = by_id[node.name or ""]
        lag = sum(document["now"]["lag"].get(one["id"], {}).values()) if one["kind"] == "spout" else None
        if lag is not None and one["id"] in document["now"]["lag"]:
            parts.append(_source(layout, node, lag, one["position_unit"]))
        parts.append(_flow_box(layout, node, one, numbers.get(one["id"]), secs, base))
    return Markup("".join(parts) + "</svg>")


def _flow_edge(layout: Layout, edge: Edge, rate: float | None) -> str:
    x, y = layout.stops(edge)[-1]
    told = f" · {shown.rate(rate)}" if rate is not None else ""
    middle = layout.label_place(edge)
    moving = " moves" if rate else ""
    return (
        f'<g class="way"><title>{escape(edge.ends[0])} to {escape(edge.ends[1])}: {escape(edge.label)}{told}</title>'
        f'<path class="edge{moving}" stroke-width="{width_of(rate or 0.0)}" d="{layout.path(edge)}"/>'
        f'<path class="tip" d="M{x + 7:.1f},{y:.1f} l-10,-5 l0,10 Z"/>'
        f'<text class="label" x="{middle:.1f}" y="{edge.line - 6:.1f}">{escape(edge.label)}</text></g>'
    )


def _lag_text(lag: int, unit: str) -> str:
    return shown.size(lag) if unit == "bytes" else shown.brief(lag)


def _source(layout: Layout, node: Node, lag: int, unit: str) -> str:
    right, y = layout.lefts[node.column] - 6, node.middle
    in_bytes = unit == "bytes"
    late = " late" if lag > (1 << 20 if in_bytes else 10_000) else ""
    return (
        f'<g class="source{late}"><title>Lag: {lag:,} {unit or "positions"}</title>'
        f'<path class="edge" stroke-width="{width_of(lag)}" d="M{right - 62:.1f},{y:.1f}H{right:.1f}"/>'
        f'<text class="label" x="{right - 34:.1f}" y="{y - 9:.1f}">lag {_lag_text(lag, unit)}</text></g>'
    )


@dataclass(frozen=True)
class _Load:
    """What a component did in a window."""

    colour: str
    """The classes of its colour."""
    words: str
    wrong: int
    """How much of it failed, and how many errors it reported."""


def _load(one: ComponentDocument, numbers: Numbers | None, secs: float) -> _Load:
    is_spout = one["kind"] == "spout"
    capacity = numbers["capacity"] if numbers else None
    busy = shown.busy(capacity)
    done = (numbers["emitted"] if is_spout else numbers["executed"]) / secs if numbers and secs else None
    wrong = numbers["failed"] + numbers["errors"] if numbers else 0
    colour = "spout" if is_spout and busy in ("unknown", "idle") else f"cap-{busy}"
    words = [shown.rate(done)]
    if numbers and wrong:
        many = numbers["failed"] or numbers["errors"]
        words = [f"{shown.brief(many)} {'failed' if numbers['failed'] else 'error' if many == 1 else 'errors'}"]
        colour += "" if is_spout else " failing"
    words += [] if capacity is None else [f"{shown.share(capacity)} busy"]
    return _Load(colour, " · ".join(words), wrong)


def flow_list(document: TopologyDocument, window: str, base: str) -> Markup:
    """The flow as a list, for windows that are too narrow for the picture; arguments as for ``flow``."""
    sums = document["windows"].get(window)
    rows = []
    by_id = {one["id"]: one for one in document["components"]}
    for one in map(by_id.__getitem__, depths_of(document["components"])):
        load = _load(one, sums["components"].get(one["id"]) if sums else None, sums["secs"] if sums else 0.0)
        senders = dict.fromkeys(way["component"] for way in one["inputs"])
        lag = sum(document["now"]["lag"].get(one["id"], {}).values())
        before = (
            f"from {', '.join(senders)}" if senders else f"lag {_lag_text(lag, one['position_unit'])}" if lag else ""
        )
        rows.append(
            Markup('<li class="{}"><a href="{}/components/{}">{}</a> <span class="told">{}</span> {}</li>').format(
                load.colour,
                base,
                part_of_path(one["id"]),
                one["id"],
                load.words,
                Markup('<span class="meta">{}</span>').format(before) if before else "",
            )
        )
    return Markup('<ol class="flow-list">{}</ol>').format(Markup("").join(rows))


def _flow_box(
    layout: Layout, node: Node, one: ComponentDocument, numbers: Numbers | None, secs: float, base: str
) -> str:
    x, y, width = layout.lefts[node.column], node.y, layout.widths[node.column]
    is_spout = one["kind"] == "spout"
    capacity = numbers["capacity"] if numbers else None
    load = _load(one, numbers, secs)
    name, kind = escape(cut(one["id"])), escape(cut(one["type"].rpartition(".")[2]))
    left, right = (x + 24, x + width - 22) if is_spout else (x + 14, x + width - 14)
    return (
        f'<a class="box {load.colour}" href="{escape(base)}/components/{part_of_path(one["id"])}" '
        f'aria-label="{escape(one["id"])}, {escape(load.words)}">'
        f"<title>{escape(one['id'])} ({escape(one['type'])})</title>"
        f'<rect class="body" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{BOX}" '
        f'rx="{BOX / 2 if is_spout else 8}"/>'
        f'<text class="name" x="{left:.1f}" y="{y + 21:.1f}">{name}</text>'
        f'<text class="times" x="{right:.1f}" y="{y + 21:.1f}" text-anchor="end">'
        f"\N{MULTIPLICATION SIGN}{one['parallelism']}</text>"
        f'<text class="kind" x="{left:.1f}" y="{y + 36:.1f}">{kind}</text>'
        f'<text class="told" x="{left:.1f}" y="{y + 52:.1f}">{escape(load.words)}</text>'
        f"{'' if is_spout else _filled(x, y, width, capacity)}{_alarm(x + width, y, load.wrong)}</a>"
    )


def _filled(x: float, y: float, width: float, capacity: float | None) -> str:
    """The capacity as a bar at the foot of a box."""
    if capacity is None:
        return ""
    part = max(2.0, (width - 20) * min(1.0, capacity))
    return f'<rect class="filled" x="{x + 10:.1f}" y="{y + BOX - 8:.1f}" height="3" rx="1.5" width="{part:.1f}"/>'


def _alarm(right: float, y: float, wrong: int) -> str:
    """A mark at a box whose component has failed something in the window."""
    title = f"<title>{wrong:,} failed or errors</title>"
    return f'<circle class="alarm" cx="{right - 4:.1f}" cy="{y + 4:.1f}" r="6">{title}</circle>' if wrong else ""


def _svg(kind: str, width: float, height: float, label: str) -> str:
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'role="{"img" if "tree" in kind else "group"}" aria-label="{escape(label)}">'
    )


# One tree.


def hop_columns(hops: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[tuple[int, int]]]:
    """The positions of a tree's hops, and their order.

    A hop follows the newest earlier one of the task that sent its tuple; one without a sender that is known follows
    the first hop. Hops of one task in later micro-batches follow that task's own earlier hop.

    Returns:
        By hop its column; and the pairs (index of a hop, index of the one that follows).

    >>> way = [("lines[0]", ""), ("split[1]", "lines[0]"), ("count[0]", "split[1]"), ("count[0]", "")]
    >>> hop_columns([{"component": who[:-3], "task": int(who[-2]), "source": source} for who, source in way])
    ([0, 1, 2, 3], [(0, 1), (1, 2), (2, 3)])
    """
    columns: list[int] = []
    pairs: list[tuple[int, int]] = []
    newest: dict[str, int] = {}
    for index, hop in enumerate(hops):
        who = f"{hop['component']}[{hop['task']}]"
        before = newest.get(who, newest.get(hop.get("source") or "", 0 if index else None))
        if before is not None:
            pairs.append((before, index))
        columns.append(0 if before is None else columns[before] + 1)
        newest[who] = index
    return columns, pairs


def hop_state(hop: Mapping[str, Any]) -> str:
    """The outcome of a tree's tuples at a task, as a colour's name: ``failed``, ``held``, ``acked`` or ``sent``."""
    return next((state for state in ("failed", "held", "acked") if hop.get(state)), "sent")


def tree(story: Mapping[str, Any]) -> Markup:
    """One tree as a picture: each hop with its time, from the spout to where it ended or waits."""
    hops = story["hops"][:HOPS_MAX]
    if not hops:
        return Markup(
            '<p class="empty">No hop of this tree was recorded. Trees of messages that are tried again are recorded, '
            "and those that are traced: ask for it above, and look at the next attempt.</p>"
        )
    columns, pairs = hop_columns(hops)
    names = [f"{hop['component']}[{hop['task']}]" for hop in hops]
    boxes = [
        Node(column, str(index), max(188.0, len(cut(name)) * NAME_EM + 32), HOP)
        for index, (column, name) in enumerate(zip(columns, names, strict=True))
    ]
    counts = [sum(hop["emitted"].values()) for hop in hops]
    ways = [(str(one), str(other), "") for one, other in pairs]
    layout = lay_out_graph(boxes, ways, left=MARGIN, top=MARGIN)
    width, height = layout.lefts[-1] + layout.widths[-1] + MARGIN, layout.bottom + MARGIN
    began = hops[0]["now_ms"]
    parts = [_svg("flow tree", width, height, f"Path of tree {story['root']}")]
    for edge in layout.edges:
        x, y = layout.stops(edge)[-1]
        parts.append(f'<path class="edge" stroke-width="1.5" d="{layout.path(edge)}"/>')
        parts.append(f'<path class="tip" d="M{x + 7:.1f},{y:.1f} l-9,-4.5 l0,9 Z"/>')
    for node in layout.boxes:
        index = int(node.name or 0)
        parts.append(_hop_box(layout, node, hops[index], names[index], counts[index], began))
    return Markup("".join(parts) + "</svg>")


def _hop_box(layout: Layout, node: Node, hop: Mapping[str, Any], name: str, emitted: int, began_ms: int) -> str:
    x, y, width = layout.lefts[node.column], node.y, layout.widths[node.column]
    at = shown.utc(hop["now_ms"])
    clock = "" if at is None else at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03}"
    after = hop["now_ms"] - began_ms
    done = [f"{word} {hop[word]}" for word in ("failed", "held", "acked") if hop.get(word)]
    done += [f"emitted {emitted}"] if emitted else []
    return (
        f'<g class="hop {hop_state(hop)}"><title>{escape(name)} in micro-batch {hop["micro_batch_id"]}: '
        f"{escape(', '.join(done) or 'sent on')}. {escape(hop['values'])}</title>"
        f'<rect class="body" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{HOP}" rx="8"/>'
        f'<rect class="mark" x="{x:.1f}" y="{y + 8:.1f}" width="4" height="{HOP - 16}" rx="2"/>'
        f'<text class="name" x="{x + 14:.1f}" y="{y + 20:.1f}">{escape(cut(name))}</text>'
        f'<text class="told" x="{x + 14:.1f}" y="{y + 36:.1f}">{escape(", ".join(done) or "sent on")}</text>'
        f'<text class="kind" x="{x + 14:.1f}" y="{y + 52:.1f}">{clock} UTC'
        f"{f' · +{shown.ms(after)}' if after > 0 else ''}</text></g>"
    )
