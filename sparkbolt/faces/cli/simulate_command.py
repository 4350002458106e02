"""Simulate: simulates a topology from the command line.

The first seed that breaks a promise ends the command. It prints the seed, its shortest history, the story of its tree,
and the command that reproduces the failure. Two processes with different hash seeds run the first seeds and must do the
same. If a bolt is permanently unavailable, only these seeds run.
"""

from __future__ import annotations

import io
import os
import selectors
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from json import dumps, loads
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.status import Status

from sparkbolt.api.topology import Topology
from sparkbolt.errors import EngineError, WrongUseError
from sparkbolt.faces.cli.command_arguments import Count, CountOrNone
from sparkbolt.faces.cli.program import EXIT_FAILED, EXIT_FINISHED
from sparkbolt.faces.cli.resolver import topology_of
from sparkbolt.sim.faults import history_of
from sparkbolt.sim.mistakes import MistakeKind, Trial, in_words, try_once
from sparkbolt.sim.report import (
    SIDES_TRIES,
    SimulationReport,
    difference,
    nondeterministic,
    quiet_collector,
    report_of,
    side_by_side,
    simulate,
)
from sparkbolt.sim.simulate import run_seed
from sparkbolt.sim.subject import MESSAGES_MAX, Feed, Subject, subject_of
from sparkbolt.sim.subprocess_runner import SimulatingProcess

CHUNK = 20
"""How many seeds a process gets at a time."""
COMPARED_SEEDS = 5
LINE_EVERY_SECS = 5.0

Show = Callable[[str], None]
"""A function that shows the command's progress."""


def command(
    topology: str,
    *,
    seeds: Count = 1000,
    workers: CountOrNone = None,
    seed: int | None = None,
    history: str | None = None,
    feed: dict[str, str] | None = None,
    messages: Count = MESSAGES_MAX,
    later: Sequence[str] = (),
    strict: bool = False,
    json: bool = False,
) -> int:
    """Run a topology without Spark and inject faults.

    Each seed is a run with its own faults, such as crashes of the driver. The command checks that no message is lost,
    and that none is acked before its tree is complete.

    Args:
        topology: its code, such as word_count:topology or word_count.py; or the name of a topology
            that run has started.
        seeds: run the seeds 0 to N - 1 (default: 1000).
        workers: the number of processes (default: the cores of this machine).
        seed: run only this seed, and show what happened.
        history: with --seed: the faults to inject, as printed by a failure.
        feed: replace the messages of a spout by this file, one JSON list or object per line (repeatable).
        messages: the number of messages that each spout reads (default: 200).
        later: the code of a later shape of the topology, to which it changes on the way (repeatable, in their order).
        strict: exit with 1 also for mistakes of the topology itself, such as tuples that are never acked.
        json: print one JSON object per line.
    """
    if history is not None and seed is None:
        raise WrongUseError("--history needs --seed: add --seed N")
    order = SimulationOrder(
        reference=topology,
        topology=topology_of(topology),
        seeds=seeds,
        workers=workers or os.cpu_count() or 1,
        seed=seed,
        history=history,
        feed=feed or {},
        messages_max=messages,
        later_references=tuple(later),
        later=tuple(map(topology_of, later)),
        as_json=json,
        strict=strict,
    )
    return perform(order)


@dataclass(frozen=True)
class SimulationOrder:
    """The arguments of the command line."""

    reference: str
    """``module:attribute``, for the command that shows a failure again."""
    topology: Topology
    seeds: int
    workers: int
    seed: int | None
    """If it is set, only this seed is run."""
    history: str | None
    feed: Mapping[str, str]
    """By spout, the file whose lines replace its messages."""
    messages_max: int
    later_references: tuple[str, ...]
    later: tuple[Topology, ...]
    """Later shapes of the topology."""
    as_json: bool
    strict: bool
    """Whether the exit code is 1 also for mistakes of the topology that show without any fault."""

    @property
    def command(self) -> str:
        """The command that shows a failure again, with the placeholders ``{seed}`` and ``{history}``."""
        words = ["sparkbolt", "simulate", self.reference]
        for spout, file in self.feed.items():
            words += ["--feed", f"{spout}={file}"]
        if self.messages_max != MESSAGES_MAX:
            words += ["--messages", str(self.messages_max)]
        for reference in self.later_references:
            words += ["--later", reference]
        return " ".join(map(shlex.quote, words)).replace("{", "{{").replace("}", "}}") + (
            " --seed {seed} --history '{history}'"
        )


