"""Describe: makes the parts of a topology's document from the driver's data.

The functions depend on their arguments alone; nothing here waits, locks or reads a clock.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sparkbolt.api.groupings import FieldsGrouping, Grouping, PartialKeyGrouping
from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.api.topology import ComponentSpec
from sparkbolt.base.codec import salvage
from sparkbolt.control.documents import (
    ComponentDocument,
    Gist,
    MemoryDocument,
    NowDocument,
    StreamSubscription,
)
from sparkbolt.control.intent import SETTINGS, Intent
from sparkbolt.control.operable import TopologyView
from sparkbolt.layout.lane import Lane

ACKER = "__acker"
_STORM_GROUPINGS = {
    "ShuffleGrouping": "SHUFFLE",
    "LocalOrShuffleGrouping": "LOCAL_OR_SHUFFLE",
    "NoneGrouping": "NONE",
    "AllGrouping": "ALL",
    "GlobalGrouping": "GLOBAL",
    "DirectGrouping": "DIRECT",
    "FieldsGrouping": "FIELDS",
    "PartialKeyGrouping": "PARTIAL_KEY",
}


def components_of(lane: Lane) -> list[ComponentDocument]:
    """The components with their declaration and layout, and the acker, if anything is tracked."""
    topology = lane.topology
    found = [
        ComponentDocument(
            id=spec.id,
            kind="spout" if spec.is_spout else "bolt",
            type=type_of(spec),
            parallelism=spec.parallelism,
            level=lane.stage_of(spec.id),
            position_unit=unit_of(spec),
            fused_with=lane.fused_into.get(spec.id),
            stateful=spec.keeps_state,
            streams={stream.name: list(stream.fields) for stream in spec.streams},
            inputs=[
                StreamSubscription(
                    component=sub.source,
                    stream=sub.stream,
                    grouping=_STORM_GROUPINGS.get(type(sub.grouping).__name__, "CUSTOM"),
                    fields=fields_of(sub.grouping),
                    feedback=sub.feedback,
                )
                for sub in spec.subscriptions
            ],
            task_numbers=list(topology.tasks(spec.id)),
            settings=_plain_settings(spec.config),
        )
        for spec in topology.components.values()
    ]
    if lane.tracked:
        found.append(_acker(lane))
    return found


def _acker(lane: Lane) -> ComponentDocument:
    known = {"id": ACKER, "kind": "system", "type": "sparkbolt.acker"}
    sizes = {"parallelism": len(lane.acker_dests), "level": len(lane.levels) + 1}
    return salvage(ComponentDocument, {**known, **sizes, "task_numbers": list(range(-1, len(lane.acker_dests) - 1))})


def type_of(spec: ComponentSpec) -> str:
    """The class of a component, with the last part of its module; of a function its own name.

    An operator of a stream is shown with its function: ``FlatMap of words.split``.
    """
    kind = type(spec.component)
    function = getattr(spec.component, "function", None)
    is_operator = kind.__module__.startswith("sparkbolt.streams.")
    if not callable(function) or not hasattr(function, "__qualname__"):
        return kind.__qualname__ if is_operator else _named(kind)
    return f"{kind.__qualname__} of {_named(function)}" if is_operator else _named(function)


def _named(thing: Any) -> str:
    return f"{thing.__module__.rpartition('.')[2]}.{thing.__qualname__}"


def fields_of(grouping: Grouping) -> list[str]:
    """The fields by which a grouping chooses; empty if it uses none."""
    return list(grouping.fields) if isinstance(grouping, FieldsGrouping | PartialKeyGrouping) else []


def _plain_settings(config: Any) -> dict[str, Any]:
    """The settings as JSON; values without a JSON form become text."""
    found = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        found[field.name] = value if isinstance(value, str | int | float | bool | None) else f"{value!r:.200}"
    return found


def settings_of(lane: Lane, intent: Intent) -> dict[str, Any]:
    """The settings of the whole topology as they apply now; those that were changed for a component have its name."""
    found = _plain_settings(lane.topology.config)
    for key, values in intent.settings.items():
        own = SETTINGS[key].field
        for component, value in values.items():
            found[f"{own} {component}" if component else own] = value
    if intent.traces:
        found["traced messages"] = [trace.message for trace in intent.traces]
    return found


def unit_of(spec: ComponentSpec) -> str:
    """The unit of a spout's positions; empty for a bolt."""
    return getattr(spec.component, "position_unit", "positions") if spec.is_spout else ""


def gist_of(look: TopologyView, units: Mapping[str, str]) -> Gist:
    """The few numbers of a list of topologies, without a rate and a growth; ``units`` has the unit of each spout."""
    metrics = look.metrics
    components = metrics.components.values()
    own = [counts for name, counts in metrics.components.items() if name in units]
    lags: Counter[str] = Counter()
    for spout in metrics.lags:
        lags[units.get(spout, "positions")] += metrics.components[spout].lag
    return Gist(
        micro_batches=metrics.micro_batches,
        emitted=sum(one.emitted for one in own),
        executed=sum(one.executed for one in components),
        acked=sum(one.acked for one in own),
        failed=sum(one.failed for one in own),
        given_up=sum(one.given_up for one in components),
        errors=sum(one.errors for one in components),
        open_trees=metrics.open_trees,
        retries=look.retries,
        lag=sum(one.lag for one in components) if metrics.lags else None,
        lags=dict(lags),
        lag_growth={},
        rate=0.0,
    )


def now_of(
    look: TopologyView,
    now_ms: int,
    *,
    state: dict[str, int] | None = None,
    memory: Sequence[MemoryDocument] = (),
    slowest: dict[str, Any] | None = None,
) -> NowDocument:
    """The present state."""
    progress, metrics = look.progress, look.metrics
    micro_batch = None
    if progress.micro_batch_id is not None:
        micro_batch = {
            "micro_batch_id": progress.micro_batch_id,
            "elapsed_ms": progress.secs * 1000,
            "doing": progress.sentence,
        }
    return NowDocument(
        time_ms=now_ms,
        open_trees=metrics.open_trees,
        retries=look.retries,
        micro_batch=micro_batch,
        hung=list(progress.hung),
        outages=[*look.outages, *progress.waits],
        full=list(look.full),
        repeats=look.repeats,
        trouble=look.trouble,
        waits_for=look.waits_for,
        lag={spout: dict(lags) for spout, lags in metrics.lags.items()},
        lag_secs={
            spout: {one: round(secs, 1) for one, secs in found.items()} for spout, found in metrics.lag_secs.items()
        },
        pending={name: counts.pending for name, counts in metrics.components.items() if counts.pending},
        watermarks={
            name: {
                **_watermark(counts),
                "windows": counts.windows,
                "late_tuples": counts.late_tuples,
            }
            for name, counts in metrics.components.items()
            if counts.watermark_ms or counts.windows
        },
        state=state or {},
        memory=list(memory),
        slowest=slowest,
    )


def _watermark(counts: ComponentMetrics) -> dict[str, int]:
    """The watermark of a bolt; windows by the time of arrival have none."""
    if not counts.watermark_ms:
        return {}
    return {"watermark_ms": counts.watermark_ms, "behind_ms": counts.watermark_behind_ms}
