"""The word counts of others: Bytewax, Pathway, Apache Storm, PyFlink, and Structured Streaming by hand.

How fast do others count the same words on this machine, in this run, and what do they guarantee meanwhile?
Rule: what is not to be had here, or fails, is printed with its reason, and the others are measured all the same.

Bytewax, Pathway and PyFlink live in environments of their own under ``.bench/``, installed from the package index at
the first call. The time of Bytewax and Pathway is from the first line of their program to the last count, with their
start-up in it, which is short. Of all others it is the steady middle, as of ours.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import storm
from benchmarks.columns import CountColumns, SplitColumns
from benchmarks.figures import Figure, ratios
from benchmarks.runs import Mark, Options, in_turn, rate_of, steady_rate
from benchmarks.text import CACHE, WORDS_A_LINE, Text, zipf_text
from benchmarks.words import class_bolts, warm, word_count

PINS = ("bytewax==0.21.1", "pathway==0.33.0")
FLINK_PINS = ("apache-flink==2.3.0",)
PROGRAMS = Path(__file__).parent / "peer_programs"
PEER_WORDS = 4_000_000
"""Peers count the first so many words of the text: their rate does not depend on it."""
FLINK_WORDS = 2_000_000
STORM_SECS = 12
PIECES = 8
"""The words of peers are in so many files: all workers have something to read, and Spark a file a micro-batch."""
WORKERS = 2
TARGET_MS = 1000
"""Ours run with the default of ``micro_batch_target_ms``."""
TIMEOUT_SECS = 600

PARK = "org.apache.storm.policy.WaitStrategyPark"
STORM_TUNED = {"topology.bolt.wait.strategy": PARK, "topology.bolt.wait.park.microsec": 1000}
"""A bolt that has nothing to do sleeps for a millisecond, which leaves the two cores to those that have."""
ACKED = {**STORM_TUNED, "topology.max.spout.pending": 1000}
UNACKED = {**STORM_TUNED, "ackers": 0}

MEMORY_ONLY = "none; counts in memory"
BY_MICRO_BATCH = "exactly once per micro-batch, durable counts; a bad record ends the query"


@dataclass(frozen=True)
class Contender:
    """A word count: how its rate is measured, what it guarantees, what the figure depends on."""

    name: str
    guarantees: str
    measure: Callable[[], float]
    """Words a second."""
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NoFigure(Figure):
    """A line of the result without a figure: what could not be measured, and why."""

    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"benchmark": self.benchmark, "figure": self.name, "value": None, "reason": self.reason, **self.notes}

    def __str__(self) -> str:
        return f"{self.benchmark:8} {self.name:44} no figure: {self.reason}"


class Guarded:
    """Calls a contender until it fails; keeps the reason, and is not a number from then on."""

    def __init__(self, measure: Callable[[], float]) -> None:
        self._measure = measure
        self.reason = ""

    def __call__(self) -> float:
        if not self.reason:
            try:
                return self._measure()
            except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
                self.reason = " ".join(str(error).split())
        return math.nan


def environment(name: str, pins: Sequence[str]) -> Path:
    """The Python that has these packages; made at the first call.

    Raises:
        RuntimeError: they cannot be installed.
    """
    home = CACHE / name
    python = home / "bin" / "python"
    stamp = home / "pins"
    if stamp.exists() and stamp.read_text() == "\n".join(pins):
        return python
    uv = [shutil.which("uv")] if shutil.which("uv") else [sys.executable, "-m", "uv"]
    try:
        _called([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)])
        _called([*uv, "pip", "install", "--quiet", "--python", str(python), *pins])
    except RuntimeError as error:
        raise RuntimeError(f"does not install: {error}") from error
    stamp.write_text("\n".join(pins))
    return python


def parts(text: Text, words: int) -> Path:
    """A directory with the first words of the text in ``PIECES`` files of about the same size."""
    directory = CACHE / f"{text.path.stem}-{words}-in-{PIECES}"
    lines = words // WORDS_A_LINE
    if not directory.exists():
        unfinished = directory.with_suffix(".unfinished")
        unfinished.mkdir(exist_ok=True)
        with text.path.open("rb") as file:
            for piece in range(PIECES):
                count = lines * (piece + 1) // PIECES - lines * piece // PIECES
                (unfinished / f"{piece}.txt").write_bytes(b"".join(itertools.islice(file, count)))
        unfinished.rename(directory)
    return directory


def bytewax(directory: Path, words: int, workers: int) -> float:
    """Words a second of Bytewax with so many processes of one worker."""
    flow = f"bytewax_words:flow({str(directory)!r})"
    python = environment("peers", PINS)
    return _whole_rate([str(python), "-m", "bytewax.testing", "-p", str(workers), flow], words)


def pathway(directory: Path, words: int, workers: int) -> float:
    """Words a second of Pathway with so many threads."""
    command = [str(environment("peers", PINS)), "pathway_words.py", str(directory)]
    return _whole_rate(command, words, {"PATHWAY_THREADS": str(workers)})


def flink(directory: Path, words: int) -> float:
    """Words a second of PyFlink."""
    command = [str(environment("flink", FLINK_PINS)), "flink_words.py", str(directory)]
    return _steady_rate(_said(command), words)


def by_hand(directory: Path, words: int, shape: str) -> float:
    """Words a second of a Structured Streaming query by hand, with a file a micro-batch."""
    return _steady_rate(_said([sys.executable, "spark_words.py", str(directory), str(words), shape, "1"]), words)


def of_storm(directory: Path, settings: Mapping[str, object]) -> float:
    """Words a second of Apache Storm.

    Raises:
        RuntimeError: it counted more or fewer words than it emitted, or a line failed.
    """
    *lines, ended = storm.words(directory, STORM_SECS, settings)
    emitted, counted, failed = map(int, ended[1:])
    if counted != emitted or failed:
        raise RuntimeError(f"Storm counted {counted} of {emitted} words, and {failed} lines failed")
    return steady_rate(_marks(lines))


def _whole_rate(command: Sequence[str], words: int, variables: Mapping[str, str] | None = None) -> float:
    said = _said(command, variables)
    began = min(float(line[1]) for line in said if line[:1] == ["began"])
    ended = [line for line in said if line[:1] == ["ended"]]
    _check(command, sum(int(line[2]) for line in ended), words)
    return words / (max(float(line[1]) for line in ended) - began)


def _steady_rate(said: storm.Lines, words: int) -> float:
    marks = _marks(said)
    _check(["the program"], marks[-1].done, words)
    return steady_rate(marks)


def _marks(said: storm.Lines) -> list[Mark]:
    return [Mark(float(line[1]), int(line[2]), 0, 0) for line in said if line[:1] == ["mark"]]


def _check(command: Sequence[str], counted: int, words: int) -> None:
    if counted != words:
        raise RuntimeError(f"{' '.join(command)}: counted {counted} words, the text has {words}")


def _said(command: Sequence[str], variables: Mapping[str, str] | None = None) -> storm.Lines:
    return [line.split() for line in _called(command, variables).splitlines()]


def _called(command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as directory:
        own = {**os.environ, "TMPDIR": directory, **(variables or {})}
        result = subprocess.run(
            command, cwd=PROGRAMS, env=own, capture_output=True, text=True, timeout=TIMEOUT_SECS, check=False
        )
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr[-2000:]}")
    return result.stdout


def ours(text: Text) -> list[Contender]:
    """Class bolts first, then column bolts."""
    facts = {"words": text.words, "distinct": text.distinct, "micro_batch_target_ms": TARGET_MS}
    durable = "every line tracked and retried (at least once); durable counts"
    topologies = {
        "class bolts": lambda: class_bolts(text, target_ms=TARGET_MS),
        "column bolts": lambda: word_count(text.path, SplitColumns(), CountColumns(), target_ms=TARGET_MS),
    }
    return [
        Contender(f"sparkbolt, {name}", durable, lambda made=made: rate_of(made(), text), facts)
        for name, made in topologies.items()
    ]


def others(text: Text) -> list[Contender]:
    """All peers, each with the words that it counts."""
    words, few = min(text.words, PEER_WORDS), min(text.words, FLINK_WORDS)
    directory = parts(text, words)
    counted = {"words": words}
    listed = {
        f"{peer.__name__}, {workers} worker{'s' if workers > 1 else ''}": partial(peer, directory, words, workers)
        for peer in (bytewax, pathway)
        for workers in (1, WORKERS)
    }
    in_memory = [
        Contender(name, MEMORY_ONLY, measure, {**counted, "pins": ", ".join(PINS)}) for name, measure in listed.items()
    ]
    acker = "at least once per line (acker); counts in memory"
    python = {**ACKED, **storm.PYTHON_BOLTS}
    return [
        *in_memory,
        Contender("storm, JVM bolts, acked", acker, partial(of_storm, directory, ACKED), _told(ACKED)),
        Contender("storm, JVM bolts, no ackers", MEMORY_ONLY, partial(of_storm, directory, UNACKED), _told(UNACKED)),
        Contender("storm, Python bolts, acked", acker, partial(of_storm, directory, python), _told(ACKED)),
        Contender(
            "pyflink, split in Python, count in SQL",
            "exactly once, checkpoint each second; a bad record restarts or ends the job",
            lambda: flink(parts(text, few), few),
            {"words": few, "pins": ", ".join(FLINK_PINS)},
        ),
        Contender(
            "pyspark by hand, mapInPandas and groupBy",
            BY_MICRO_BATCH,
            partial(by_hand, directory, words, "aggregation"),
            counted,
        ),
        Contender(
            "pyspark by hand, transformWithState",
            BY_MICRO_BATCH,
            partial(by_hand, directory, words, "state"),
            counted,
        ),
    ]


def _told(settings: Mapping[str, object]) -> dict[str, Any]:
    shown = ", ".join(f"{name}={value}" for name, value in settings.items())
    return {"secs": STORM_SECS, "settings": shown}


def figures(options: Options) -> Iterator[Figure]:
    """Measure: ours and each peer, in turn."""
    text = zipf_text(options.words)
    contenders = ours(text) + others(text)
    guarded = [Guarded(contender.measure) for contender in contenders]
    warm()
    rates = in_turn(options.rounds, *guarded)
    for contender, guard, measured in zip(contenders, guarded, rates, strict=True):
        notes = {"guarantees": contender.guarantees, **contender.notes}
        if guard.reason:
            yield NoFigure("peers", contender.name, measured, "words/s", notes=notes, reason=guard.reason)
            continue
        yield Figure("peers", contender.name, measured, "words/s", notes=notes)
        if contender is not contenders[0] and not guarded[0].reason:
            yield Figure("peers", f"class bolts against {contender.name}", ratios(rates[0], measured), "times")
