"""The windowed bolt: the class that users subclass, and Storm's methods that set its windows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from sparkbolt.api.arguments import Check, checked, function, verify, whole
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.api.runtime_bolts import LATE_FIELD, RuntimeBolt
from sparkbolt.api.tuples import Tuple
from sparkbolt.base.exceptions import printed
from sparkbolt.errors import ConfigError, UnknownNameError
from sparkbolt.windows.grid import Grid
from sparkbolt.windows.kinds import (
    EVICTION,
    FIELD,
    FIELDS,
    LENGTH,
    STREAM,
    TRIGGER,
    Closed,
    Count,
    Policies,
    Session,
    Sliding,
    Tumbling,
    Unit,
    Window,
    duration,
    shown,
)
from sparkbolt.windows.policies import EvictionPolicy
from sparkbolt.windows.settings import mistakes_of, settings_change, stored_settings
from sparkbolt.windows.triggers import TriggerPolicy
from sparkbolt.worker.bolt_runtime import BoltRuntime

if TYPE_CHECKING:
    from sparkbolt.windows.collector import WindowCollector
    from sparkbolt.windows.window import TupleWindow
    from sparkbolt.worker.emissions import Output
    from sparkbolt.worker.state.task_state import TaskState

Bolt = TypeVar("Bolt", bound="WindowedBolt")
WINDOW = Check("a window, such as Tumbling(minutes=1)", lambda value: isinstance(value, Window))


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

    The class attribute ``window`` says which windows; ``windowed`` gives one bolt others than its class has. A window's
    content is durable: it is committed with each micro-batch, and its tuples are acked then. What ``execute`` emits
    starts new trees.

    >>> class Total(WindowedBolt):
    ...     outputs = ["total"]
    ...     window = Sliding(minutes=5, every=timedelta(minutes=1), timestamp="at")
    ...     def execute(self, window, collector):
    ...         collector.emit([sum(tup["amount"] for tup in window)])
    >>> by_user = Total().windowed(Session(gap=timedelta(minutes=30), key="user"))

    Storm's ``with_...`` methods are there, too. Each changes the bolt and returns it: it makes a window of the one that
    the bolt has and of its arguments.

    >>> by_user = Total().with_key("user").with_lag(timedelta(seconds=5))
    """

    __slots__ = ("_set",)  # a slot is not a durable attribute: after a restart the program's current settings apply
    _set: Window

    window: Window | None = None
    """The windows of the bolts of a class, such as ``Tumbling(minutes=1)``."""

    @abstractmethod
    def execute(self, window: TupleWindow, collector: WindowCollector) -> Any:
        """Called once for each window that has tuples, in the order in which the windows are due.

        Each list of values that it yields is emitted. If it raises, the exception is reported, what was emitted for
        this window is dropped, and the window is not shown again; with ``ack_on_expiry`` the trees of the window's
        tuples fail. Use ``window`` within this call only.
        """

    @checked
    def windowed(self: Bolt, window: Annotated[Window, WINDOW]) -> Bolt:
        """Use these windows, instead of those of the class; returns the bolt.

        >>> class Size(WindowedBolt):
        ...     outputs = ["size"]
        ...     def execute(self, window, collector):
        ...         yield [len(window)]
        >>> sizes = Size().windowed(Count(100, every=10))
        """
        self._set = window
        return self

    # Storm's methods: which windows.

    @checked
    def with_window(
        self: Bolt,
        length: Annotated[Count | timedelta, LENGTH],
        slide: Annotated[Count | timedelta, LENGTH] | None = None,
        *,
        closed: Closed | None = None,
    ) -> Bolt:
        """Use windows of a given length that slide by ``slide``; without ``slide`` there is a window for every tuple.

        The same as ``Sliding(length, every=slide)``, or ``Count(length, every=slide)``.

        Args:
            length: a ``Count`` of tuples, or a duration.
            slide: the distance from one window to the next: a ``Count`` or a duration; either goes with any length.
            closed: which end belongs to a window that slides by time; see ``Tumbling``.
        """
        every = Count(1) if slide is None else slide
        if isinstance(length, Count):
            return self._shaped("with_window", Count, tuples=length.tuples, every=every, closed=closed)
        return self._shaped("with_window", Sliding, length=length, every=every, closed=closed)

    @checked
    def with_tumbling_window(
        self: Bolt, length: Annotated[Count | timedelta, LENGTH], *, closed: Closed | None = None
    ) -> Bolt:
        """Use windows that follow one another without overlap: the same as ``Tumbling(length)``, or a ``Count``.

        Args:
            length: a ``Count`` of tuples, or a duration.
            closed: see ``with_window``.
        """
        if isinstance(length, Count):
            return self._shaped("with_tumbling_window", Count, tuples=length.tuples, closed=closed)
        return self._shaped("with_tumbling_window", Tumbling, length=length, closed=closed)

    @checked
    def with_session_gap(self: Bolt, gap: Annotated[timedelta, duration()]) -> Bolt:
        """Use sessions: the same as ``Session(gap=gap)``."""
        return self._shaped("with_session_gap", Session, gap=gap)

    @checked
    def with_policies(
        self: Bolt, eviction: Annotated[EvictionPolicy, EVICTION], trigger: Annotated[TriggerPolicy, TRIGGER]
    ) -> Bolt:
        """Use your own policies to make windows: the same as ``Policies(eviction, trigger)``."""
        return self._shaped("with_policies", Policies, eviction=eviction, trigger=trigger)

    # Storm's methods: the settings that all kinds of windows have.

    @checked
    def with_key(self: Bolt, *fields: str, idle_timeout: Annotated[timedelta, duration()] | None = None) -> Bolt:
        """Keep a window for each value of some fields; ``Window.key``, and ``key_idle`` for ``idle_timeout``."""
        return self._with(key=verify("fields", fields, FIELDS), key_idle=idle_timeout)

    @checked
    def with_timestamp_field(self: Bolt, field: Annotated[str, FIELD], *, unit: Unit | None = None) -> Bolt:
        """Use event time, and read it from a field that every input stream has; ``Window.timestamp`` and ``unit``."""
        return self._timed("with_timestamp_field", field, unit)

    @checked
    def with_timestamp_extractor(
        self: Bolt,
        extractor: Annotated[Callable[[Tuple], float | datetime], function("a function of a tuple")],
        *,
        unit: Unit | None = None,
    ) -> Bolt:
        """Use event time, and read it with a picklable function of the tuple; ``Window.timestamp`` and ``unit``."""
        return self._timed("with_timestamp_extractor", extractor, unit)

    @checked
    def with_lag(self: Bolt, lag: Annotated[timedelta, duration(0)]) -> Bolt:
        """Set how far out of order tuples may arrive; ``Window.lag``."""
        return self._with(lag=lag)

    @checked
    def with_max_future(self: Bolt, max_future: Annotated[timedelta, duration(0, None)]) -> Bolt:
        """Set how far ahead of the micro-batch's time a timestamp may be; ``Window.max_future``."""
        return self._with(max_future=max_future)

    @checked
    def with_watermark_interval(self: Bolt, interval: Annotated[timedelta, duration()]) -> Bolt:
        """Set how often the watermark may move; ``Window.watermark_interval``."""
        return self._with(watermark_interval=interval)

    @checked
    def with_late_tuple_stream(self: Bolt, stream: Annotated[str, STREAM]) -> Bolt:
        """Send late tuples to a stream of this bolt, which this call declares; ``Window.late``."""
        return self._with(late=stream)

    @checked
    def with_idle_stream_timeout(self: Bolt, timeout: Annotated[timedelta, duration()]) -> Bolt:
        """Let the watermark ignore an input stream that was silent for this long; ``Window.idle``."""
        return self._with(idle=timeout)

    def with_ack_on_expiry(self: Bolt) -> Bolt:
        """Ack tuples when they expire, as Storm does; ``Window.ack_on_expiry``."""
        return self._with(ack_on_expiry=True)

    @checked
    def with_message_id_field(self: Bolt, field: Annotated[str, FIELD]) -> Bolt:
        """Drop tuples whose message id was seen before; ``Window.message_id``."""
        return self._with(message_id=field)

    @checked
    def with_max_events_in_memory(self: Bolt, tuples: Annotated[int, whole()]) -> Bolt:
        """Keep about ``tuples`` tuples of a task's windows in memory; ``Window.max_events_in_memory``."""
        return self._with(max_events_in_memory=tuples)

    def _with(self: Bolt, **settings: Any) -> Bolt:
        return self.windowed(replace(self.own_window, **settings))

    def _timed(self: Bolt, method: str, timestamp: Any, unit: Unit | None) -> Bolt:
        before = self.own_window.timestamp
        if before is not None:
            raise ConfigError(
                f"{method}: a tuple has one time, and its windows have timestamp={shown(before)}: leave one of the two "
                "out"
            )
        return self._with(timestamp=timestamp, unit=unit)

    def _shaped(self: Bolt, method: str, kind: type[Window], **settings: Any) -> Bolt:
        """Use windows of a kind, with the other settings that the bolt has."""
        before = self.own_window
        known = type(before) is Window or type(before) is kind or {type(before), kind} <= {Tumbling, Sliding, Count}
        if not known:
            raise ConfigError(
                f"{method}: a window has one shape, and the bolt has {before!r} already: leave one of the two out"
            )
        common = {each.name: getattr(before, each.name) for each in fields(Window)}
        return self.windowed(kind(**{**common, **settings}))

    # The engine calls these.

    @property
    def own_window(self) -> Window:
        """The windows of this bolt; a ``Window`` without a shape if there are none."""
        own = getattr(self, "_set", None) or type(self).window
        return own if isinstance(own, Window) else Window()

    @property
    def starts_trees(self) -> bool:  # type: ignore[override]  # it follows from the windows
        """Whether emitted tuples start trees: not if tuples are acked when they expire; see ``BoltBase``."""
        return not self.own_window.ack_on_expiry

    def runtime_outputs(self) -> Mapping[str, Sequence[str]]:
        """Return the stream of late tuples; see ``RuntimeBolt``."""
        late = self.own_window.late
        return {} if late is None else {late: [LATE_FIELD]}

    def mistakes(
        self,
        config: Config,
        streams: Mapping[str, tuple[str, ...]],
        inputs: Mapping[tuple[str, str], tuple[str, ...]],
    ) -> list[str]:
        """Return the mistakes in the settings, one sentence each; see ``RuntimeBolt``."""
        declared: Any = type(self).window
        if not hasattr(self, "_set"):
            if isinstance(vars(self).get("window"), Window):
                return [
                    "its __init__ sets self.window: write self.windowed(...) there, which is this bolt's own window"
                ]
            if declared is not None and not isinstance(declared, Window):
                return [f"window={printed(declared)}: expected {WINDOW.expected}"]
        return list(mistakes_of(self.own_window, config, streams, inputs))

    def stored_settings(self) -> Mapping[str, str]:
        """Return the settings on which stored windows depend; see ``RuntimeBolt``."""
        return stored_settings(self.own_window)

    def settings_change(self, before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
        """Return why the stored windows cannot go on with other settings; see ``RuntimeBolt``."""
        return settings_change(before, after)

    def divides(self, fields: tuple[str, ...] | None) -> str | None:
        """Windows whose key is that of the fields grouping move with their keys; see ``RuntimeBolt``."""
        key = self.own_window.key_fields
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
        window = self.own_window
        grid = Grid.of(window)
        by_time = grid is not None and grid.bounds is not None
        return not window.in_event_time and (by_time or isinstance(window, Policies))

    @property
    def has_watermark(self) -> bool:
        """Whether windows are in event time; see ``RuntimeBolt``."""
        return self.own_window.in_event_time

    @property
    def idle_timeout_ms(self) -> int | None:
        """The setting ``idle`` of its windows; see ``RuntimeBolt``."""
        return self.own_window.idle_ms

    def runtime(self, context: TopologyContext, output: Output) -> BoltRuntime:
        """Return the runtime of this bolt in a task; see ``RuntimeBolt``."""
        from sparkbolt.windows.task import WindowTask

        return WindowTask(self, self.own_window, context, output)
