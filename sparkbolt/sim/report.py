"""Reports: what a person is told of a seed.

Which question it answers: was a promise broken, which one, by what, for which tree, and how is it seen again?

Read before: ``simulate``.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparkbolt.core.model.topology import Topology, TopologyBuilder, topology_of
from sparkbolt.sim.checkers.base import TRIES_IN_VAIN_MAX, Violation
from sparkbolt.sim.faults import Fault, history_of
from sparkbolt.sim.mistakes import Mistake, Trial, in_words, try_once
from sparkbolt.sim.shrink import shrink
from sparkbolt.sim.simulate import RAISED, Run, run_seed
from sparkbolt.sim.subject import MESSAGES_MAX, Feed, Subject, subject_of

DETERMINISTIC = "components are deterministic"
HINT = (
    "A micro-batch that runs again must do the same again, else a tree may be acked too early, or never. Look for the "
    "time (use context.now_ms), for random numbers without a seed, for the order of a set, for hash() of a str, and "
    "for state outside of its attributes."
)
SIDES_TRIES = 3
"""So often at most two runs are made again in which both sides are to be shown: they may happen to do the same."""
HOPS_MAX = 60
"""So many lines of a tree's story are told, the first and the last of them."""


@dataclass(frozen=True)
class SimulationReport:
    """What came of one seed."""

    ok: bool
    """Whether every promise was kept."""
    story: str
    """What happened, in lines of text; of a failure also the tree, and how to see it again."""
    seed: int
    promise: str | None = None
    """The promise that was broken."""
    component: str | None = None
    """Who is to blame, where that is known: a component that is not deterministic."""
    history: tuple[str, ...] = ()
    """What went wrong on the way, as ``simulate(history=...)`` takes it; of a failure, the shortest that fails."""
    micro_batches: int = 0
    """How many micro-batches were run; one that ran again counts again."""
    mistakes: tuple[Mistake, ...] = ()
    """What the topology does wrong by itself, with nothing going wrong around it; no promise is broken by that."""
    unsent: Mapping[str, int] = field(default_factory=dict)
    """By component, how many messages it would have sent to a server; a simulation sends nothing."""

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        mistakes = [mistake.to_json() for mistake in self.mistakes]
        return {**vars(self), "history": list(self.history), "mistakes": mistakes, "unsent": dict(self.unsent)}

    def with_trial(self, subject: Subject, trial: Trial, *, strict: bool) -> SimulationReport:
        """The report with what the topology does by itself; with ``strict`` a mistake of it is a failure, too."""
        story = "\n".join(filter(None, (self.story, in_words(subject, trial))))
        is_ok = self.ok and not (strict and trial.mistakes)
        return replace(self, ok=is_ok, story=story, mistakes=trial.mistakes, unsent=trial.unsent)


Trail = Sequence[tuple[str, int]]
"""(component, checksum of something that it did), in order."""
Details = Sequence[tuple[str, ...]]
"""A trail in words: some lines for each of its elements."""


def _first_difference(one: Trail, other: Trail) -> int | None:
    for place, (ours, theirs) in enumerate(zip(one, other, strict=False)):
        if ours != theirs:
            return place
    return None if len(one) == len(other) else min(len(one), len(other))


def difference(one: Trail, other: Trail) -> str | None:
    """The component that first did something else in one of two runs of a seed; None if none did.

    >>> difference([("a", 1), ("b", 2)], [("a", 1), ("c", RAISED)])
    'c'
    """
    place = _first_difference(one, other)
    if place is None:
        return None
    steps = [trail[place] for trail in (one, other) if place < len(trail)]
    steps.sort(key=lambda step: step[1] != RAISED)  # what one run did not come to is nobody's fault
    return next((component for component, _ in steps if component), "one of the components")


