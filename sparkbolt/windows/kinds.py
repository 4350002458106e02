"""Kinds: the windows of a bolt as values: ``Tumbling``, ``Sliding``, ``Session``, ``Count`` and ``Policies``.

A value holds everything that a program says about the windows of a bolt. The ``with_...`` methods of a bolt make such
values, too; there is no other representation of the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, fields
from datetime import datetime, timedelta
from types import FunctionType
from typing import Annotated, Any, Literal, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from sparkbolt.api.arguments import PART_OF_TUPLE, Check, text, verify, verify_fields, whole
from sparkbolt.api.config import did_you_mean
from sparkbolt.api.durations import NUMBER, duration_text, in_largest_unit
from sparkbolt.api.tuples import Tuple
from sparkbolt.errors import ConfigError
from sparkbolt.windows.bounds import DAY_MS, HOUR_MS
from sparkbolt.windows.policies import FOREVER_MS, EvictionPolicy
from sparkbolt.windows.triggers import TriggerPolicy

WATERMARK_INTERVAL_MS = 1000
MAX_FUTURE = timedelta(days=3650)
"""How far ahead of the clock a timestamp may be by default. It is enough for any forecast, and for a test whose clock
does not move; a timestamp in a wrong unit is thousands of years ahead."""
UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
"""The units of a timestamp."""
Closed: TypeAlias = Literal["left", "right"]
"""Which of its two ends belongs to a window."""
Unit: TypeAlias = Literal["s", "ms", "us", "ns"]
"""The unit of a timestamp: seconds, milliseconds, microseconds or nanoseconds."""


def ms(duration: timedelta) -> int:
    """A duration in whole milliseconds."""
    return duration // timedelta(milliseconds=1)


def duration(least_ms: int = 1, most_ms: int | None = FOREVER_MS) -> Check:
    """The check of a timedelta of at least ``least_ms``, and of at most ``most_ms`` (24 days, as in Storm)."""
    end = float("inf") if most_ms is None else most_ms
    most = "" if most_ms is None else " and at most 24 days"
    return Check(
        f"a timedelta of at least {least_ms} ms{most}, such as seconds(10)",
        lambda value: isinstance(value, timedelta) and least_ms <= ms(value) <= end,
    )


def _is_plain(value: Any) -> bool:
    return isinstance(value, Count) and value == Count(value.tuples)


LENGTH = Check(
    f"a Count, such as Count(5), or {duration().expected}",
    lambda value: _is_plain(value) or duration().accepts(value),
)
EVERY = Check(
    f"a number of tuples, such as 10, or {duration().expected}",
    lambda value: whole().accepts(value) or _is_plain(value) or duration().accepts(value),
)
FIELD = text("the name of a field")
FIELDS = Check("the names of fields", lambda value: bool(value) and all(map(FIELD.accepts, value)))
KEY = Check(
    "the name of a field, such as 'user', or a list of names",
    lambda value: (
        FIELD.accepts(value) if isinstance(value, str) else isinstance(value, tuple) and FIELDS.accepts(value)
    ),
)
STREAM = text("the name of a stream")
EVICTION = Check("an EvictionPolicy", lambda value: isinstance(value, EvictionPolicy))
TRIGGER = Check("a TriggerPolicy", lambda value: isinstance(value, TriggerPolicy))


@dataclass(frozen=True, kw_only=True, repr=False)
class Window:
    """The settings that all kinds of windows have; subclasses say which windows there are.

    A window is a value: it never changes, is compared by its settings, and its ``repr`` is the expression that makes
    it. ``dataclasses.replace`` makes one with other settings.
    """

    timestamp: Annotated[str | Callable[[Tuple], float | datetime], PART_OF_TUPLE] | None = None
    """Where the time of a tuple is: a field that every input stream has, or a picklable function of the tuple. It is a
    number that counts from the epoch, or a ``datetime`` with a zone; a tuple of before 1970 fails for good. None: the
    time of a tuple is its arrival."""
    unit: Unit | None = None
    """The unit of numbers in ``timestamp``: seconds (``"s"``), milliseconds, microseconds or nanoseconds; with a unit,
    they may have a fraction. Without one, they are whole milliseconds, and a number that seems to count seconds
    (1,000,000,000 to 9,999,999,999, which is 1970 in milliseconds) fails its tuple for good."""
    lag: Annotated[timedelta, duration(0)] | None = None
    """How far out of order tuples may arrive: the watermark stays this far behind the newest tuple. None: 0. Tuples of
    several files or kafka_partitions need no lag among one another: each source has a newest tuple of its own."""
    idle: Annotated[timedelta, duration()] | None = None
    """After this time without a tuple, by the micro-batch's clock, an input stream no longer holds the watermark back,
    and neither does a followed file or a kafka_partition that had nothing to read (by default ten seconds). If all
    streams are silent, the watermark continues with the clock, to the end of the last window that holds a tuple; if all
    sources are read to their ends, it goes there at once."""
    key: Annotated[str | Sequence[str], KEY] | None = None
    """The fields, which every input stream has, for each value of which there is a window of its own, within each task:
    group the input by the same fields. ``window.key`` is the value, or a tuple of values if there are several fields. A
    key whose window is empty is forgotten. If ``execute`` calls ``window.get_expired()``, the task keeps the last
    window of each key until the key has another one."""
    key_idle: Annotated[timedelta, duration()] | None = None
    """A key that got no tuple for this long, by the micro-batch's clock, is forgotten together with the tuples of its
    window; a later window of this key shows none of them as expired. None: a key is kept while its window has tuples; a
    window with a count may always have tuples."""
    late: Annotated[str, STREAM] | None = None
    """The stream to which late tuples go, each anchored to itself. A tuple is late if it is older than the watermark,
    or if its time is the very end of a window that the watermark has reached and no later window can hold it. The bolt
    has this stream besides its ``outputs``, with one field, ``late_tuple``, which holds a ``LateTuple``. None: late
    tuples are counted, logged once in a while, and acked."""
    closed: Closed | None = None
    """Which end belongs to a window that slides by time. ``"left"`` means ``[end - length, end)``: a tuple right on a
    boundary belongs to the window that begins there, which fits timestamps in whole seconds. None: ``"right"`` in event
    time, as in Storm; ``"left"`` by the clock of a ``timezone``, and on arrival, where nothing else is possible."""
    max_future: Annotated[timedelta, duration(0, None)] | None = None
    """How far ahead of the micro-batch's time a timestamp may be. None: ten years. A tuple whose timestamp is further
    ahead, for example because it counts microseconds and ``unit`` does not say so, fails for good, and does not move
    the watermark: otherwise every later tuple would be late."""
    watermark_interval: Annotated[timedelta, duration()] | None = None
    """The watermark moves at most once in this time, at the end of a micro-batch. None: one second."""
    message_id: Annotated[str, FIELD] | None = None
    """A field of every input stream: a tuple whose value in it was seen before is dropped, also after a restart. The
    field holds a number that rises with each message of one source task and stream. Consecutive whole numbers are
    stored as one run; for each source, the 10,000 runs with the highest numbers. A tuple whose number is not stored is
    never dropped."""
    ack_on_expiry: bool = False
    """Whether tuples are acked when they expire, and emissions of ``execute`` are anchored to the tuples of the window,
    as in Storm. A window must then fit into the message timeout, or, if it is a count, into ``max_spout_pending``."""
    max_events_in_memory: Annotated[int, whole()] | None = None
    """About how many tuples of a task's windows stay in memory; others are read back when they are needed. None: all
    of them."""

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: a setting is invalid; the error names it and says what to write.
        """
        self._check()

    def _check(self) -> None:
        """Check the settings, and give equal ones one form."""
        if isinstance(self.key, list | tuple):
            self._settle(key=self.key[0] if len(self.key) == 1 else tuple(self.key))
        verify_fields(self)

    def _settle(self, **settings: Any) -> None:
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        """Return the expression that makes it."""
        names = {each.name: each.default for each in fields(Window)}
        settings = [
            f"{name}={shown(getattr(self, name))}" for name, default in names.items() if getattr(self, name) != default
        ]
        return f"{type(self).__name__}({', '.join([*self._shape(), *settings])})"

    def _shape(self) -> Iterator[str]:
        """Yield the arguments that only this kind has."""
        yield from ()

    # The settings as the engine uses them.

    @property
    def in_event_time(self) -> bool:
        """Whether tuples carry their own time."""
        return self.timestamp is not None

    @property
    def key_fields(self) -> tuple[str, ...] | None:
        """The names of the fields of the key."""
        return (self.key,) if isinstance(self.key, str) else None if self.key is None else tuple(self.key)

    @property
    def idle_ms(self) -> int | None:
        """The setting ``idle`` in milliseconds."""
        return None if self.idle is None else ms(self.idle)

    @property
    def watermark_interval_ms(self) -> int:
        """The least time between two moves of the watermark, in milliseconds."""
        return WATERMARK_INTERVAL_MS if self.watermark_interval is None else ms(self.watermark_interval)

    @property
    def max_future_ms(self) -> int:
        """How far ahead of the micro-batch's time a timestamp may be, in milliseconds."""
        return ms(MAX_FUTURE if self.max_future is None else self.max_future)


