"""Driver metrics: the user metrics that spouts and committers record in the driver.

What they have recorded goes with the next micro-batch that is staged, and counts with it. If that micro-batch is staged
again, also in a later life of the same driver, it still goes with it, once.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkbolt.api.metric_handles import MetricsRecorder
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.user_metrics import UserMetric, add_user_metrics, forget_gauges


class DriverMetrics:
    """The user metrics that one driver has recorded and that are not promoted; not thread safe but for its recorder."""

    def __init__(self, recorder: MetricsRecorder | None = None) -> None:
        """Begin with what ``recorder`` records; None: one whose clock stands still."""
        self.recorder = MetricsRecorder() if recorder is None else recorder
        """For the contexts of user code in the driver."""
        self._waiting: dict[str, dict[str, UserMetric]] = {}
        """By component: what was taken from the recorder and is not staged."""
        self._number = -1
        self._staged: dict[str, dict[str, UserMetric]] = {}
        """By component: what was staged with micro-batch ``_number``."""

    def stage(self, micro_batch_id: int, counts: dict[str, ComponentMetrics]) -> None:
        """Add what was recorded to the counts of the micro-batch that is staged."""
        self._take()
        if micro_batch_id != self._number:
            self._number, self._staged = micro_batch_id, {}
        _add(self._staged, self._waiting)
        self._waiting = {}
        for component, metrics in self._staged.items():
            add_user_metrics(counts.setdefault(component, ComponentMetrics()).user, metrics)

    def show(self, metrics: TopologyMetrics, last_promoted: int) -> TopologyMetrics:
        """Add what is not promoted to a copy of the counts, and return the copy."""
        self._take()
        for recorded in (self._staged if self._number > last_promoted else {}, self._waiting):
            metrics.add({component: ComponentMetrics(user=own) for component, own in recorded.items()})
        return metrics

    def _take(self) -> None:
        _add(self._waiting, self.recorder.take())


def _add(sums: dict[str, dict[str, UserMetric]], others: Mapping[str, Mapping[str, UserMetric]]) -> None:
    for component, metrics in others.items():
        own = sums.setdefault(component, {})
        forget_gauges(own, metrics)
        add_user_metrics(own, metrics)
