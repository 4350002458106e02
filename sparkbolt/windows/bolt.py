"""The windowed bolt: the class that users subclass, and the methods that set its windows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from sparkbolt.api.arguments import Check, checked, function, text, verify, whole
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.api.named_fields import fields_of_class
from sparkbolt.api.runtime_bolts import LATE_FIELD, RuntimeBolt
from sparkbolt.api.tuples import DEFAULT_STREAM, Tuple
from sparkbolt.errors import ConfigError, UnknownNameError
from sparkbolt.windows.firing import Count
from sparkbolt.windows.policies import EvictionPolicy
from sparkbolt.windows.settings import (
    FIELD,
    FIELDS,
    LENGTH,
    Closed,
    Unit,
    Windowing,
    duration,
    mistakes_of,
    ms,
    settings_change,
    stored_settings,
)
from sparkbolt.windows.triggers import TriggerPolicy
from sparkbolt.worker.bolt_runtime import BoltRuntime

if TYPE_CHECKING:
    from sparkbolt.windows.collector import WindowCollector
    from sparkbolt.windows.window import TupleWindow
    from sparkbolt.worker.emissions import Output
    from sparkbolt.worker.state.task_state import TaskState

Bolt = TypeVar("Bolt", bound="WindowedBolt")
EVICTION = Check("an EvictionPolicy", lambda value: isinstance(value, EvictionPolicy))
TRIGGER = Check("a TriggerPolicy", lambda value: isinstance(value, TriggerPolicy))


@dataclass(frozen=True)
class LateTuple:
    """A tuple that arrived too late: the value of the field ``late_tuple`` of the stream for late tuples.

    ``dict(late)`` gives its values by field; ``JsonLinesBolt`` writes it in that form.

    >>> late = LateTuple("clicks", 0, "default", ("at", "name"), (19_999, "ann"))
    >>> late["name"], dict(late)
    ('ann', {'at': 19999, 'name': 'ann'})
    """

    source_component: str
    source_task: int
    """The task's index within its component."""
    source_stream: str
    fields: tuple[str, ...]
    values: tuple[Any, ...]

    def __getitem__(self, name: str) -> Any:
        """The value of a field; KeyError if there is no such field."""
        if name not in self.fields:
            raise UnknownNameError(f"{name!r} does not exist in this late tuple, whose fields are {list(self.fields)}")
        return self.values[self.fields.index(name)]

    def keys(self) -> tuple[str, ...]:
        """The names of its fields; ``dict(late)`` calls this."""
        return self.fields


