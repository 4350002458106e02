"""HTML: shows a topology, or a running one, in a notebook.

Every text is escaped, since names, states and errors come from users and their messages. There is no script, and no
style that affects other elements.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from html import escape

from sparkbolt.api.metric_texts import series_text
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.running import RunningTopology
from sparkbolt.api.topology import ComponentSpec, Topology
from sparkbolt.faces.drawing.svg import svg_drawing

CELL = "padding:2px 8px;text-align:right"
NAME_CELL = "padding:2px 8px;text-align:left"
TEXT_CHARACTERS_MAX = 500
"""Longer texts, such as errors, are cut."""
METRICS_SHOWN = 50
"""How many series of the metrics that components have declared are shown."""
METRIC_HEADS = ("metric", "labels", "value")
HEADS = ("component", "tasks", "emitted", "executed", "acked", "failed", "errors", "pending", "waiting", "execute")


def topology_html(topology: Topology) -> str:
    """The picture of a topology on white, as an element of HTML; a notebook's theme does not reach into it."""
    data = base64.b64encode(svg_drawing(topology, on_white=True).encode()).decode()
    alt = escape(f"topology {topology.name}: {', '.join(topology.components)}", quote=True)
    return f'<img alt="{alt}" style="max-width:100%;background:white" src="data:image/svg+xml;base64,{data}">'


def running_html(running: RunningTopology) -> str:
    """The state, the counts and the latencies of a running topology at this moment, as elements of HTML."""
    metrics = running.metrics()
    state, why = state_of(running)
    facts = [
        f"{metrics.micro_batches:,} micro-batches",
        f"{metrics.open_trees:,} open trees",
        f"{running.retries:,} waiting for a retry",
        f"complete latency {_ms(metrics.complete_latency_ms)}",
    ]
    rows = [_row("th", HEADS)]
    for spec in running.topology.components.values():
        rows.append(_row("td", _cells(spec, metrics.components.get(spec.id, ComponentMetrics()))))
    lines = [f"<div><b>{_text(running.topology.name)}</b>: {state}, {', '.join(facts)}"]
    lines += [f"<div>{_text(sentence)}</div>" for sentence in why]
    lines += ['<table style="border-collapse:collapse">', *rows, "</table>"]
    declared = list(_metric_rows(metrics))
    if declared:
        shown = [_row("th", METRIC_HEADS), *declared[:METRICS_SHOWN]]
        lines += ['<table style="border-collapse:collapse">', *shown, "</table>"]
        more = len(declared) - METRICS_SHOWN
        lines += [f"<div>and {more:,} more series: running.metrics().value(NAME, LABELS)</div>"] if more > 0 else []
    lines.append("</div>")
    return "\n".join(lines)


def _metric_rows(metrics: TopologyMetrics) -> Iterator[str]:
    """A row for each series of the metrics that components have declared."""
    for component, counts in metrics.components.items():
        for name, metric in sorted(counts.user.items()):
            for key, numbers in sorted(metric.series.items()):
                labels = ", ".join(f"{label}={value}" for label, value in zip(metric.labels, key, strict=True))
                yield _row("td", [f"{component} {name}", labels, series_text(metric, numbers)])


def state_of(running: RunningTopology) -> tuple[str, list[str]]:
    """The state of a running topology in a word, and sentences about its problems."""
    if running.failure is not None:
        return "failed", [running.failure]
    if not running.is_running:
        return "stopped", []
    wrong = [text for text in (running.trouble, running.waits_for) if text is not None]
    return "starting" if running.waits_for is not None else "running", [*wrong, *running.outages]


def _cells(spec: ComponentSpec, counts: ComponentMetrics) -> list[str]:
    numbers = [counts.emitted, counts.executed, counts.acked, counts.failed, counts.errors]
    of_spout = [counts.pending, counts.waiting] if spec.is_spout else [None, None]
    latency = _ms(counts.execute_ms / counts.executed) if counts.executed else ""
    shown = ["" if number is None else f"{number:,}" for number in (*numbers, *of_spout)]
    return [spec.id, str(spec.parallelism), *shown, latency]


def _row(tag: str, cells: Iterable[str]) -> str:
    styled = (f'<{tag} style="{CELL if at else NAME_CELL}">{_text(cell)}</{tag}>' for at, cell in enumerate(cells))
    return f"<tr>{''.join(styled)}</tr>"


def _text(text: str) -> str:
    short = text if len(text) <= TEXT_CHARACTERS_MAX else text[: TEXT_CHARACTERS_MAX - 3] + "..."
    return escape(short, quote=True)


def _ms(duration_ms: float | None) -> str:
    """A duration as text.

    >>> _ms(None), _ms(0.01234), _ms(512.3)
    ('unknown', '0.012 ms', '512 ms')
    """
    if duration_ms is None:
        return "unknown"
    return f"{duration_ms:,.0f} ms" if duration_ms >= 10 else f"{duration_ms:.3f} ms"
