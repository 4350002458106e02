"""Examples and random topologies keep every promise; a campaign takes its seeds from ``seeds.block``."""

from __future__ import annotations

import contextlib
import gc
import io
from pathlib import Path
from typing import Any

import pytest

from examples import exclamation, join, rolling_top_words, word_count
from sparkbolt.sim.simulate import run_seed
from sparkbolt.sim.subject import Subject, subject_of
from tests.sim.random_topologies import (
    chunked_topology,
    depending_topology,
    insisting_topology,
    lettered_topology,
    random_topology,
    starting_topology,
)
from tests.sim.seeds import block

pytestmark = pytest.mark.slow

EXAMPLE_SEEDS = 200
FIRST_SEEDS = 15
"""So many of them are run each time; the rest is a campaign."""
RANDOM_TOPOLOGIES = 240
FIRST_TOPOLOGIES = 32
SEEDS_EACH = 4
DEPENDING_TOPOLOGIES = 16
CHUNKED_TOPOLOGIES = 30
GIVE_BACKS = 3
"""The most requests of one seed to give dead letters back."""


def check(subject: Subject, seeds: range, *, give_backs: int = 0) -> None:
    for seed in seeds:
        with contextlib.redirect_stdout(io.StringIO()):
            run = run_seed(subject, seed, give_backs=give_backs)
        words = [f"{violation.promise}: {violation.words}" for violation in run.violations]
        assert not words, (subject.topology.name, seed, [str(fault) for fault in run.happened], words)
    gc.collect()


EXAMPLES = ["word-count", "join", "exclamation", "rolling-top-words"]


def example(name: str, tmp_path: Path) -> Subject:
    text = tmp_path / "lines.txt"
    text.write_text("to be or not to be\nthat is the question\n" * 50)
    topologies: dict[str, Any] = {
        "word-count": lambda: word_count.build([str(text)], tmp_path / "top.json"),
        "join": join.build,
        "exclamation": exclamation.build,
        "rolling-top-words": rolling_top_words.build,
    }
    return subject_of(topologies[name](), messages_max=40)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_keep_every_promise(name: str, tmp_path: Path) -> None:
    check(example(name, tmp_path), range(FIRST_SEEDS))


@pytest.mark.campaign
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_keep_every_promise_over_many_seeds(name: str, tmp_path: Path) -> None:
    check(example(name, tmp_path), block(EXAMPLE_SEEDS, FIRST_SEEDS))


def check_random(numbers: range) -> None:
    for number in numbers:
        make = {3: starting_topology, 5: lettered_topology, 7: insisting_topology}.get(number % 8, random_topology)
        give_backs = GIVE_BACKS if make is lettered_topology else 0
        seeds = range(number * SEEDS_EACH, (number + 1) * SEEDS_EACH)
        check(subject_of(*make(number)), seeds, give_backs=give_backs)


def test_random_topologies_keep_every_promise() -> None:
    check_random(range(FIRST_TOPOLOGIES))


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(4))
def test_more_random_topologies_keep_every_promise(part: int) -> None:
    check_random(block(RANDOM_TOPOLOGIES, FIRST_TOPOLOGIES)[part::4])


def check_depending(numbers: range) -> None:
    for number in numbers:
        check(subject_of(*depending_topology(number)), range(2 * number, 2 * number + 2))


def test_unavailable_dependencies_break_no_promise() -> None:
    check_depending(range(1, 5))


@pytest.mark.campaign
def test_unavailable_dependencies_break_no_promise_over_more_seeds() -> None:
    check_depending(block(DEPENDING_TOPOLOGIES, 5))


def check_chunked(numbers: range) -> None:
    for number in numbers:
        check(subject_of(chunked_topology(number), messages_max=25), range(2 * number, 2 * number + 2))


def test_messages_of_several_chunks_keep_every_promise() -> None:
    check_chunked(range(1, 6))


@pytest.mark.campaign
def test_more_messages_of_several_chunks_keep_every_promise() -> None:
    check_chunked(block(CHUNKED_TOPOLOGIES, 6))
