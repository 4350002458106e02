"""How long a start takes.

How long does a user wait from ``sparkbolt run`` to the first ack, with the class archive and without, against an empty
session of PySpark that counts one row? All are new processes, in turn; the first turn, which reads from the disk, is
left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import MASTER, TIMEOUT_SECS, Options, in_turn
from sparkbolt.spark.class_archive import CACHE_ENV, OFF

PROGRAMS = Path(__file__).parent / "start_programs"
CACHE = os.path.abspath(".bench/cache")


def make_archive() -> None:
    """What the first start of a user leaves behind, in the background, for those after it."""
    command = [sys.executable, "-m", "sparkbolt.spark.class_archive_maker"]
    subprocess.run(command, env={**os.environ, CACHE_ENV: CACHE}, stdout=subprocess.DEVNULL, check=True)


def first_ack_s(cache: str = CACHE) -> float:
    """Seconds from the command to the first micro-batch with acks."""
    with tempfile.TemporaryDirectory(prefix="sparkbolt-start-") as directory:
        topology = ["word_count:topology", "--master", MASTER, "--json", "--checkpoint", f"{directory}/state"]
        return _seconds(["-m", "sparkbolt", "run", *topology], directory, _has_acks, cache)


def empty_session_s() -> float:
    """Seconds from the command to the row of an empty session."""
    with tempfile.TemporaryDirectory(prefix="sparkbolt-start-") as directory:
        return _seconds([str(PROGRAMS / "empty_session.py")], directory, lambda line: line.startswith("rows"))


def _has_acks(line: str) -> bool:
    event = json.loads(line)
    return event["event"] == "micro_batch" and bool(event["acked"])


def _seconds(arguments: list[str], directory: str, is_it: Callable[[str], bool], cache: str = OFF) -> float:
    """Seconds from the start of a Python process to a line of its output; then it is waited for.

    Raises:
        RuntimeError: it ends without such a line.
    """
    began, found = time.perf_counter(), None
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=PROGRAMS,
        env={**os.environ, "SPARKBOLT_HOME": f"{directory}/home", CACHE_ENV: cache},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if found is None and is_it(line):
            found = time.perf_counter() - began
    process.wait(TIMEOUT_SECS)
    if found is None:
        raise RuntimeError(f"{arguments} ended with exit code {process.returncode} before it had begun")
    return found


def figures(options: Options) -> Iterator[Figure]:
    """Measure: our start and PySpark's, in turn."""
    make_archive()
    first_ack_s(), empty_session_s()
    ours, first, empty = in_turn(options.rounds, first_ack_s, partial(first_ack_s, OFF), empty_session_s)
    yield Figure("start", "from sparkbolt run to the first ack", ours, "s", Aim("at most", 9.0))
    yield Figure("start", "the same where no class archive is there yet", first, "s")
    yield Figure("start", "from python to a row of an empty session", empty, "s")
    yield Figure("start", "our start against the empty session's", ratios(ours, empty), "times")
