"""Begun: the state of a topology with which another run of it begins, in one process and without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkbolt.api.topology import Topology
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.driver.ledger.ledger_log import State


@dataclass(frozen=True)
class Begun:
    """What a topology had kept after a micro-batch."""

    generations: Generations
    """The generations up to that micro-batch."""
    state: State
    """Of its ledger."""
    stores: Mapping[int, Mapping[str, bytes]]
    """By dest: the store of each task that keeps state."""

    @property
    def last_commit(self) -> int:
        """The micro-batch."""
        return self.state.last_promoted

    def fed_by(self, topology: Topology) -> Begun:
        """The same, as if its spouts had been those of a topology that stand in for them."""
        newest = self.generations[-1]
        return replace(self, generations=Generations([*self.generations[:-1], _fed(newest, topology)]))


def _fed(generation: Generation, topology: Topology) -> Generation:
    components: dict[str, Mapping[str, Any]] = dict(generation.fingerprint["components"])
    for spec in topology.spouts:
        known = next((id_ for id_ in (spec.id, spec.renamed_from) if id_ in components), None)
        if known is not None:
            components[known] = {**components[known], "kind": str(spec.kind)}
    return replace(generation, fingerprint={**generation.fingerprint, "components": components})
