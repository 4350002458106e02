"""SimulationReport: reports the result of a seed to the user."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sparkbolt.api.topology import Topology, topology_of
from sparkbolt.sim.checkers.base import TRIES_IN_VAIN_MAX, Violation
from sparkbolt.sim.faults import Fault, history_of
from sparkbolt.sim.loops import outside_of_loops
from sparkbolt.sim.mistakes import Mistake, Trial, in_words, try_once
from sparkbolt.sim.shrink import shrink
from sparkbolt.sim.simulate import RAISED, Run, run_seed
from sparkbolt.sim.subject import MESSAGES_MAX, Feed, Subject, subject_of
from sparkbolt.streams import TopologyBuilder

DETERMINISTIC = "components are deterministic"
HINT = (
    "A micro-batch that runs again must do the same again, else a tree may be acked too early, or never. Look for the "
    "time (use context.now_ms), for random numbers without a seed, for the order of a set, for hash() of a str, and "
    "for state outside of its attributes."
)
SIDES_TRIES = 3
"""To show both sides, two runs are repeated at most this often: by chance they may do the same."""
HOPS_MAX = 60
"""At most this many lines of a tree's story are shown, the first and the last of them."""


@dataclass(frozen=True)
class SimulationReport:
    """The result of one seed."""

    ok: bool
    """Whether every promise was kept."""
    story: str
    """The result as lines of text; for a failure also the tree, and how to reproduce it."""
    seed: int
    promise: str | None = None
    """The broken promise; None if every promise was kept."""
    component: str | None = None
    """The responsible component, if it is known: one that is not deterministic."""
    history: tuple[str, ...] = ()
    """The faults that happened, in the form of ``simulate(history=...)``; for a failure the shortest that fails."""
    micro_batches: int = 0
    """How many micro-batches were run; one that ran again counts again."""
    mistakes: tuple[Mistake, ...] = ()
    """The topology's own mistakes, which need no fault; they break no promise."""
    unsent: Mapping[str, int] = field(default_factory=dict)
    """How many messages each component would have sent to a server; a simulation sends nothing."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        mistakes = [mistake.to_json() for mistake in self.mistakes]
        return {**vars(self), "history": list(self.history), "mistakes": mistakes, "unsent": dict(self.unsent)}

    def with_trial(self, subject: Subject, trial: Trial, *, strict: bool) -> SimulationReport:
        """Return the report with the result of a run without faults; with ``strict`` a mistake is a failure, too."""
        story = "\n".join(filter(None, (self.story, in_words(subject, trial))))
        is_ok = self.ok and not (strict and trial.mistakes)
        return replace(self, ok=is_ok, story=story, mistakes=trial.mistakes, unsent=trial.unsent)


Trail = Sequence[tuple[str, int]]
"""(component, checksum of one of its actions), in order."""
Details = Sequence[tuple[str, ...]]
"""A trail in words: some lines for each of its elements."""


def _first_difference(one: Trail, other: Trail) -> int | None:
    for place, (ours, theirs) in enumerate(zip(one, other, strict=False)):
        if ours != theirs:
            return place
    return None if len(one) == len(other) else min(len(one), len(other))


def difference(one: Trail, other: Trail) -> str | None:
    """Return the component that first acted differently in one of two runs of a seed; None if the runs are equal.

    >>> difference([("a", 1), ("b", 2)], [("a", 1), ("c", RAISED)])
    'c'
    """
    place = _first_difference(one, other)
    if place is None:
        return None
    steps = [trail[place] for trail in (one, other) if place < len(trail)]
    steps.sort(key=lambda step: step[1] != RAISED)  # a component that raised comes first: it is at fault
    return next((component for component, _ in steps if component), "one of the components")


def side_by_side(one: tuple[Trail, Details], other: tuple[Trail, Details]) -> str:
    """Show the first difference of two runs, one line each; empty if they do not differ.

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
    if lines[0] == lines[1]:  # the values are equal: the tuples differ in something else
        lines = [
            f"{line}, with {len(whole)} tuple(s) in all" for line, whole in zip(lines, (ours, theirs), strict=True)
        ]
    return f"  the first time:  {lines[0]}\n  the second time: {lines[1]}"


def trail_of(subject: Subject, seed: int, faults: Sequence[Fault] | None, *, told: bool) -> tuple[Trail, Details]:
    """Return the work of each task in a seed, for comparison with another run; ``told``: in words too, at some cost."""
    run = run_seed(subject, seed, faults, trails=True, stories=told)
    return run.trail, run.details


