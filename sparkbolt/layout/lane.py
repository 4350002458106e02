"""The lane: lays a topology out as source, level 1 .. n, acker, feedback.

Any DAG becomes a line, and so does a graph whose cycles have feedback subscriptions, because those go back to the
source through the driver. A bolt's level is its longest distance from the spouts, and rows for a later level pass
through the levels before it. The tasks of a level are spread evenly over the spark_partitions; their dests are stored
with the checkpoint and never computed again for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sparkbolt.api.components import Spout, defines_flush
from sparkbolt.api.groupings import LocalOrShuffleGrouping, NoneGrouping, ShuffleGrouping
from sparkbolt.api.inlets import InletSpout
from sparkbolt.api.retry import DEFAULT, RetryPolicy, at_once
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.api.topology import ComponentSpec, Topology

FUSIBLE = frozenset({ShuffleGrouping, NoneGrouping, LocalOrShuffleGrouping})
"""The groupings by which any task may get a tuple. Only these classes themselves: a subclass may choose tasks."""


def spark_hash(value: int) -> int:
    """Return Spark's hash of an int: Murmur3 (x86, 32 bits) of its four bytes with seed 42, as a signed number.

    It is Spark's ``Murmur3Hash``: ``hash(dest)`` modulo the number of spark_partitions decides where a row goes.

    >>> spark_hash(0), spark_hash(1)
    (933211791, -559580957)
    """
    k = (value * 0xCC9E2D51) & 0xFFFFFFFF
    k = ((k << 15) | (k >> 17)) & 0xFFFFFFFF
    h = 42 ^ ((k * 0x1B873593) & 0xFFFFFFFF)
    h = ((h << 13) | (h >> 19)) & 0xFFFFFFFF
    h = ((h * 5 + 0xE6546B64) & 0xFFFFFFFF) ^ 4
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h


@dataclass(frozen=True)
class Level:
    """One stage of the lane after the source."""

    number: int
    stateful: bool
    components: tuple[str, ...]
    """The bolts of the level that are not fused, in the order of declaration; in level 1, the inlets before them."""


@dataclass(frozen=True)
class Lane:
    """A topology with its levels, its fused bolts and its dests."""

    topology: Topology
    levels: tuple[Level, ...]
    fused_into: Mapping[str, str]
    """For each fused bolt, the producer in whose stage it runs."""
    spark_partitions: int
    dests: Mapping[int, int]
    """Task number to dest, for the tasks of bolts that are not fused."""
    acker_dests: tuple[int, ...]
    """The dest of each acker task; empty if nothing is tracked."""
    feedback_dest: int

    @property
    def tracked(self) -> bool:
        """Whether trees are tracked at all."""
        return bool(self.acker_dests)

    @cached_property
    def level_of(self) -> Mapping[str, int]:
        """The level of each component that is not fused; 0 for spouts, but 1 for inlets."""
        by_component = {spec.id: 0 for spec in self.topology.spouts}
        by_component.update((name, level.number) for level in self.levels for name in level.components)
        return by_component

    def stage_of(self, component: str) -> int:
        """The level in whose stage a component runs, fused or not; 0 is the source."""
        while component in self.fused_into:
            component = self.fused_into[component]
        return self.level_of[component]

    @cached_property
    def depths(self) -> Mapping[str, int]:
        """The longest distance of each component, fused or not, from the spouts."""
        by_component: dict[str, int] = {}

        def depth(name: str) -> int:
            if name not in by_component:
                sources = _forward_sources(self.topology.components[name])
                by_component[name] = 1 + max(map(depth, sources)) if sources else 0
            return by_component[name]

        for name in self.topology.components:
            depth(name)
        return by_component

    @cached_property
    def traces(self) -> bool:
        """Whether the setting ``trace`` of any spout may choose a tree."""
        return any(spec.config.trace != 0 for spec in self.topology.spouts)

    @cached_property
    def task_at(self) -> Mapping[int, int]:
        """Dest to task number."""
        return {dest: task for task, dest in self.dests.items()}

    @cached_property
    def starters(self) -> tuple[str, ...]:
        """The bolts whose tasks start trees; none if nothing is tracked."""
        if not self.tracked:
            return ()
        bolts = ((spec.id, spec.component) for spec in self.topology.bolts)
        return tuple(name for name, bolt in bolts if getattr(bolt, "starts_trees", False))

    @cached_property
    def inlets(self) -> tuple[str, ...]:
        """The spouts whose tasks run in the first level, by name, since they do not read themselves."""
        return tuple(sorted(spec.id for spec in self.topology.spouts if isinstance(spec.component, InletSpout)))

    @cached_property
    def inlet_tasks(self) -> frozenset[int]:
        """The numbers of the tasks of inlets."""
        return frozenset(task for name in self.inlets for task in self.topology.tasks(name))

    def dests_of_level(self, number: int) -> frozenset[int]:
        """Return the dests whose rows are processed at a level; the rows of all others pass through it."""
        return self._dests_of_levels[number - 1]

    @cached_property
    def _dests_of_levels(self) -> list[frozenset[int]]:
        return [
            frozenset(self.dests[task] for name in level.components for task in self.topology.tasks(name))
            for level in self.levels
        ]

    def riding_dests(self, number: int) -> Sequence[int]:
        """The dests of a level to which earlier stages send their reports, ascending; none after the last level."""
        return self._riding_dests[number - 1] if number <= len(self.levels) else ()

    @cached_property
    def _riding_dests(self) -> list[list[int]]:
        return [sorted(dests) for dests in self._dests_of_levels]

    @cached_property
    def runtime_tasks(self) -> frozenset[int]:
        """The tasks that have timers: those of bolts with a bolt runtime."""
        bolts = (spec for spec in self.topology.bolts if isinstance(spec.component, RuntimeBolt))
        return frozenset(task for spec in bolts for task in self.topology.tasks(spec.id))

    @cached_property
    def timed_tasks(self) -> frozenset[int]:
        """The runtime tasks whose timers run from the task's start on, even before its first tuple."""
        bolts = ((spec.id, spec.component) for spec in self.topology.bolts)
        timed = (name for name, bolt in bolts if isinstance(bolt, RuntimeBolt) and bolt.runs_timers)
        return frozenset(task for name in timed for task in self.topology.tasks(name))

    def clocked(self) -> tuple[str, ...]:
        """Return the bolts whose tasks may hold tuples of an earlier life, and get a notice to drop them."""
        names = (name for level in self.levels for name in level.components)
        return tuple(name for name in names if self.topology.components[name].keeps_state)

    def placement(self) -> dict[str, Any]:
        """Return the placement to store with the checkpoint, as a JSON object."""
        return {
            "spark_partitions": self.spark_partitions,
            "dests": {str(task): dest for task, dest in self.dests.items()},
            "acker_dests": list(self.acker_dests),
            "feedback_dest": self.feedback_dest,
            "stateful": _stateful(self.topology, self.levels),
        }


