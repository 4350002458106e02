"""Prometheus: ``/metrics``, made from documents at each scrape.

Rule 1: names and units are as Prometheus advises: ``sparkbolt_``, seconds and bytes, ``_total`` for what only grows.
Rule 2: totals are those since the first start with the checkpoint, so that a restart is no reset.
Rule 3: the buckets of a histogram are always the same ones, whichever the document has.
Rule 4: the label ``topology`` is the name; if two of one name run, the older ones' is their id.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar
from prometheus_client.utils import floatToGoString
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sparkbolt.control.documents import (
    ALL_TIME,
    Numbers,
    StreamNumbers,
    TopologyDocument,
    TopologyEntry,
    TopologyState,
    WindowDocument,
)
from sparkbolt.faces.ui.answers import readable
from sparkbolt.faces.ui.asking import Asking, LateAnswerError
from sparkbolt.faces.ui.storm_pages import empty_window, listed

BUCKETS_SECS = (
    *(0.000_01, 0.000_025, 0.000_1, 0.000_25, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
"""The upper bounds of histograms' buckets; beside them there is infinity. Execute latencies begin at microseconds,
complete latencies end at hours."""
RECENT = "600"
"""The window of the gauges of capacity."""

COMPONENT = ["topology", "component"]
TOTALS = {
    "set_aside": ("messages_set_aside", "Messages that were given up: dead letters and dropped messages"),
    "retried": ("trees_retried", "Trees that are retries"),
    "errors": ("errors", "Errors that a component reported, or that failed a tuple"),
}
SENT = {"emitted": "Emitted tuples", "transferred": "Sent tuples, counted once for each receiver"}
CAME = {
    "executed": "Tuples that a bolt executed",
    "acked": "Tuples that a bolt acked",
    "failed": "Tuples that a bolt failed",
}
TREES = {"acked": "Acked trees of a spout", "failed": "Failed trees of a spout"}


def prometheus_routes() -> list[Route]:
    """``/metrics``."""
    return [Route("/metrics", metrics, methods=["GET"])]


async def metrics(request: Request) -> Response:
    """All topologies that run, and which died or failed; OpenMetrics, with exemplars, for who asks for it."""
    asking: Asking = request.app.state.asking
    found: list[tuple[TopologyEntry, TopologyDocument | None]] = []
    for entry in listed(await asking.topologies()):
        try:
            document = await asking.document(entry["id"]) if TopologyState.of(entry["state"]).runs else None
        except LateAnswerError:
            document = None
        found.append((entry, document))
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(Families(found)), headers={"content-type": content_type})


class Families(Collector):
    """The metrics of topologies: (entry, document; None if it is not known now)."""

    def __init__(self, topologies: Sequence[tuple[TopologyEntry, TopologyDocument | None]]) -> None:
        """Tell of these topologies."""
        self._topologies = [
            (name, entry, found) for name, (entry, found) in zip(labels(topologies), topologies, strict=True)
        ]

    def collect(self) -> Iterator[Metric]:
        """All of them, each once."""
        for family in self._families():
            family.samples = [
                sample._replace(labels={name: readable(text) for name, text in sample.labels.items()})
                for sample in family.samples
            ]
            yield family

    def _families(self) -> Iterator[Metric]:
        yield from self._states()
        documents = [(name, found) for name, _, found in self._topologies if found is not None]
        yield from _totals(documents)
        yield from _streams(documents)
        yield from _histograms(documents)
        yield from _now(documents)
        yield from _micro_batches(documents)

    def _states(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("sparkbolt_topology_up", "1 if the topology runs, otherwise 0", labels=["topology"])
        live = GaugeMetricFamily(
            "sparkbolt_topology_answers", "1 if the topology answered this scrape, otherwise 0", labels=["topology"]
        )
        states = GaugeMetricFamily(
            "sparkbolt_topology_state",
            "1 for the current state of a topology, 0 for the other states",
            labels=["topology", "state"],
        )
        info = InfoMetricFamily("sparkbolt_topology", "Information about a topology", labels=["topology"])
        begun = GaugeMetricFamily(
            "sparkbolt_topology_start_time_seconds", "The start time of a topology", labels=["topology"], unit="seconds"
        )
        for name, entry, document in self._topologies:
            up.add_metric([name], float(TopologyState.of(entry["state"]).runs))
            live.add_metric([name], float(document is not None and document["live"]))
            for state in TopologyState:
                states.add_metric([name, state], float(state == entry["state"]))
            begun.add_metric([name], entry["started_ms"] / 1000)
            about = {"id": entry["id"], "host": entry["host"], "user": entry["user"], "version": entry["version"]}
            info.add_metric([name], about)
        yield from (up, live, states, info, begun)


def labels(topologies: Sequence[tuple[TopologyEntry, Any]]) -> list[str]:
    """What the label ``topology`` of each is."""
    newest: dict[str, TopologyEntry] = {}
    for entry, _ in topologies:
        known = newest.get(entry["name"])
        if known is None or entry["started_ms"] > known["started_ms"]:
            newest[entry["name"]] = entry
    return [entry["name"] if newest[entry["name"]] is entry else entry["id"] for entry, _ in topologies]


Documents = Sequence[tuple[str, TopologyDocument]]


def _window(document: TopologyDocument, window: str = ALL_TIME) -> WindowDocument:
    return document["windows"].get(window) or empty_window(window)


def _numbers(documents: Documents, window: str = ALL_TIME) -> Iterator[tuple[list[str], Numbers]]:
    for name, document in documents:
        for component, numbers in _window(document, window)["components"].items():
            yield [name, component], numbers


def _totals(documents: Documents) -> Iterator[Metric]:
    for field, (name, about) in TOTALS.items():
        family = CounterMetricFamily(f"sparkbolt_{name}", about, labels=COMPONENT)
        for place, numbers in _numbers(documents):
            family.add_metric(place, numbers[field])  # type: ignore[literal-required]
        yield family
    busy = CounterMetricFamily(
        "sparkbolt_execute_seconds", "Time in execute, summed over tasks", labels=COMPONENT, unit="seconds"
    )
    for place, numbers in _numbers(documents):
        busy.add_metric(place, numbers["execute_ms"] / 1000)
    yield busy
    capacity = GaugeMetricFamily(
        "sparkbolt_capacity_ratio",
        "The share of the last 10 minutes that the busiest task spent in execute",
        labels=COMPONENT,
    )
    for place, numbers in _numbers(documents, RECENT):
        if numbers["capacity"] is not None:
            capacity.add_metric(place, numbers["capacity"])
    yield capacity


def _streams(documents: Documents) -> Iterator[Metric]:
    """What went out by stream, what came in by sender and stream, and what became of spouts' trees by stream."""
    sent, came, trees = (
        {
            field: CounterMetricFamily(f"sparkbolt_{noun}_{field}", about, labels=names)
            for field, about in fields.items()
        }
        for noun, fields, names in (
            ("tuples", SENT, [*COMPONENT, "stream"]),
            ("tuples", CAME, [*COMPONENT, "sender", "stream"]),
            ("trees", TREES, [*COMPONENT, "stream"]),
        )
    )
    for name, document in documents:
        spouts = {each["id"] for each in document["components"] if each["kind"] == "spout"}
        for stream in _window(document)["streams"]:
            place = [name, stream["component"], stream["stream"]]
            if stream["sender"]:
                _add(came, [*place[:2], stream["sender"], place[2]], stream)
                continue
            _add(sent, place, stream)
            if stream["component"] in spouts:
                _add(trees, place, stream)
        for component, numbers in _without_streams(document):
            _add(sent, [name, component, ""], numbers)
            if component in spouts:
                _add(trees, [name, component, ""], numbers)
            else:
                _add(came, [name, component, "", ""], numbers)
    for families in (sent, came, trees):
        yield from families.values()