def feed_of(files: Mapping[str, str]) -> Feed:
    """Read the messages that replace those of spouts: each line of a file is a JSON list of values or object of fields.

    Raises:
        WrongUseError: a file cannot be read, or a line is no JSON.
    """
    feed: dict[str, list[Any]] = {}
    for spout, name in files.items():
        try:
            lines = Path(name).read_text(encoding="utf-8").splitlines()
            feed[spout] = [loads(line) for line in lines if line.strip()]
        except OSError as error:
            raise WrongUseError(f"--feed {spout}={name}: {error.strerror}") from error
        except ValueError as error:
            raise WrongUseError(
                f"--feed {spout}={name}: expected a JSON list or object on each line ({error})"
            ) from error
    return feed


def perform(order: SimulationOrder, out: IO[str] | None = None) -> int:
    """Run the simulation and print its result.

    Returns:
        The exit code: 0 if every promise was kept; 1 if one was broken, or, with ``strict``, if a mistake was found.
    """
    out = out or sys.stdout
    feed = feed_of(order.feed)
    if order.seed is not None:
        return _one(order, feed, out)
    began = time.monotonic()
    with _progress(order) as show:
        show("a run without any fault")
        subject = subject_of(order.topology, feed, order.messages_max, later=order.later)
        with redirect_stdout(_Nowhere()), quiet_collector():
            trial = try_once(subject)
        if any(mistake.kind == MistakeKind.NEVER_TAKEN for mistake in trial.mistakes):
            order = replace(order, seeds=min(order.seeds, COMPARED_SEEDS))
        seeds, micro_batches, report = _many(order, feed, show)
    elapsed_s = time.monotonic() - began
    rate = seeds / elapsed_s
    failed = report is not None or (order.strict and bool(trial.mistakes))
    if order.as_json:
        if report is not None:
            print(dumps({"event": "failure", **report.to_json()}), file=out)
        summary = {
            "event": "summary",
            "outcome": "failed" if failed else "finished",
            "seeds": seeds,
            "micro_batches": micro_batches,
            "elapsed_s": round(elapsed_s, 3),
            "seeds_per_s": round(rate, 1),
            "mistakes": [mistake.to_json() for mistake in trial.mistakes],
            "unsent": dict(trial.unsent),
        }
        print(dumps(summary), file=out)
    elif report is not None:
        print(report.story, file=out)
    else:
        print(
            f"{seeds:,} seeds, {micro_batches:,} micro-batches, all guarantees hold "
            f"({elapsed_s:.1f} s, {rate:,.{0 if rate >= 10 else 1}f} seeds a second)",
            file=out,
        )
    told = in_words(subject, trial)
    if told and not order.as_json:
        print(told, file=out)
    return EXIT_FAILED if failed else EXIT_FINISHED


def _one(order: SimulationOrder, feed: Feed, out: IO[str]) -> int:
    """Run one seed, with the given history if there is one, and print its story; returns the exit code."""
    assert order.seed is not None
    try:
        faults = None if order.history is None else history_of(order.history)
    except ValueError as error:
        raise WrongUseError(f"--history: {error}") from error
    with _progress(order) as show, redirect_stdout(_Nowhere()):
        show(f"seed {order.seed} is run")
        report = simulate(
            order.topology,
            order.seed,
            feed=feed,
            messages_max=order.messages_max,
            later=order.later,
            history=order.history,
            strict=order.strict,
        )
        if report.promise is not None and report.component is None:
            show(f"seed {order.seed} is run with fewer faults")
            subject = subject_of(order.topology, feed, order.messages_max, later=order.later)
            with quiet_collector():
                failed = report_of(subject, run_seed(subject, order.seed, faults, state=True), command=order.command)
                trial = Trial(report.mistakes, report.unsent)
                report = failed.with_trial(subject, trial, strict=order.strict)
    print(dumps({"event": "seed", **report.to_json()}) if order.as_json else report.story, file=out)
    return EXIT_FINISHED if report.ok else EXIT_FAILED


