"""Documents: the state and the numbers of a topology as JSON values.

Running and ended topologies have the same shape: unknown values are None or empty, never missing. Times (milliseconds
since the epoch) and durations have names that end in ``_ms``; sizes are bytes. Counts of a window are sums over that
window; the window ``all`` starts with the first start with the checkpoint.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from sparkbolt.driver.lifecycle import TopologyState as TopologyState

WINDOWS_SECS = {"600": 600, "10800": 10_800, "86400": 86_400}
"""Storm's windows by the names of its interface, in seconds; besides them there is ``ALL_TIME``."""
ALL_TIME = ":all-time"
"""Storm's name of the window since the first start."""


class PeekedDocument(TypedDict):
    """A tuple that an operator sees while it is emitted."""

    serial: int
    """Ascending; ask with ``after`` for the tuples that follow."""
    time_ms: int
    """The time of the micro-batch, in milliseconds since the epoch."""
    micro_batch_id: int
    component: str
    task: int
    stream: str
    sender: str
    """Empty: the task has emitted it; otherwise the task that sent it to this one."""
    values: str
    """The values by field, shortened."""


class Gist(TypedDict):
    """The numbers of a topology that a list shows."""

    micro_batches: int
    emitted: int
    """Tuples that spouts emitted."""
    executed: int
    acked: int
    """Trees that were acked."""
    failed: int
    """Trees that failed; each attempt counts."""
    given_up: int
    """Messages that were given up and wait for an operator: they were neither replayed nor discarded."""
    errors: int
    open_trees: int
    retries: int
    lag: int | None
    """The number of unfinished positions, over all spouts that report it; None if no spout does."""
    lags: dict[str, int]
    """``lag`` by unit, such as ``bytes`` or ``messages``; empty if no spout reports it."""
    lag_growth: dict[str, int]
    """By unit, by how much the lag has risen within the last minute, where it rises steadily."""
    rate: float
    """Acked trees per second over the last minute."""


class Verdict(TypedDict):
    """How a topology does, in one sentence."""

    level: str
    """``bad`` (it failed, or waits), ``warn`` (it needs a look), ``hint`` (requested, or passing) or ``good``."""
    text: str
    """Such as ``well``, ``falls behind: ...`` or ``inactive: deactivated by ann``."""


class TopologyEntry(TypedDict):
    """The entry of one run of a topology in ``SPARKBOLT_HOME``: a JSON file that is written every few seconds."""

    id: str
    """``NAME-N-SECONDS``, as in Storm: unique for each start."""
    name: str
    state: str
    """A ``TopologyState``."""
    why: str | None
    """A sentence that says how it ended or what is wrong; None if there is no problem."""
    verdict: Verdict
    """Its most important problem, or that it is well; as of its last heartbeat."""
    started_ms: int
    ended_ms: int | None
    beat_ms: int
    """The time of its last heartbeat."""
    exit_code: int | None
    drained: bool | None
    """Whether it ended without open trees, micro-batches and commits; None while it runs, or if unknown."""
    host: str
    user: str
    pid: int
    pid_started: float
    """The start time of the process by the operating system's clock; it tells a reused pid apart."""
    pid_space: str
    """The boot of the machine and the process namespace in which ``pid`` is valid; empty if unknown."""
    checkpoint: str | None
    """The path or URL of its checkpoint; None if it is temporary."""
    directory: str | None
    """The directory of its files: its checkpoint, or a temporary one; None before it exists."""
    control: str | None
    """The address of its control: ``unix:PATH`` or ``tcp://HOST:PORT``; None after it has ended."""
    spark_ui: str | None
    application_id: str | None
    master: str | None
    version: str
    log_directory: str | None
    command: list[str]
    """The arguments of its process; empty if a program started it."""
    gist: Gist


class StreamSubscription(TypedDict):
    """A subscription of a bolt."""

    component: str
    stream: str
    grouping: str
    """Storm's name: SHUFFLE, FIELDS, ALL, GLOBAL (= NONE ...), LOCAL_OR_SHUFFLE, PARTIAL_KEY, DIRECT, CUSTOM."""
    fields: list[str]
    feedback: bool
    """Whether the bolt gets the tuples in the next micro-batch."""


