"""User families: the metrics that components have declared, for Prometheus.

A metric of Prometheus has one kind. If a name is declared as several kinds, the first of counter,
gauge and histogram has the plain name, and the others have their kind at the end of the name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.utils import floatToGoString

from sparkbolt.control.documents import MetricDocument, MetricSeries, TopologyDocument

Documents: TypeAlias = Sequence[tuple[str, TopologyDocument]]
"""(the label ``topology``, the document)."""
PREFIX = "sparkbolt_user_"
_KINDS: Mapping[str, type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def user_families(documents: Documents) -> Iterator[Metric]:
    """The families of all metrics that components have declared."""
    found: dict[str, dict[str, list[tuple[dict[str, str], MetricDocument]]]] = {}
    for topology, document in documents:
        for component, metrics in document["metrics"].items():
            for metric in metrics:
                kind = "histogram" if metric["kind"] == "timer" else metric["kind"]
                place = {"topology": topology, "component": component}
                found.setdefault(metric["name"], {}).setdefault(kind, []).append((place, metric))
    for name, kinds in sorted(found.items()):
        own = [kind for kind in _KINDS if kind in kinds]
        for at, kind in enumerate(own):
            yield _family(f"{PREFIX}{name}{f'_{kind}' if at else ''}", kind, kinds[kind])


def _family(name: str, kind: str, metrics: Sequence[tuple[dict[str, str], MetricDocument]]) -> Metric:
    documentation = next((one["documentation"] for _, one in metrics if one["documentation"]), "")
    family = _KINDS[kind](name, documentation or f"A {kind} that a component has declared")
    for place, metric in metrics:
        for series in metric["series"]:
            labels = {**place, **series["labels"]}
            if kind == "histogram":
                for suffix, extra, value in _histogram(series):
                    family.add_sample(family.name + suffix, {**labels, **extra}, value)
            else:
                family.add_sample(family.name + ("_total" if kind == "counter" else ""), labels, series["value"])
    return family


def _histogram(series: MetricSeries) -> Iterable[tuple[str, dict[str, str], float]]:
    """The samples of a histogram: (the end of the name, labels, value)."""
    bounds = map(floatToGoString, [bound for bound, _ in series["buckets"]])
    counts = accumulate(count for _, count in series["buckets"])
    for bound, count in zip(bounds, counts, strict=True):
        yield "_bucket", {"le": bound}, count
    yield "_bucket", {"le": "+Inf"}, series["value"]
    yield "_count", {}, series["value"]
    yield "_sum", {}, series["sum"] or 0.0
