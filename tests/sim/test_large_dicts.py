"""A Counter in an attribute that is written by its changes, under faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkbolt import TopologyBuilder
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import SimulationReport, simulate
from sparkbolt.worker.state import large_dicts, task_state
from tests.topologies import Count, Split

pytestmark = pytest.mark.slow

SEEDS = 12
LINES = 120


def lines() -> Iterator[list[str]]:
    number = 0
    while True:
        yield [f"to be {number % 23} or {number * number % 31} not"]
        number += 1


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each dict is large, and lines are short."""
    monkeypatch.setattr(large_dicts, "ENTRIES_MIN", 1)
    monkeypatch.setattr(large_dicts, "CHANGES_MAX", 3)


def report_of(seed: int) -> SimulationReport:
    builder = TopologyBuilder("counts")
    builder.set_spout("lines", GeneratorSpout(lines, outputs=["line"], count=LINES))
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=2).fields_grouping("split", ["word"])
    return simulate(builder.build(), seed=seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_counts_are_exact_where_each_counter_is_a_large_dict(seed: int) -> None:
    report = report_of(seed)
    assert report.ok, report.story


def test_an_instance_wrongly_matched_to_the_last_commit_by_its_snapshot_alone_is_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task_state, "LARGE_DICTS", "there is none of this name")
    found = [report.story for report in map(report_of, range(SEEDS)) if not report.ok]
    assert any("state is what a run without faults gives" in str(story) for story in found)
