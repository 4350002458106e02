"""Storm's policies, the manager and the watermark generator on their own, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.windows import (
    Event,
    EvictionContext,
    EvictionPolicy,
    TimeEvictionPolicy,
    TimeTriggerPolicy,
    TriggerPolicy,
    WaterMarkEventGenerator,
    WatermarkTimeEvictionPolicy,
    WindowManager,
)


def at(time_ms: int) -> Event:
    return Event(None, time_ms)


def answers(policy: EvictionPolicy, times: Sequence[int]) -> str:
    """The first letters of what a policy says of events, in their order."""
    return "".join(policy.evict(at(time)).name[0] for time in times)


def test_time_eviction_takes_everything_into_a_timers_first_window_and_then_what_its_drift_leaves() -> None:
    policy = TimeEvictionPolicy(10)
    policy.set_context(EvictionContext(99, sliding_interval_ms=50))
    assert answers(policy, [0, 89, 99, 100]) == "PPPK"
    policy.set_context(EvictionContext(149, sliding_interval_ms=50))
    assert answers(policy, [139, 140, 150]) == "EPK"
    policy.set_context(EvictionContext(202, sliding_interval_ms=50))  # three milliseconds late
    assert answers(policy, [189, 190]) == "EP"
    policy.set_context(EvictionContext(300))  # a count's trigger leaves the drift as it is
    assert answers(policy, [287, 288]) == "EP"


def test_watermark_time_eviction_excludes_its_start_includes_its_end_and_stops_beyond_the_lag() -> None:
    policy = WatermarkTimeEvictionPolicy(10, lag_ms=3)
    assert answers(policy, [1]) == "S"
    policy.set_context(EvictionContext(20))
    assert answers(policy, [10, 11, 20, 21, 23, 24]) == "EPPKKS"
    policy = WatermarkTimeEvictionPolicy(10)
    policy.set_context(EvictionContext(20))
    assert answers(policy, [2000]) == "K"


def windows_of(eviction: EvictionPolicy, trigger: TriggerPolicy) -> tuple[WindowManager, list[tuple[str, int]]]:
    seen: list[tuple[str, int]] = []
    manager = WindowManager(
        eviction,
        trigger,
        on_activation=lambda events, new, expired, end: seen.append(("".join(e.value for e in events), end)),
    )
    return manager, seen


def test_a_timer_fires_for_each_elapsed_interval_one_millisecond_before_its_time() -> None:
    manager, seen = windows_of(TimeEvictionPolicy(10), TimeTriggerPolicy(10))
    manager.start(now_ms=0)
    manager.add("a", 5)
    manager.advance(9)
    assert seen == []
    assert manager.trigger.next_due_ms() == 10
    manager.add("b", 10)  # in the timer's millisecond: the next window
    manager.advance(25)
    assert seen == [("a", 9), ("b", 19)]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 50), st.booleans()), max_size=30), st.integers(0, 9)
)
def test_watermark_is_the_minimum_of_the_newest_times_minus_the_lag_and_only_rises(
    events: list[tuple[str, int, bool]], lag: int
) -> None:
    marks = WaterMarkEventGenerator(["a", "b"], lag_ms=lag)
    last = 0
    newest: dict[str, int] = {}
    for stream, time, tick in events:
        assert marks.track(stream, time) == (time >= last)
        newest[stream] = max(newest.get(stream, 0), time)
        if tick:
            mark = min(newest.values()) - lag if len(newest) == 2 else 0
            assert marks.watermark(0) == (mark if mark > last else None)
            last = max(last, mark)