def side_by_side(one: tuple[Trail, Details], other: tuple[Trail, Details]) -> str:
    """What two runs did at the place where they part, a line each; empty where they do not part.

    >>> print(side_by_side(([("a", 1)], [("a[0] sent [1] to b[0]",)]), ([("a", 2)], [("a[0] sent [2] to b[0]",)])))
      the first time:  a[0] sent [1] to b[0]
      the second time: a[0] sent [2] to b[0]
    """
    place = _first_difference(one[0], other[0])
    if place is None:
        return ""
    ours, theirs = (details[place] if place < len(details) else () for _, details in (one, other))
    row = next(
        (row for row, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
    )
    lines = [lines[row] if row < len(lines) else "nothing more" for lines in (ours, theirs)]
    if lines[0] == lines[1]:  # the values are the same: the rest of the tuples is not
        lines = [
            f"{line}, with {len(whole)} tuple(s) in all" for line, whole in zip(lines, (ours, theirs), strict=True)
        ]
    return f"  the first time:  {lines[0]}\n  the second time: {lines[1]}"


def trail_of(subject: Subject, seed: int, faults: Sequence[Fault] | None, *, told: bool) -> tuple[Trail, Details]:
    """What each task does in a seed, for a comparison with another run; ``told``: in words, too, which costs time."""
    run = run_seed(subject, seed, faults, trails=True, stories=told)
    return run.trail, run.details


def nondeterministic(run: Run, component: str, sides: str = "") -> SimulationReport:
    """The report of a seed that did not do the same again; ``sides`` shows both runs, as ``side_by_side`` does."""
    words = (
        f"seed {run.seed} was run twice, and {component!r} did something else the second time: it is not deterministic."
    )
    words = "\n".join(filter(None, (words, sides, HINT)))
    return SimulationReport(
        False, words, run.seed, DETERMINISTIC, component, tuple(map(str, run.faults)), run.micro_batches
    )


def report_of(
    subject: Subject, run: Run, *, command: str = "simulate(topology, seed={seed}, history={history!r})"
) -> SimulationReport:
    """The report of a run; one that failed is shrunk, and its tree is told.

    Args:
        subject: what was run.
        run: what came of it.
        command: how to see it again, with ``{seed}`` and ``{history}`` in it.
    """
    if not run.violations:
        return SimulationReport(
            True, _fine(run), run.seed, history=tuple(map(str, run.happened)), micro_batches=run.micro_batches
        )
    promise = run.violations[0].promise

    def fails(faults: Sequence[Fault]) -> bool:
        return any(
            violation.promise == promise for violation in run_seed(subject, run.seed, faults, state=True).violations
        )

    history = shrink(run.happened if fails(run.happened) else run.faults, fails)
    told = run_seed(subject, run.seed, history, stories=True, state=True)
    if not told.violations:
        first = run.violations[0]
        raised = next((component for component, checksum in run.trail[-1:] if checksum == RAISED), "")
        sides = f"  the first time:  {first.words}\n  the second time: nothing of the kind"
        return nondeterministic(run, first.component or raised or "one of the components", sides)
    return SimulationReport(
        ok=False,
        story=_failed(told, told.violations[0], command),
        seed=run.seed,
        promise=told.violations[0].promise,
        component=told.violations[0].component,
        history=tuple(map(str, history)),
        micro_batches=run.micro_batches,
    )


def _fine(run: Run) -> str:
    lines = [f"seed {run.seed}: every promise was kept; {run.micro_batches} micro-batches"]
    if run.stopped is not None:
        lines.append(f"the topology stopped itself: {run.stopped}")
    if run.away is not None:
        lines.append(
            f"the seed ended where bolt {run.away!r} had been unavailable in {TRIES_IN_VAIN_MAX} micro-batches in a "
            "row: what waits for it was not finished"
        )
    lines += [f"  {fault.words}" for fault in run.happened]
    return "\n".join(lines)


def _failed(run: Run, violation: Violation, command: str) -> str:
    lines = [f"seed {run.seed} breaks a promise: {violation.promise}", f"  {violation.words}"]
    if violation.component is not None:
        lines.append(f"most likely {violation.component!r} is not deterministic. {HINT}")
    if run.faults:
        lines.append("what goes wrong on the way, and is needed for it:")
        lines += [f"  {fault.words}" for fault in run.faults]
    else:
        lines.append("nothing needs to go wrong for it")
    if run.hops:
        hops = list(dict.fromkeys(run.hops))
        if len(hops) > HOPS_MAX:
            half = HOPS_MAX // 2
            hops = [*hops[:half], f"... {len(hops) - HOPS_MAX} more ...", *hops[-half:]]
        lines.append("the tree:")
        lines += [f"  {hop}" for hop in hops]
    history = ",".join(map(str, run.faults))
    lines.append("to see it again: " + command.format(seed=run.seed, history=history))
    return "\n".join(lines)


@contextlib.contextmanager
def quiet_collector() -> Iterator[None]:
    """Let cyclic garbage wait: a seed makes little, and collecting it in the middle takes a sixth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def simulate(
    topology: Topology | TopologyBuilder,
    seed: int = 0,
    *,
    feed: Feed | None = None,
    messages_max: int = MESSAGES_MAX,
    history: str | Sequence[str] | None = None,
    repeat: bool = True,
    strict: bool = False,
) -> SimulationReport:
    """Run a topology in one process while everything around it goes wrong, then let it heal and finish.

    The plans, tasks, frames, state and ledger are those that run on Spark; what dies, and when, is drawn from the seed.
    The same seed always gives the same run. A ``PartitionedSpout`` reads its own source, as far as its first
    ``messages_max`` messages; a ``Spout`` is run as it is, a new instance for each life of the driver. Give a spout
    messages with ``feed`` where its source is not here.

    Args:
        topology: what ``TopologyBuilder.build`` gave; or a builder, which builds it.
        seed: which faults happen, in which order frames arrive, which worker runs what.
        feed: by spout (or ``"spout/stream"``): the values of its messages, in order or by field. A fed ``Spout``
            stands for a queue, which gives a message again that was failed or whose connection was lost.
        messages_max: how many messages of a spout are read, where it is not fed.
        history: faults in the place of those that the seed draws, as ``SimulationReport.history`` gives them.
        repeat: run the seed a second time, in a process with another hash seed, and name a component that does
            something else there.
        strict: whether what the topology does wrong by itself (``SimulationReport.mistakes``) is a failure, too.

    Raises:
        SimulationError: a spout cannot be read here, or ``feed`` names none.
        ValueError: ``history`` names no faults.
        InvalidTopology: as ``TopologyBuilder.build``.
        TypeError: ``topology`` is neither of the two.

    >>> from sparkbolt import BasicBolt, TopologyBuilder
    >>> from sparkbolt.spouts import GeneratorSpout
    >>> class Double(BasicBolt):
    ...     outputs = ["n"]
    ...     def execute(self, tup, collector):
    ...         collector.emit([2 * tup["n"]])
    >>> builder = TopologyBuilder("doubling")
    >>> builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(50)), outputs=["n"]))
    >>> _ = builder.set_bolt("double", Double(), parallelism=2).shuffle_grouping("numbers")
    >>> report = simulate(builder.build(), seed=7, repeat=False)
    >>> report.ok
    True
    """
    from sparkbolt.sim.subprocess_runner import process_like

    topology = topology_of(topology)
    faults = None if history is None else history_of(history)
    subject = subject_of(topology, feed, messages_max)
    with quiet_collector():
        trial = try_once(subject, seed)
        if not repeat:
            report = report_of(subject, run_seed(subject, seed, faults, state=True))
            return report.with_trial(subject, trial, strict=strict)
        other_process = process_like(topology, feed, messages_max)
        if other_process is not None:
            other_process.ask("trail", seed, faults, False)
        run = run_seed(subject, seed, faults, trails=True, state=True)

        def again(told: bool) -> tuple[Trail, Details]:
            answer = other_process.answer() if other_process is not None else None
            return answer if answer is not None else trail_of(subject, seed, faults, told=told)

        component = difference(run.trail, again(False)[0])
        if component is None:
            return report_of(subject, run).with_trial(subject, trial, strict=strict)

        def both() -> str:
            if other_process is not None:
                other_process.ask("trail", seed, faults, True)
            return side_by_side(trail_of(subject, seed, faults, told=True), again(True))

        sides = next(filter(None, (both() for _ in range(SIDES_TRIES))), "")
        return nondeterministic(run, component, sides).with_trial(subject, trial, strict=strict)