def lay_out(topology: Topology, cores: int, placement: Mapping[str, Any] | None = None) -> Lane:
    """Lay a topology out for a number of cores, or by a checkpoint's ``placement`` where it has a place.

    The dests of tasks that are fused now stay reserved: no other task may find the state stored under them.
    """
    fused_into = _fused(topology)
    levels = _levels(topology, fused_into)
    widest = max(spec.parallelism for spec in topology.components.values())
    known: Mapping[str, Any] = placement or {"spark_partitions": max(1, min(cores, widest))}
    spark_partitions: int = known["spark_partitions"]
    dests = {int(task): dest for task, dest in known.get("dests", {}).items()}
    ackers: tuple[int, ...] = tuple(known.get("acker_dests", ()))
    feedback: int | None = known.get("feedback_dest")
    free = _DestSupply(spark_partitions, {*dests.values(), *ackers, feedback})
    for level in levels:
        tasks = [task for name in level.components for task in topology.tasks(name)]
        new = ((rank, task) for rank, task in enumerate(tasks) if task not in dests)
        dests.update([(task, free.take(rank % spark_partitions)) for rank, task in new])
    wanted = topology.config.acker_tasks
    wanted = len(ackers) or spark_partitions if wanted is None else wanted
    more = (free.take(shard % spark_partitions) for shard in range(len(ackers), wanted))
    acker_dests = (*ackers[:wanted], *more)
    feedback = free.take(0) if feedback is None else feedback
    return Lane(topology, levels, fused_into, spark_partitions, dests, acker_dests, feedback)


