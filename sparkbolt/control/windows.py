"""Windows and series: the history of a topology as documents.

The counts of ``ALL_TIME`` come from the ledger and are exact across crashes. All other numbers come from the history,
which may lack the last seconds before a crash, and covers a month. The functions only compute; nothing here reads a
clock or a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.base.codec import encode
from sparkbolt.control.documents import (
    ALL_TIME,
    WINDOWS_SECS,
    ComponentDocument,
    EventDocument,
    Numbers,
    SeriesDocument,
    SeriesPoint,
    StreamNumbers,
    TaskNumbers,
    WindowDocument,
)
from sparkbolt.observe.histogram import GROWTH, Histogram
from sparkbolt.observe.history import RINGS, Bucket, History
from sparkbolt.observe.measurements import OWN_TREES, Flow, FlowCounts

ACKER = "__acker"
_NOTHING = Histogram()


@dataclass(frozen=True)
class Shape:
    """The parts of a topology's declaration that a window needs."""

    parallelism: Mapping[str, int]
    """By component, including those that have done nothing."""
    spouts: frozenset[str]
    first_stream: Mapping[str, str]
    """By spout: the stream on which its trees are shown, as Storm shows them by stream."""

    @classmethod
    def of(cls, components: Iterable[ComponentDocument]) -> Shape:
        """The described shape of components."""
        own = [one for one in components if one["kind"] != "system"]
        spouts = {one["id"]: list(one["streams"]) for one in own if one["kind"] == "spout"}
        first = {
            name: DEFAULT_STREAM if DEFAULT_STREAM in streams or not streams else streams[0]
            for name, streams in spouts.items()
        }
        return cls({one["id"]: one["parallelism"] for one in own}, frozenset(spouts), first)

    def stream_of(self, flow: Flow) -> str:
        """The stream under which a flow is shown."""
        if flow.sender == "" and flow.stream == OWN_TREES:
            return self.first_stream.get(flow.component, DEFAULT_STREAM)
        return flow.stream


def windows_of(
    history: History, metrics: TopologyMetrics, flows: Mapping[Flow, FlowCounts], shape: Shape, now_ms: int
) -> dict[str, WindowDocument]:
    """All windows of Storm's: the last ten minutes, three hours, a day, and since the first start.

    Args:
        history: the topology's.
        metrics: the ledger's counters.
        flows: the ledger's counts by task and stream.
        shape: the declaration.
        now_ms: the end of the windows, in milliseconds since the epoch.
    """
    windows = {}
    for name, secs in WINDOWS_SECS.items():
        windows[name] = window_of(name, history.window(secs, now_ms), shape)
    known = history.all_time()
    ever = replace(known, flows=dict(flows), micro_batches=metrics.micro_batches)
    ever.components = {component: _counted(counts) for component, counts in metrics.components.items()}
    exact = windows[ALL_TIME] = window_of(ALL_TIME, ever, shape)
    of_history = window_of(ALL_TIME, known, shape)
    for numbers, one in zip(exact["tasks"], of_history["tasks"], strict=True):
        numbers["capacity"] = one["capacity"]
    for component, own in exact["components"].items():
        own["capacity"] = of_history["components"][component]["capacity"]
    return windows


def _counted(counts: ComponentMetrics) -> dict[str, float]:
    return {name: value for name, value in vars(counts).items() if isinstance(value, int | float)}


def window_of(name: str, bucket: Bucket, shape: Shape) -> WindowDocument:
    """One window from the sum of its buckets."""
    merged: dict[Flow, FlowCounts] = {}
    for flow, counts in bucket.flows.items():
        merged.setdefault(Flow(*flow[:3], shape.stream_of(flow)), FlowCounts()).add(counts)
    of_component, of_task, of_stream = _summed(merged)
    tasks = [
        _task_numbers(Flow(component, task, "", ""), of_task.get((component, task), FlowCounts()), bucket, shape)
        for component, count in shape.parallelism.items()
        for task in range(count)
    ]
    components = {
        component: numbers_of(component, bucket, of_component.get(component, FlowCounts()), tasks)
        for component in shape.parallelism
    }
    if "acker" in bucket.parts_ms:
        components[ACKER] = _acker_numbers(bucket)
    return WindowDocument(
        window=name,
        secs=bucket.secs,
        components=components,
        tasks=tasks,
        streams=[_stream_numbers(key, counts, bucket, shape) for key, counts in sorted(of_stream.items())],
        parts_ms=dict(bucket.parts_ms),
        micro_batches=bucket.micro_batches,
    )