def _many(order: SimulationOrder, feed: Feed, show: Show) -> tuple[int, int, SimulationReport | None]:
    """Run all seeds up to the first that fails; returns (seeds, micro-batches, the report of a failure or None)."""
    count = max(2, order.workers)  # the comparison needs a second process, with another hash seed
    processes = [
        SimulatingProcess(
            order.topology, feed, order.messages_max, order.later, hash_seed=place + 1, command=order.command
        )
        for place in range(count)
    ]
    try:
        subject = subject_of(order.topology, feed, order.messages_max, later=order.later)
        show("the first seeds are run in two processes, and compared")
        report = _compare(order, subject, processes[0], processes[1])
        if report is not None:
            return 1, report.micro_batches, report
        for idle in processes[order.workers :]:
            idle.close()
        return _share(order, processes[: order.workers], show)
    finally:
        for process in processes:
            process.close()


def _compare(
    order: SimulationOrder, subject: Subject, one: SimulatingProcess, other: SimulatingProcess
) -> SimulationReport | None:
    """Run the first seeds in two processes; returns a report if a component does not do the same in both."""
    for seed in range(min(COMPARED_SEEDS, order.seeds)):
        for process in (one, other):
            process.ask("trail", seed, None, False)
        trails = [_answer(order, process)[0] for process in (one, other)]
        component = difference(*trails)
        if component is not None:

            def both(seed: int = seed) -> str:
                for process in (one, other):
                    process.ask("trail", seed, None, True)
                return side_by_side(*(_answer(order, process) for process in (one, other)))

            sides = next(filter(None, (both() for _ in range(SIDES_TRIES))), "")
            with redirect_stdout(_Nowhere()), quiet_collector():
                return nondeterministic(run_seed(subject, seed), component, sides)
    return None


def _share(
    order: SimulationOrder, processes: Sequence[SimulatingProcess], show: Show
) -> tuple[int, int, SimulationReport | None]:
    """Run the seeds, in chunks, on several processes; returns the same as ``_many``."""
    chunks: Iterator[int] = iter(range(0, order.seeds, CHUNK))
    seeds = micro_batches = 0
    began = time.monotonic()
    with selectors.DefaultSelector() as selector:

        def give(process: SimulatingProcess) -> None:
            start = next(chunks, None)
            if start is None:
                selector.unregister(process.answers)
            else:
                process.ask("seeds", start, min(start + CHUNK, order.seeds))

        for process in processes:
            selector.register(process.answers, selectors.EVENT_READ, process)
            give(process)
        while selector.get_map():
            for key, _ in selector.select():
                done, run, report = _answer(order, key.data)
                seeds, micro_batches = seeds + done, micro_batches + run
                rate = seeds / max(1e-9, time.monotonic() - began)
                show(f"{seeds:,} of {order.seeds:,} seeds, {rate:,.0f} a second")
                if report is not None:
                    return seeds, micro_batches, report
                give(key.data)
    return seeds, micro_batches, None


def _answer(order: SimulationOrder, process: SimulatingProcess) -> Any:
    answer = process.answer()
    if process.failure is not None:
        raise EngineError(f"a process that simulates {order.reference} could not go on: {process.failure}")
    return answer


class _Nowhere(io.StringIO):
    """A stream that discards what a topology prints."""

    def write(self, text: str) -> int:
        """Discard the text; returns its length."""
        return len(text)


@contextmanager
def _progress(order: SimulationOrder) -> Iterator[Show]:
    """Show the command's progress on standard error: a moving line on a terminal, else a line every few seconds."""
    if order.as_json:
        yield lambda _: None
        return
    if sys.stderr.isatty():
        with Status("starting", console=Console(stderr=True, highlight=False)) as status:
            yield status.update
        return
    began = time.monotonic()
    doing = "starting"
    is_over = threading.Event()

    def show(words: str) -> None:
        nonlocal doing
        doing = words

    def tell() -> None:
        while not is_over.wait(LINE_EVERY_SECS):
            print(f"{time.monotonic() - began:.0f} s: {doing}", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, name="sparkbolt-progress", daemon=True)
    teller.start()
    try:
        yield show
    finally:
        is_over.set()
        teller.join()
