"""Recorder: turns promotions into history.

It reads what the ledger has counted and decides nothing; an error in it must not stop a promotion. Times are arguments,
in milliseconds since the epoch.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.reports import Promotion
from sparkbolt.observe.histogram import Histogram
from sparkbolt.observe.history import COUNTED, SOURCES_MAX, Bucket, History, MicroBatchRecord
from sparkbolt.observe.measurements import OWN_TREES, Flow, FlowCounts, Measurements, add_flows


@dataclass
class MicroBatchTimes:
    """The times of the driver's parts of one micro-batch; None for a part that this life has not done."""

    planned_ms: float | None = None
    """It began to plan."""
    confirmed_ms: float | None = None
    """Spark has taken the plan, and runs it."""
    collected_ms: float | None = None
    """The reports of tasks have arrived, combined by the acker."""
    staged_ms: float | None = None
    """It is staged, and the entry of the log is written."""
    committed_ms: float | None = None
    """The driver has learned that Spark has committed it."""
    promoted_ms: float | None = None
    aborted_ms: float | None = None
    """The last execution that does not count has ended."""
    repeats: int = 0
    """How many of them there were."""


class Observed:
    """The observations of one micro-batch, from its plan to its promotion."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self.times = MicroBatchTimes()
        self.measured = Measurements()
        """The measurements of stages, set when it is staged."""
        self.latencies: dict[str, Histogram] = {}
        """By spout: the complete latencies of the trees that it acked, in milliseconds."""
        self.slowest: tuple[float, str] | None = None
        """(latency, root) of the slowest of them."""

    def completed(self, component: str, latency_ms: float, trees: int, root: str) -> None:
        """Note the complete latency of trees that a spout started together.

        A tree's complete latency is the time from the plan of the micro-batch in which it began to the promotion of its
        ack. If it was open when the driver was started again, the time between counts by the wall clock.

        Args:
            component: the spout.
            latency_ms: the latency of each of them.
            trees: how many they are.
            root: the root of one of them, as a text.
        """
        self.latencies.setdefault(component, Histogram()).add(latency_ms, trees)
        if self.slowest is None or latency_ms > self.slowest[0]:
            self.slowest = latency_ms, root


class Recorder:
    """Records the history of one run of a topology."""

    def __init__(self, history: History, metrics: TopologyMetrics, now_ms: int) -> None:
        """Begin with the current counts of ``metrics``, which are not recorded."""
        self.history = history
        self._seen = {component: _counted(counts) for component, counts in metrics.components.items()}
        self._until_ms = now_ms

    def promoted(self, promotion: Promotion, metrics: TopologyMetrics, observed: Observed) -> None:
        """Record a promotion.

        Args:
            promotion: its results.
            metrics: the ledger's, with this micro-batch.
            observed: the observations of the micro-batch.
        """
        times, measured = observed.times, observed.measured
        now_ms = int(times.promoted_ms or self._until_ms)
        bucket = self._since(metrics, now_ms)
        bucket.micro_batches = 1
        add_flows(bucket.flows, measured.flows)
        add_flows(bucket.flows, _own_trees(promotion))
        bucket.execute = measured.execute
        bucket.complete = observed.latencies
        if observed.slowest is not None:
            bucket.slowest = *observed.slowest, now_ms
        record = _record_of(promotion, measured, times)
        counts = bucket.components
        record.emitted = sum(int(one.get("emitted", 0)) for one in counts.values() if "executed" not in one)
        record.executed = sum(int(one.get("executed", 0)) for one in counts.values())
        record.acked = sum(done.trees for done in promotion.completed)
        record.failed = len(promotion.failed)
        bucket.micro_batch_ms = record.elapsed_ms
        for part, start_ms, end_ms in record.parts:
            bucket.parts_ms[part] = bucket.parts_ms.get(part, 0.0) + end_ms - start_ms
        self.history.add(bucket, now_ms)
        self.history.promoted(record)

    def beat(self, metrics: TopologyMetrics, gauges: Mapping[str, float], now_ms: int) -> None:
        """Record the current gauges, even while no micro-batch ends.

        Args:
            metrics: the ledger's.
            gauges: further gauges, as in ``Bucket``.
            now_ms: the wall clock.
        """
        bucket = self._since(metrics, now_ms)
        bucket.gauges.update(gauges)
        self.history.add(bucket, now_ms)

    def _since(self, metrics: TopologyMetrics, now_ms: int) -> Bucket:
        """A bucket with the counts, and the elapsed time, since the last one."""
        bucket = Bucket(now_ms, secs=max(0, now_ms - self._until_ms) / 1000)
        self._until_ms = now_ms
        lag = retries = 0
        for component, counts in metrics.components.items():
            counted = _counted(counts)
            before = self._seen.get(component, {})
            new = {name: count - before.get(name, 0) for name, count in counted.items()}
            self._seen[component] = counted
            more = {name: round(count, 3) for name, count in new.items() if count}
            if more:
                bucket.components[component] = more
            lag += counts.lag
            retries += counts.waiting
        bucket.gauges = {"open_trees": metrics.open_trees, "retries": retries, "lag": lag}
        for component, lags in metrics.lags.items():
            largest = heapq.nlargest(SOURCES_MAX, lags.items(), key=lambda item: item[1])
            bucket.lag[component] = dict(largest)
        return bucket


def _counted(counts: object) -> dict[str, float]:
    return {name: getattr(counts, name) for name in COUNTED}


def _own_trees(promotion: Promotion) -> dict[Flow, FlowCounts]:
    """The flows in which the trees of spouts are counted."""
    flows: dict[Flow, FlowCounts] = {}
    for done in promotion.completed:
        flows.setdefault(Flow(done.component, done.task, "", OWN_TREES), FlowCounts()).acked += done.trees
    for tree in promotion.failed:
        flows.setdefault(Flow(tree.component, tree.task, "", OWN_TREES), FlowCounts()).failed += not tree.letter
    return flows


def _record_of(promotion: Promotion, measured: Measurements, times: MicroBatchTimes) -> MicroBatchRecord:
    """The parts of the time of a micro-batch.

    The acker's part begins when the last level ends. Between the parts, Spark schedules, moves frames and commits
    state.
    """
    spans = sorted(measured.spans.items(), key=lambda item: item[1].start_ms)
    worked_ms = max((span.end_ms for _, span in spans), default=times.confirmed_ms)
    steps = [
        ("plan", times.planned_ms, times.confirmed_ms),
        ("aborted", times.confirmed_ms, times.aborted_ms),
        *((part, span.start_ms, span.end_ms) for part, span in spans),
        ("acker", worked_ms, times.collected_ms),
        ("stage", times.collected_ms, times.staged_ms),
        ("commit", times.staged_ms, times.committed_ms),
        ("promotion", times.committed_ms, times.promoted_ms),
    ]
    known = [(part, start, end) for part, start, end in steps if start is not None and end is not None]
    began_ms = min((start for _, start, _ in known), default=0.0)
    ended_ms = max((end for _, _, end in known), default=began_ms)
    return MicroBatchRecord(
        micro_batch_id=promotion.micro_batch_id,
        began_ms=int(began_ms),
        elapsed_ms=round(ended_ms - began_ms, 3),
        parts=[(part, round(start - began_ms, 3), round(max(start, end) - began_ms, 3)) for part, start, end in known],
        busy_ms={part: round(span.busy_ms, 3) for part, span in spans},
        repeats=times.repeats,
        rows=measured.frames,
        bytes=measured.frame_bytes,
    )
