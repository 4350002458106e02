"""Draws a topology with characters: its stages from top to bottom, and above each the streams that enter it.

Fused bolts are below their producer.
"""

from __future__ import annotations

from pathlib import Path

from rich.panel import Panel
from rich.text import Text

from sparkbolt.api.topology import Subscription, Topology
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.faces.cli.resolver import topology_of
from sparkbolt.faces.cli.tables import aligned, lines_of
from sparkbolt.faces.drawing.stages import TIMES, drawn_lane, label_of, stages_of
from sparkbolt.faces.drawing.svg import svg_drawing
from sparkbolt.layout.lane import Lane


def graph(topology: str, *, svg: str | None = None) -> int:
    """Draw a topology.

    Args:
        topology: its code, such as word_count:topology or word_count.py; or the name of a topology
            that run has started.
        svg: write a picture to this file (- for standard output).
    """
    loaded = topology_of(topology)
    if svg is None:
        print(text_drawing(loaded))
    elif svg == "-":
        print(svg_drawing(loaded), end="")
    else:
        try:
            Path(svg).write_text(svg_drawing(loaded), encoding="utf-8")
        except OSError as error:
            raise WrongUseError(f"{svg} cannot be written: {error.strerror}") from error
    return EXIT_FINISHED


def text_drawing(topology: Topology) -> str:
    """The drawing as text with several lines."""
    lane = drawn_lane(topology)
    stages = stages_of(lane)
    bodies = [_stage_body(lane, stage.level) for stage in stages]
    titles = [stage.name + (" · keeps state" if stage.stateful else "") for stage in stages]
    width = max(max(len(line) for body in bodies for line in body), max(map(len, titles)) + 2)
    lines = [topology.name, ""]
    for stage, body, title in zip(stages, bodies, titles, strict=True):
        if stage.level:
            arrows = _arrows_into(lane, stage.level)
            lines += [f"   │  {arrow}" for arrow in arrows] + ["   ▼"]
        lines += lines_of(Panel(Text("\n".join(body)), title=Text(title), title_align="left", width=width + 4))
    return "\n".join(lines)


def _stage_body(lane: Lane, level: int) -> list[str]:
    roots = [id_ for id_ in lane.topology.components if id_ not in lane.fused_into and lane.stage_of(id_) == level]
    return [line for id_ in roots for line in _with_fused(lane, id_, "", "")]


def _with_fused(lane: Lane, id_: str, first: str, rest: str) -> list[str]:
    spec = lane.topology.components[id_]
    by = ""
    if id_ in lane.fused_into:
        by = f"  <- {', '.join(label_of(sub) for sub in spec.subscriptions)}"
    mark, name = "◉" if spec.is_spout else "■", type(spec.component).__name__
    lines = [f"{first}{mark} {id_} {TIMES}{spec.parallelism}  {name}{by}"]
    guests = [guest for guest, producer in lane.fused_into.items() if producer == id_]
    for guest in guests:
        last = guest == guests[-1]
        lines += _with_fused(lane, guest, f"{rest}{'└' if last else '├'}─ ", f"{rest}{' ' if last else '│'}  ")
    return lines


def _arrows_into(lane: Lane, level: int) -> list[str]:
    entries = [(sub, id_) for id_, sub in subscriptions_of(lane) if lane.stage_of(id_) == level]
    return aligned([(sub.source, "──", label_of(sub), "──▶", id_) for sub, id_ in entries])


def subscriptions_of(lane: Lane) -> list[tuple[str, Subscription]]:
    """The pairs (id of the subscriber, subscription) of all bolts that are not fused, in the order of declaration."""
    return [
        (spec.id, sub) for spec in lane.topology.bolts if spec.id not in lane.fused_into for sub in spec.subscriptions
    ]
