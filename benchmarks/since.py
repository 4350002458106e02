"""Words a second of this tree against those of an earlier commit.

How many times as much does the word count do with its default settings as it did then, on one and the same machine, in
turn? Each turn is a process of its own. The programs are those of today; only the package ``sparkbolt`` is that of the
commit, with the commit's kernels, built here; a commit without kernels runs in pure Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import TIMEOUT_SECS, Options, in_turn
from benchmarks.text import CACHE, Text, zipf_text
from benchmarks.words import VOCABULARY

PROGRAM = Path(__file__).parent / "since_programs" / "rate.py"
ROOT = Path(__file__).parents[1]
CHECKOUTS = CACHE / "since"
WORDS_MIN = 2.2 / 1.45
"""What was wanted of class bolts when the work on speed began, in M words/s, against what they did then."""
COLUMNS_MIN = 8 / 6.5
"""The same of column bolts."""


def package_of(commit: str) -> Path:
    """The folder with the package ``sparkbolt`` as it was at a commit, taken from this repository, and its kernels.

    Raises:
        RuntimeError: this repository has no such commit; the text has what Git says.
    """
    found = subprocess.run(
        ["git", "rev-parse", "--verify", f"{commit}^{{commit}}"], cwd=ROOT, capture_output=True, text=True
    )
    if found.returncode:
        raise RuntimeError(f"{commit}: {found.stderr.strip()}; a shallow clone gets it by: git fetch --unshallow")
    folder = CHECKOUTS / found.stdout.strip()
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        listed = ["git", "ls-tree", "--name-only", folder.name, "fast"]
        kernels = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        archive = subprocess.run(
            ["git", "archive", folder.name, "sparkbolt", *kernels], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(part)], input=archive.stdout, check=True)
        for source in kernels:
            build = [sys.executable, "-m", "uv", "pip", "install", "--no-deps", "--no-build-isolation"]
            subprocess.run([*build, "--target", part, part / source], check=True)
        part.rename(folder)
    return folder


def rate(package: Path, bolts: str, text: Text) -> float:
    """Words a second that a new process counts with the package in a folder; ``bolts`` as ``rate.py`` names them.

    Raises:
        RuntimeError: it failed.
    """
    paths = os.pathsep.join(map(str, dict.fromkeys([package, ROOT])))
    command = [sys.executable, PROGRAM, bolts, text.path.absolute(), str(text.words), str(text.distinct)]
    done = subprocess.run(
        command,
        cwd=package,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECS,
    )
    if done.returncode:
        raise RuntimeError(f"{bolts} of {package} failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def figures(options: Options) -> Iterator[Figure]:
    """Measure: class bolts and column bolts of both, in turn."""
    then, text = package_of(options.commit), zipf_text(options.words, ranks=VOCABULARY)
    for bolts, minimum in (("words", WORDS_MIN), ("columns", COLUMNS_MIN)):
        now_rates, then_rates = in_turn(
            options.rounds, partial(rate, ROOT, bolts, text), partial(rate, then, bolts, text)
        )
        facts = {"words": text.words, "distinct": text.distinct}
        yield Figure("since", f"{bolts}, now", now_rates, "words/s", notes=facts)
        yield Figure("since", f"{bolts}, at {options.commit}", then_rates, "words/s")
        yield Figure(
            "since", f"{bolts}, now against then", ratios(now_rates, then_rates), "times", Aim("at least", minimum)
        )
