"""The word counts of Bytewax and Pathway.

Which question it answers: how fast do others count the same words on this machine, in this run?

They live in an environment of their own under ``.bench/``, installed from the package index at the first call.
Neither tracks a line to its end or keeps its counts durably here. Their time is from the first line of their
program to the last count, with their start-up in it, which is short.

Read before: ``runs``, ``words``, and the programs in ``peer_programs``.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.figures import Figure, ratios
from benchmarks.runs import Options, in_turn, rate_of
from benchmarks.text import CACHE, WORDS_A_LINE, Text, zipf_text
from benchmarks.words import TARGET_MS, class_bolts, warm

PINS = ("bytewax==0.21.1", "pathway==0.33.0")
PROGRAMS = Path(__file__).parent / "peer_programs"
PEER_WORDS = 8_000_000
"""Peers count the first so many words of the text: their rate does not depend on it."""
WORKERS = 2
TIMEOUT_SECS = 600


def environment() -> Path:
    """The Python that has the peers; made at the first call.

    Raises:
        RuntimeError: they cannot be installed.
    """
    home = CACHE / "peers"
    python = home / "bin" / "python"
    stamp = home / "pins"
    if stamp.exists() and stamp.read_text() == "\n".join(PINS):
        return python
    uv = [shutil.which("uv")] if shutil.which("uv") else [sys.executable, "-m", "uv"]
    _called([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)])
    _called([*uv, "pip", "install", "--quiet", "--python", str(python), *PINS])
    stamp.write_text("\n".join(PINS))
    return python


def parts(text: Text) -> Path:
    """A directory with the first words of the text in two files, so that two workers have something to read."""
    directory = CACHE / f"{text.path.stem}-parts"
    lines = min(text.words, PEER_WORDS) // WORDS_A_LINE
    if not directory.exists():
        unfinished = directory.with_suffix(".unfinished")
        unfinished.mkdir(exist_ok=True)
        with text.path.open("rb") as file:
            for name, count in (("a.txt", lines // WORKERS), ("b.txt", lines - lines // WORKERS)):
                (unfinished / name).write_bytes(b"".join(itertools.islice(file, count)))
        unfinished.rename(directory)
    return directory


def bytewax(python: Path, directory: Path, words: int, workers: int) -> float:
    """Words a second of Bytewax with so many processes of one worker."""
    flow = f"bytewax_words:flow({str(directory)!r})"
    return _rate([str(python), "-m", "bytewax.testing", "-p", str(workers), flow], words)


def pathway(python: Path, directory: Path, words: int, workers: int) -> float:
    """Words a second of Pathway with so many threads."""
    return _rate([str(python), "pathway_words.py", str(directory)], words, {"PATHWAY_THREADS": str(workers)})


def _rate(command: Sequence[str], words: int, variables: Mapping[str, str] | None = None) -> float:
    said = [line.split() for line in _called(command, variables).splitlines()]
    began = min(float(line[1]) for line in said if line[:1] == ["began"])
    ended = [line for line in said if line[:1] == ["ended"]]
    counted = sum(int(line[2]) for line in ended)
    if counted != words:
        raise RuntimeError(f"{command}: counted {counted} words, the text has {words}")
    return words / (max(float(line[1]) for line in ended) - began)


def _called(command: Sequence[str], variables: Mapping[str, str] | None = None) -> str:
    own = {**os.environ, **(variables or {})}
    result = subprocess.run(
        command, cwd=PROGRAMS, env=own, capture_output=True, text=True, timeout=TIMEOUT_SECS, check=False
    )
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {result.returncode}:\n{result.stderr[-2000:]}")
    return result.stdout


def figures(options: Options) -> Iterator[Figure]:
    """Measure: ours, and each peer with one and two workers, in turn."""
    text = zipf_text(options.words)
    python, directory = environment(), parts(text)
    words = min(text.words, PEER_WORDS)
    contenders = {
        f"{peer.__name__}, {workers} worker{'s' if workers > 1 else ''}": functools.partial(
            peer, python, directory, words, workers
        )
        for peer in (bytewax, pathway)
        for workers in (1, WORKERS)
    }
    warm()
    ours, *others = in_turn(options.rounds, lambda: rate_of(class_bolts(text), text), *contenders.values())
    facts = {"words": text.words, "distinct": text.distinct, "micro_batch_target_ms": TARGET_MS}
    yield Figure("peers", "sparkbolt, class bolts, tracked, durable", ours, "words/s", notes=facts)
    for name, rates in zip(contenders, others, strict=True):
        yield Figure("peers", name, rates, "words/s", notes={"words": words, "pins": ", ".join(PINS)})
        yield Figure("peers", f"ours against {name}", ratios(ours, rates), "times")
