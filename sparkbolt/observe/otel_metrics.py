"""OpenTelemetry metrics: sends the metrics that components have declared to a collector.

The counts come from the ledger, since the first start with the checkpoint, so they are handed to exporters as they are
and not counted by the SDK again. The engine never waits: a thread sends the newest counts.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as OtelHistogram
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.user_metrics import MetricKind, UserMetric
from sparkbolt.base.exceptions import line_of

INTERVAL_SECS = 60.0
"""How often metrics are sent, unless ``OTEL_METRIC_EXPORT_INTERVAL`` says otherwise."""
UNKNOWN_START = 0
"""OTLP's start of a count that began at an unknown time: the first start with the checkpoint."""
CUMULATIVE = AggregationTemporality.CUMULATIVE
log = logging.getLogger("sparkbolt")

Declared = tuple[str, UserMetric]
"""(component, metric)."""


def metrics_data(metrics: TopologyMetrics, topology: str, resource: Resource, now_ns: int) -> MetricsData | None:
    """The metrics of all components in the SDK's form; None if there are none."""
    found: dict[tuple[str, str], list[Declared]] = {}
    for component, counts in metrics.components.items():
        for name, metric in counts.user.items():
            found.setdefault((name, str(metric.kind)), []).append((component, metric))
    if not found:
        return None
    made = [_metric(name, MetricKind.of(kind), own, topology, now_ns) for (name, kind), own in sorted(found.items())]
    scope = ScopeMetrics(InstrumentationScope("sparkbolt"), made, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(name: str, kind: MetricKind, own: Sequence[Declared], topology: str, now_ns: int) -> Metric:
    documentation = next((metric.documentation for _, metric in own if metric.documentation), "")
    data: Any
    if kind.is_histogram:
        data = OtelHistogram([_distribution(*point, now_ns) for point in _points(own, topology)], CUMULATIVE)
    else:
        points = [
            NumberDataPoint(place, UNKNOWN_START, now_ns, numbers[0]) for place, _, numbers in _points(own, topology)
        ]
        data = Gauge(points) if kind == MetricKind.GAUGE else Sum(points, CUMULATIVE, is_monotonic=True)
    return Metric(name, documentation, "s" if kind == MetricKind.TIMER else "", data)


def _points(own: Sequence[Declared], topology: str) -> Iterator[tuple[Mapping[str, str], UserMetric, list[float]]]:
    """(attributes, metric, numbers) of each series."""
    for component, metric in own:
        for key, numbers in metric.series.items():
            labels = dict(zip(metric.labels, key, strict=True))
            yield {"sparkbolt.topology": topology, "sparkbolt.component": component, **labels}, metric, numbers


def _distribution(
    place: Mapping[str, str], metric: UserMetric, numbers: Sequence[float], now_ns: int
) -> HistogramDataPoint:
    counts = [int(count) for count in numbers[:-1]]
    unknown: Any = None  # the smallest and the largest value
    return HistogramDataPoint(
        place, UNKNOWN_START, now_ns, sum(counts), numbers[-1], counts, metric.buckets, unknown, unknown
    )


class MetricSender:
    """Sends the newest metrics of one topology in regular intervals, and at its end."""

    def __init__(
        self,
        topology: str,
        resource: Resource,
        exporters: Sequence[MetricExporter],
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Send nothing yet: the thread starts with the first metrics."""
        self._topology = topology
        self._resource = resource
        self._exporters = exporters
        self._now_ns = now_ns
        self._interval_secs = _interval_secs()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._newest: TopologyMetrics | None = None
        self._failed = False

    def update(self, metrics: TopologyMetrics) -> None:
        """Take newer metrics, a copy."""
        if not self._exporters or not any(counts.user for counts in metrics.components.values()):
            return
        self._newest = metrics
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="sparkbolt-metrics", daemon=True)
            self._thread.start()

    def close(self, wait_secs: float) -> None:
        """Send the newest metrics for at most ``wait_secs``, and end the exporters."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(wait_secs)

    def _run(self) -> None:
        while not self._closing.wait(self._interval_secs):
            self._send()
        self._send()
        for exporter in self._exporters:
            exporter.shutdown()

    def _send(self) -> None:
        newest = self._newest
        data = None if newest is None else metrics_data(newest, self._topology, self._resource, self._now_ns())
        if data is None:
            return
        for exporter in self._exporters:
            try:
                taken = exporter.export(data) is MetricExportResult.SUCCESS
                reason = None if taken else "the collector did not take them"
            except Exception as error:  # noqa: BLE001  an exporter may raise anything; the next time may succeed
                reason = line_of(error)
            if reason is not None and not self._failed:
                self._failed = True
                log.warning("metrics of topology %r cannot be sent (%s); it is tried on", self._topology, reason)


def _interval_secs() -> float:
    text = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    return int(text) / 1000 if text.isdecimal() and int(text) else INTERVAL_SECS