def nondeterministic(run: Run, component: str, sides: str = "") -> SimulationReport:
    """Return the report of a seed that was not repeatable; ``sides`` shows both runs, from ``side_by_side``."""
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
    """Return the report of a run; a failed history is shrunk, and the story of its tree is added.

    Args:
        subject: The topology that was run.
        run: The result of the run.
        command: The command that reproduces it, with the placeholders ``{seed}`` and ``{history}``.
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
    """Pause the garbage collector: a seed creates little cyclic garbage, but collecting it takes 1/6 of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@outside_of_loops
def simulate(
    topology: Topology | TopologyBuilder,
    seed: int = 0,
    *,
    feed: Feed | None = None,
    messages_max: int = MESSAGES_MAX,
    later: Sequence[Topology | TopologyBuilder] = (),
    history: str | Sequence[str] | None = None,
    repeat: bool = True,
    strict: bool = False,
) -> SimulationReport:
    """Run a topology in one process with faults, then without faults until it is finished.

    The plans, tasks, frames, state and ledger are those that run on Spark. The seed determines what dies, and when: the
    same seed always gives the same run. A ``PartitionedSpout`` reads its own source, up to its first ``messages_max``
    messages. A ``Spout`` is run as it is, with a new instance for each life of the driver. If a spout's source is not
    available here, give its messages in ``feed``.

    Args:
        topology: The result of ``TopologyBuilder.build``; or a builder, which is built.
        seed: Determines the faults, the order of frames, and the worker of each spark_task.
        feed: By spout (or ``"spout/stream"``) the values of its messages, in order or by field. A fed ``Spout`` stands
            for a queue, which delivers a message again if it failed or its connection was lost.
        messages_max: How many messages are read from a spout that is not fed.
        later: Later shapes of the topology, in their order: it changes to them on the way, also while drivers die, and
            back before the new shape has committed anything. Tasks of bolts, windows, settings, migrations and bolts
            without state may differ; spouts, and the ids of bolts that keep state, stay.
        history: Faults that replace those of the seed, in the form of ``SimulationReport.history``.
        repeat: Run the seed a second time, in a process with another hash seed, and name a component that acts
            differently there.
        strict: Whether a mistake of the topology itself (``SimulationReport.mistakes``) is a failure, too.

    Raises:
        SimulationError: A spout cannot be read here, ``feed`` names a spout that does not exist, or a change to one of
            ``later`` cannot be simulated.
        CheckpointError: A topology of ``later`` cannot go on from the one before.
        ValueError: ``history`` does not consist of faults.
        InvalidTopology: As ``TopologyBuilder.build``.
        TypeError: ``topology`` is neither a topology nor a builder.

    >>> from sparkbolt import BasicBolt, TopologyBuilder
    >>> from sparkbolt.spouts import GeneratorSpout
    >>> class Double(BasicBolt):
    ...     outputs = ["n"]
    ...     def execute(self, tup, collector):
    ...         collector.emit([2 * tup["n"]])
    >>> builder = TopologyBuilder("doubling")
    >>> _ = builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(50)), outputs=["n"]))
    >>> _ = builder.set_bolt("double", Double(), parallelism=2).shuffle_grouping("numbers")
    >>> report = simulate(builder.build(), seed=7, repeat=False)
    >>> report.ok
    True
    """
    from sparkbolt.sim.subprocess_runner import process_like

    topology = topology_of(topology)
    faults = None if history is None else history_of(history)
    shapes = tuple(map(topology_of, later))
    subject = subject_of(topology, feed, messages_max, later=shapes)
    command = f"simulate(topology, seed={{seed}}, {'later=[...], ' if shapes else ''}history={{history!r}})"
    with quiet_collector():
        trial = try_once(subject, seed)
        if not repeat:
            report = report_of(subject, run_seed(subject, seed, faults, state=True), command=command)
            return report.with_trial(subject, trial, strict=strict)
        other_process = process_like(topology, feed, messages_max, shapes)
        if other_process is not None:
            other_process.ask("trail", seed, faults, False)
        run = run_seed(subject, seed, faults, trails=True, state=True)

        def again(told: bool) -> tuple[Trail, Details]:
            answer = other_process.answer() if other_process is not None else None
            return answer if answer is not None else trail_of(subject, seed, faults, told=told)

        component = difference(run.trail, again(False)[0])
        if component is None:
            return report_of(subject, run, command=command).with_trial(subject, trial, strict=strict)

        def both() -> str:
            if other_process is not None:
                other_process.ask("trail", seed, faults, True)
            return side_by_side(trail_of(subject, seed, faults, told=True), again(True))

        sides = next(filter(None, (both() for _ in range(SIDES_TRIES))), "")
        return nondeterministic(run, component, sides).with_trial(subject, trial, strict=strict)