def _without_streams(document: TopologyDocument) -> Iterator[tuple[str, Numbers]]:
    """The components that have counted nothing by stream yet."""
    window = _window(document)
    known = {stream["component"] for stream in window["streams"]}
    yield from ((id_, numbers) for id_, numbers in window["components"].items() if id_ not in known)


def _add(families: dict[str, CounterMetricFamily], place: list[str], counted: StreamNumbers | Numbers) -> None:
    for field, family in families.items():
        family.add_metric(place, counted[field])  # type: ignore[literal-required]


def _histograms(documents: Documents) -> Iterator[Metric]:
    complete = HistogramMetricFamily(
        "sparkbolt_complete_latency_seconds",
        "Time from the plan of a tree's micro-batch to the promotion of its ack",
        labels=COMPONENT,
        unit="seconds",
    )
    execute = HistogramMetricFamily(
        "sparkbolt_execute_latency_seconds", "Time in execute for one tuple", labels=COMPONENT, unit="seconds"
    )
    for name, document in documents:
        slowest = document["now"]["slowest"]
        for component, numbers in _window(document)["components"].items():
            if trees := numbers.get("complete_buckets"):
                mean_ms, count = numbers["complete_latency_ms"] or 0.0, sum(each[1] for each in trees)
                shown = slowest if slowest and slowest.get("component", component) == component else None
                complete.add_metric([name, component], buckets(trees, shown), mean_ms * count / 1000)
                slowest = None if shown else slowest
            if tuples := numbers.get("execute_buckets"):
                execute.add_metric([name, component], buckets(tuples), numbers["execute_ms"] / 1000)
    yield complete
    yield execute