def _summed(
    flows: Mapping[Flow, FlowCounts],
) -> tuple[dict[str, FlowCounts], dict[tuple[str, int], FlowCounts], dict[tuple[str, str, str], FlowCounts]]:
    """Flows summed by component, by (component, task), and by (component, sender, stream)."""
    by_component: dict[str, FlowCounts] = {}
    by_task: dict[tuple[str, int], FlowCounts] = {}
    by_stream: dict[tuple[str, str, str], FlowCounts] = {}
    for flow, counts in flows.items():
        by_component.setdefault(flow.component, FlowCounts()).add(counts)
        by_task.setdefault((flow.component, flow.task), FlowCounts()).add(counts)
        by_stream.setdefault((flow.component, flow.sender, flow.stream), FlowCounts()).add(counts)
    return by_component, by_task, by_stream


def numbers_of(component: str, bucket: Bucket, sums: FlowCounts, tasks: Iterable[TaskNumbers]) -> Numbers:
    """The numbers of one component."""
    counts = bucket.components.get(component, {})
    execute = bucket.execute.get(component, _NOTHING)
    complete = bucket.complete.get(component, _NOTHING)
    executed, execute_ms = int(counts.get("executed", 0)), counts.get("execute_ms", 0.0)
    busiest = [task["capacity"] for task in tasks if task["component"] == component and task["capacity"] is not None]
    return Numbers(
        emitted=int(counts.get("emitted", 0)),
        transferred=sums.transferred,
        executed=executed,
        acked=int(counts.get("acked", 0)),
        failed=int(counts.get("failed", 0)),
        given_up=int(counts.get("given_up", 0)),
        retried=int(counts.get("retried", 0)),
        errors=int(counts.get("errors", 0)),
        execute_ms=execute_ms,
        execute_latency_ms=execute_ms / executed if executed else None,
        process_latency_ms=_process_latency_ms(sums),
        complete_latency_ms=complete.mean_ms,
        execute=execute.percentiles(),
        complete=complete.percentiles(),
        execute_buckets=_buckets(execute),
        complete_buckets=_buckets(complete),
        capacity=max(busiest, default=None),
    )


def _acker_numbers(bucket: Bucket) -> Numbers:
    """The acker combines reports of whole frames, so it has no tuples, only its share of the time."""
    numbers = numbers_of(ACKER, bucket, FlowCounts(), ())
    numbers["execute_ms"] = bucket.parts_ms["acker"]
    numbers["capacity"] = bucket.parts_ms["acker"] / (bucket.secs * 1000) if bucket.secs else None
    return numbers


def _process_latency_ms(counts: FlowCounts) -> float | None:
    return counts.process_ms / counts.processed if counts.processed else None


def _buckets(histogram: Histogram) -> list[list[float]]:
    return [[round(GROWTH ** (bucket + 1), 6), count] for bucket, count in sorted(histogram.counts.items())]


def _task_numbers(flow: Flow, counts: FlowCounts, bucket: Bucket, shape: Shape) -> TaskNumbers:
    spout = flow.component in shape.spouts
    return TaskNumbers(
        component=flow.component,
        task=flow.task,
        emitted=counts.emitted,
        transferred=counts.transferred,
        executed=counts.executed,
        acked=counts.acked,
        failed=counts.failed,
        execute_ms=counts.execute_ms,
        execute_latency_ms=counts.execute_ms / counts.executed if counts.executed else None,
        process_latency_ms=_process_latency_ms(counts),
        complete_latency_ms=bucket.complete.get(flow.component, _NOTHING).mean_ms if spout and counts.acked else None,
        capacity=min(1.0, counts.execute_ms / (bucket.secs * 1000)) if bucket.secs and not spout else None,
    )


def _stream_numbers(key: tuple[str, str, str], counts: FlowCounts, bucket: Bucket, shape: Shape) -> StreamNumbers:
    component, sender, stream = key
    trees = component in shape.spouts and not sender and counts.acked
    return StreamNumbers(
        component=component,
        sender=sender,
        stream=stream,
        emitted=counts.emitted,
        transferred=counts.transferred,
        executed=counts.executed,
        acked=counts.acked,
        failed=counts.failed,
        execute_latency_ms=counts.execute_ms / counts.executed if counts.executed else None,
        process_latency_ms=_process_latency_ms(counts),
        complete_latency_ms=bucket.complete.get(component, _NOTHING).mean_ms if trees else None,
    )