class WindowedBolt(RuntimeBolt):
    """A bolt whose ``execute`` gets windows of tuples (Storm's ``IWindowedBolt``).

    The ``with_...`` methods set the kind of windows; each changes the bolt and returns it. A window's content is
    durable: it is committed with each micro-batch, and its tuples are acked then. What ``execute`` emits starts new
    trees.

    >>> class Total(WindowedBolt):
    ...     outputs = ["total"]
    ...     def execute(self, window, collector):
    ...         collector.emit([sum(tup["amount"] for tup in window)])
    >>> total = Total().with_window(timedelta(minutes=5), slide=timedelta(minutes=1)).with_timestamp_field("at")
    """

    __slots__ = ("_set",)  # a slot is not a durable attribute: after a restart the program's current settings apply
    _set: Windowing

    starts_trees = True

    @abstractmethod
    def execute(self, window: TupleWindow, collector: WindowCollector) -> Any:
        """Called once for each window that has tuples, in the order in which the windows are due.

        Each list of values that it yields is emitted. If it raises, the exception is reported, what was emitted for
        this window is dropped, and the window is not shown again; with ``with_ack_on_expiry`` the trees of the
        window's tuples fail. Use ``window`` within this call only.
        """

    # Which windows.

    @checked
    def with_window(
        self: Bolt,
        length: Annotated[Count | timedelta, LENGTH],
        slide: Annotated[Count | timedelta, LENGTH] | None = None,
        *,
        closed: Closed | None = None,
    ) -> Bolt:
        """Use windows of a given length that slide by ``slide``; without ``slide`` there is a window for every tuple.

        In event time, windows that slide by time end at multiples of the slide, and a window that ends at ``end``
        holds ``(end - length, end]``. On arrival, timers start when the task starts.

        Args:
            length: a ``Count`` of tuples, or a duration.
            slide: the distance from one window to the next: a ``Count`` or a duration; either goes with any length.
            closed: which end belongs to a window that slides by time. ``"left"`` means ``[end - length, end)``: a tuple
                right on a boundary belongs to the window that begins there, which fits timestamps in whole seconds.
                The default is ``"right"`` in event time, as in Storm, and ``"left"`` on arrival, where nothing else
                is possible.
        """
        return self._with(length=length, slide=slide, closed=closed)

    @checked
    def with_tumbling_window(
        self: Bolt, length: Annotated[Count | timedelta, LENGTH], *, closed: Closed | None = None
    ) -> Bolt:
        """Use windows that follow one another without overlap: each tuple is in one window.

        Args:
            length: a ``Count`` of tuples, or a duration.
            closed: see ``with_window``.
        """
        return self._with(length=length, slide=length, closed=closed)

    @checked
    def with_session_gap(self: Bolt, gap: Annotated[timedelta, duration()]) -> Bolt:
        """Use sessions: a window holds tuples that are less than ``gap`` apart and ends ``gap`` after the last one."""
        return self._with(gap=gap)

    @checked
    def with_policies(
        self: Bolt, eviction: Annotated[EvictionPolicy, EVICTION], trigger: Annotated[TriggerPolicy, TRIGGER]
    ) -> Bolt:
        """Use your own policies to make windows; each task, or each key, works with copies of them."""
        return self._with(policies=(eviction, trigger))

    @checked
    def with_key(self: Bolt, *fields: str, idle_timeout: Annotated[timedelta, duration()] | None = None) -> Bolt:
        """Keep a separate window for each value of some fields, within each task: group the input by the same fields.

        ``window.key`` is the value, or a tuple of values if there are several fields. A key whose window is empty is
        forgotten. If ``execute`` calls ``window.get_expired()``, the task keeps the last window of each key until the
        key has another one.

        Args:
            fields: names of fields that every input stream has.
            idle_timeout: a key that got no tuple for this long, by the micro-batch's clock, is forgotten together with
                the tuples of its window; a later window of this key shows none of them as expired. None: a key is kept
                while its window has tuples; a window with a count may always have tuples.
        """
        return self._with(key=verify("fields", fields, FIELDS), key_idle=idle_timeout)

    # Event time.

    @checked
    def with_timestamp_field(self: Bolt, field: Annotated[str, FIELD], *, unit: Unit | None = None) -> Bolt:
        """Use event time, and read it from a field that every input stream has.

        The field holds a number that counts from the epoch, or a ``datetime`` with a zone. A tuple whose time is before
        1970 fails for good: it is not retried.

        Args:
            field: the name of the field.
            unit: the unit of numbers: seconds (``"s"``), milliseconds, microseconds or nanoseconds; with a unit, they
                may have a fraction. Without one, they are whole milliseconds, and a number that seems to count seconds
                (1,000,000,000 to 9,999,999,999, which is 1970 in milliseconds) fails its tuple for good.
        """
        before = self._windowing.timestamp_field
        if before is not None:
            raise ConfigError(
                f"with_timestamp_field was called twice, with {before!r} and {field!r}: a tuple has one time"
            )
        return self._with(timestamp_field=field, timestamp_unit=unit)

    @checked
    def with_timestamp_extractor(
        self: Bolt,
        extractor: Annotated[Callable[[Tuple], float | datetime], function("a function of a tuple")],
        *,
        unit: Unit | None = None,
    ) -> Bolt:
        """Use event time, and read it with a function of the tuple, which must be picklable.

        The function returns a value like those in the field of ``with_timestamp_field``; ``unit`` is the same, too.
        """
        if self._windowing.timestamp_extractor is not None:
            raise ConfigError("with_timestamp_extractor was called twice, expected one extractor")
        return self._with(timestamp_extractor=extractor, timestamp_unit=unit)

    @checked
    def with_lag(self: Bolt, lag: Annotated[timedelta, duration(0)]) -> Bolt:
        """Set how far out of order tuples may arrive: the watermark stays this far behind the newest tuple; default 0.

        Tuples of several files or kafka_partitions need no lag among one another: each of these sources has a newest
        tuple of its own.
        """
        return self._with(lag=lag)

    @checked
    def with_max_future(self: Bolt, max_future: Annotated[timedelta, duration(0, None)]) -> Bolt:
        """Set how far ahead of the micro-batch's time a timestamp may be; ten years by default.

        A tuple whose timestamp is further ahead, for example because it counts microseconds and ``unit`` does not say
        so, fails for good with an error message that names the cause. It does not move the watermark: otherwise every
        later tuple would be late.
        """
        return self._with(max_future=max_future)

    @checked
    def with_watermark_interval(self: Bolt, interval: Annotated[timedelta, duration()]) -> Bolt:
        """Set how often the watermark may move: at most once per interval (default one second).

        The watermark moves at the end of a micro-batch.
        """
        return self._with(watermark_interval=interval)

    @checked
    def with_late_tuple_stream(self: Bolt, stream: Annotated[str, text("the name of a stream")]) -> Bolt:
        """Send late tuples to a stream of this bolt, each anchored to itself.

        A tuple is late if it is older than the watermark, or if its time is the very end of a window that the watermark
        has reached and no later window can hold it. This call declares the stream. It has one field, ``late_tuple``,
        which holds a ``LateTuple``. Without such a stream, late tuples are counted, logged once in a while, and acked.
        """
        declared: Any = fields_of_class(self.outputs) if isinstance(self.outputs, type) else self.outputs
        if declared is None or isinstance(declared, list | tuple | Mapping):
            streams = declared if isinstance(declared, Mapping) else {DEFAULT_STREAM: declared} if declared else {}
            self.outputs = {stream: [LATE_FIELD], **streams}
        return self._with(late_stream=stream)

    @checked
    def with_idle_stream_timeout(self: Bolt, timeout: Annotated[timedelta, duration()]) -> Bolt:
        """Let the watermark ignore an input stream that was silent for this long, by the micro-batch's clock.

        It also ignores a followed file, or a kafka_partition, that had nothing to read for this long (by default ten
        seconds). If all streams are silent, the watermark continues with the clock, to the end of the last window that
        holds a tuple; if all sources are read to their ends, it goes there at once.
        """
        return self._with(idle_timeout=timeout)

    # Reliability and memory.

    def with_ack_on_expiry(self: Bolt) -> Bolt:
        """Ack tuples when they expire, and anchor emissions of ``execute`` to the tuples of the window, as Storm does.

        A window must then fit into the message timeout, or, if it is a count, into ``max_spout_pending``.
        """
        self.starts_trees = False
        return self._with(ack_on_expiry=True)

    @checked
    def with_message_id_field(self: Bolt, field: Annotated[str, FIELD]) -> Bolt:
        """Drop tuples whose message id was seen before, also if that was before a restart.

        In every input stream, ``field`` holds a number that rises with each message of one source task and stream.
        Consecutive whole numbers are stored as one run. For each source, the 10,000 runs with the highest numbers are
        stored. A tuple whose number is not stored is never dropped.
        """
        return self._with(message_id_field=field)

    @checked
    def with_max_events_in_memory(self: Bolt, tuples: Annotated[int, whole()]) -> Bolt:
        """Keep about ``tuples`` tuples of a task's windows in memory; others are read back when they are needed."""
        return self._with(max_events_in_memory=tuples)

    # The engine calls these.

    @property
    def _windowing(self) -> Windowing:
        return getattr(self, "_set", None) or Windowing()

    def _with(self: Bolt, **settings: Any) -> Bolt:
        self._set = replace(self._windowing, **settings)
        return self

    def mistakes(
        self,
        config: Config,
        streams: Mapping[str, tuple[str, ...]],
        inputs: Mapping[tuple[str, str], tuple[str, ...]],
    ) -> list[str]:
        """Return the mistakes in the settings, one sentence each; see ``RuntimeBolt``."""
        return list(mistakes_of(self._windowing, config, streams, inputs))

    def stored_settings(self) -> Mapping[str, str]:
        """Return the settings on which stored windows depend; see ``RuntimeBolt``."""
        return stored_settings(self._windowing)

    def settings_change(self, before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
        """Return why the stored windows cannot go on with other settings; see ``RuntimeBolt``."""
        return settings_change(before, after)

    def divides(self, fields: tuple[str, ...] | None) -> str | None:
        """Windows whose key is that of the fields grouping move with their keys; see ``RuntimeBolt``."""
        key = self._windowing.key
        mend = "let it have as many tasks as before, or give it another id, under which its windows begin empty"
        if key is None:
            return f"the tuples in its windows cannot be divided, since its windows have no key: {mend}"
        if key != fields:
            names = ", ".join(map(repr, key))
            return f"its windows have the key {names}, and their tuples are not grouped by these fields: {mend}"
        return None

    def split_state(
        self, state: TaskState, places: Callable[[Sequence[Any]], Mapping[int, Any]], parts: int
    ) -> dict[int, bytes]:
        """Return the shares of the windows of a task; see ``RuntimeBolt``."""
        from sparkbolt.windows.shares import split_windows

        return split_windows(state, places, parts)

    def join_state(self, state: TaskState, pieces: Sequence[bytes]) -> None:
        """Write the windows of a new task; see ``RuntimeBolt``."""
        from sparkbolt.windows.shares import join_windows

        join_windows(state, pieces)

    @property
    def runs_timers(self) -> bool:
        """Whether windows are due at fixed times; see ``RuntimeBolt``."""
        return self._windowing.runs_timers

    @property
    def has_watermark(self) -> bool:
        """Whether windows are in event time; see ``RuntimeBolt``."""
        return self._windowing.in_event_time

    @property
    def idle_timeout_ms(self) -> int | None:
        """The timeout of ``with_idle_stream_timeout``; see ``RuntimeBolt``."""
        idle = self._windowing.idle_timeout
        return None if idle is None else ms(idle)

    def runtime(self, context: TopologyContext, output: Output) -> BoltRuntime:
        """Return the runtime of this bolt in a task; see ``RuntimeBolt``."""
        from sparkbolt.windows.task import WindowTask

        return WindowTask(self, self._windowing, context, output)
