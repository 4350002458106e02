"""Settings: what a ledger must know about a topology."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.driver.ledger.outcomes import SpoutInfo
from sparkbolt.layout.lane import Lane, policy_of

ROTATIONS = 31
"""Buckets of the open trees: a tree expires on the 31st rotation; one rotation takes a thirtieth of the timeout."""


def spout_infos(lane: Lane) -> Sequence[SpoutInfo]:
    """The properties of the topology's spouts, and of its bolts that start trees, that the ledger needs."""
    return [
        SpoutInfo(
            spec.id,
            lane.topology.tasks(spec.id),
            isinstance(spec.component, PartitionedSpout),
            policy_of(spec),
            dead_letters=spec.dead_letters is not None,
            own=spec.id in lane.inlets,
        )
        for spec in lane.topology.spouts
    ] + [
        SpoutInfo(name, lane.topology.tasks(name), True, policy_of(lane.topology.components[name]), own=True)
        for name in lane.starters
    ]


def feeders_of(lane: Lane) -> dict[str, frozenset[str]]:
    """For each bolt: the spouts, and the bolts that start trees, whose tuples may reach it. A spout feeds itself."""
    components = lane.topology.components
    above: dict[str, set[str]] = {}

    def all_above(name: str) -> set[str]:
        if name not in above:
            own = {subscription.source for subscription in components[name].subscriptions}
            above[name] = own.union(*(all_above(source) for source in own))
        return above[name]

    sources = {spec.id for spec in lane.topology.spouts} | set(lane.starters)
    feeders = {spec.id: frozenset(all_above(spec.id) & sources) for spec in lane.topology.bolts}
    return feeders | {spec.id: frozenset({spec.id}) for spec in lane.topology.spouts}


def ledger_settings(lane: Lane) -> dict[str, Any]:
    """The arguments of ``Ledger`` and ``Ledger.restore`` for a topology."""
    return {
        "spouts": spout_infos(lane),
        "rotations": ROTATIONS,
        "task_owner": lane.topology.task_owner,
        "stories_max": lane.topology.config.stories_max,
        "patience_ms": int(lane.topology.config.outage_patience_secs * 1000),
        "feeders": feeders_of(lane),
    }
