"""Metric handles: ``context.metrics`` and the handles that it returns, and the recorder behind them.

Rule 1: a handle records in its process, and a stage takes what was recorded with its results. So each value counts
once, when its micro-batch is promoted, and the values of an attempt that does not count are dropped.
Rule 2: a handle has no value of its own. It is pickled as its declaration, and its values are no state of a bolt.

Names, labels and buckets are those of prometheus_client.
"""

from __future__ import annotations

import math
import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from sparkbolt.api.pickling import never_durable
from sparkbolt.api.user_metrics import LABEL_CHARACTERS_MAX, SERIES_MAX, TASK, MetricKind, UserMetric, without_total

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""The upper bounds of a histogram's buckets by default, as in prometheus_client; beside them there is infinity."""
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_RESERVED = frozenset({"topology", "component", TASK, "le", "quantile"})
_SUFFIXES = ("_bucket", "_count", "_sum")
"""The endings with which Prometheus names the parts of a histogram."""


class MetricsRecorder:
    """Records the user metrics of the components in one process until they are taken."""

    def __init__(
        self,
        clock: Callable[[], float] = lambda: 0.0,
        wall_ms: Callable[[], float] = lambda: 0.0,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Begin without any.

        Args:
            clock: a monotonic clock, in seconds, for timers.
            wall_ms: the wall clock; of two processes that set one gauge in one micro-batch, the later one counts.
            lock: guards the values, if user code runs in several threads.
        """
        self.clock = clock
        self.lock = lock if lock is not None else nullcontext()
        self._wall_ms = wall_ms
        self._declared: dict[str, dict[str, UserMetric]] = {}

    def declared(self, component: str, name: str, metric: UserMetric) -> UserMetric:
        """Declare a metric, or find it if it is declared.

        Raises:
            ValueError: the name is taken, or there are too many metrics.
        """
        with self.lock:
            own = self._declared.setdefault(component, {})
            known = own.get(name)
            if known is None:
                known = own[name] = self._new(own, component, name, metric)
            elif not known.is_declared_as(metric):
                raise ValueError(_conflict(component, name, known, metric))
            return known

    def _new(self, own: Mapping[str, UserMetric], component: str, name: str, metric: UserMetric) -> UserMetric:
        for other, known in own.items():
            for suffix in _SUFFIXES:
                if (known.kind_word.is_histogram and name == other + suffix) or (
                    metric.kind_word.is_histogram and other == name + suffix
                ):
                    raise ValueError(
                        f"metric {name!r} of {component!r} cannot be told from {other!r}: Prometheus adds {suffix} to "
                        "the name of a histogram; give it another name"
                    )
        if len(own) >= SERIES_MAX:
            raise ValueError(
                f"{component!r} declares more than {SERIES_MAX:,} metrics: use one metric with labels, such as "
                'counter("requests", "", ["status"])'
            )
        return metric

    def start(self, component: str, metric: UserMetric, key: tuple[str, ...]) -> list[float]:
        """The numbers of a series, which begins now if it has none; called under the lock."""
        own = self._declared[component]
        if sum(len(one.series) for one in own.values()) >= SERIES_MAX:
            key = metric.other_key
        size = {MetricKind.COUNTER: 1, MetricKind.GAUGE: 2}.get(metric.kind, len(metric.buckets) + 2)
        return metric.series.setdefault(key, [0] * size)

    def begin(self) -> None:
        """Drop what an attempt has recorded that ended before it was taken."""
        for metrics in self._declared.values():
            for metric in metrics.values():
                metric.series.clear()

    def take(self) -> dict[str, dict[str, UserMetric]]:
        """By component: its metrics with what was recorded since the last call; those without any have no series."""
        if not self._declared:
            return {}
        now_ms = self._wall_ms()
        with self.lock:
            taken = {
                component: {name: replace(metric, series=dict(metric.series)) for name, metric in metrics.items()}
                for component, metrics in self._declared.items()
            }
            self.begin()
        for metrics in taken.values():
            for metric in metrics.values():
                if metric.kind == MetricKind.GAUGE:
                    for numbers in metric.series.values():
                        numbers[1] = now_ms
        return taken


def _conflict(component: str, name: str, known: UserMetric, metric: UserMetric) -> str:
    if known.kind != metric.kind:
        return (
            f"metric {name!r} of {component!r} is declared as a {known.kind} and as a {metric.kind}: give one of them "
            "another name"
        )
    if known.labels != metric.labels:
        return (
            f"metric {name!r} of {component!r} is declared with the labels {list(known.labels)} and with "
            f"{list(metric.labels)}: declare the same labels"
        )
    return f"metric {name!r} of {component!r} is declared with different buckets: declare the same buckets"


def _checked_name(component: str, name: Any) -> str:
    if isinstance(name, str) and _NAME.fullmatch(name) and not name.startswith("__"):
        return name
    text = re.sub(r"[^a-zA-Z0-9_]+", "_", str(name)).lstrip("_") or "metric"
    mend = text if not text[0].isdigit() else f"n{text}"
    raise ValueError(
        f"a metric of {component!r} has the name {name!r}: write {mend!r}; a name has letters, digits and _, and does "
        "not begin with a digit or with __"
    )


def _checked_labels(component: str, name: str, labels: Any) -> tuple[str, ...]:
    if isinstance(labels, str | bytes | Mapping) or not isinstance(labels, Sequence):
        raise ValueError(
            f"metric {name!r} of {component!r} has the labels {labels!r}: write a list of their names, such as "
            '["status"], and give the values with .labels(status="200")'
        )
    for label in labels:
        if not isinstance(label, str) or not _NAME.fullmatch(label) or label.startswith("__"):
            raise ValueError(
                f"metric {name!r} of {component!r} has the label {label!r}: a label has letters, digits and _, and "
                "does not begin with a digit or with __"
            )
        if label in _RESERVED:
            raise ValueError(
                f"metric {name!r} of {component!r} has the label {label!r}, which Sparkbolt or Prometheus sets: write "
                f"{'own_' + label!r}"
            )
    if len(set(labels)) < len(labels):
        raise ValueError(f"metric {name!r} of {component!r} has a label twice: {list(labels)}")
    return tuple(labels)


def _checked_buckets(component: str, name: str, buckets: Sequence[float]) -> tuple[float, ...]:
    bounds = tuple(float(one) for one in buckets)
    finite = bounds[:-1] if bounds and bounds[-1] == math.inf else bounds
    if not finite or not all(map(math.isfinite, finite)) or list(finite) != sorted(set(finite)):
        raise ValueError(
            f"metric {name!r} of {component!r} has the buckets {list(buckets)}: write their upper bounds, ascending, "
            "such as (0.1, 1, 10)"
        )
    return finite


def _number(name: str, value: Any) -> float:
    """A finite int or float, also of numpy's types.

    Raises:
        ValueError: it is not finite.
        TypeError: it is no number.
    """
    try:
        return operator.index(value)
    except TypeError:
        number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"metric {name!r} got {value!r}, expected a finite number")
    return number


@never_durable
class TaskMetrics:
    """Declares the metrics of a component, in ``prepare`` or ``open``: ``self.hits = context.metrics.counter("hits")``.

    A name may be declared again in the same way, in another task or later; the handles then record the same metric.

    >>> metrics = TaskMetrics()
    >>> hits = metrics.counter("cache_hits", "Lookups that the cache answered")
    >>> hits.inc()
    >>> metrics.gauge("cache_hits")
    Traceback (most recent call last):
    ValueError: metric 'cache_hits' of '' is declared as a counter and as a gauge: give one of them another name
    """

    def __init__(self, recorder: MetricsRecorder | None = None, component: str = "", index: int = 0) -> None:
        """Record the metrics of a task; without a recorder, nobody takes them."""
        self.recorder = recorder or MetricsRecorder()
        self.component = component
        self.index = index

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy outside of its process records what nobody takes."""
        return TaskMetrics, ()

    def counter(self, name: str, documentation: str = "", labelnames: Sequence[str] = ()) -> CounterMetric:
        """Declare a counter, a number that only rises; ``_total`` at the end of its name is left out.

        Args:
            name: letters, digits and ``_``.
            documentation: what it counts, in one sentence.
            labelnames: the names of its labels; their values are given with ``labels``.

        Raises:
            ValueError: the name or a label is not valid, or the name is declared in another way.
        """
        return CounterMetric(self, without_total(name), documentation, labelnames)

    def gauge(self, name: str, documentation: str = "", labelnames: Sequence[str] = ()) -> GaugeMetric:
        """Declare a gauge, a number that is set; each task has its own. See ``counter``."""
        return GaugeMetric(self, name, documentation, labelnames)

    def histogram(
        self,
        name: str,
        documentation: str = "",
        labelnames: Sequence[str] = (),
        *,
        buckets: Sequence[float] = BUCKETS,
    ) -> HistogramMetric:
        """Declare a histogram of values. See ``counter``.

        Args:
            name: letters, digits and ``_``.
            documentation: what its values are, in one sentence.
            labelnames: the names of its labels.
            buckets: the upper bounds of its buckets, ascending.

        Raises:
            ValueError: as for ``counter``, or the bounds are not ascending.
        """
        return HistogramMetric(self, name, documentation, labelnames, buckets)

    def timer(
        self,
        name: str,
        documentation: str = "",
        labelnames: Sequence[str] = (),
        *,
        buckets: Sequence[float] = BUCKETS,
    ) -> TimerMetric:
        """Declare a histogram of durations in seconds. See ``histogram``."""
        return TimerMetric(self, name, documentation, labelnames, buckets)


class MetricHandle:
    """A metric of a component, or one of its series; see ``TaskMetrics``."""

    _kind: MetricKind

    def __init__(
        self,
        metrics: TaskMetrics,
        name: str,
        documentation: str = "",
        labelnames: Sequence[str] = (),
        buckets: Sequence[float] = (),
        values: tuple[str, ...] | None = None,
    ) -> None:
        """Declare the metric; ``values`` are those of the labels, None: they are not given yet."""
        component = metrics.component
        own = _checked_labels(component, _checked_name(component, name), labelnames)
        before = (TASK,) if self._kind == MetricKind.GAUGE else ()
        bounds = _checked_buckets(component, name, buckets) if self._kind.is_histogram else ()
        declared = UserMetric(self._kind, str(documentation), (*before, *own), bounds)
        self._metrics = metrics
        self._recorder = metrics.recorder
        self._name = name
        self._metric = self._recorder.declared(component, name, declared)
        self._labelnames = own
        self._values = values if own else ()
        index = (str(metrics.index),) if before else ()
        self._key = None if self._values is None else (*index, *self._values)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its declaration; it records in the process and for the task that unpickle it."""
        metric = self._metric
        declared = self._name, metric.documentation, self._labelnames, metric.buckets, self._values
        return type(self), (self._metrics, *declared)

    def __repr__(self) -> str:
        """Its kind, name and labels."""
        labels = dict(zip(self._labelnames, self._values or (), strict=False)) or list(self._labelnames)
        return f"{self._kind}({self._name!r}{f', labels={labels}' if labels else ''})"

    def _with(self, values: Sequence[Any], named: Mapping[str, Any]) -> Any:
        labels = self._labelnames
        if values and named:
            raise ValueError(f"labels of {self._name!r}: give the values by position or by name, not both")
        if len(values or named) != len(labels) or (named and set(named) != set(labels)):
            given = list(named) if named else list(values)
            wanted = ", ".join(f"{label}=..." for label in labels)
            raise ValueError(
                f"labels of {self._name!r} got {given}: "
                + (f"write .labels({wanted})" if labels else "it is declared without labels: leave .labels() out")
            )
        chosen = [named[label] for label in labels] if named else values
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._values = tuple(str(value)[:LABEL_CHARACTERS_MAX] for value in chosen)
        index = (str(self._metrics.index),) if self._kind == MetricKind.GAUGE else ()
        made._key = (*index, *made._values)
        return made

    def _numbers(self) -> list[float]:
        """The numbers of its series; called under the lock."""
        key = self._key
        if key is None:
            wanted = ", ".join(f"{label}=..." for label in self._labelnames)
            raise ValueError(f"metric {self._name!r} has labels: write .labels({wanted}) before the call")
        numbers = self._metric.series.get(key)
        return numbers if numbers is not None else self._recorder.start(self._metrics.component, self._metric, key)


@never_durable
class CounterMetric(MetricHandle):
    """A counter.

    >>> requests = TaskMetrics().counter("requests", "Requests by status", ["status"])
    >>> requests.labels(status="200").inc()
    >>> requests.labels("404").inc(2)
    """

    _kind = MetricKind.COUNTER

    def labels(self, *values: Any, **named: Any) -> CounterMetric:
        """Return the series with these values of the labels, by position or by name."""
        made: CounterMetric = self._with(values, named)
        return made

    def inc(self, amount: float = 1) -> None:
        """Add a number that is not negative.

        Raises:
            ValueError: the number is negative or not finite, or the labels have no values.
        """
        if amount.__class__ is not int:
            amount = _number(self._name, amount)
        if amount < 0:
            raise ValueError(f"counter {self._name!r} got inc({amount}): a counter does not fall; use a gauge")
        with self._recorder.lock:
            self._numbers()[0] += amount


@never_durable
class GaugeMetric(MetricHandle):
    """A gauge: the last value that a task has set, in its last micro-batch that set one.

    >>> TaskMetrics().gauge("cache_entries").set(12)
    """

    _kind = MetricKind.GAUGE

    def labels(self, *values: Any, **named: Any) -> GaugeMetric:
        """Return the series with these values of the labels, by position or by name."""
        made: GaugeMetric = self._with(values, named)
        return made

    def set(self, value: float) -> None:
        """Set the value.

        Raises:
            ValueError: the value is not finite, or the labels have no values.
        """
        number = _number(self._name, value)
        with self._recorder.lock:
            self._numbers()[0] = number


@never_durable
class HistogramMetric(MetricHandle):
    """A histogram.

    >>> sizes = TaskMetrics().histogram("batch_rows", buckets=(1, 10, 100))
    >>> sizes.observe(40)
    """

    _kind = MetricKind.HISTOGRAM

    def labels(self, *values: Any, **named: Any) -> HistogramMetric:
        """Return the series with these values of the labels, by position or by name."""
        made: HistogramMetric = self._with(values, named)
        return made

    def observe(self, value: float) -> None:
        """Count a value in its bucket.

        Raises:
            ValueError: the value is not finite, or the labels have no values.
        """
        number = _number(self._name, value)
        with self._recorder.lock:
            numbers = self._numbers()
            numbers[bisect_left(self._metric.buckets, number)] += 1
            numbers[-1] += number

    @contextmanager
    def time(self) -> Iterator[None]:
        """Observe how many seconds a block takes, whether it raises or not; it also decorates a function."""
        began = self._recorder.clock()
        try:
            yield
        finally:
            self.observe(self._recorder.clock() - began)


@never_durable
class TimerMetric(HistogramMetric):
    """A histogram of durations in seconds: ``with self.timer.time(): ...``."""

    _kind = MetricKind.TIMER

    def labels(self, *values: Any, **named: Any) -> TimerMetric:
        """Return the series with these values of the labels, by position or by name."""
        made: TimerMetric = self._with(values, named)
        return made
