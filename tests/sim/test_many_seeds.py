"""Two thousand seeds: the examples, and random topologies."""

from __future__ import annotations

import contextlib
import gc
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples import exclamation, join, rolling_top_words, word_count
from sparkbolt.sim.simulate import run_seed
from sparkbolt.sim.subject import Subject, subject_of
from tests.sim.random_topologies import (
    depending_topology,
    insisting_topology,
    lettered_topology,
    random_topology,
    starting_topology,
)

EXAMPLE_SEEDS = 200
RANDOM_TOPOLOGIES = 300
SEEDS_EACH = 4
DEPENDING_TOPOLOGIES = 16


@pytest.fixture(autouse=True)
def _collector_rests() -> Iterator[None]:
    """A seed makes little garbage; collecting it in the middle takes a sixth of the time."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def check(subject: Subject, seeds: range) -> None:
    for seed in seeds:
        with contextlib.redirect_stdout(io.StringIO()):
            run = run_seed(subject, seed)
        words = [f"{violation.promise}: {violation.words}" for violation in run.violations]
        assert not words, (subject.topology.name, seed, [str(fault) for fault in run.happened], words)
    gc.collect()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["word-count", "join", "exclamation", "rolling-top-words"])
def test_the_examples_keep_every_promise(name: str, tmp_path: Path) -> None:
    text = tmp_path / "lines.txt"
    text.write_text("to be or not to be\nthat is the question\n" * 50)
    topologies: dict[str, Any] = {
        "word-count": lambda: word_count.build([str(text)], tmp_path / "top.json"),
        "join": join.build,
        "exclamation": exclamation.build,
        "rolling-top-words": rolling_top_words.build,
    }
    check(subject_of(topologies[name](), messages_max=40), range(EXAMPLE_SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_random_topologies_keep_every_promise(part: int) -> None:
    for number in range(part, RANDOM_TOPOLOGIES, 4):
        make = {3: starting_topology, 5: lettered_topology, 7: insisting_topology}.get(number % 8, random_topology)
        check(subject_of(*make(number)), range(number * SEEDS_EACH, (number + 1) * SEEDS_EACH))


@pytest.mark.slow
def test_dependencies_that_go_away_break_no_promise() -> None:
    for number in range(DEPENDING_TOPOLOGIES):
        check(subject_of(*depending_topology(number)), range(2 * number, 2 * number + 2))
