"""Stages: the layout that all drawings of a topology share."""

from __future__ import annotations

from dataclasses import dataclass

from sparkbolt.api.topology import Subscription, Topology
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.layout.lane import Lane, lay_out

FLOOR_SECS = 0.08
"""About how many seconds a micro-batch without state takes at least, on two cores (``scripts/bench floor``)."""
LEVEL_SECS, STATEFUL_LEVEL_SECS = 0.02, 0.12
"""About how many seconds each level adds, without state and with it (``scripts/bench scale``, ``floor``)."""
TIMES = "\N{MULTIPLICATION SIGN}"


def label_of(subscription: Subscription) -> str:
    """The label of an arrow: the grouping, preceded by the stream unless that is ``default``.

    >>> from sparkbolt.api.groupings import FieldsGrouping
    >>> label_of(Subscription("a", "default", FieldsGrouping(["word"])))
    'fields(word)'
    >>> label_of(Subscription("a", "late", FieldsGrouping(["word"]), feedback=True))
    'late: fields(word), feedback'
    """
    described = subscription.describe()
    return described if subscription.stream == DEFAULT_STREAM else f"{subscription.stream}: {described}"


def drawn_lane(topology: Topology) -> Lane:
    """The lane to draw; it is laid out for one core, since levels and fusion do not depend on the cores."""
    return lay_out(topology, cores=1)


@dataclass(frozen=True)
class StageView:
    """One stage of the lane."""

    level: int
    stateful: bool
    components: tuple[str, ...]
    secs: float
    """About how many seconds it adds to each micro-batch; the source's value is the minimum of any micro-batch."""

    @property
    def name(self) -> str:
        """``source`` or ``level n``."""
        return f"level {self.level}" if self.level else "source"


def stages_of(lane: Lane) -> tuple[StageView, ...]:
    """The stages in order, each with all components that run in it."""
    ids = list(lane.topology.components)
    members = {level: tuple(id_ for id_ in ids if lane.stage_of(id_) == level) for level in (0, *_numbers(lane))}
    source = StageView(0, False, members[0], FLOOR_SECS)
    behind = (
        StageView(
            level.number, level.stateful, members[level.number], STATEFUL_LEVEL_SECS if level.stateful else LEVEL_SECS
        )
        for level in lane.levels
    )
    return (source, *behind)


def _numbers(lane: Lane) -> list[int]:
    return [level.number for level in lane.levels]
