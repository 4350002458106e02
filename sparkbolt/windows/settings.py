"""The settings of a windowed bolt: their valid values, and which of them fit together.

The checks are those of Storm's ``WindowedBoltExecutor``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from sparkbolt.api.arguments import Check, text
from sparkbolt.api.config import Config, did_you_mean
from sparkbolt.api.method_validation import is_ours
from sparkbolt.api.runtime_bolts import LATE_FIELD
from sparkbolt.windows.firing import Count, Extent
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


def duration(least_ms: int = 1, most_ms: int | None = FOREVER_MS) -> Check:
    """The check of a timedelta of at least ``least_ms``, and of at most ``most_ms`` (24 days, as in Storm)."""
    end = float("inf") if most_ms is None else most_ms
    return Check(
        f"a timedelta of at least {least_ms} ms" + ("" if most_ms is None else " and at most 24 days"),
        lambda value: isinstance(value, timedelta) and least_ms <= ms(value) <= end,
    )


LENGTH = Check(
    f"a Count, such as Count(5), or {duration().expected}",
    lambda value: isinstance(value, Count) or duration().accepts(value),
)
FIELD = text("the name of a field")
FIELDS = Check("the names of fields", lambda value: bool(value) and all(map(FIELD.accepts, value)))


@dataclass(frozen=True)
class Windowing:
    """The settings that the ``with_...`` methods have stored."""

    length: Count | timedelta | None = None
    slide: Count | timedelta | None = None
    closed: Closed | None = None
    """Which end belongs to a window that slides by time; None: as in Storm."""
    policies: tuple[EvictionPolicy, TriggerPolicy] | None = None
    gap: timedelta | None = None
    timestamp_field: str | None = None
    timestamp_extractor: Callable[[Any], Any] | None = None
    timestamp_unit: Unit | None = None
    """None: milliseconds, and numbers that seem to count seconds are refused."""
    lag: timedelta | None = None
    max_future: timedelta | None = None
    watermark_interval: timedelta | None = None
    late_stream: str | None = None
    idle_timeout: timedelta | None = None
    key: tuple[str, ...] | None = None
    key_idle: timedelta | None = None
    ack_on_expiry: bool = False
    message_id_field: str | None = None
    max_events_in_memory: int | None = None

    @property
    def in_event_time(self) -> bool:
        """Whether tuples carry their own time."""
        return self.timestamp_field is not None or self.timestamp_extractor is not None

    @property
    def runs_timers(self) -> bool:
        """Whether windows are due at fixed times after the start of their task."""
        return not self.in_event_time and (isinstance(self.slide, timedelta) or self.policies is not None)

    @property
    def length_extent(self) -> Extent:
        """The length, which must be set."""
        assert self.length is not None
        return _extent(self.length)

    @property
    def slide_extent(self) -> Extent:
        """The slide; one tuple unless it was set."""
        return Count(1) if self.slide is None else _extent(self.slide)

    @property
    def closed_left(self) -> bool:
        """Whether a window in event time that slides by time includes its start and excludes its end."""
        return self.closed == "left"

    @property
    def watermark_interval_ms(self) -> int:
        """The least time between two moves of the watermark, in milliseconds."""
        return WATERMARK_INTERVAL_MS if self.watermark_interval is None else ms(self.watermark_interval)

    @property
    def max_future_ms(self) -> int:
        """How far ahead of the micro-batch's time a timestamp may be, in milliseconds."""
        return ms(MAX_FUTURE if self.max_future is None else self.max_future)

    def closes_at(self, mark_ms: int) -> bool:
        """Whether a tuple whose time equals the watermark is late, since the watermark has closed its last window.

        A window that slides by time fires when the watermark reaches its end, and includes that end. So if windows do
        not overlap, a tuple with exactly that time is too late.
        """
        if self.length is None or mark_ms <= 0 or self.closed_left:
            return False
        length, slide = self.length_extent, self.slide_extent
        return isinstance(length, int) and isinstance(slide, int) and length <= slide and mark_ms % slide == 0


def ms(duration: timedelta) -> int:
    """A duration in whole milliseconds."""
    return duration // timedelta(milliseconds=1)


def _extent(length: Count | timedelta) -> Extent:
    return length if isinstance(length, Count) else ms(length)


def stored_settings(windowing: Windowing) -> dict[str, str]:
    """The settings on which stored windows depend, in words: with others, windows would be cut or tuples shown twice.

    The rest may change: the lag of the watermark, the rule for late tuples, and the limits of memory.

    >>> stored_settings(Windowing(timedelta(minutes=1), Count(5)))["the window's length"]
    '60 s'
    """
    kinds = {"the window's length": windowing.length, "the session gap": windowing.gap}
    settings = {name: "not set" if extent is None else _words(extent) for name, extent in kinds.items()}
    settings["the window's slide"] = _words(Count(1) if windowing.slide is None else windowing.slide)
    policies = [_policy(policy) for policy in windowing.policies or ()]
    settings["the pair of policies"] = ", ".join(policies) or "not set"
    field = windowing.timestamp_field
    by = "that of an extractor" if windowing.in_event_time else "that of arrival"
    settings["the time"] = by if field is None else f"that of the field {field!r}"
    if windowing.in_event_time and isinstance(windowing.slide, timedelta):
        settings["the closed side of the window"] = "left" if windowing.closed_left else "right"
    settings["the key of the windows"] = "not set" if windowing.key is None else ", ".join(map(repr, windowing.key))
    if windowing.message_id_field is not None:
        settings["the message id field"] = repr(windowing.message_id_field)
    return settings


def _words(extent: Count | timedelta) -> str:
    if isinstance(extent, Count):
        return f"Count({extent.tuples})"
    return f"{ms(extent) / 1000:,.3f}".rstrip("0").rstrip(".") + " s"