# Series.

CAPACITY_SECS = 60
"""Over how much time the capacities of a series are taken, since work counts when its micro-batch ends."""
SERIES_MS = 3_600_000
"""How far back a series goes by default."""


def span_of(since_ms: int | None, until_ms: int | None, now_ms: int) -> tuple[int, int]:
    """(beginning, end) of a series: by default the last hour."""
    until_ms = now_ms if until_ms is None else until_ms
    return (until_ms - SERIES_MS if since_ms is None else since_ms), until_ms


def series_of(
    history: History, events: Iterable[EventDocument], shape: Shape, span_ms: tuple[int, int], now_ms: int
) -> SeriesDocument:
    """The history and the events between two moments; the finest ring that reaches back answers."""
    since_ms, until_ms = span_ms
    step_secs, buckets = history.buckets(since_ms, until_ms, now_ms)
    over = CAPACITY_SECS // step_secs
    return SeriesDocument(
        step_secs=step_secs,
        points=[_point(one, shape, buckets[max(0, at - over) : at + 1]) for at, one in enumerate(buckets)],
        events=[event for event in events if since_ms <= event["time_ms"] <= until_ms],
    )


def _point(bucket: Bucket, shape: Shape, lately: Sequence[Bucket]) -> SeriesPoint:
    """One point; ``lately`` are the buckets over which its capacities are taken, itself the last."""
    complete = Histogram()
    for histogram in bucket.complete.values():
        complete.merge(histogram)
    lag = {spout: sum(lags.values()) for spout, lags in bucket.lag.items()}

    def total(name: str, components: Iterable[str]) -> int:
        return int(sum(bucket.components.get(component, {}).get(name, 0) for component in components))

    return SeriesPoint(
        time_ms=bucket.start_ms,
        secs=bucket.secs,
        emitted=total("emitted", shape.spouts),
        executed=total("executed", shape.parallelism),
        acked=total("acked", shape.spouts),
        failed=total("failed", shape.spouts),
        given_up=total("given_up", shape.spouts),
        errors=total("errors", bucket.components),
        micro_batches=bucket.micro_batches,
        micro_batch_ms=bucket.micro_batch_ms / bucket.micro_batches if bucket.micro_batches else None,
        open_trees=int(bucket.gauges.get("open_trees", 0)),
        lag=int(bucket.gauges.get("lag", 0)),
        complete=complete.percentiles(),
        capacity=_capacities(lately, shape),
        components={
            component: {**counts, **({"lag": lag[component]} if component in lag else {})}
            for component, counts in bucket.components.items()
        },
        memory={name: int(bucket.gauges[name]) for name in ("driver", "jvm", "workers") if name in bucket.gauges},
        lags={spout: dict(lags) for spout, lags in bucket.lag.items()},
    )


def _capacities(buckets: Sequence[Bucket], shape: Shape) -> dict[str, float]:
    """By bolt, and for the acker: the share of time in which the busiest task worked.

    Work counts when its micro-batch is promoted, so one that takes longer than all these buckets would give more than
    1; it is 1 then.
    """
    secs = sum(bucket.secs for bucket in buckets)
    if not secs:
        return {}
    by_task: dict[tuple[str, int], float] = {}
    for bucket in buckets:
        for flow, counts in bucket.flows.items():
            if flow.component not in shape.spouts and counts.execute_ms:
                task = flow.component, flow.task
                by_task[task] = by_task.get(task, 0.0) + counts.execute_ms
        if "acker" in bucket.parts_ms:
            by_task[ACKER, 0] = by_task.get((ACKER, 0), 0.0) + bucket.parts_ms["acker"]
    shares: dict[str, float] = {}
    for (component, _), busy_ms in by_task.items():
        shares[component] = max(shares.get(component, 0.0), min(1.0, busy_ms / (secs * 1000)))
    return shares


def micro_batches_of(history: History, last: int) -> list[dict[str, Any]]:
    """The newest micro-batches, the newest last."""
    return [encode(record) for record in list(history.micro_batches)[-last:]]


def slowest_of(history: History, now_ms: int) -> dict[str, Any] | None:
    """The slowest tree of the last hour: ``root``, ``latency_ms`` and ``time_ms``."""
    found = history.window(RINGS[0].step_secs * RINGS[0].buckets, now_ms).slowest
    return None if found is None else {"root": found[1], "latency_ms": found[0], "time_ms": found[2]}
