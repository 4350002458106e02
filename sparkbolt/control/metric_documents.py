"""Metric documents: the user metrics of a topology as JSON values, with a text for people."""

from __future__ import annotations

from collections.abc import Sequence

from sparkbolt.api.metric_texts import series_text
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.user_metrics import UserMetric
from sparkbolt.control.documents import MetricDocument, MetricSeries


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
    text = series_text(metric, numbers)
    if not metric.kind_word.is_histogram:
        return MetricSeries(labels=labels, value=numbers[0], sum=None, buckets=[], text=text)
    counts = [int(count) for count in numbers[:-1]]
    return MetricSeries(
        labels=labels,
        value=sum(counts),
        sum=numbers[-1],
        buckets=[[bound, count] for bound, count in zip(metric.buckets, counts, strict=False)],
        text=text,
    )