def buckets(found: Iterable[Sequence[float]], slowest: dict[str, Any] | None = None) -> list[Any]:
    """A histogram's cumulative buckets from ``[le_ms, count]`` that are not; ``slowest`` is named by its bucket.

    >>> [each for each in buckets([[4.0, 2], [6.0, 1]]) if each[0] in ("0.005", "0.01", "+Inf")]
    [('0.005', 2.0), ('0.01', 3.0), ('+Inf', 3.0)]
    """
    counts = [0.0] * (len(BUCKETS_SECS) + 1)
    for le_ms, count in found:
        # The small share is for a bound that is one of ours but for its rounding.
        counts[bisect_left(BUCKETS_SECS, le_ms / 1000 * (1 - 1e-9))] += count
    bounds = [*map(floatToGoString, BUCKETS_SECS), "+Inf"]
    lines: list[Any] = []
    total = 0.0
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        lines.append((bound, total))
    if slowest is not None and slowest.get("latency_ms") is not None and math.isfinite(slowest["latency_ms"]):
        secs = slowest["latency_ms"] / 1000
        at = bisect_left(BUCKETS_SECS, secs)
        exemplar = Exemplar({"root": str(slowest["root"])}, secs, slowest["time_ms"] / 1000)
        lines[at] = (*lines[at], exemplar)
    return lines


def _now(documents: Documents) -> Iterator[Metric]:
    open_trees = GaugeMetricFamily("sparkbolt_open_trees", "Open trees", labels=["topology"])
    retries = GaugeMetricFamily("sparkbolt_waiting_retries", "Messages that wait for their retry", labels=["topology"])
    outages = GaugeMetricFamily(
        "sparkbolt_outages", "Dependencies of a topology that are unavailable now", labels=["topology"]
    )
    hung = GaugeMetricFamily("sparkbolt_hung_calls", "Calls of user code that have not returned", labels=["topology"])
    pending = GaugeMetricFamily("sparkbolt_pending_trees", "Open trees of a spout", labels=COMPONENT)
    lag = GaugeMetricFamily(
        "sparkbolt_lag_positions", "Positions of a source that are not finished", labels=[*COMPONENT, "source"]
    )
    memory = GaugeMetricFamily(
        "sparkbolt_memory_bytes", "Memory of the processes of a topology", labels=["topology", "process"], unit="bytes"
    )
    rows = GaugeMetricFamily("sparkbolt_state_rows", "Rows of Spark's state stores", labels=["topology"])
    state = GaugeMetricFamily(
        "sparkbolt_state_bytes", "Memory of Spark's state stores", labels=["topology"], unit="bytes"
    )
    for name, document in documents:
        now = document["now"]
        open_trees.add_metric([name], now["open_trees"])
        retries.add_metric([name], now["retries"])
        outages.add_metric([name], len(now["outages"]))
        hung.add_metric([name], len(now["hung"]))
        for spout, trees in now["pending"].items():
            pending.add_metric([name, spout], trees)
        for spout, lags in now["lag"].items():
            for source, positions in lags.items():
                lag.add_metric([name, spout, source], positions)
        sizes: dict[str, int] = {}
        for each in now["memory"]:
            sizes[each["process"]] = sizes.get(each["process"], 0) + each["bytes"]
        for process, size in sizes.items():
            memory.add_metric([name, process], size)
        if "rows" in now["state"]:
            rows.add_metric([name], now["state"]["rows"])
        if "memory_bytes" in now["state"]:
            state.add_metric([name], now["state"]["memory_bytes"])
    yield from (open_trees, retries, outages, hung, pending, lag, memory, rows, state)
    yield from _watermarks(documents)


def _watermarks(documents: Documents) -> Iterator[Metric]:
    behind = GaugeMetricFamily(
        "sparkbolt_watermark_lag_seconds", "Delay of a watermark", labels=COMPONENT, unit="seconds"
    )
    windows = GaugeMetricFamily("sparkbolt_open_windows", "Open windows", labels=COMPONENT)
    late = CounterMetricFamily(
        "sparkbolt_late_tuples", "Tuples that arrived after their window had closed", labels=COMPONENT
    )
    for name, document in documents:
        for component, mark in document["now"]["watermarks"].items():
            place = [name, component]
            if "behind_ms" in mark:
                behind.add_metric(place, mark["behind_ms"] / 1000)
            if "windows" in mark:
                windows.add_metric(place, mark["windows"])
            if "late_tuples" in mark:
                late.add_metric(place, mark["late_tuples"])
    yield from (behind, windows, late)


def _micro_batches(documents: Documents) -> Iterator[Metric]:
    batches = CounterMetricFamily("sparkbolt_micro_batches", "Promoted micro-batches", labels=["topology"])
    parts = CounterMetricFamily(
        "sparkbolt_micro_batch_part_seconds",
        "Time of micro-batches by phase",
        labels=["topology", "part"],
        unit="seconds",
    )
    for name, document in documents:
        window = _window(document)
        batches.add_metric([name], window["micro_batches"])
        for part, spent_ms in window["parts_ms"].items():
            parts.add_metric([name, part], spent_ms / 1000)
    yield from (batches, parts)
