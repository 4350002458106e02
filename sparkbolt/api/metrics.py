"""Metrics: counts per component, since the topology's first start with its checkpoint.

Counts are sent with the micro-batch in which they arose, and are added once, when it is promoted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.user_metrics import UserMetric, add_user_metrics, copied, forget_gauges, metric_value
from sparkbolt.base.codec import SPARSE
from sparkbolt.errors import UnknownNameError

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class ComponentMetrics:
    """Counts of one component.

    For a spout, ``acked`` and ``failed`` count trees; for a bolt that starts trees, they also include its trees.

    >>> counts = ComponentMetrics(executed=200, acked=199, failed=1, execute_ms=50.0)
    >>> counts.execute_ms / counts.executed
    0.25
    """

    JSON = SPARSE

    emitted: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    pending: int = 0
    """Open trees of a spout (not a total, and 0 for a bolt)."""
    given_up: int = 0
    """Messages of a spout that were given up after their last attempt; with ``dead_letters``, each is counted when its
    letter is durable."""
    retried: int = 0
    """Failed attempts at messages of a spout after which the message is retried."""
    waiting: int = 0
    """Messages of a spout that wait for a retry (not a total)."""
    lag: int = 0
    """Positions of a spout's sources that are not finished, as far as the spout knows (not a total)."""
    skipped: int = 0
    """Positions that a spout skipped because its source no longer has them."""
    late: int = 0
    """Acks and fails of trees that were no longer open; they are dropped, and counted here for the spout."""
    errors: int = 0
    """Exceptions and reported errors of the component."""
    execute_ms: float = 0.0
    """Time spent in ``execute`` and ``flush``, in milliseconds, summed over tasks."""
    windows: int = 0
    """Windows that were passed to a windowed bolt."""
    window_tuples: int = 0
    """Tuples in those windows; a tuple that was in two windows is counted twice."""
    late_tuples: int = 0
    """Tuples that were older than the watermark, and are in no window."""
    expired: int = 0
    """Tuples that have left all windows."""
    watermark_ms: int = 0
    """The watermark, in milliseconds since the epoch: the lowest one of the tasks that ran last (not a total; 0 if
    there is none)."""
    watermark_behind_ms: int = 0
    """How many milliseconds that watermark was behind the time of its micro-batch (not a total)."""
    dead_letters: int = 0
    """Messages of a spout whose dead letters are durable; each is also in ``given_up``."""
    user: dict[str, UserMetric] = field(default_factory=dict)
    """By name: the metrics that the component has declared with ``context.metrics``; see ``TopologyMetrics.value``."""

    @property
    def watermark_text(self) -> str:
        """The watermark as readable text, in UTC, with its day if the micro-batch had another one; "" without one.

        >>> ComponentMetrics(watermark_ms=43_400_000, watermark_behind_ms=5_000).watermark_text
        'watermark 12:03:20, 5 s behind'
        >>> ComponentMetrics(watermark_ms=43_400_000, watermark_behind_ms=86_400_000).watermark_text
        'watermark 1970-01-01 12:03:20, 1 day behind'
        """
        if not self.watermark_ms:
            return ""
        day, time = _utc(self.watermark_ms)
        today, _ = _utc(self.watermark_ms + self.watermark_behind_ms)
        behind = f"{span_text(self.watermark_behind_ms)} behind" if self.watermark_behind_ms else "not behind"
        return f"watermark {time if day == today else f'{day} {time}'}, {behind}"

    def add(self, other: ComponentMetrics) -> None:
        """Add the totals of another; ``pending`` and ``waiting`` do not change, and the lower watermark is kept."""
        self.emitted += other.emitted
        self.executed += other.executed
        self.acked += other.acked
        self.failed += other.failed
        self.given_up += other.given_up
        self.retried += other.retried
        self.dead_letters += other.dead_letters
        self.skipped += other.skipped
        self.late += other.late
        self.errors += other.errors
        self.execute_ms += other.execute_ms
        self.windows += other.windows
        self.window_tuples += other.window_tuples
        self.late_tuples += other.late_tuples
        self.expired += other.expired
        if other.watermark_ms and not 0 < self.watermark_ms <= other.watermark_ms:
            self.watermark_ms = other.watermark_ms
            self.watermark_behind_ms = other.watermark_behind_ms
        if other.user:
            add_user_metrics(self.user, other.user)