class ComponentDocument(TypedDict):
    """The declaration and the layout of one component."""

    id: str
    kind: str
    """``spout``, ``bolt`` or ``system`` (``__acker``)."""
    type: str
    """The class, such as ``word_count.SplitSentence``."""
    parallelism: int
    level: int
    """The level in whose stage it runs, as ``sparkbolt check`` prints it; 0 is the source."""
    position_unit: str
    """The unit of the lag of a spout: ``bytes`` for files, ``messages`` for Kafka, else ``positions``;
    empty for other components."""
    fused_with: str | None
    stateful: bool
    streams: dict[str, list[str]]
    """The fields of each declared stream."""
    inputs: list[StreamSubscription]
    task_numbers: list[int]
    """The number of each of its tasks, by index."""
    settings: dict[str, Any]


class Numbers(TypedDict):
    """The sums of one component over a window. A latency is None if it was not measured."""

    emitted: int
    transferred: int
    executed: int
    acked: int
    failed: int
    given_up: int
    retried: int
    errors: int
    execute_ms: float
    """Time in ``execute``, summed over tasks."""
    execute_latency_ms: float | None
    """The mean time in ``execute`` per tuple."""
    process_latency_ms: float | None
    """The mean time from a tuple's arrival at the bolt to its ack."""
    complete_latency_ms: float | None
    """For a spout: the mean time of its trees from the plan of their micro-batch to the promotion of their ack."""
    execute: dict[str, float | None]
    """Percentiles of the execute latency: keys ``p50``, ``p99``, ``p999``, ``max``."""
    complete: dict[str, float | None]
    """For a spout: percentiles of the complete latency of its trees, with the same keys."""
    execute_buckets: NotRequired[list[list[float]]]
    """The histogram of ``execute``: ``[le_ms, count]``, ascending. ``count`` tuples took at most ``le_ms`` and more
    than the bound of the previous bucket. Empty buckets are left out."""
    complete_buckets: NotRequired[list[list[float]]]
    """For a spout: the histogram of ``complete``, in the form of ``execute_buckets``."""
    capacity: float | None
    """The share of time that its busiest task spent in ``execute``; 1.0 is all of the time."""


class TaskNumbers(TypedDict):
    """The sums of one task over a window and over all of its streams."""

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
    """The sums of one stream of a component over a window."""

    component: str
    sender: str
    """The component that sent the tuples; empty for the tuples that the component emitted."""
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
    """The sums over one window."""

    window: str
    """``600``, ``10800``, ``86400`` or ``:all-time``."""
    secs: float
    """The number of seconds of it that were measured."""
    components: dict[str, Numbers]
    tasks: list[TaskNumbers]
    streams: list[StreamNumbers]
    parts_ms: dict[str, float]
    """The time of micro-batches by phase: ``plan``, ``aborted`` (executions that did not count), ``read``,
    ``level 1`` ..., ``acker``, ``stage``, ``commit``, ``promotion``."""
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
    """The number of equal errors since the topology started."""


class EventDocument(TypedDict):
    """An event on the timeline of a topology."""

    time_ms: int
    kind: str
    """``started``, ``deployed`` (its code or shape changed), ``stopped``, ``killed``, ``failed``, ``restarted``,
    ``activated``, ``deactivated``, ``set``, ``traced``, ``outage``, ``recovered``, ``letters``, ``savepoint``,
    ``savepoint failed``."""
    text: str
    by: str | None
    """The user who requested it; None if no user did."""


class MemoryDocument(TypedDict):
    """The memory of one process."""

    process: str
    """``driver``, ``jvm``, or ``worker``."""
    host: str
    pid: int
    bytes: int


