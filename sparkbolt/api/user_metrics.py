"""User metrics: the counters, gauges, histograms and timers that components have declared with ``context.metrics``.

Rule: a component has at most ``SERIES_MAX`` series; further label sets are recorded together.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparkbolt.api.config import did_you_mean
from sparkbolt.base.codec import SPARSE
from sparkbolt.base.words import Word
from sparkbolt.errors import UnknownNameError

SERIES_MAX = 1000
"""How many series a component may have, over all its metrics; it may also declare this many metrics."""
OTHER = "_other"
"""The value of each label of the series for the label sets beyond ``SERIES_MAX``."""
LABEL_CHARACTERS_MAX = 200
"""Label values are cut off after this many characters."""
TASK = "task"
"""The first label of each gauge: the index of the task that has set it."""


class MetricKind(Word):
    """The kinds of user metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    TIMER = "timer"
    """A histogram of seconds."""

    @property
    def is_histogram(self) -> bool:
        """Whether it has buckets."""
        return self in (MetricKind.HISTOGRAM, MetricKind.TIMER)


@dataclass
class UserMetric:
    """A metric that a component has declared, and its series.

    >>> metric = UserMetric(MetricKind.COUNTER, labels=("status",), series={("200",): [3]})
    >>> metric.add(UserMetric(MetricKind.COUNTER, labels=("status",), series={("200",): [2], ("404",): [1]}), room=9)
    >>> metric.series
    {('200',): [5], ('404',): [1]}
    """

    JSON = SPARSE

    kind: MetricKind
    documentation: str = ""
    labels: tuple[str, ...] = ()
    """The names of the labels; the first one of a gauge is ``task``."""
    buckets: tuple[float, ...] = ()
    """Of a histogram: the upper bounds, ascending, without infinity."""
    series: dict[tuple[str, ...], list[float]] = field(default_factory=dict)
    """By the values of the labels: the total of a counter; the value of a gauge, and when its micro-batch ran; of a
    histogram the number of values in each bucket and above the last one, then the sum of the values."""

    @property
    def kind_word(self) -> MetricKind:
        """The kind; unpickling makes a str of it."""
        return MetricKind.of(self.kind)

    def empty(self) -> UserMetric:
        """The same metric without series."""
        return replace(self, series={})

    def is_declared_as(self, other: UserMetric) -> bool:
        """Whether the series of both can be added."""
        return (self.kind, self.labels, self.buckets) == (other.kind, other.labels, other.buckets)

    def add(self, other: UserMetric, room: int) -> None:
        """Add the values of another micro-batch or process; if it is declared in another way, it replaces this one.

        Args:
            other: the other one.
            room: how many series may be added.
        """
        if not self.is_declared_as(other):
            self.kind, self.labels, self.buckets, self.series = other.kind, other.labels, other.buckets, {}
        self.documentation = other.documentation
        for key, numbers in other.series.items():
            own = self.series.get(key)
            if own is None and room <= 0:
                key = self.other_key
                own = self.series.get(key)
            if own is None:
                self.series[key] = list(numbers)
                room -= 1
            elif self.kind == MetricKind.GAUGE:
                if numbers[::-1] > own[::-1]:  # the later one, then the larger one
                    own[:] = numbers
            else:
                own[:] = map(operator.add, own, numbers)

    @property
    def other_key(self) -> tuple[str, ...]:
        """The key of the series for further label sets."""
        return (OTHER,) * len(self.labels)

    @property
    def overflows(self) -> bool:
        """Whether label sets are recorded together because there are too many."""
        return bool(self.labels) and self.other_key in self.series


def add_user_metrics(sums: dict[str, UserMetric], others: Mapping[str, UserMetric]) -> None:
    """Add the metrics of a component to others of it, by name."""
    for name, metric in others.items():
        own = sums.setdefault(name, metric.empty())
        own.add(metric, SERIES_MAX - sum(len(one.series) for one in sums.values()))


def forget_gauges(before: Mapping[str, UserMetric], later: Mapping[str, UserMetric]) -> None:
    """Remove the gauges that a later micro-batch has set."""
    for name, metric in later.items():
        if metric.kind == MetricKind.GAUGE and name in before:
            for key in metric.series:
                before[name].series.pop(key, None)


def is_full(metrics: Mapping[str, UserMetric]) -> bool:
    """Whether label sets of a component are recorded together because there are too many."""
    return any(metric.overflows for metric in metrics.values())


def full_text(component: str) -> str:
    """The text to log when that begins."""
    return (
        f"the metrics of {component!r} have more than {SERIES_MAX:,} label sets: further ones are recorded together "
        f"under the label value {OTHER!r}; use labels with few values"
    )


def copied(metrics: Mapping[str, UserMetric]) -> dict[str, UserMetric]:
    """A copy that shares nothing that changes."""
    copies: dict[str, UserMetric] = {}
    add_user_metrics(copies, metrics)
    return copies


def without_total(name: Any) -> Any:
    """The name of a counter without the ending that Prometheus adds."""
    return name.removesuffix("_total") if isinstance(name, str) and name != "_total" else name


def metric_value(
    components: Mapping[str, Mapping[str, UserMetric]],
    name: str,
    labels: Mapping[str, Any] | None = None,
    component: str | None = None,
) -> float:
    """The value of a metric: the sum of all its series with the given labels, over its tasks and components.

    ``NAME`` and ``NAME_count`` of a histogram are the number of its values, ``NAME_sum`` is their sum.

    Raises:
        UnknownNameError: no component has declared it, or it has no such label; it is a KeyError.
    """
    own = {one: metrics for one, metrics in components.items() if component in (None, one)}
    asked = name
    part = next((one for one in ("_count", "_sum") if name.endswith(one)), "")
    if not any(name in metrics for metrics in own.values()):
        base = name.removesuffix(part) if part else without_total(name)
        kinds = [metrics[base].kind_word for metrics in own.values() if base in metrics]
        if not kinds or not all(kind.is_histogram if part else kind == MetricKind.COUNTER for kind in kinds):
            raise UnknownNameError(_unknown(asked, own, component))
        name = base
    else:
        part = ""
    chosen = {label: str(value)[:LABEL_CHARACTERS_MAX] for label, value in (labels or {}).items()}
    value: float = 0
    for metric in (metrics[name] for metrics in own.values() if name in metrics):
        for label in chosen:
            if label not in metric.labels:
                there = ", ".join(map(repr, metric.labels)) or "none"
                raise UnknownNameError(
                    f"metric {name!r} has no label {label!r}; it has {there}{did_you_mean(label, metric.labels)}"
                )
        at = {metric.labels.index(label): text for label, text in chosen.items()}
        for key, numbers in metric.series.items():
            if all(key[place] == text for place, text in at.items()):
                is_count = metric.kind_word.is_histogram and part != "_sum"
                value += sum(numbers[:-1]) if is_count else numbers[-1] if part else numbers[0]
    return value


def _unknown(name: str, own: Mapping[str, Mapping[str, UserMetric]], component: str | None) -> str:
    known = sorted({one for metrics in own.values() for one in metrics})
    whose = "no component has" if component is None else f"component {component!r} has not"
    begins = f"{whose} declared a metric {name!r}"
    if not known:
        return f"{begins}, nor any other; a bolt declares its metrics in prepare, which runs before its first tuple"
    return f"{begins}; declared are {', '.join(map(repr, known))}{did_you_mean(name, known)}"
