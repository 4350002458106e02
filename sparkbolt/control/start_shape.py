"""Start shape: the shape with which a topology starts, from its code, its checkpoint and the requests of operators.

Rule 1: a rebalance is the decision of an operator: the start that begins with it needs no other one for it.
Rule 2: until something is committed with it, a rebalance can be taken back. A start that cannot move the state does
that itself, and after ``STARTS_MAX`` starts that have ended without any commit, so does the next one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sparkbolt.api.keyed_state import refusal
from sparkbolt.api.topology import Topology
from sparkbolt.base.file_access import Files
from sparkbolt.control.books import EVENTS_FILE, EventBook
from sparkbolt.control.intent import CONTROL_FILE, Intent
from sparkbolt.driver.ledger.agreement import InletSources
from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.driver.transition import NO_INLETS, Continuation, transition

STARTS_MAX = 3
"""How many starts try a rebalance with which nothing gets committed."""
log = logging.getLogger("sparkbolt")


@dataclass(frozen=True)
class StartShape:
    """How a topology starts."""

    started: Continuation
    intent: Intent
    """The requests of operators, as they apply from this start on."""
    is_decided: bool
    """Whether operators have decided whatever needs a decision."""
    overruled: tuple[str, ...] = ()
    """The numbers of tasks in the code that do not count, a sentence each."""
    given_up: str | None = None
    """Why a rebalance is taken back, in a sentence; None if it is not."""

    def before(self, topology: Topology) -> tuple[Topology, int | None] | None:
        """The shape to which the topology goes back if it cannot be rebalanced; None if there is no rebalance."""
        before = self.intent.before
        if before is None:
            return None
        return topology.rescaled(before.executors), before.spark_partitions


def shape_of_start(
    topology: Topology,
    intent: Intent,
    cores: int,
    generations: Sequence[Generation],
    last_commit: int,
    inlets: InletSources = NO_INLETS,
    *,
    is_planned: bool = False,
) -> StartShape:
    """Decide how a topology starts.

    Args:
        topology: as its code declares it.
        intent: the requests of operators, from the checkpoint.
        cores: how many cores Spark has.
        generations: those of the checkpoint, oldest first.
        last_commit: the last micro-batch that is committed; -1 if there is none.
        inlets: as in ``transition``.
        is_planned: as in ``transition``.
    """

    def with_(one: Intent) -> Continuation:
        wanted, partitions = one.rebalanced(topology), one.spark_partitions
        known = wanted, cores, generations, last_commit, refusal
        return transition(*known, spark_partitions=partitions, inlets=inlets, is_planned=is_planned)

    before, given_up = intent.before, None
    if before is not None and before.starts >= STARTS_MAX:
        given_up = f"{before.starts} starts have ended before anything was committed with it: it is taken back"
        intent, before = intent.taken_back(), None
    started = with_(intent)
    newest = started.generations[-1]
    is_known = newest.number in {one.number for one in generations}
    if before is not None and is_known and last_commit >= newest.base:
        intent, before = replace(intent, before=None), None
    is_decided = before is not None and not with_(intent.taken_back()).decisions
    overruled = tuple(_overruled(topology, started.lane.topology))
    return StartShape(started, intent.also_called(newest.renamed), is_decided, overruled, given_up)


def _overruled(declared: Topology, rebalanced: Topology) -> Iterator[str]:
    for name, spec in declared.components.items():
        number = rebalanced.components[name].parallelism
        if number != spec.parallelism:
            what = f"{'spout' if spec.is_spout else 'bolt'} {name!r}"
            mend = "`sparkbolt rebalance --reset` goes back to the code's"
            yield f"{what} has {number} tasks since a rebalance, and {spec.parallelism} in the code: {mend}"


def remember(files: Files, before: Intent, shape: StartShape) -> None:
    """Make durable what a start that begins does with the requests of operators, which were ``before``."""
    if shape.given_up is not None:
        log.error("the last rebalance is not tried again: %s", shape.given_up)
        events = EventBook(files.read(EVENTS_FILE))
        events.add("rebalance failed", shape.given_up, None, time.time_ns() // 1_000_000)
        files.write(EVENTS_FILE, events.dumps())
    if shape.intent != before:
        files.write(CONTROL_FILE, shape.intent.dumps())


def note_try(files: Files, shape: StartShape) -> None:
    """Count a start that tries a rebalance, once nothing else than the move can hinder it."""
    if shape.intent.before is not None:
        files.write(CONTROL_FILE, shape.intent.tried().dumps())
