"""When a topology runs for its windows, what it counts, and when it is finished."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from sparkbolt import Count, TopologyBuilder, WindowedBolt
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.windows import (
    CountEvictionPolicy,
    CountTriggerPolicy,
    TimeEvictionPolicy,
    TimeTriggerPolicy,
)
from tests.unit.windows.windowed import SECOND, Run, Show, Source, clock, secs, topology


def test_metrics_count_windows_their_tuples_and_the_watermark() -> None:
    windowed = Show().with_window(secs(10), slide=secs(5)).with_timestamp_field("at")
    with TopologyTestDriver(topology(windowed), start=clock(6, 1, 0)) as driver:
        run = Run(driver)
        for second in (1, 2, 7, 21):
            run.feed(str(second), at=clock(6, 0, second))
        driver.advance(SECOND)
        run.feed("late", at=clock(6, 0, 1))
        driver.run_until_idle()
        counts = driver.metrics().of("show")
        assert (counts.windows, counts.window_tuples, counts.late_tuples, counts.expired) == (3, 6, 1, 3)
        assert counts.watermark_ms == int(clock(6, 0, 21).timestamp() * 1000)
        assert counts.watermark_behind_ms == 40_000


def test_tick_tuples_are_in_no_window_on_arrival_or_in_event_time() -> None:
    for windowed in (Show().with_tumbling_window(Count(2)), Show().with_tumbling_window(secs(1))):
        for made in (windowed, copy.deepcopy(windowed).with_timestamp_field("at")):
            builder = TopologyBuilder("ticks")
            builder.set_spout("source", Source())
            builder.set_bolt("show", made, tick_tuple_freq_secs=0.5).global_grouping("source")
            with TopologyTestDriver(builder.build()) as driver:
                run = Run(driver)
                for at, name in enumerate("abcd"):
                    run.feed(name, at=1000 * at + 1)
                    driver.advance(secs(2))
                assert driver.errors() == []
                assert "".join(run.shown()) in ("abcd", "abc", "ab")
                assert driver.metrics().of("show").window_tuples == len("".join(run.shown()))
                assert driver.executed("show") > 4, "ticks came"


@pytest.mark.parametrize(
    ("shape", "secs_left"),
    [
        (lambda: Show().with_window(secs(10), slide=secs(5)), 15),
        (lambda: Show().with_window(Count(3), slide=secs(5)), 5),
        (lambda: Show().with_window(Count(3), slide=secs(5)).with_key("user"), 5),
        (lambda: Show().with_tumbling_window(Count(3)), 0),
        (lambda: Show().with_session_gap(secs(4)), 4),
        (lambda: Show().with_policies(CountEvictionPolicy(3), CountTriggerPolicy(2)), 0),
        (lambda: Show().with_policies(CountEvictionPolicy(3), TimeTriggerPolicy(5000)), 5),
        (lambda: Show().with_policies(TimeEvictionPolicy(5000), TimeTriggerPolicy(5000)), 10),
    ],
)
def test_a_topology_is_finished_when_no_window_waits(
    monkeypatch: pytest.MonkeyPatch, shape: Callable[[], WindowedBolt], secs_left: int
) -> None:
    with TopologyTestDriver(topology(shape())) as driver:
        Run(driver).feed("a")
        driver.run_until_idle()
        monkeypatch.setattr("sparkbolt.testing._FedSpout.exhausted", True)
        driver.run_until_idle()
        coordinator = driver._engine.coordinator
        for second in range(secs_left):
            assert not coordinator.finished, second
            driver.advance(SECOND)
        assert coordinator.finished


TIMERS: dict[str, Callable[[], WindowedBolt]] = {
    "tumbling": lambda: Show().with_tumbling_window(secs(10)),
    "count by time": lambda: Show().with_window(Count(3), slide=secs(10)),
    "by key": lambda: Show().with_tumbling_window(secs(10)).with_key("user"),
    "policies": lambda: Show().with_policies(TimeEvictionPolicy(10_000), TimeTriggerPolicy(10_000)),
}


@pytest.mark.parametrize("kind", TIMERS)
@pytest.mark.parametrize("restart_at", [None, 0, 3, 25, 32])
def test_timers_run_from_the_start_of_a_task_and_not_from_its_first_tuple(kind: str, restart_at: int | None) -> None:
    """A task that is quiet for long has its timers when it has them: 10, 20, 30, 40 s after its start.

    |                           a       b      c  d
    |.........|.........|.........|.........|.........|
    """
    with TopologyTestDriver(topology(TIMERS[kind](), message_timeout_secs=600)) as driver:
        run, start = Run(driver), driver._engine.now_ms
        for second in range(52):
            if second == restart_at:
                driver.restart()
            if second in (27, 35, 42, 45):
                run.feed("abcd"[(27, 35, 42, 45).index(second)])
            driver.advance(SECOND)
        assert run.shown() == (["a", "ab", "bcd"] if kind == "count by time" else ["a", "b", "cd"])
        assert [end - start for end in run.shown(4)] == [29_999, 39_999, 49_999]


def test_a_topology_with_timers_and_no_data_runs_one_micro_batch_and_is_finished() -> None:
    with TopologyTestDriver(topology(Show().with_tumbling_window(secs(10)))) as driver:
        driver.advance(secs(60))
        assert driver.metrics().micro_batches == 1
        driver.restart()
        driver.advance(secs(60))
        assert driver.metrics().micro_batches == 2
        assert not driver._engine.coordinator._timers.waits


def test_an_idle_topology_runs_no_micro_batch_for_empty_windows() -> None:
    with TopologyTestDriver(topology(Show().with_tumbling_window(secs(5)).with_timestamp_field("at"))) as driver:
        run = Run(driver)
        run.feed("a", at=1000)
        driver.advance(secs(60))
        assert driver.metrics().micro_batches <= 2