class NowDocument(TypedDict):
    """The current state of a topology; the last known state if it has ended."""

    time_ms: int
    open_trees: int
    retries: int
    micro_batch: dict[str, Any] | None
    """The running micro-batch: ``micro_batch_id``, ``elapsed_ms``, ``doing`` (a sentence)."""
    hung: list[str]
    """Sentences about user code that has not returned for a long time."""
    outages: list[str]
    """Sentences on bolts and spouts that cannot work, and on bolts that wait for a server or a database."""
    full: list[str]
    """Sentences on the components that wait because they have reached ``max_spout_pending``."""
    repeats: int
    """How many executions of the running micro-batch were aborted; it is executed again."""
    trouble: str | None
    waits_for: str | None
    lag: dict[str, dict[str, int]]
    """The number of unfinished positions, by spout and source (for Kafka ``topic-partition``)."""
    lag_secs: dict[str, dict[str, float]]
    """How long the oldest unfinished record has been there, in seconds, by spout and source; where it is known."""
    pending: dict[str, int]
    """The number of open trees by spout."""
    watermarks: dict[str, dict[str, int]]
    """By windowed bolt: ``windows`` and ``late_tuples``; with a watermark also ``watermark_ms`` and ``behind_ms``."""
    state: dict[str, int]
    """Spark's state stores: ``rows``, ``memory_bytes``; empty if unknown."""
    memory: list[MemoryDocument]
    slowest: dict[str, Any] | None
    """The slowest tree of the last hour: ``root``, ``latency_ms``, ``time_ms``; None if there is none."""


class MetricSeries(TypedDict):
    """The values of one metric for one set of labels."""

    labels: dict[str, str]
    """The value of each label; a gauge also has ``task``, the index of the task that set it."""
    value: float
    """The total of a counter, the value of a gauge; of a histogram or a timer the number of its values."""
    sum: float | None
    """Of a histogram or a timer (in seconds): the sum of its values."""
    buckets: list[list[float]]
    """Of a histogram or a timer: ``[le, count]``, ascending. ``count`` values were at most ``le`` and more than the
    bound of the previous bucket; the others were more than the last bound."""
    text: str
    """The value for people."""


class MetricDocument(TypedDict):
    """A metric that a component has declared with ``context.metrics``, since the first start with the checkpoint."""

    name: str
    kind: str
    """``counter``, ``gauge``, ``histogram`` or ``timer``."""
    documentation: str
    labels: list[str]
    series: list[MetricSeries]


class TopologyDocument(TypedDict):
    """One topology with its components, numbers, errors and events."""

    entry: TopologyEntry
    live: bool
    """Whether the topology itself answered; otherwise the values come from its checkpoint and its registration."""
    components: list[ComponentDocument]
    settings: dict[str, Any]
    """The current settings by name."""
    windows: dict[str, WindowDocument]
    now: NowDocument
    metrics: dict[str, list[MetricDocument]]
    """By component: the metrics that it has declared; components without any are missing."""
    errors: list[ErrorDocument]
    """The newest last."""
    events: list[EventDocument]
    """The newest last."""


class SeriesPoint(TypedDict):
    """The numbers of one step of a series."""

    time_ms: int
    """The start of the step."""
    secs: float
    """The number of seconds of it that were measured; 0 if the topology did not run."""
    emitted: int
    executed: int
    acked: int
    failed: int
    given_up: int
    errors: int
    micro_batches: int
    micro_batch_ms: float | None
    open_trees: int
    lag: int
    complete: dict[str, float | None]
    """Percentiles of the complete latency of trees in milliseconds, as in ``Numbers``."""
    capacity: dict[str, float]
    """By component."""
    components: dict[str, dict[str, float]]
    """By component: ``emitted``, ``executed``, ``acked``, ``failed``, ``execute_ms``, ``lag``."""
    memory: dict[str, int]
    """Bytes of ``driver``, ``jvm`` and all ``workers``."""
    lags: NotRequired[dict[str, dict[str, int]]]
    """The lag by spout and source, as in ``NowDocument``; missing if it was not recorded."""


class SeriesDocument(TypedDict):
    """The history of a topology."""

    step_secs: int
    """The length of a step: 10, 300 or 3600, the shortest that covers the range."""
    points: list[SeriesPoint]
    events: list[EventDocument]