def shown(value: Any) -> str:
    """A setting as an expression of Python."""
    if isinstance(value, timedelta):
        return duration_text(value)
    return value.__qualname__ if isinstance(value, FunctionType | type) else repr(value)


@dataclass(frozen=True, repr=False)
class _OfTime(Window):
    """Windows whose length is a time: given as a duration, or as numbers of units, which are added up."""

    length: Annotated[timedelta, duration()] = timedelta(0)
    """The length of a window; ``minutes=1`` and the like set it, too."""
    _: KW_ONLY
    days: InitVar[float] = 0
    hours: InitVar[float] = 0
    minutes: InitVar[float] = 0
    seconds: InitVar[float] = 0
    milliseconds: InitVar[float] = 0

    def __post_init__(self, days: float, hours: float, minutes: float, seconds: float, milliseconds: float) -> None:
        """See ``Window``."""
        numbers = {"days": days, "hours": hours, "minutes": minutes, "seconds": seconds, "milliseconds": milliseconds}
        kind, chosen = type(self).__name__, [name for name, number in numbers.items() if number != 0]
        units = timedelta(**{name: verify(name, number, NUMBER) for name, number in numbers.items()})
        if chosen and self.length:
            raise ConfigError(f"length and {chosen[0]} both set the length of {kind}: leave one of them out")
        if not chosen and not self.length:
            raise ConfigError(f"{kind}() has no length: write {kind}(minutes=1{self._rest})")
        if chosen:
            self._settle(length=units)
        self._check()

    _rest = ""
    """The other arguments in the example of a call."""

    def _shape(self) -> Iterator[str]:
        whole_units = in_largest_unit(self.length)
        yield duration_text(self.length) if whole_units is None else "{}={}".format(*whole_units)