def _policy(policy: EvictionPolicy | TriggerPolicy) -> str:
    """The class of a policy; of our own ones also the arguments, whose old values the stored state would put back."""
    arguments = sorted(vars(policy).items()) if is_ours(type(policy)) else []
    settings = ", ".join(f"{name}={value!r}" for name, value in arguments if name[0] != "_")
    return f"{type(policy).__qualname__}({settings})"


def mistakes_of(
    windowing: Windowing,
    config: Config,
    streams: Mapping[str, tuple[str, ...]],
    inputs: Mapping[tuple[str, str], tuple[str, ...]],
) -> Iterator[str]:
    """Yield a sentence for each mistake.

    Args:
        windowing: the settings.
        config: the component's configuration.
        streams: the fields of the bolt's declared streams.
        inputs: the fields of the bolt's input streams, by (component, stream).
    """
    shape = list(_shape_mistakes(windowing))
    yield from shape
    yield from _event_time_mistakes(windowing, streams)
    yield from _field_mistakes(windowing, inputs)
    if windowing.ack_on_expiry and windowing.message_id_field is not None:
        yield (
            "with_message_id_field and with_ack_on_expiry exclude each other: a tuple is retried if a bolt after its "
            "window fails, and would be dropped as one that was seen before. Leave one of the two out"
        )
    if windowing.ack_on_expiry and not shape:
        if windowing.length is not None:
            yield from _expiry_mistakes(windowing, config)
        elif windowing.gap is not None and config.enable_message_timeouts:
            yield from _gap_mistakes(ms(windowing.gap), config.message_timeout_secs * 1000)


def _field_mistakes(windowing: Windowing, inputs: Mapping[tuple[str, str], tuple[str, ...]]) -> Iterator[str]:
    names = [
        ("with_timestamp_field", windowing.timestamp_field),
        ("with_message_id_field", windowing.message_id_field),
        *(("with_key", name) for name in windowing.key or ()),
    ]
    for method, name in names:
        for (component, stream), fields in inputs.items():
            if name is not None and name not in fields:
                hint = did_you_mean(name, fields) or f": its fields are {list(fields)}"
                yield f"{method}: {name!r} does not exist in stream {stream!r} of {component!r}{hint}"


def _shape_mistakes(windowing: Windowing) -> Iterator[str]:
    shapes = {"with_window": windowing.length, "with_session_gap": windowing.gap, "with_policies": windowing.policies}
    chosen = [name for name, setting in shapes.items() if setting is not None]
    if not chosen:
        yield "Window length is not specified: call with_window, with_tumbling_window or with_session_gap"
    elif len(chosen) > 1:
        yield f"{' and '.join(chosen)} were both called, expected one: a window has one shape"
    if windowing.closed is not None and not isinstance(windowing.slide, timedelta):
        yield (
            f"closed={windowing.closed!r} is for windows that slide by time: one that slides by tuples ends with a "
            "tuple, which is in it: leave closed out"
        )
    elif windowing.closed == "right" and not windowing.in_event_time:
        yield (
            "closed='right' is for windows in event time: on arrival a timer shows what came before it, [start, end): "
            "leave closed out, or call with_timestamp_field"
        )


def _event_time_mistakes(windowing: Windowing, streams: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    settings = {
        "Late tuple stream": windowing.late_stream,
        "A lag": windowing.lag,
        "A watermark interval": windowing.watermark_interval,
        "An idle stream timeout": windowing.idle_timeout,
        "A longest way into the future": windowing.max_future,
    }
    for what, setting in settings.items():
        if setting is not None and not windowing.in_event_time:
            yield f"{what} can be defined only when specifying a timestamp field: call with_timestamp_field"
    if windowing.timestamp_field is not None and windowing.timestamp_extractor is not None:
        yield "with_timestamp_field and with_timestamp_extractor were both called, expected one of the two"
    late = windowing.late_stream
    if late is not None and streams.get(late, (LATE_FIELD,)) != (LATE_FIELD,):
        yield (
            f"Stream for late tuples must be defined with with_late_tuple_stream alone: {late!r} is among the bolt's "
            f"outputs with the fields {list(streams[late])}"
        )


def _gap_mistakes(gap: int, limit: float) -> Iterator[str]:
    if gap > limit:
        yield (
            f"Session gap value {gap} ms is more than topology.message.timeout.secs value {limit:g} ms, and "
            "with_ack_on_expiry leaves tuples open for longer than the gap: raise message_timeout_secs, or leave "
            "with_ack_on_expiry out"
        )


def _expiry_mistakes(windowing: Windowing, config: Config) -> Iterator[str]:
    """Storm's checks: tuples that stay open until they expire must not time out, or block their spout, before that."""
    extents = (windowing.length_extent, windowing.slide_extent)
    if config.enable_message_timeouts:
        duration, limit = sum(part for part in extents if isinstance(part, int)), config.message_timeout_secs * 1000
        if duration > limit:
            yield (
                f"Window duration (length + sliding interval) value {duration} ms is more than "
                f"topology.message.timeout.secs value {limit:g} ms, and with_ack_on_expiry leaves tuples open for so "
                "long: raise message_timeout_secs, or leave with_ack_on_expiry out"
            )
    count, pending = sum(part.tuples for part in extents if isinstance(part, Count)), config.max_spout_pending
    if pending is not None and count > pending:
        yield (
            f"Window count (length + sliding interval) value {count} is more than topology.max.spout.pending value "
            f"{pending}, and with_ack_on_expiry leaves so many tuples open: raise max_spout_pending, or leave "
            "with_ack_on_expiry out"
        )
