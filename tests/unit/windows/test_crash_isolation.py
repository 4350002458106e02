"""Windows that kill their worker: over as if the bolt had raised. No process dies here (see the imported module)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sparkbolt import Count, WindowedBolt
from sparkbolt.driver.ledger.ledger import FailedTree
from sparkbolt.windows import TupleWindow, WindowCollector
from sparkbolt.worker import crash_isolation as deaths_module
from tests.unit.worker.test_crash_isolation import DEADLY, Died, Watched, run, through

ALL = set(range(100))
SECOND = timedelta(seconds=1)


class Deadly(WindowedBolt):
    outputs = ["n"]

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        for tup in window:
            collector.emit([tup["n"]])
        if any(tup["n"] in DEADLY for tup in window):
            raise Died


class Passing(Watched):
    """Lets time pass until the topology is finished."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.told: list[str] = []

    def step(self) -> Any:
        promotion = super().step()
        while promotion is None and not self.coordinator.finished:
            due = self.next_due_ms()
            self.now_ms = max(due or 0, self.now_ms + 1)
            promotion = super().step()
        if promotion is not None:
            self.told += [report.text for report in promotion.reports]
        return promotion


def survive(windowed: WindowedBolt, **settings: Any) -> tuple[Passing, list[FailedTree]]:
    engine, failed = run(windowed, kind=Passing, **settings)
    assert isinstance(engine, Passing)
    return engine, failed


def killed(engine: Passing) -> list[str]:
    return [text for text in engine.told if text.endswith("killed its worker (signal 11)")]


BY_TENS = [number for number in ALL if not {number // 10} & {deadly // 10 for deadly in DEADLY}]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_count_window_that_kills_its_worker_ends_and_its_tuples_stay_acked(keyed: bool) -> None:
    windowed = Deadly().with_tumbling_window(Count(1 if keyed else 10))
    engine, failed = survive(windowed.with_key("n") if keyed else windowed)
    assert failed == []
    assert engine.ledger.metrics.of("numbers").acked == 100
    assert through() == (sorted(ALL - set(DEADLY)) if keyed else BY_TENS)
    assert len(killed(engine)) == (len(DEADLY) if keyed else 3)
    assert engine.ledger.metrics.of("tested").errors == len(killed(engine))


def test_a_window_fired_by_a_timer_or_the_watermark_that_kills_its_worker_ends() -> None:
    for windowed, whole in (
        (Deadly().with_tumbling_window(SECOND), 100),
        (Deadly().with_tumbling_window(timedelta(milliseconds=10)).with_timestamp_extractor(number_of), 91),
    ):
        engine, failed = survive(windowed)
        assert failed == []
        assert engine.ledger.metrics.of("numbers").acked == 100
        assert killed(engine)
        if whole == 91:  # a window ends with a multiple of ten, which belongs to it
            dead = {-(-deadly // 10) for deadly in DEADLY}
            assert through() == [n for n in range(whole) if -(-n // 10) not in dead]
            assert killed(engine)[0] == "TupleWindow(0..10, 10 tuples) killed its worker (signal 11)"


def number_of(tup: Any) -> int:
    return int(tup["n"])


def test_with_ack_on_expiry_the_tuples_of_a_window_that_kills_its_worker_fail() -> None:
    _, failed = survive(Deadly().with_tumbling_window(Count(10)).with_ack_on_expiry())
    of_deaths = [tree for tree in failed if tree.fail.cause == "killed"]
    assert {tree.position for tree in of_deaths} == ALL - set(BY_TENS)
    assert {tree.fail.reason.partition(") ")[2] for tree in of_deaths} == {"killed its worker (signal 11)"}


def test_a_tuple_that_kills_the_worker_before_its_window_fails_alone() -> None:
    def deadly(tup: Any) -> int:
        if tup["n"] in DEADLY:
            raise Died
        return int(tup["n"])

    windowed = Deadly().with_tumbling_window(Count(7)).with_timestamp_extractor(deadly)
    engine, failed = survive(windowed)
    assert {tree.position for tree in failed} == set(DEADLY)
    assert engine.ledger.metrics.of("tested").errors == len(DEADLY)


def test_after_too_many_deaths_the_rest_of_the_windows_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths_module, "CRASHES_MAX", 2)
    engine, failed = survive(Deadly().with_tumbling_window(Count(1)))
    assert failed == []
    unseen = [text for text in engine.told if "was not shown: the task had killed its worker 2 times" in text]
    assert len(killed(engine)) == 3
    assert unseen
    assert through() == [0, 1, 2, 3, 4, 5, 6, *(n for n in range(50, 100) if n != 60)]
    assert engine.ledger.metrics.of("tested").errors == 100 - len(through())
