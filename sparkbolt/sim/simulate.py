"""One seed from its faults to its report.

Which question it answers: does a topology keep every promise when these things go wrong?

Read before: ``world``, ``acks``, ``shrink``.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sparkbolt.errors import PrepareError, Unavailable
from sparkbolt.sim.checkers.acks import Checkers
from sparkbolt.sim.checkers.base import Checker, Facts, Violation
from sparkbolt.sim.faults import Fault, draw
from sparkbolt.sim.subject import Subject
from sparkbolt.sim.world import World

MICRO_BATCHES = (1, 1, 2, 2, 3)
"""In how many micro-batches the messages are read while faults are on: one of these."""
STATE_EVERY = 8
STAND_IN = (
    "what it depends on is not there in a simulation. Give it a stand-in, in prepare or execute, where "
    "context.rehearsal_directory is not None"
)
RAISED = -1
"""In a trail, the checksum of an exception that has ended the run; it comes last."""
UNFINISHED = "everything finishes"
ENGINE = "the engine goes on"


@dataclass(frozen=True)
class Run:
    """What came of one seed with certain faults."""

    seed: int
    faults: tuple[Fault, ...]
    happened: tuple[Fault, ...]
    """The faults whose steps were reached, in the order in which they happened."""
    violations: tuple[Violation, ...]
    micro_batches: int
    """How many were run, those that ran again counted again."""
    stopped: str | None
    """Why the topology stopped itself (``on_error="stop"``)."""
    away: str | None
    """A bolt that was unavailable for ever, at which the run ended."""
    trail: tuple[tuple[str, int], ...]
    """(component, checksum of something that it did), in order, if trails were to be noted; of an exception that has
    ended the run RAISED, and no component where it is not known whose it is."""
    details: tuple[tuple[str, ...], ...]
    """``trail`` in words, if stories were to be told, too."""
    hops: tuple[str, ...]
    """The story of the tree of the first violation, line by line, if it was to be told."""
    unsent: Mapping[str, int]
    """By component, how many messages it would have sent to a server; those of what ran again counted again."""


def faults_of(subject: Subject, seed: int) -> tuple[int, tuple[Fault, ...]]:
    """In how many micro-batches a seed reads its messages, and what goes wrong."""
    random_ = random.Random(seed)
    micro_batches = random_.choice(MICRO_BATCHES)
    return micro_batches, draw(random_, micro_batches, queues=bool(subject.queued))


def run_seed(
    subject: Subject,
    seed: int,
    faults: Sequence[Fault] | None = None,
    *,
    stories: bool = False,
    trails: bool = False,
    state: bool | None = None,
    watch: Callable[[Facts], Checker] | None = None,
) -> Run:
    """Run one seed.

    Args:
        subject: the topology.
        seed: of everything.
        faults: what goes wrong in the place of what the seed draws.
        stories: tell the story of the tree of the first violation; costs time.
        trails: note what each task did, for a comparison with another run; costs time.
        state: compare state with a run without faults, which costs time; None: for every eighth seed.
        watch: makes one more that watches, besides those of the promises.
    """
    micro_batches, drawn = faults_of(subject, seed)
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
            subject, seed, chosen, micro_batches=micro_batches, checkers=checkers, stories=stories, trails=trails
        )
        unfinished = world.run()
        if unfinished is not None:
            extra.append(Violation(UNFINISHED, unfinished, next(iter(facts.trees.open), None)))
        elif world.stopped is None and facts.away is None and not checkers.violations:
            checkers.ended(world.driver)
    except Exception as error:  # noqa: BLE001  whatever ends the driver or a spout's plans is what is looked for
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
    """What has ended a run, while the task of a component was prepared, if it is named."""
    if isinstance(error, PrepareError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    words = f"{type(error).__name__}: {error} ({place.filename}, line {place.lineno})"
    if not preparing:
        return words
    hint = f": {STAND_IN}" if isinstance(error, Unavailable) else ""
    return f"{preparing!r} could not be prepared: {words}{hint}"
