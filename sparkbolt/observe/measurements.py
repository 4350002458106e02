"""Measurements: what stages measure besides the counts of components: flows, durations, and where time goes.

Measurements add up, in any order: those of tasks to those of a stage, those of stages to those of a micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.observe.histogram import Histogram

ANY = "*"
"""The sender and the stream of acks and fails that belong to none of several inputs, such as those of a window."""
OWN_TREES = ""
"""The stream of the flow in which a spout's trees are counted, since a tree may have tuples on several streams."""


class Flow(NamedTuple):
    """The tuples that one task gets from one stream, or emits on one."""

    component: str
    task: int
    """The task's index within its component."""
    sender: str
    """The component that sent the tuples that it gets; empty for its own emissions, and for the trees that it
    started."""
    stream: str


@dataclass
class FlowCounts:
    """Counts of one flow."""

    emitted: int = 0
    transferred: int = 0
    """How many tuples were sent to consuming tasks: one that is emitted to three tasks counts three times."""
    executed: int = 0
    acked: int = 0
    failed: int = 0
    execute_ms: float = 0.0
    process_ms: float = 0.0
    """Time from a tuple's arrival to its ack, summed over the tuples in ``processed``."""
    processed: int = 0
    """How many of ``acked`` were acked in the call that brought them."""

    def add(self, other: FlowCounts) -> None:
        """Add the counts of another."""
        self.emitted += other.emitted
        self.transferred += other.transferred
        self.executed += other.executed
        self.acked += other.acked
        self.failed += other.failed
        self.execute_ms += other.execute_ms
        self.process_ms += other.process_ms
        self.processed += other.processed

    def to_json(self) -> list[Any]:
        """The counts as a list, without the zeros at its end."""
        values = [round(value, 3) if isinstance(value, float) else value for value in vars(self).values()]
        while values and not values[-1]:
            values.pop()
        return values


def flows_to_json(flows: Mapping[Flow, FlowCounts]) -> list[list[Any]]:
    """Flows as lists.

    >>> flows_to_json({Flow("split", 0, "lines", "default"): FlowCounts(executed=2)})
    [['split', 0, 'lines', 'default', 0, 0, 2]]
    """
    return [[*flow, *counts.to_json()] for flow, counts in sorted(flows.items())]


def flows_from_json(value: Iterable[Sequence[Any]]) -> dict[Flow, FlowCounts]:
    """The inverse of ``flows_to_json``."""
    parts = len(Flow._fields)
    return {Flow(*item[:parts]): FlowCounts(*item[parts:]) for item in value}


def add_flows(sums: dict[Flow, FlowCounts], flows: Mapping[Flow, FlowCounts]) -> None:
    """Add flows to others."""
    for flow, counts in flows.items():
        if flow not in sums:
            sums[flow] = FlowCounts()
        sums[flow].add(counts)


def add_totals(metrics: dict[str, ComponentMetrics], flows: Mapping[Flow, FlowCounts]) -> None:
    """Add the totals of flows to the metrics of their components.

    >>> metrics = {}
    >>> add_totals(metrics, {Flow("split", task, "lines", "default"): FlowCounts(executed=2) for task in range(3)})
    >>> metrics["split"].executed
    6
    """
    for flow, counts in flows.items():
        total = metrics.setdefault(flow.component, ComponentMetrics())
        total.emitted += counts.emitted
        total.executed += counts.executed
        total.acked += counts.acked
        total.failed += counts.failed
        total.execute_ms += counts.execute_ms


class TimeSpan(NamedTuple):
    """When processes worked on one part of a micro-batch."""

    start_ms: float
    """The wall clock at which the first one began, in milliseconds since the epoch."""
    end_ms: float
    """When the last one ended."""
    busy_ms: float
    """How long they worked, summed."""

    def joined(self, other: TimeSpan) -> TimeSpan:
        """Both spans as one."""
        return TimeSpan(
            min(self.start_ms, other.start_ms), max(self.end_ms, other.end_ms), self.busy_ms + other.busy_ms
        )


READ = "read"
"""The part of a micro-batch in which executors read the ranges of spouts, and run the bolts fused with them."""


def level_part(level: int) -> str:
    """The name of the part of a micro-batch in which a level works.

    >>> level_part(2)
    'level 2'
    """
    return f"level {level}"


class Process(NamedTuple):
    """A process and its memory."""

    host: str
    pid: int
    resident_bytes: int


@dataclass
class Measurements:
    """The measurements of one stage, or of one micro-batch."""

    flows: dict[Flow, FlowCounts] = field(default_factory=dict)
    execute: dict[str, Histogram] = field(default_factory=dict)
    """By bolt: how long ``execute`` and ``flush`` took for one tuple. Of tuples that ran in one call, each counts with
    their mean, and the tuples of a micro-batch share the time of ``flush`` and of windows."""
    spans: dict[str, TimeSpan] = field(default_factory=dict)
    """By part of the micro-batch."""
    frames: int = 0
    """How many frames were sent to other stages."""
    frame_bytes: int = 0
    processes: dict[tuple[str, int], int] = field(default_factory=dict)
    """By (host, pid) of each Python worker: its resident memory in bytes."""

    def flow(self, component: str, task: int, sender: str, stream: str) -> FlowCounts:
        """The counts of a flow; they are made on first use."""
        flow = Flow(component, task, sender, stream)
        counts = self.flows.get(flow)
        if counts is None:
            counts = self.flows[flow] = FlowCounts()
        return counts

    def executed(self, component: str, elapsed_ms: float, tuples: int) -> None:
        """Count a call of ``execute``, or several with ``tuples`` in all, that took ``elapsed_ms`` together."""
        if tuples:
            if component not in self.execute:
                self.execute[component] = Histogram()
            self.execute[component].add(elapsed_ms / tuples, tuples)

    def worked(self, part: str, span: TimeSpan, process: Process | None) -> None:
        """Note that a process worked on a part of the micro-batch."""
        before = self.spans.get(part)
        self.spans[part] = span if before is None else before.joined(span)
        if process is not None:
            self.processes[process.host, process.pid] = process.resident_bytes

    def add(self, other: Measurements) -> None:
        """Add the measurements of another stage."""
        add_flows(self.flows, other.flows)
        add_histograms(self.execute, other.execute)
        for part, span in other.spans.items():
            self.worked(part, span, None)
        self.frames += other.frames
        self.frame_bytes += other.frame_bytes
        self.processes.update(other.processes)


def add_histograms(sums: dict[str, Histogram], histograms: Mapping[str, Histogram]) -> None:
    """Add histograms to others, by name."""
    for name, histogram in histograms.items():
        if name not in sums:
            sums[name] = Histogram()
        sums[name].merge(histogram)
