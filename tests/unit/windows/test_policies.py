"""Storm's policies, the manager and the watermark generator on their own, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.windows import (
    Action,
    CountEvictionPolicy,
    CountTriggerPolicy,
    Event,
    EvictionContext,
    EvictionPolicy,
    TimeEvictionPolicy,
    TimeTriggerPolicy,
    TriggerPolicy,
    WatermarkCountEvictionPolicy,
    WatermarkCountTriggerPolicy,
    WaterMarkEventGenerator,
    WatermarkTimeEvictionPolicy,
    WatermarkTimeTriggerPolicy,
    WindowManager,
)


def at(time_ms: int) -> Event:
    return Event(None, time_ms)


def answers(policy: EvictionPolicy, times: Sequence[int]) -> str:
    """The first letters of what a policy says of events, in their order."""
    return "".join(policy.evict(at(time)).name[0] for time in times)


def test_count_eviction_keeps_the_last_and_does_not_count_watermarks() -> None:
    policy = CountEvictionPolicy(2)
    for event in (at(1), at(2), Event(None, 9, is_watermark=True), at(3)):
        policy.track(event)
    assert answers(policy, [1, 2, 3]) == "EPP"


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


def test_watermark_count_eviction_stops_before_the_first_watermark() -> None:
    policy = WatermarkCountEvictionPolicy(2)
    assert answers(policy, [1]) == "S"
    policy.set_context(EvictionContext(5, current_count=3))
    assert answers(policy, [1, 9, 2, 5]) == "EKPP"
    policy.set_context(EvictionContext(9, sliding_count=1))
    assert answers(policy, [9, 2, 5]) == "EPP"


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


def test_a_trigger_ignores_events_until_it_is_started_and_after_its_shutdown() -> None:
    manager, seen = windows_of(CountEvictionPolicy(9), CountTriggerPolicy(1))
    manager.add("a", 1)
    manager.start(now_ms=0)
    manager.add("b", 2)
    manager.trigger.shutdown()
    manager.add("c", 3)
    assert seen == [("ab", 2)]


def test_a_timer_fires_for_each_interval_that_has_passed_a_millisecond_before_its_time() -> None:
    manager, seen = windows_of(TimeEvictionPolicy(10), TimeTriggerPolicy(10))
    manager.start(now_ms=0)
    manager.add("a", 5)
    manager.advance(9)
    assert seen == []
    assert manager.trigger.next_due_ms() == 10
    manager.add("b", 10)  # in the timer's millisecond: the next window
    manager.advance(25)
    assert seen == [("a", 9), ("b", 19)]


def test_windows_end_at_multiples_of_the_slide_and_gaps_are_skipped() -> None:
    manager, seen = windows_of(WatermarkTimeEvictionPolicy(10), WatermarkTimeTriggerPolicy(5))
    manager.start(now_ms=0)
    for name, time in (("a", 3), ("b", 10), ("c", 1_000_001)):
        manager.add(name, time)
    manager.add_watermark(10)
    assert seen == [("a", 5), ("ab", 10)]
    manager.add_watermark(1_000_005)
    assert seen[2:] == [("b", 15), ("c", 1_000_005)]


def test_a_count_in_event_time_fires_at_the_newest_of_the_tuples_that_it_counted() -> None:
    manager, seen = windows_of(WatermarkCountEvictionPolicy(2), WatermarkCountTriggerPolicy(2))
    manager.start(now_ms=0)
    for name, time in (("a", 3), ("b", 2), ("c", 5), ("d", 6), ("e", 7)):
        manager.add(name, time)
    assert manager.get_event_count(3) == 2
    assert manager.get_earliest_event_ts(3, 6) == 5
    manager.add_watermark(7)
    assert seen == [("ab", 3), ("cd", 6)]


def test_old_events_are_expired_also_when_nothing_triggers() -> None:
    expired: list[Event] = []
    manager = WindowManager(
        CountEvictionPolicy(10),
        CountTriggerPolicy(1000),
        on_activation=lambda *window: None,
        on_expiry=expired.extend,
    )
    manager.start(now_ms=0)
    for number in range(250):
        manager.add(number, number)
    assert len(expired) == 190
    assert len(manager.waiting) == 60


def test_a_manager_can_be_taken_elsewhere() -> None:
    first, seen = windows_of(CountEvictionPolicy(3), CountTriggerPolicy(2))
    first.start(now_ms=0)
    for number, name in enumerate("abc"):
        first.add(name, number)
    second, later = windows_of(CountEvictionPolicy(3), CountTriggerPolicy(2))
    second.set_state(first.get_state())
    second.add("d", 4)
    assert (seen, later) == ([("ab", 1)], [("bcd", 4)])


class Forgets(EvictionPolicy):
    """Forgets to return what becomes of an event."""

    def evict(self, event: Event) -> Action:  # type: ignore[return]
        Action.PROCESS  # noqa: B018


def test_a_policy_that_returns_no_action_says_so() -> None:
    manager, _ = windows_of(Forgets(), CountTriggerPolicy(1))
    manager.start(now_ms=0)
    with pytest.raises(TypeError, match=r"Forgets\.evict returned None, expected one of Action\.EXPIRE, Action\.PROC"):
        manager.add("a", 1)


def test_a_policy_without_a_manager_says_so() -> None:
    policy = CountTriggerPolicy(1)
    policy.start(0)
    with pytest.raises(RuntimeError, match="before a WindowManager took it"):
        policy.track(at(1))


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 50), st.booleans()), max_size=30), st.integers(0, 9)
)
def test_the_watermark_is_the_least_of_the_newest_less_the_lag_and_rises(
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


def test_an_idle_stream_lets_the_watermark_go_on_and_holds_it_again_when_it_is_heard() -> None:
    marks = WaterMarkEventGenerator(["a", "b"], idle_timeout_ms=100)
    marks.note("a", 50, now_ms=90)
    assert marks.watermark(99) is None
    assert marks.next_idle_ms(99) == 100
    assert marks.watermark(100) == 50
    marks.note("b", 60, now_ms=110)
    marks.note("a", 80, now_ms=120)
    assert marks.watermark(120) == 60
    other = WaterMarkEventGenerator(["a", "b"], idle_timeout_ms=100)
    other.set_state(marks.get_state())
    assert (other.last, other.watermark(500)) == (60, 80)


def test_an_action_has_storms_name() -> None:
    assert [action.name for action in Action] == ["EXPIRE", "PROCESS", "KEEP", "STOP"]