class HopDocument(TypedDict):
    """A hop: the work of one task on the tuples of one tree in one micro-batch."""

    micro_batch_id: int
    now_ms: int
    component: str
    task: int
    tuples: int
    acked: int
    failed: int
    held: int
    source: str
    values: str
    emitted: dict[str, int]


class StoryDocument(TypedDict):
    """The story of one tree."""

    root: str
    """16 hexadecimal digits."""
    task_number: int
    sequence: int
    component: str
    task: int
    state: str
    """``open``, ``acked``, ``failed`` or ``unknown``."""
    source: str | None
    position: int | None
    message_id: str | None
    attempt: int | None
    started_in: int | None
    started_ms: int | None
    ended_in: int | None
    ended_ms: int | None
    why: str
    cause: str | None
    outcome: str | None
    traceback: str | None
    hops: list[HopDocument]
    other_attempts: NotRequired[list[Any]]
    """The other trees of the same message; only if you get a single story."""


class Holder(TypedDict):
    """The open trees that one task holds, among the trees that were read (``last``)."""

    holder: str
    """``COMPONENT[TASK]``; empty if no task has reported that it holds them."""
    trees: int
    tuples: int
    oldest_ms: int | None
    """When the oldest of them started."""
    stories: list[StoryDocument]


class OpenTrees(TypedDict):
    """The open trees by the tasks that hold them."""

    open_trees: int
    """The number of all open trees; ``holders`` counts only those that were read (``last``)."""
    holders: list[Holder]


class WatermarkDocument(TypedDict):
    """The windows and the watermark of a bolt."""

    component: str
    watermark_ms: int | None
    behind_ms: int | None
    windows: int | None
    late_tuples: int | None


class SettingsDocument(TypedDict):
    """The current settings of a topology and of its components."""

    settings: dict[str, Any]
    components: dict[str, dict[str, Any]]


class NumbersEvent(TypedDict):
    """The event ``numbers`` of the stream of changes."""

    time_ms: int
    gist: Gist
    now: NowDocument


class StateEvent(TypedDict):
    """The event ``state`` of the stream of changes: the first event, and one for each change of the state."""

    entry: TopologyEntry
    live: bool


class Answer(TypedDict):
    """The answer to a request for a change."""

    done: bool
    """Whether the change applies now. If False, it was refused, or it applies later (``text`` says when)."""
    refused: bool
    text: str
    """A sentence that says what was done, when the change applies, or why it was refused."""


def done(text: str) -> Answer:
    """The change applies now."""
    return Answer(done=True, refused=False, text=text)


def accepted(text: str) -> Answer:
    """The change applies later."""
    return Answer(done=False, refused=False, text=text)


def refused(text: str) -> Answer:
    """The change does not apply."""
    return Answer(done=False, refused=True, text=text)


class TaskStateDocument(TypedDict):
    """How much one task keeps."""

    component: str
    task: int
    keys: int
    """The number of keys of its ``KeyValueState``."""
    attributes: list[str]
    """The names of its durable attributes."""
    bytes: int
    """The size of everything that it keeps."""
    other_bytes: dict[str, int]
    """The size of what is neither: ``__window`` (windows), ``__trees`` (the values of open trees) and so on."""


class StateDocument(TypedDict):
    """How much the tasks of a topology keep after one micro-batch."""

    micro_batch: int
    tasks: list[TaskStateDocument]


class StateEntry(TypedDict):
    """A key with its value, or an attribute, of one task."""

    task: int
    attribute: str | None
    """The name of an attribute; null: it is a key."""
    key: Any
    value: Any
    """Objects of classes that are not Python's own are texts."""
    cut: bool
    """Whether the value is too long: then ``value`` is a text, the beginning of its JSON."""


class ComponentStateDocument(TypedDict):
    """Some of what the tasks of a component keep after one micro-batch."""

    component: str
    micro_batch: int
    count: int
    """How many keys and attributes there are; ``entries`` may be fewer."""
    entries: list[StateEntry]