@dataclass(frozen=True, repr=False)
class Tumbling(_OfTime):
    """Windows of time that follow one another without overlap: each tuple is in one window.

    In event time they end at multiples of their length, in UTC or by the clock of a ``timezone``. On arrival, their
    timers start when the task starts; with a ``timezone``, its clock counts.

    >>> Tumbling(minutes=1) == Tumbling(timedelta(seconds=60))
    True
    >>> Tumbling(days=1, timestamp="at", timezone="Europe/Berlin")
    Tumbling(days=1, timezone='Europe/Berlin', timestamp='at')
    """

    _: KW_ONLY
    timezone: str | None = None
    """The name of a time zone, such as ``"Europe/Berlin"``, for windows of whole days, or of a number of whole hours
    that divides a day. They begin when the clock on the wall first shows a multiple of their length from midnight on:
    a day on which the clock changes has 23 or 25 hours. Several days count from 1 January 1970. None: UTC."""

    def _check(self) -> None:
        super()._check()
        zone = self.timezone
        if zone is None:
            return
        if not isinstance(zone, str):
            raise ConfigError(f"timezone={zone!r}: expected the name of a time zone, such as 'Europe/Berlin'")
        try:
            ZoneInfo(zone)
        except (OSError, ValueError, LookupError):
            hint = did_you_mean(zone, available_timezones()) or ", such as 'Europe/Berlin'"
            raise ConfigError(f"timezone={zone!r}: expected the name of a time zone{hint}") from None
        length_ms = ms(self.length)
        if self.length % timedelta(hours=1) or (length_ms % DAY_MS and DAY_MS % length_ms):
            raise ConfigError(
                f"timezone={zone!r}: by the clock of a zone windows have whole days, such as days=1, or 1, 2, 3, 4, 6, "
                f"8 or 12 hours, such as hours=6; these have {length_ms / HOUR_MS:g} hours"
            )

    def _shape(self) -> Iterator[str]:
        yield from super()._shape()
        if self.timezone is not None:
            yield f"timezone={self.timezone!r}"