def _stateful(topology: Topology, levels: Sequence[Level]) -> list[list[str]]:
    """Return the bolts that keep state, for each stateful level."""
    return [
        [name for name in level.components if topology.components[name].keeps_state]
        for level in levels
        if level.stateful
    ]


class _DestSupply:
    """Provides each dest once: the next int that Spark's hash maps to the wanted spark_partition."""

    def __init__(self, spark_partitions: int, taken: Collection[int | None]) -> None:
        self._spark_partitions = spark_partitions
        self._taken = taken
        self._free: list[deque[int]] = [deque() for _ in range(spark_partitions)]
        self._next = 0

    def take(self, spark_partition: int) -> int:
        free = self._free[spark_partition]
        while not free:
            if self._next not in self._taken:
                self._free[spark_hash(self._next) % self._spark_partitions].append(self._next)
            self._next += 1
        return free.popleft()


def _fused(topology: Topology) -> dict[str, str]:
    return {spec.id: spec.subscriptions[0].source for spec in topology.bolts if _may_fuse(spec)}


def _may_fuse(spec: ComponentSpec) -> bool:
    """Whether a bolt may run in the stage of its only producer.

    A bolt with a ``flush`` may not, unless it sets ``flush_anywhere``: in a producer's stage one task number may run in
    several processes, so output that is named by task and micro-batch would collide.
    """
    return (
        spec.config.fuse
        and not spec.keeps_state
        and len({subscription.source for subscription in spec.subscriptions}) == 1
        and not any(subscription.feedback for subscription in spec.subscriptions)
        and all(type(subscription.grouping) in FUSIBLE for subscription in spec.subscriptions)
        and spec.config.tick_tuple_freq_secs is None
        and (getattr(spec.component, "flush_anywhere", False) or not defines_flush(spec.component))
    )


def _forward_sources(spec: ComponentSpec) -> set[str]:
    """The components from which a bolt gets tuples of the same micro-batch."""
    return {subscription.source for subscription in spec.subscriptions if not subscription.feedback}


def _levels(topology: Topology, fused_into: Mapping[str, str]) -> tuple[Level, ...]:
    numbers: dict[str, int] = {spec.id: int(isinstance(spec.component, InletSpout)) for spec in topology.spouts}

    def level_of(name: str) -> int:
        if name in fused_into:
            return level_of(fused_into[name])
        if name not in numbers:
            numbers[name] = 1 + max(map(level_of, _forward_sources(topology.components[name])), default=0)
        return numbers[name]

    by_level: dict[int, list[str]] = {}
    for spec in topology.spouts:
        if numbers[spec.id]:
            by_level.setdefault(numbers[spec.id], []).append(spec.id)
    for spec in topology.bolts:
        if spec.id not in fused_into:
            by_level.setdefault(level_of(spec.id), []).append(spec.id)
    return tuple(
        Level(number, any(topology.components[name].keeps_state for name in names), tuple(names))
        for number, names in sorted(by_level.items())
    )


def policy_of(spec: ComponentSpec) -> RetryPolicy | None:
    """Return the policy by which failed messages of a component are retried; None for a ``Spout`` that decides itself.

    A ``Spout`` decides itself if it has neither a policy nor dead letters.
    """
    if spec.config.retry is not None or (isinstance(spec.component, Spout) and spec.dead_letters is None):
        return spec.config.retry
    return DEFAULT if spec.config.max_attempts is None else at_once(spec.config.max_attempts)