def _utc(time_ms: int) -> tuple[str, str]:
    """Return the day and the time of a moment in UTC."""
    try:
        moment = datetime.fromtimestamp(time_ms // 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):  # a wrong clock may give any number
        return "", f"{time_ms:,} ms"
    return moment.strftime("%Y-%m-%d"), moment.strftime("%H:%M:%S")


def span_text(duration_ms: float) -> str:
    """Return a duration as readable text: its largest unit, and the next one if it is not 0.

    >>> span_text(400), span_text(5_400), span_text(65_000), span_text(7_200_000), span_text(277_200_000)
    ('0.4 s', '5 s', '1 min 5 s', '2 h', '3 days 5 h')
    """
    if 0 < duration_ms < 1000:
        return f"{max(0.1, duration_ms / 1000):.1f} s"
    left = int(duration_ms // 1000)
    parts: list[str] = []
    for name, secs in (("day", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, secs)
        if count:
            parts.append(f"{count:,} {name}{'s' if name == 'day' and count > 1 else ''}")
        if parts and (len(parts) == 2 or not count):
            break
    return " ".join(parts) or "0 s"


_ARROW_TYPES = {"int": pa.int64(), "float": pa.float64()}
_NUMBERS = {one.name: _ARROW_TYPES[str(one.type)] for one in fields(ComponentMetrics) if str(one.type) in _ARROW_TYPES}


class ComponentCounts(dict[str, ComponentMetrics]):
    """Counts by component, as users get them; an unknown name raises an error that lists the components.

    >>> ComponentCounts(bolt=ComponentMetrics())["botl"]
    Traceback (most recent call last):
    sparkbolt.errors.UnknownNameError: there is no component 'botl'; there is 'bolt': did you mean 'bolt'?
    """

    def __missing__(self, component: str) -> ComponentMetrics:
        """Raise an error that lists the components.

        Raises:
            UnknownNameError: always; it is a KeyError.
        """
        there = ", ".join(map(repr, self))
        raise UnknownNameError(f"there is no component {component!r}; there is {there}{did_you_mean(component, self)}")


@dataclass
class TopologyMetrics:
    """The counts of all components, and metrics of the topology as a whole; ``RunningTopology.metrics`` returns them.

    >>> metrics = TopologyMetrics({"count": ComponentMetrics(executed=10)}, micro_batches=3)
    >>> metrics.components["count"].executed, metrics.micro_batches, metrics.open_trees
    (10, 3, 0)
    """

    components: dict[str, ComponentMetrics] = field(default_factory=dict)
    micro_batches: int = 0
    open_trees: int = 0
    complete_latency_ms: float | None = None
    """Mean time from the plan of a tree's micro-batch to its promotion, in milliseconds, over the last promoted
    micro-batches."""
    micro_batch_ms: float | None = None
    """How long the last micro-batch took, in milliseconds."""
    lags: dict[str, dict[str, int]] = field(default_factory=dict)
    """By spout and source, the lag in positions (of files: bytes); only lags that are known and not 0."""
    lag_secs: dict[str, dict[str, float]] = field(default_factory=dict)
    """By spout and source, how long the oldest unfinished record has been there, in seconds; where the spout
    knows it."""

    def of(self, component: str) -> ComponentMetrics:
        """Return the counts of a component; in the ledger they are created on first use.

        Raises:
            KeyError: this is a copy for users, and there is no such component; the message lists the components.
        """
        if isinstance(self.components, ComponentCounts):
            return self.components[component]
        return self.components.setdefault(component, ComponentMetrics())

    def to_pandas(self) -> pd.DataFrame:
        """Return the counts as a table: a row for each component, the index, and a column for each count.

        >>> metrics = TopologyMetrics({"count": ComponentMetrics(executed=10, execute_ms=2.5)})
        >>> metrics.to_pandas().loc["count", "executed"].item()
        10
        """
        rows = [{"component": name, **vars(counts)} for name, counts in self.components.items()]
        columns = [("component", pa.string()), *_NUMBERS.items()]
        table: pd.DataFrame = pa.Table.from_pylist(rows, pa.schema(columns)).to_pandas()
        return table.set_index("component")

    def copy_for(self, components: Iterable[str]) -> TopologyMetrics:
        """Return a copy for users, with an entry for each component of the topology, zeros where nothing was counted.

        >>> list(TopologyMetrics().copy_for(["lines", "split"]).components)
        ['lines', 'split']
        """
        counts = ComponentCounts((component, ComponentMetrics()) for component in components)
        counts.update((component, replace(own, user=copied(own.user))) for component, own in self.components.items())
        lags = {component: dict(of_sources) for component, of_sources in self.lags.items()}
        secs = {component: dict(of_sources) for component, of_sources in self.lag_secs.items()}
        return replace(self, components=counts, lags=lags, lag_secs=secs)

    def value(self, name: str, labels: Mapping[str, Any] | None = None, component: str | None = None) -> float:
        """Return the value of a metric that components have declared: the sum of its series with the given labels.

        ``NAME`` and ``NAME_count`` of a histogram or a timer are the number of its values, ``NAME_sum`` is their sum.
        A metric that has recorded nothing is 0.

        Args:
            name: the name of the metric.
            labels: the values of some of its labels; a gauge also has the label ``task``.
            component: the only component to look at; None: all.

        Raises:
            UnknownNameError: no component has declared the metric, or it has no such label; it is a KeyError.
        """
        return metric_value({id_: own.user for id_, own in self.components.items()}, name, labels, component)

    def add(self, other: dict[str, ComponentMetrics]) -> None:
        """Add the counts of one micro-batch, which is later than all that were added."""
        for component, counts in other.items():
            own = self.of(component)
            if counts.watermark_ms:
                own.watermark_ms = 0
            forget_gauges(own.user, counts.user)
            own.add(counts)
