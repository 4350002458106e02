"""Documents: what is told about a topology from outside, as values that are JSON.

Rule 1: one shape for a topology that runs and for one that has ended: what is unknown is None or empty, never missing.
Rule 2: times are milliseconds since the epoch, names end in ``_ms``; durations in milliseconds too; sizes in bytes.
Rule 3: counts of a window are sums over that window; the window ``all`` is since the first start with the checkpoint.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from sparkbolt.core.driver.lifecycle import TopologyState as TopologyState

WINDOWS_SECS = {"600": 600, "10800": 10_800, "86400": 86_400}
"""Storm's windows by the names of its interface, in seconds; besides them there is ``ALL_TIME``."""
ALL_TIME = ":all-time"
"""Storm's name of the window since the first start."""


class Gist(TypedDict):
    """The few numbers of a list of topologies."""

    micro_batches: int
    emitted: int
    """Tuples of spouts."""
    executed: int
    acked: int
    """Trees of spouts."""
    failed: int
    """Trees of spouts, each attempt."""
    set_aside: int
    errors: int
    open_trees: int
    retries: int
    lag: int | None
    """Positions that are not finished, over all spouts that know it; None: no spout does."""
    rate: float
    """Trees a second that were acked, over the last minute."""


class TopologyEntry(TypedDict):
    """One topology, as it is registered in ``SPARKBOLT_HOME`` (one JSON file for each run, written every few secs)."""

    id: str
    """``NAME-N-SECONDS``, as Storm's: unique, made at each start."""
    name: str
    state: str
    """A ``TopologyState``."""
    why: str | None
    """Why it is in this state, in a sentence: how it ended, what is wrong; None if all is well."""
    started_ms: int
    ended_ms: int | None
    beat_ms: int
    """When it last gave a sign of life."""
    exit_code: int | None
    drained: bool | None
    """Whether nothing was under way when it ended, no tree, micro-batch or commit; None while it runs, or unknown."""
    host: str
    user: str
    pid: int
    pid_started: float
    """When the process was started, as the operating system counts, so that a pid that was used again is seen."""
    pid_space: str
    """The boot of the machine and the process namespace in which ``pid`` counts; empty if unknown."""
    checkpoint: str | None
    """The path or URL of its checkpoint; None if it is temporary."""
    directory: str | None
    """Where its files are: its checkpoint, or the temporary one, which goes with it; None before they are made."""
    control: str | None
    """Where it is asked: ``unix:PATH`` or ``tcp://HOST:PORT``; None once it has ended."""
    spark_ui: str | None
    application_id: str | None
    master: str | None
    version: str
    log_directory: str | None
    command: list[str]
    """The arguments of its process; empty if it was started by a program."""
    gist: Gist


class StreamSubscription(TypedDict):
    """What a bolt subscribes to."""

    component: str
    stream: str
    grouping: str
    """Storm's name: SHUFFLE, FIELDS, ALL, GLOBAL (= NONE ...), LOCAL_OR_SHUFFLE, PARTIAL_KEY, DIRECT, CUSTOM."""
    fields: list[str]


class ComponentDocument(TypedDict):
    """One component as it is declared and laid out."""

    id: str
    kind: str
    """``spout``, ``bolt`` or ``system`` (``__acker``)."""
    type: str
    """The class, such as ``word_count.SplitSentence``."""
    parallelism: int
    level: int
    """Its longest distance from the spouts."""
    fused_with: str | None
    stateful: bool
    streams: dict[str, list[str]]
    """Declared stream to its fields."""
    inputs: list[StreamSubscription]
    first_task: int
    """The number of its first task; the others follow."""
    settings: dict[str, Any]


class Numbers(TypedDict):
    """Sums of one component over a window. Latencies are None where nothing was measured."""

    emitted: int
    transferred: int
    executed: int
    acked: int
    failed: int
    set_aside: int
    retried: int
    errors: int
    execute_ms: float
    """Time in ``execute``, summed over tasks."""
    execute_latency_ms: float | None
    """Mean time in ``execute`` a tuple."""
    process_latency_ms: float | None
    """Mean time from a tuple's arrival at the bolt to its ack."""
    complete_latency_ms: float | None
    """Of a spout: mean time of its trees from the plan of their micro-batch to the promotion of their ack."""
    execute: dict[str, float | None]
    """Percentiles of the execute latency: keys ``p50``, ``p99``, ``p999``, ``max``."""
    complete: dict[str, float | None]
    """Of a spout: percentiles of the complete latency of its trees, with the same keys."""
    execute_buckets: NotRequired[list[list[float]]]
    """What ``execute`` is taken from: ``[le_ms, count]``, ascending. ``count`` tuples took at most ``le_ms``, and more
    than the bucket before; buckets without any are left out."""
    complete_buckets: NotRequired[list[list[float]]]
    """Of a spout: what ``complete`` is taken from, as ``execute_buckets``, of its trees."""
    capacity: float | None
    """The share of time that its tasks spent in ``execute``: the busiest task's; 1.0 is all of it."""


