"""Run: runs one seed, from its faults to its result."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparkbolt.api.committers import CommittingBolt
from sparkbolt.errors import PrepareError, Unavailable
from sparkbolt.sim.checkers.acks import Checkers
from sparkbolt.sim.checkers.base import Checker, Facts, Violation
from sparkbolt.sim.faults import Fault, draw
from sparkbolt.sim.subject import Subject
from sparkbolt.sim.world import World

RETURNING_MICRO_BATCHES = 24
"""With give-backs, further faults happen in this many first micro-batches."""
MICRO_BATCHES = (1, 1, 2, 2, 3)
"""Choices for the number of micro-batches in which messages are read while faults are on."""
CHANGING_MICRO_BATCHES = 8
"""If the topology changes its shape, further faults happen in this many first micro-batches."""
STATE_EVERY = 8
STAND_IN = (
    "what it depends on is not there in a simulation. Give it a stand-in, in prepare or execute, where "
    "context.rehearsal_directory is not None"
)
RAISED = -1
"""In a trail, the checksum of an exception that ended the run; it is the last one."""
UNFINISHED = "everything finishes"
ENGINE = "the engine goes on"


@dataclass(frozen=True)
class Run:
    """The result of one seed with certain faults."""

    seed: int
    faults: tuple[Fault, ...]
    happened: tuple[Fault, ...]
    """The faults whose steps were reached, in the order in which they happened."""
    violations: tuple[Violation, ...]
    micro_batches: int
    """How many micro-batches were run; one that ran again counts again."""
    stopped: str | None
    """Why the topology stopped itself (``on_error="stop"``); None if it did not."""
    away: str | None
    """A permanently unavailable bolt, at which the run ended; None if there is none."""
    trail: tuple[tuple[str, int], ...]
    """(component, checksum of one of its actions), in order, if trails were recorded. An exception that ended the run
    has the checksum RAISED; its component is empty if it is unknown."""
    details: tuple[tuple[str, ...], ...]
    """``trail`` in words, if stories were recorded, too."""
    hops: tuple[str, ...]
    """The story of the tree of the first violation, line by line, if stories were recorded."""
    unsent: Mapping[str, int]
    """How many messages each component would have sent to a server; those of repeated runs count again."""


def faults_of(subject: Subject, seed: int, *, give_backs: int = 0) -> tuple[int, tuple[Fault, ...]]:
    """Return the number of micro-batches in which a seed reads its messages, and its faults.

    With ``give_backs`` there are more faults, also in the later micro-batches with the letters that were given back.
    """
    random_ = random.Random(seed)
    micro_batches = random_.choice(MICRO_BATCHES)
    committers = any(isinstance(spec.component, CommittingBolt) for spec in subject.topology.bolts)
    queues = bool(subject.queued)
    faults = draw(random_, micro_batches, queues=queues, committers=committers)
    if give_backs:
        later = random.Random(f"later {seed}")
        faults += draw(later, RETURNING_MICRO_BATCHES, queues=queues, committers=committers)
    if subject.shapes:
        changes = random.Random(f"changes {seed}")
        faults += draw(changes, CHANGING_MICRO_BATCHES, queues=queues, committers=committers, shapes=True)
    return micro_batches, tuple(sorted(faults))


def run_seed(
    subject: Subject,
    seed: int,
    faults: Sequence[Fault] | None = None,
    *,
    stories: bool = False,
    trails: bool = False,
    state: bool | None = None,
    watch: Callable[[Facts], Checker] | None = None,
    give_backs: int = 0,
) -> Run:
    """Run one seed.

    Args:
        subject: The topology.
        seed: Determines everything that is random.
        faults: Faults that replace those of the seed.
        stories: Record the story of the tree of the first violation; costs time.
        trails: Record the work of each task, to compare it with another run; costs time.
        state: Compare state with a run without faults, which costs time; None: for every eighth seed.
        watch: Creates one more checker, in addition to those of the promises.
        give_backs: The most requests of an operator to give dead letters back, at random steps.
    """
    micro_batches, drawn = faults_of(subject, seed, give_backs=give_backs)
    chosen = drawn if faults is None else tuple(faults)
    facts = Facts(subject, {})
    checkers = Checkers(facts, state=seed % STATE_EVERY == 0 if state is None else state)
    if watch is not None:
        checkers.each.append(watch(facts))
    world: World | None = None
    extra: list[Violation] = []
    raised: list[tuple[str, str]] = []
    try:
        world = World(
            subject,
            seed,
            chosen,
            micro_batches=micro_batches,
            checkers=checkers,
            stories=stories,
            trails=trails,
            give_backs=give_backs,
        )
        unfinished = world.run()
        if unfinished is not None:
            extra.append(Violation(UNFINISHED, unfinished, next(iter(facts.trees.open), None)))
        elif world.stopped is None and facts.away is None and not checkers.violations:
            checkers.ended(world.driver)
    except Exception as error:  # noqa: BLE001  whatever ends the driver or a spout's plans is a violation
        component = world.observer.preparing if world is not None else ""
        raised.append((component, _in_words(error, component)))
        extra.append(Violation(ENGINE, raised[0][1]))
    finally:
        if world is not None:
            world.close()
        unsent = subject.rehearsal.unsent
        subject.rehearsal.clear()
    violations = (*checkers.violations, *extra)
    key = violations[0].key if violations else None
    return Run(
        seed=seed,
        faults=chosen,
        happened=tuple(world.pending.happened) if world is not None else (),
        violations=violations,
        micro_batches=world.executions if world is not None else 0,
        stopped=facts.stopped,
        away=facts.away,
        trail=(*(world.trail if world is not None else ()), *((component, RAISED) for component, _ in raised)),
        details=(*(world.details if world is not None else ()), *((words,) for _, words in raised)),
        hops=tuple(facts.trees.story(key)) if key is not None else (),
        unsent=unsent,
    )


def _in_words(error: Exception, preparing: str) -> str:
    """Describe the end of a run; if ``preparing`` is set, it ended while that component's task was prepared."""
    if isinstance(error, PrepareError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    words = f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
    if not preparing:
        return words
    hint = f": {STAND_IN}" if isinstance(error, Unavailable) else ""
    return f"{preparing!r} could not be prepared: {words}{hint}"
