"""A beginning is a state like any other: no data yet, a source that is away, a checkpoint that was never promoted.

All beginnings run in one Spark session and at the same time, but come up one after the other: each needs processes of
its own, and Spark waits ten seconds for one. Some are stopped before their first micro-batch and started again; all are
given what comes later; some are stopped then, and started once more with their checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkbolt.errors import SparkboltError
from tests.patience import PATIENCE_SECS
from tests.spark.beginnings import LATER, NAMES, Beginning, Maker

pytestmark = [pytest.mark.spark, pytest.mark.slow]
STOPPED_AT_ONCE = ("no_data", "quiet_spout")
STARTED_AGAIN = ("no_data", "quiet_spout", "ranges")


@dataclass
class Case:
    """One beginning and what was seen of it."""

    beginning: Beginning
    checkpoint: str
    spark: Any
    running: Any = None
    acked: list[int] = field(default_factory=list)
    """After each phase."""
    error: BaseException | None = None

    def start(self) -> None:
        self.running = self.beginning.topology.start(spark=self.spark, checkpoint=self.checkpoint)

    def await_up(self) -> None:
        """Wait until it runs, or waits for its data; one whose ``open`` has not returned is not waited for."""
        self.running._await(lambda: "open has not" in (self.running.waits_for or "open has not"), PATIENCE_SECS)

    def await_acked(self, count: int) -> None:
        self.running._await(lambda: self._acked >= count, PATIENCE_SECS)  # its condition is looked at under the lock
        self.acked.append(self._acked)

    @property
    def _acked(self) -> int:
        return int(self.running.metrics().of(self.beginning.spout).acked)

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
    each(found, lambda case: case.await_acked(case.beginning.now))
    endless = {name: case for name, case in found.items() if case.beginning.deliver is not None}
    each(endless, lambda case: case.beginning.deliver())
    each(endless, lambda case: case.await_acked(case.beginning.now + LATER))
    for name in STARTED_AGAIN:
        each({name: found[name]}, Case.stop)
        each({name: found[name]}, Case.start)
        each({name: found[name]}, Case.await_up)
    again = {name: found[name] for name in STARTED_AGAIN}
    each(again, lambda case: case.beginning.deliver())
    each(again, lambda case: case.await_acked(case.beginning.now + 2 * LATER))
    ending = {name: case for name, case in found.items() if case.beginning.deliver is None}
    each(ending, lambda case: case.running.await_finished(PATIENCE_SECS))
    each(found, Case.stop)


@pytest.fixture(scope="module")
def cases(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    root = tmp_path_factory.mktemp("beginnings")
    maker = Maker(root)
    with maker.stack:
        found = {name: Case(getattr(maker, name)(), str(root / f"{name}.checkpoint"), spark) for name in NAMES}
        go_through(found)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_topology_begins_like_any_other(name: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    assert case.error is None, case.error
    now = case.beginning.now
    expected = [now, *([now + LATER] if case.beginning.deliver is not None else [])]
    assert case.acked == expected + ([now + 2 * LATER] if name in STARTED_AGAIN else [])
    assert case.running.failure is None
