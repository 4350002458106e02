"""The hunt for a planted bug, which tests of planted bugs share."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from sparkbolt.sim.simulate import run_seed
from sparkbolt.sim.subject import Subject, subject_of
from tests.sim.random_topologies import insisting_topology, random_topology

SEEDS_MAX = 5000
SEEDS_A_TOPOLOGY = 4
_subjects: dict[int, Subject] = {}


def subject(number: int) -> Subject:
    """Every eighth topology insists on anchoring to what it holds; the others are random."""
    if number not in _subjects:
        make = insisting_topology if number % 8 == 7 else random_topology
        _subjects[number] = subject_of(*make(number))
    return _subjects[number]


def hunt(subject: Callable[[int], Subject] = subject, *, give_backs: int = 0) -> tuple[int, str, str]:
    """(seeds that were needed, the promise that was broken, in which words)."""
    for seed in range(SEEDS_MAX):
        run = run_seed(subject(seed // SEEDS_A_TOPOLOGY), seed, give_backs=give_backs)
        if run.violations:
            return seed + 1, run.violations[0].promise, run.violations[0].words
        if seed % 50 == 0:
            gc.collect()
    raise AssertionError(f"{SEEDS_MAX} seeds, and nothing was found")


Patch = pytest.MonkeyPatch


@pytest.fixture
def patch() -> Iterator[Patch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch
