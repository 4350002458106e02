"""A beginning is a state like any other: no data yet, a source that is away, a checkpoint that was never promoted.

All beginnings run in one Spark session, some at the same time: started and stopped at once (most before their first
micro-batch), started again with the same checkpoint, given what comes later, stopped, and started once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkbolt.errors import SparkboltError
from tests.spark.beginnings import LATER, NAMES, Beginning, Maker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
WAIT_SECS = 120.0
AT_ONCE = 5
"""So many run at the same time: each has a planner's process of its own."""


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

    def await_acked(self, count: int) -> None:
        self.running._await(lambda: self._acked >= count, WAIT_SECS)  # its condition is looked at under the lock
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
    opened = {name: case for name, case in found.items() if name != "slow_open"}
    each(opened, Case.start)
    each(opened, lambda case: case.running.stop(drain=False))
    each(found, Case.start)
    each(found, lambda case: case.await_acked(case.beginning.now))
    endless = {name: case for name, case in found.items() if case.beginning.deliver is not None}
    for more in (1, 2):
        each(endless, lambda case: case.beginning.deliver())
        each(endless, lambda case, more=more: case.await_acked(case.beginning.now + more * LATER))
        each(endless, Case.stop)
        if more == 1:
            each(endless, Case.start)
    ending = {name: case for name, case in found.items() if case.beginning.deliver is None}
    each(ending, lambda case: case.running.await_finished(WAIT_SECS))
    each(ending, Case.stop)


@pytest.fixture(scope="module")
def cases(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    root = tmp_path_factory.mktemp("beginnings")
    maker = Maker(root)
    with maker.stack:
        found = {name: Case(getattr(maker, name)(), str(root / f"{name}.checkpoint"), spark) for name in NAMES}
        for first in range(0, len(NAMES), AT_ONCE):
            go_through({name: found[name] for name in NAMES[first : first + AT_ONCE]})
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_topology_begins_like_any_other(name: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    assert case.error is None, case.error
    now = case.beginning.now
    assert case.acked == ([now, now + LATER, now + 2 * LATER] if case.beginning.deliver is not None else [now])
    assert case.running.failure is None
