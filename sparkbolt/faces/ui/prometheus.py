"""Prometheus: ``/metrics``, made from documents at each scrape.

Names and units follow Prometheus's advice: ``sparkbolt_``, seconds and bytes, ``_total`` for counters. Totals start
with the first start with the checkpoint, so that a restart is no reset, and a histogram always has the same buckets.
The label ``topology`` is the name; if several with one name run, the older ones have their id instead.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
    NowDocument,
    TopologyDocument,
    TopologyEntry,
    TopologyState,
    WindowDocument,
)
from sparkbolt.faces.ui.answers import readable
from sparkbolt.faces.ui.operator_calls import Asking, LateAnswerError
from sparkbolt.faces.ui.storm_pages import empty_window, listed
from sparkbolt.faces.ui.user_families import Documents, user_families

BUCKETS_SECS = (
    *(0.000_01, 0.000_025, 0.000_1, 0.000_25, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
"""The upper bounds of histograms' buckets; beside them there is infinity. Execute latencies begin at microseconds,
complete latencies end at hours."""
RECENT = "600"
"""The window of the gauges of capacity."""

TREES = {"acked": "Acked trees of a spout", "failed": "Failed trees of a spout"}
SENT = {"emitted": "Emitted tuples", "transferred": "Sent tuples, counted once for each receiver"}
CAME = {
    "executed": "Tuples that a bolt executed",
    "acked": "Tuples that a bolt acked",
    "failed": "Tuples that a bolt failed",
}
Samples = Iterable[tuple[Sequence[str], float | None]]
"""(values of the labels after ``topology``, the value; None if it is unknown)."""


@dataclass(frozen=True)
class Measure:
    """A metric: its name, its meaning, its labels after ``topology``, and its samples of one topology."""

    name: str
    about: str
    labels: str
    read: Callable[[TopologyDocument], Samples]
    kind: type[CounterMetricFamily] | type[GaugeMetricFamily] = GaugeMetricFamily
    unit: str = ""

    def family(self, documents: Documents) -> Metric:
        """The samples of all topologies."""
        labels = ["topology", *self.labels.split()]
        family = self.kind(f"sparkbolt_{self.name}", self.about, labels=labels, unit=self.unit)
        for name, document in documents:
            for place, value in self.read(document):
                if value is not None:
                    family.add_metric([name, *place], value)
        return family


def prometheus_routes() -> list[Route]:
    """``/metrics``."""
    return [Route("/metrics", metrics, methods=["GET"])]


async def metrics(request: Request) -> Response:
    """All topologies that run, died or failed; OpenMetrics, with exemplars, if the scraper requests it."""
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
        """Report these topologies."""
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
        yield from (measure.family(documents) for measure in MEASURES)
        yield from _histograms(documents)
        yield from user_families(documents)

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
    """The label ``topology`` of each."""
    newest: dict[str, TopologyEntry] = {}
    for entry, _ in topologies:
        known = newest.get(entry["name"])
        if known is None or entry["started_ms"] > known["started_ms"]:
            newest[entry["name"]] = entry
    return [entry["name"] if newest[entry["name"]] is entry else entry["id"] for entry, _ in topologies]


def _window(document: TopologyDocument, window: str = ALL_TIME) -> WindowDocument:
    return document["windows"].get(window) or empty_window(window)


def _of_components(field: str, scale: float = 1, window: str = ALL_TIME) -> Callable[[TopologyDocument], Samples]:
    def read(document: TopologyDocument) -> Samples:
        for component, numbers in _window(document, window)["components"].items():
            value = numbers[field]  # type: ignore[literal-required]
            yield [component], None if value is None else value * scale

    return read


def _of_streams(field: str, *, came: bool, trees: bool = False) -> Callable[[TopologyDocument], Samples]:
    """Emitted tuples by stream, input by sender and stream, or the outcomes of spouts' trees by stream.

    The numbers of components that have counted nothing by stream yet have empty labels.
    """

    def read(document: TopologyDocument) -> Samples:
        spouts = {each["id"] for each in document["components"] if each["kind"] == "spout"}
        window = _window(document)
        for stream in window["streams"]:
            component = stream["component"]
            if bool(stream["sender"]) == came and (not trees or component in spouts):
                place = [component, *([stream["sender"]] if came else []), stream["stream"]]
                yield place, stream[field]  # type: ignore[literal-required]
        known = {stream["component"] for stream in window["streams"]}
        for component, numbers in window["components"].items():
            fits = component not in spouts if came else component in spouts or not trees
            if component not in known and fits:
                yield [component, *([""] if came else []), ""], numbers[field]  # type: ignore[literal-required]

    return read


def _now(read: Callable[[NowDocument], float | None]) -> Callable[[TopologyDocument], Samples]:
    return lambda document: [((), read(document["now"]))]


def _watermark(field: str, scale: float = 1) -> Callable[[TopologyDocument], Samples]:
    def read(document: TopologyDocument) -> Samples:
        for component, mark in document["now"]["watermarks"].items():
            if field in mark:
                yield [component], mark[field] * scale

    return read


def _lag(document: TopologyDocument, *, in_bytes: bool) -> Samples:
    of_files = {one["id"] for one in document["components"] if one["position_unit"] == "bytes"}
    for spout, lags in document["now"]["lag"].items():
        if (spout in of_files) is in_bytes:
            yield from (([spout, source], positions) for source, positions in lags.items())


def _lag_secs(document: TopologyDocument) -> Samples:
    for spout, found in document["now"]["lag_secs"].items():
        yield from (([spout, source], secs) for source, secs in found.items())


def _memory(document: TopologyDocument) -> Samples:
    sizes: Counter[str] = Counter()
    for each in document["now"]["memory"]:
        sizes[each["process"]] += each["bytes"]
    return [([process], size) for process, size in sizes.items()]


COUNTER = CounterMetricFamily
MEASURES = (
    Measure(
        "messages_given_up",
        "Messages that were given up: dead letters and dropped messages",
        "component",
        _of_components("given_up"),
        COUNTER,
    ),
    Measure("trees_retried", "Trees that are retries", "component", _of_components("retried"), COUNTER),
    Measure(
        "errors",
        "Errors that a component reported, or that failed a tuple",
        "component",
        _of_components("errors"),
        COUNTER,
    ),
    Measure(
        "execute_seconds",
        "Time in execute, summed over tasks",
        "component",
        _of_components("execute_ms", 0.001),
        COUNTER,
        "seconds",
    ),
    Measure(
        "capacity_ratio",
        "The share of the last 10 minutes that the busiest task spent in execute",
        "component",
        _of_components("capacity", window=RECENT),
    ),
    *(
        Measure(f"tuples_{one}", about, "component stream", _of_streams(one, came=False), COUNTER)
        for one, about in SENT.items()
    ),
    *(
        Measure(f"tuples_{one}", about, "component sender stream", _of_streams(one, came=True), COUNTER)
        for one, about in CAME.items()
    ),
    *(
        Measure(f"trees_{one}", about, "component stream", _of_streams(one, came=False, trees=True), COUNTER)
        for one, about in TREES.items()
    ),
    Measure("open_trees", "Open trees", "", _now(lambda now: now["open_trees"])),
    Measure("waiting_retries", "Messages that wait for their retry", "", _now(lambda now: now["retries"])),
    Measure(
        "outages", "Dependencies of a topology that are unavailable now", "", _now(lambda now: len(now["outages"]))
    ),
    Measure("hung_calls", "Calls of user code that have not returned", "", _now(lambda now: len(now["hung"]))),
    Measure(
        "pending_trees",
        "Open trees of a spout",
        "component",
        lambda document: [([spout], trees) for spout, trees in document["now"]["pending"].items()],
    ),
    Measure(
        "lag_positions",
        "Positions of a source that are not finished, such as offsets",
        "component source",
        partial(_lag, in_bytes=False),
    ),
    Measure(
        "lag_bytes",
        "Bytes of a followed file that are not finished",
        "component source",
        partial(_lag, in_bytes=True),
        unit="bytes",
    ),
    Measure(
        "lag_seconds",
        "How long ago the oldest unfinished record of a source was written, at least",
        "component source",
        _lag_secs,
        unit="seconds",
    ),
    Measure("memory_bytes", "Memory of the processes of a topology", "process", _memory, unit="bytes"),
    Measure("state_rows", "Rows of Spark's state stores", "", _now(lambda now: now["state"].get("rows"))),
    Measure(
        "state_bytes",
        "Memory of Spark's state stores",
        "",
        _now(lambda now: now["state"].get("memory_bytes")),
        unit="bytes",
    ),
    Measure(
        "watermark_lag_seconds", "Delay of a watermark", "component", _watermark("behind_ms", 0.001), unit="seconds"
    ),
    Measure("open_windows", "Open windows", "component", _watermark("windows")),
    Measure(
        "late_tuples",
        "Tuples that arrived after their window had closed",
        "component",
        _watermark("late_tuples"),
        COUNTER,
    ),
    Measure(
        "micro_batches",
        "Promoted micro-batches",
        "",
        lambda document: [((), _window(document)["micro_batches"])],
        COUNTER,
    ),
    Measure(
        "micro_batch_part_seconds",
        "Time of micro-batches by phase",
        "part",
        lambda document: [([part], ms / 1000) for part, ms in _window(document)["parts_ms"].items()],
        COUNTER,
        "seconds",
    ),
)


def _histograms(documents: Documents) -> Iterator[Metric]:
    complete = HistogramMetricFamily(
        "sparkbolt_complete_latency_seconds",
        "Time from the plan of a tree's micro-batch to the promotion of its ack",
        labels=["topology", "component"],
        unit="seconds",
    )
    execute = HistogramMetricFamily(
        "sparkbolt_execute_latency_seconds",
        "Time in execute for one tuple",
        labels=["topology", "component"],
        unit="seconds",
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
        # The small share is for a bound that differs from one of ours only by rounding.
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
