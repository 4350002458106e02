"""A topology begins with no data yet, with a source that is away, or with a checkpoint that was never promoted.

All topologies run in one Spark session and at the same time, but come up one after the other: each needs processes of
its own, and Spark waits ten seconds for one. Some are stopped before their first micro-batch and started again; all get
more messages later; some are stopped then, and started once more with their checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkbolt import Topology
from sparkbolt.errors import SparkboltError
from tests.patience import PATIENCE_SECS
from tests.spark.beginnings import LATER, TOPOLOGIES, Beginning, Maker, topology_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]
STOPPED_AT_ONCE = ("a file without data", "a spout without data")
STARTED_AGAIN = (*STOPPED_AT_ONCE, "no data anywhere")


@dataclass
class Case:
    """One topology and what was seen of it."""

    topology: Topology
    beginnings: dict[str, Beginning]
    checkpoint: str
    spark: Any
    running: Any = None
    acked: list[dict[str, int]] = field(default_factory=list)
    """By spout, after each phase."""
    error: BaseException | None = None

    def start(self) -> None:
        self.running = self.topology.start(spark=self.spark, checkpoint=self.checkpoint)

    def await_up(self) -> None:
        """Wait until it runs, or waits for its data; one whose ``open`` has not returned is not waited for."""
        self.running._await(lambda: "open has not" in (self.running.waits_for or "open has not"), PATIENCE_SECS)

    def expected(self, later: int) -> dict[str, int]:
        """How many messages of each spout are there, once those that can have more got so many."""
        return {
            name: beginning.now + (later if beginning.deliver is not None else 0)
            for name, beginning in self.beginnings.items()
        }

    def await_acked(self, later: int) -> None:
        expected = self.expected(later)
        enough = lambda: all(self._acked[name] >= count for name, count in expected.items())  # noqa: E731
        self.running._await(enough, PATIENCE_SECS)  # it calls its condition under the lock
        self.acked.append(self._acked)

    @property
    def _acked(self) -> dict[str, int]:
        metrics = self.running.metrics()
        return {name: metrics.of(name).acked for name in self.beginnings}

    @property
    def ends(self) -> bool:
        return all(beginning.deliver is None for beginning in self.beginnings.values())

    def deliver(self) -> None:
        for beginning in self.beginnings.values():
            if beginning.deliver is not None:
                beginning.deliver()

    def stop(self) -> None:
        assert self.running.stop(), "it drains"


def each(cases: dict[str, Case], act: Any) -> None:
    for case in cases.values():
        if case.error is None:
            try:
                act(case)
            except (SparkboltError, AssertionError, TimeoutError) as error:
                case.error = error
                if case.running is not None:
                    case.running.close()


def go_through(found: dict[str, Case]) -> None:
    for name, case in found.items():
        if name in STOPPED_AT_ONCE:
            each({name: case}, Case.start)
            each({name: case}, lambda case: case.running.stop(drain=False))
        each({name: case}, Case.start)
        each({name: case}, Case.await_up)
    each(found, lambda case: case.await_acked(0))
    endless = {name: case for name, case in found.items() if not case.ends}
    each(endless, Case.deliver)
    each(endless, lambda case: case.await_acked(LATER))
    again = {name: found[name] for name in STARTED_AGAIN}
    for name in again:
        each({name: found[name]}, Case.stop)
        each({name: found[name]}, Case.start)
        each({name: found[name]}, Case.await_up)
    each(again, Case.deliver)
    each(again, lambda case: case.await_acked(2 * LATER))
    ending = {name: case for name, case in found.items() if case.ends}
    each(ending, lambda case: case.running.await_finished(PATIENCE_SECS))
    each(found, Case.stop)


@pytest.fixture(scope="module")
def cases(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    root = tmp_path_factory.mktemp("beginnings")
    maker = Maker(root)
    with maker.stack:
        found = {}
        for name, spouts in TOPOLOGIES.items():
            beginnings = {spout: getattr(maker, spout)() for spout in spouts}
            topology = topology_of(name.replace(" ", "-"), beginnings)
            found[name] = Case(topology, beginnings, str(root / f"{topology.name}.checkpoint"), spark)
        go_through(found)
    return found


@pytest.mark.parametrize(("name", "spout"), [(name, spout) for name in TOPOLOGIES for spout in TOPOLOGIES[name]])
def test_a_spout_starts_like_any_other(name: str, spout: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    assert case.error is None, case.error
    phases = [0] if case.ends else [0, LATER, 2 * LATER] if name in STARTED_AGAIN else [0, LATER]
    assert [acked[spout] for acked in case.acked] == [case.expected(later)[spout] for later in phases]
    assert case.running.failure is None