@dataclass(frozen=True, repr=False)
class Sliding(_OfTime):
    """Windows of time that overlap, or leave gaps if ``every`` is longer than the length.

    In event time, windows that slide by time end at multiples of ``every``. On arrival, timers start when the task
    starts.

    >>> Sliding(seconds=20, every=timedelta(seconds=10), timestamp="at")
    Sliding(seconds=20, every=seconds(10), timestamp='at')
    """

    _: KW_ONLY
    every: Annotated[timedelta | Count, LENGTH] = timedelta(0)
    """The distance from one window to the next: a duration, or a ``Count`` of tuples. With ``Count(1)`` there is a
    window for every tuple."""
    _rest = ", every=seconds(10)"

    def _check(self) -> None:
        if not self.every:
            raise ConfigError(
                "Sliding() has no every: write every=seconds(10), or every=Count(1) for a window with every tuple"
            )
        super()._check()

    def _shape(self) -> Iterator[str]:
        yield from super()._shape()
        yield f"every={shown(self.every)}"


@dataclass(frozen=True, repr=False)
class Session(Window):
    """Sessions: a window holds tuples that are less than ``gap`` apart, and ends ``gap`` after the last one.

    >>> Session(gap=timedelta(minutes=30), key="user")
    Session(gap=minutes(30), key='user')
    """

    gap: Annotated[timedelta, duration()]
    """The time without a tuple that ends a session."""

    def _shape(self) -> Iterator[str]:
        yield f"gap={shown(self.gap)}"


@dataclass(frozen=True, repr=False)
class Count(Window):
    """Windows of a number of tuples; also the number itself, as the ``every`` of ``Sliding``.

    >>> Count(100), Count(100, every=10)
    (Count(100), Count(100, every=10))
    """

    tuples: Annotated[int, whole()]
    """The length of a window."""
    _: KW_ONLY
    every: Annotated[int | timedelta | Count, EVERY] | None = None
    """The distance from one window to the next: a number of tuples, or a duration. With 1 there is a window for every
    tuple. None: windows follow one another without overlap."""

    def _check(self) -> None:
        super()._check()
        every = self.every.tuples if isinstance(self.every, Count) else self.every
        self._settle(every=None if every == self.tuples else every)

    def _shape(self) -> Iterator[str]:
        yield repr(self.tuples)
        if self.every is not None:
            yield f"every={shown(self.every)}"


@dataclass(frozen=True, repr=False)
class Policies(Window):
    """Windows that your own policies make; each task, or each key, works with copies of them."""

    eviction: Annotated[EvictionPolicy, EVICTION]
    """Says which tuples are in a window, and which have expired."""
    trigger: Annotated[TriggerPolicy, TRIGGER]
    """Says when a window is shown."""

    def _shape(self) -> Iterator[str]:
        yield f"{self.eviction!r}, {self.trigger!r}"
