"""Metric documents: the user metrics of a topology as JSON values, with a text for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.user_metrics import MetricKind, UserMetric
from sparkbolt.control.documents import MetricDocument, MetricSeries

QUANTILES = (0.5, 0.99)
"""The quantiles in the text of a histogram."""


def metric_documents(metrics: TopologyMetrics) -> dict[str, list[MetricDocument]]:
    """By component: the metrics that it has declared, by name; components without any are missing."""
    return {
        component: [_document(name, metric) for name, metric in sorted(counts.user.items())]
        for component, counts in metrics.components.items()
        if counts.user
    }


def _document(name: str, metric: UserMetric) -> MetricDocument:
    series = [_series(metric, key, numbers) for key, numbers in sorted(metric.series.items())]
    if not metric.labels and not series:  # it has recorded nothing
        series = [_series(metric, (), [0] * (len(metric.buckets) + 2))]
    return MetricDocument(
        name=name, kind=str(metric.kind), documentation=metric.documentation, labels=list(metric.labels), series=series
    )


def _series(metric: UserMetric, key: tuple[str, ...], numbers: Sequence[float]) -> MetricSeries:
    labels = dict(zip(metric.labels, key, strict=True))
    if not metric.kind_word.is_histogram:
        return MetricSeries(labels=labels, value=numbers[0], sum=None, buckets=[], text=number_text(numbers[0]))
    counts = [int(count) for count in numbers[:-1]]
    return MetricSeries(
        labels=labels,
        value=sum(counts),
        sum=numbers[-1],
        buckets=[[bound, count] for bound, count in zip(metric.buckets, counts, strict=False)],
        text=_histogram_text(metric, counts, numbers[-1]),
    )


def _histogram_text(metric: UserMetric, counts: Sequence[int], total: float) -> str:
    number = sum(counts)
    text = f"{number:,} {'value' if number == 1 else 'values'}"
    if not number:
        return text
    unit, scale = (" ms", 1000.0) if metric.kind == MetricKind.TIMER else ("", 1.0)
    parts = [text, f"mean {number_text(total / number * scale)}{unit}"]
    for quantile in QUANTILES:
        bound = _quantile(metric.buckets, counts, quantile)
        shown = f"> {number_text(metric.buckets[-1] * scale)}" if bound is None else number_text(bound * scale)
        parts.append(f"p{quantile * 100:g} {shown}{unit}")
    return ", ".join(parts)


def _quantile(bounds: Sequence[float], counts: Sequence[int], quantile: float) -> float | None:
    """A quantile, estimated within its bucket as Prometheus does; None if it is above the last bound."""
    wanted = quantile * sum(counts)
    for place, until in enumerate(accumulate(counts)):
        if until >= wanted and counts[place]:
            if place == len(bounds):
                return None
            start = bounds[place - 1] if place else min(0.0, bounds[0])
            return start + (bounds[place] - start) * (1 - (until - wanted) / counts[place])
    return None


def number_text(number: float) -> str:
    """A number with separators, a fraction in four digits.

    >>> [number_text(number) for number in (3, 1_234_567, 2.0, 0.012345, 12.5, 1e21)]
    ['3', '1,234,567', '2', '0.01235', '12.5', '1e+21']
    """
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{number:,.4g}" if abs(number) < 1000 or abs(number) >= 1e15 else f"{number:,.1f}"
