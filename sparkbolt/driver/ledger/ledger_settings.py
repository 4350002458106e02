"""Settings: what a ledger must know about a topology, from the topology itself or from its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.driver.ledger.outcomes import SpoutInfo
from sparkbolt.layout.lane import Lane, policy_of

ROTATIONS = 31
"""Buckets of the open trees: a tree expires on the 31st rotation; one rotation takes a thirtieth of the timeout."""


def spout_infos(lane: Lane) -> Sequence[SpoutInfo]:
    """The properties of the topology's spouts, and of its bolts that start trees, that the ledger needs."""
    return [
        SpoutInfo(
            spec.id,
            lane.topology.numbering.ever(spec.id),
            isinstance(spec.component, PartitionedSpout),
            policy_of(spec),
            dead_letters=spec.dead_letters is not None,
            own=spec.id in lane.inlets,
        )
        for spec in lane.topology.spouts
    ] + [
        SpoutInfo(name, lane.topology.numbering.ever(name), True, policy_of(lane.topology.components[name]), own=True)
        for name in lane.starters
    ]


def feeders_of(lane: Lane) -> dict[str, frozenset[str]]:
    """For each bolt: the spouts, and the bolts that start trees, whose tuples may reach it. A spout feeds itself."""
    components = lane.topology.components

    def all_above(name: str) -> set[str]:
        above: set[str] = set()
        left = [name]
        while left:
            new = {subscription.source for subscription in components[left.pop()].subscriptions} - above
            above |= new
            left += new
        return above

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


def described(lane: Lane) -> dict[str, Any]:
    """The same as a JSON object for the checkpoint, without the policies: each entry of the log has its own."""
    settings = ledger_settings(lane)
    return {
        "spouts": [[s.component, list(s.tasks), s.replayable, s.dead_letters, s.own] for s in settings["spouts"]],
        "feeders": {bolt: sorted(feeders) for bolt, feeders in settings["feeders"].items()},
        "stories_max": settings["stories_max"],
        "patience_ms": settings["patience_ms"],
    }


def settings_of(generation: Generation) -> dict[str, Any]:
    """The arguments of ``Ledger`` for a generation of a checkpoint, whose topology may be a thing of the past."""
    known = generation.ledger
    return {
        "spouts": [
            SpoutInfo(name, tuple(tasks), replayable, None, dead_letters=lettered, own=own)
            for name, tasks, replayable, lettered, own in known["spouts"]
        ],
        "rotations": ROTATIONS,
        "task_owner": generation.numbering.owner,
        "stories_max": known["stories_max"],
        "patience_ms": known["patience_ms"],
        "feeders": {bolt: frozenset(feeders) for bolt, feeders in known["feeders"].items()},
    }