class TaskNumbers(TypedDict):
    """Sums of one task over a window, all of its streams."""

    component: str
    task: int
    """The task's index within its component."""
    emitted: int
    transferred: int
    executed: int
    acked: int
    failed: int
    execute_ms: float
    execute_latency_ms: float | None
    process_latency_ms: float | None
    complete_latency_ms: float | None
    capacity: float | None


class StreamNumbers(TypedDict):
    """Sums of one component on one stream over a window."""

    component: str
    sender: str
    """For what came in: the component that sent it; empty for what the component emitted itself."""
    stream: str
    emitted: int
    transferred: int
    executed: int
    acked: int
    failed: int
    execute_latency_ms: float | None
    process_latency_ms: float | None
    complete_latency_ms: float | None


class WindowDocument(TypedDict):
    """Sums over one window."""

    window: str
    """``600``, ``10800``, ``86400`` or ``:all-time``."""
    secs: float
    """How many seconds of it were measured."""
    components: dict[str, Numbers]
    tasks: list[TaskNumbers]
    streams: list[StreamNumbers]
    parts_ms: dict[str, float]
    """Where the time of micro-batches went: ``plan``, ``aborted`` (executions that did not count), ``read``,
    ``level 1`` ..., ``acker``, ``stage``, ``commit``, ``promotion``; summed."""
    micro_batches: int


class ErrorDocument(TypedDict):
    """An error that a component reported, or that failed a tuple."""

    time_ms: int
    component: str
    task: int
    text: str
    traceback: str | None
    host: str
    count: int
    """How many alike came since the topology's start."""


class EventDocument(TypedDict):
    """Something that happened to a topology: it is on the timeline."""

    time_ms: int
    kind: str
    """``started``, ``deployed`` (its code or shape is another), ``stopped``, ``killed``, ``failed``, ``restarted``,
    ``activated``, ``deactivated``, ``set``, ``traced``, ``outage``, ``recovered``, ``letters``."""
    text: str
    by: str | None
    """Who asked for it, if somebody did."""


class MemoryDocument(TypedDict):
    """One process."""

    process: str
    """``driver``, ``jvm``, or ``worker``."""
    host: str
    pid: int
    bytes: int


class NowDocument(TypedDict):
    """What is so at this moment; of a topology that has ended: what was so last."""

    time_ms: int
    open_trees: int
    retries: int
    micro_batch: dict[str, Any] | None
    """The micro-batch that runs: ``micro_batch_id``, ``elapsed_ms``, ``doing`` (a sentence)."""
    hung: list[str]
    """Sentences about user code that has not returned for long."""
    outages: list[str]
    trouble: str | None
    waits_for: str | None
    lag: dict[str, dict[str, int]]
    """By spout and source (for Kafka ``topic-partition``): positions that are not finished."""
    pending: dict[str, int]
    """By spout: open trees."""
    watermarks: dict[str, dict[str, int]]
    """By windowed bolt: ``windows``, ``late_tuples``, and if it has a watermark ``watermark_ms`` and ``behind_ms``."""
    state: dict[str, int]
    """Spark's state stores: ``rows``, ``memory_bytes``; empty if unknown."""
    memory: list[MemoryDocument]
    slowest: dict[str, Any] | None
    """The slowest tree of the last hour: ``root``, ``latency_ms``, ``time_ms``; None if there is none."""


class TopologyDocument(TypedDict):
    """All about one topology."""

    entry: TopologyEntry
    live: bool
    """Whether the topology itself answered; otherwise it is read from its checkpoint and its registration."""
    components: list[ComponentDocument]
    settings: dict[str, Any]
    """Settings by name, as they apply now."""
    windows: dict[str, WindowDocument]
    now: NowDocument
    errors: list[ErrorDocument]
    """The newest last."""
    events: list[EventDocument]
    """The newest last."""


class SeriesPoint(TypedDict):
    """One step of a series."""

    time_ms: int
    """Its beginning."""
    secs: float
    """How much of it was measured; 0: nothing ran."""
    emitted: int
    executed: int
    acked: int
    failed: int
    set_aside: int
    errors: int
    micro_batches: int
    micro_batch_ms: float | None
    open_trees: int
    lag: int
    complete: dict[str, float | None]
    """Percentiles of the trees' complete latency in milliseconds, as in ``Numbers``."""
    capacity: dict[str, float]
    """By component."""
    components: dict[str, dict[str, float]]
    """By component: ``emitted``, ``executed``, ``acked``, ``failed``, ``execute_ms``, ``lag``."""
    memory: dict[str, int]
    """Bytes of ``driver``, ``jvm`` and all ``workers``."""
    lags: NotRequired[dict[str, dict[str, int]]]
    """By spout and source, as ``NowDocument.lag``; missing where it was not kept."""


class SeriesDocument(TypedDict):
    """The history of a topology."""

    step_secs: int
    """10, 300 or 3600: the finest that reaches back far enough."""
    points: list[SeriesPoint]
    events: list[EventDocument]


class Answer(TypedDict):
    """What has become of a request to change something."""

    done: bool
    """Whether it is so now; False: it was accepted, and will be so (``text`` says when), or was refused."""
    refused: bool
    text: str
    """A sentence."""
