"""The settings of a windowed bolt: which of them fit together, and which of them stored windows depend on.

The checks are those of Storm's ``WindowedBoltExecutor``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkbolt.api.config import Config, did_you_mean
from sparkbolt.api.method_validation import is_ours
from sparkbolt.api.runtime_bolts import LATE_FIELD
from sparkbolt.windows.grid import Extent, Grid, extent_text
from sparkbolt.windows.kinds import Count, Policies, Window, shown
from sparkbolt.windows.policies import EvictionPolicy
from sparkbolt.windows.triggers import TriggerPolicy


def stored_settings(window: Window) -> dict[str, str]:
    """The settings on which stored windows depend, in words.

    The rest may change: the lag of the watermark, the rule for late tuples, and the limits of memory.

    >>> stored_settings(Count(9, every=5))["the window's slide"]
    'Count(5)'
    """
    grid = Grid.of(window) or Grid(None, Count(1), None, window.in_event_time)
    settings = {
        "the window's length": "not set" if grid.length is None else extent_text(grid.length, grid.timezone),
        "the session gap": "not set" if grid.gap_ms is None else extent_text(grid.gap_ms),
        "the window's slide": extent_text(grid.slide, grid.timezone),
    }
    pair = (window.eviction, window.trigger) if isinstance(window, Policies) else ()
    policies = [_policy(policy) for policy in pair]
    settings["the pair of policies"] = ", ".join(policies) or "not set"
    by = "that of an extractor" if window.in_event_time else "that of arrival"
    settings["the time"] = f"that of the field {window.timestamp!r}" if isinstance(window.timestamp, str) else by
    if window.in_event_time and grid.bounds is not None:
        settings["the closed side of the window"] = "left" if grid.closed_left else "right"
    fields = window.key_fields
    settings["the key of the windows"] = "not set" if fields is None else ", ".join(map(repr, fields))
    if window.message_id is not None:
        settings["the message id field"] = repr(window.message_id)
    return settings


REALIGNED = ("the window's length", "the window's slide", "the session gap")
"""The stored settings that may change: what a task keeps goes into the new windows (``realignment``)."""


def settings_change(before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    """Why windows cannot go on with other settings, with what to do; None if they can.

    Args:
        before: the ``stored_settings`` that the stored windows were made with.
        after: those of now. A setting that only one of the two has may come and go.

    >>> settings_change({"the window's length": "60 s"}, {"the window's length": "90 s"})
    >>> settings_change({"the key": "'user'"}, {"the key": "'ip'"}).split(": ")[0]
    "the key was 'user' and is now 'ip'"
    """
    names = [name for name in before if name in after and before[name] != after[name] and name not in REALIGNED]
    if not names:
        return None
    differences = ", and ".join(f"{name} was {before[name]} and is now {after[name]}" for name in names)
    back = "it" if len(names) == 1 else "them"
    return f"{differences}: change {back} back, or give the bolt another id, under which its windows begin empty"


def _policy(policy: EvictionPolicy | TriggerPolicy) -> str:
    """The class of a policy; of our own ones also the arguments, whose old values the stored state would put back."""
    arguments = sorted(vars(policy).items()) if is_ours(type(policy)) else []
    settings = ", ".join(f"{name}={value!r}" for name, value in arguments if name[0] != "_")
    return f"{type(policy).__qualname__}({settings})"


def mistakes_of(
    window: Window,
    config: Config,
    streams: Mapping[str, tuple[str, ...]],
    inputs: Mapping[tuple[str, str], tuple[str, ...]],
) -> Iterator[str]:
    """Yield a sentence for each mistake.

    Args:
        window: the settings.
        config: the component's configuration.
        streams: the fields of the bolt's declared streams.
        inputs: the fields of the bolt's input streams, by (component, stream).
    """
    yield from _shape_mistakes(window)
    yield from _event_time_mistakes(window, streams)
    yield from _field_mistakes(window, inputs)
    if window.ack_on_expiry and window.message_id is not None:
        yield (
            "message_id and ack_on_expiry exclude each other: a tuple is retried if a bolt after its window fails, and "
            "would be dropped as one that was seen before. Leave one of the two out"
        )
    grid = Grid.of(window) if window.ack_on_expiry else None
    if grid is not None and grid.length is not None:
        yield from _expiry_mistakes(grid.length, grid.slide, config)
    elif grid is not None and grid.gap_ms is not None and config.enable_message_timeouts:
        yield from _gap_mistakes(grid.gap_ms, config.message_timeout_secs * 1000)


def _field_mistakes(window: Window, inputs: Mapping[tuple[str, str], tuple[str, ...]]) -> Iterator[str]:
    names = [
        ("timestamp", window.timestamp if isinstance(window.timestamp, str) else None),
        ("message_id", window.message_id),
        *(("key", name) for name in window.key_fields or ()),
    ]
    for setting, name in names:
        for (component, stream), fields in inputs.items():
            if name is not None and name not in fields:
                hint = did_you_mean(name, fields) or f": its fields are {list(fields)}"
                yield f"{setting}={name!r}: there is no such field in stream {stream!r} of {component!r}{hint}"


def _shape_mistakes(window: Window) -> Iterator[str]:
    if type(window) is Window:
        yield (
            "Window length is not specified: write window = Tumbling(minutes=1), or another window, in its class, or "
            "call windowed, with_window, with_tumbling_window or with_session_gap"
        )
        return
    grid = Grid.of(window)
    if window.closed is not None and (grid is None or grid.bounds is None):
        yield (
            f"closed={window.closed!r} is for windows that slide by time: one that slides by tuples ends with a "
            "tuple, which is in it: leave closed out"
        )
    elif window.closed == "right" and not window.in_event_time:
        yield (
            "closed='right' is for windows in event time: on arrival a timer shows what came before it, [start, end): "
            "leave closed out, or name the field of the time with timestamp"
        )


def _event_time_mistakes(window: Window, streams: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for name in ("late", "lag", "watermark_interval", "idle", "max_future", "unit"):
        setting = getattr(window, name)
        if setting is not None and not window.in_event_time:
            yield (
                f"{name}={shown(setting)} is for windows in event time: name the field of the time with timestamp (or "
                f"with_timestamp_field), or leave {name} out"
            )
    late = window.late
    if late is not None and streams.get(late, (LATE_FIELD,)) != (LATE_FIELD,):
        yield (
            f"late={late!r}: this stream is among the bolt's outputs, with the fields {list(streams[late])}: give the "
            "stream of late tuples another name, and leave it out of outputs"
        )


def _gap_mistakes(gap: int, limit: float) -> Iterator[str]:
    if gap > limit:
        yield (
            f"Session gap value {gap} ms is more than topology.message.timeout.secs value {limit:g} ms, and "
            "ack_on_expiry leaves tuples open for longer than the gap: raise message_timeout_secs, or leave "
            "ack_on_expiry out"
        )


def _expiry_mistakes(length: Extent, slide: Extent, config: Config) -> Iterator[str]:
    """Storm's checks: tuples that stay open until they expire must not time out, or block their spout, before that."""
    extents = (length, slide)
    if config.enable_message_timeouts:
        duration, limit = sum(part for part in extents if isinstance(part, int)), config.message_timeout_secs * 1000
        if duration > limit:
            yield (
                f"Window duration (length + sliding interval) value {duration} ms is more than "
                f"topology.message.timeout.secs value {limit:g} ms, and ack_on_expiry leaves tuples open for so "
                "long: raise message_timeout_secs, or leave ack_on_expiry out"
            )
    count, pending = sum(part.tuples for part in extents if isinstance(part, Count)), config.max_spout_pending
    if pending is not None and count > pending:
        yield (
            f"Window count (length + sliding interval) value {count} is more than topology.max.spout.pending value "
            f"{pending}, and ack_on_expiry leaves so many tuples open: raise max_spout_pending, or leave "
            "ack_on_expiry out"
        )
