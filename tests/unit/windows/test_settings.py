"""What a windowed bolt can be told, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from sparkbolt import Count, WindowedBolt
from sparkbolt.errors import ConfigError, InvalidTopology, SparkboltError
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.windows import (
    Action,
    Event,
    EvictionContext,
    EvictionPolicy,
    TriggerPolicy,
)
from tests.unit.windows.windowed import SECOND, Run, Show, secs, topology


class EveryVowel(TriggerPolicy):
    """A window whenever a tuple comes whose sequence is a multiple of three; knows its events by their places."""

    def __init__(self) -> None:
        self.events = 0

    def track(self, event: Event) -> None:
        self.events += 1
        if self.events % 3 == 0:
            self.manager.eviction.set_context(EvictionContext(event.timestamp_ms))
            self.manager.on_trigger()

    def reset(self) -> None: ...


class OnlyEven(EvictionPolicy):
    """Every other tuple is in the window, the rest is not wanted at all."""

    def __init__(self) -> None:
        self.seen = 0

    def evict(self, event: Event) -> Action:
        return Action.PROCESS if event.value % 2 == 0 else Action.EXPIRE


def test_a_bolt_accepts_custom_policies_and_keeps_their_state() -> None:
    with TopologyTestDriver(topology(Show().with_policies(OnlyEven(), EveryVowel()))) as driver:
        run = Run(driver)
        for name in "abcdefghi":
            run.feed(name)
            driver.run_until_idle()
            driver.restart()
        assert run.shown() == ["ac", "ace", "acegi"]
        assert run.shown(1) == ["ac", "e", "gi"]
        assert run.shown(2) == ["", "", ""]


class Picky(EvictionPolicy):
    """What came since the last window; ``raises`` says in which method the policies raise for the third event."""

    def __init__(self, raises: str) -> None:
        self.raises = raises
        self.newest: int | None = None
        self.expired: list[int] = []

    def track(self, event: Event) -> None:
        self.newest = event.value
        if self.raises == "Picky.track":
            self.refuse()

    def refuse(self) -> None:
        if self.newest == 2:
            self.scars = True
            raise ValueError("one bad event")

    def evict(self, event: Event) -> Action:
        if self.raises == "Picky.evict":
            self.refuse()
        if event.timestamp_ms in self.expired:
            return Action.EXPIRE
        self.expired.append(event.timestamp_ms)
        return Action.PROCESS

    def get_state(self) -> Any:
        if self.raises == "Picky.get_state" and self.newest == 1:
            raise ValueError("one bad event")
        assert not hasattr(self, "scars")
        return super().get_state()


class Every(TriggerPolicy):
    """A window for each event."""

    def __init__(self, raises: str) -> None:
        self.raises = raises

    def track(self, event: Event) -> None:
        if event.is_watermark:
            if self.raises == "Every.track, of a watermark":
                raise ValueError("no watermarks")
            return
        picky = self.manager.eviction
        assert isinstance(picky, Picky)
        if self.raises == "Every.track":
            picky.refuse()
        picky.set_context(EvictionContext(event.timestamp_ms))
        self.manager.on_trigger()

    def reset(self) -> None:
        picky = self.manager.eviction
        assert isinstance(picky, Picky)
        if self.raises == "Every.reset":
            picky.refuse()

    def next_due_ms(self) -> int | None:
        if self.raises == "Every.next_due_ms":
            raise ValueError("no timer")
        return None


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("raises", ["Picky.track", "Picky.evict", "Every.track", "Every.reset"])
def test_a_policy_that_raises_fails_its_tuple_as_if_the_tuple_had_not_arrived(raises: str, keyed: bool) -> None:
    windowed = Show().with_policies(Picky(raises), Every(raises)).with_timestamp_field("at").with_message_id_field("at")
    windowed.with_lag(SECOND)  # or the tuple that failed were late when it is given again
    if keyed:
        windowed.with_key("user")
    with TopologyTestDriver(topology(windowed)) as driver:
        run = Run(driver)
        for at, name in enumerate("abcde", 1):
            run.feed(name, at=at)
        driver.run_until_idle()
        [failure] = driver.failed("source")
        assert (failure.message_id, failure.cause) == ("c", "exception")
        text = rf"{raises}, a window policy of 'show', raised ValueError: one bad event, at test_settings.py:\d+"
        assert re.fullmatch(text, failure.reason)
        assert run.shown() == ["a", "b", "d", "e"]
        assert run.shown(2) == ["", "a", "b", "d"]
        driver.restart()
        driver.feed("source", ["c", 3, "u"], message_id="again")
        driver.run_until_idle()
        assert run.shown() == ["a", "b", "d", "e", "c"]
        assert driver.acked("source") == ["a", "b", "d", "e", "again"]


@pytest.mark.parametrize("raises", ["Picky.get_state", "Every.next_due_ms", "Every.track, of a watermark"])
def test_a_policy_that_raises_outside_any_tuple_is_named_with_its_line(raises: str) -> None:
    windowed = Show().with_policies(Picky(raises), Every(raises))
    if raises != "Every.next_due_ms":
        windowed.with_timestamp_field("at")
    named = rf"^{raises.partition(',')[0]}, a window policy of 'show', raised ValueError: .*, at test_settings.py:\d+$"
    with TopologyTestDriver(topology(windowed)) as driver, pytest.raises(SparkboltError, match=named):  # noqa: PT012
        run = Run(driver)
        run.feed("a", at=1)
        driver.advance(SECOND)
        run.feed("b", at=2)
        driver.advance(2 * SECOND)


def refused(windowed: WindowedBolt, **settings: Any) -> list[str]:
    with pytest.raises(InvalidTopology) as caught:
        topology(windowed, **settings)
    return [mistake.removeprefix("bolt 'show': ") for mistake in caught.value.mistakes]


HOUR = timedelta(hours=1)
BAD_VALUE: Any = 5
NO_VALUE: Any = None


def in_event_time() -> Show:
    """A bolt whose windows last an hour, in event time."""
    return Show().with_window(HOUR).with_timestamp_field("at")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Count(0), "tuples=0: expected a whole number of at least 1"),
        (lambda: Show().with_window(BAD_VALUE), "length=5: expected a Count, such as Count(5), or a timedelta"),
        (lambda: Show().with_window(secs(0)), "length=datetime.timedelta(0): expected a Count"),
        (
            lambda: Show().with_window(timedelta(days=25)),
            "expected a Count, such as Count(5), or a timedelta",
        ),
        (lambda: Show().with_window(HOUR, slide=secs(-1)), "slide="),
        (lambda: Show().with_window(NO_VALUE, slide=secs(1)), "length=None: expected a Count"),
        (
            lambda: Show().with_window(HOUR, slide=HOUR, closed=BAD_VALUE),
            "closed=5: expected 'left' or 'right'",
        ),
        (lambda: Show().with_session_gap(BAD_VALUE), "gap=5: expected a timedelta of at least 1 ms"),
        (lambda: Show().with_policies(BAD_VALUE, BAD_VALUE), "eviction=5: expected an EvictionPolicy; trigger=5"),
        (lambda: Show().with_key(), "fields=(): expected the names of fields"),
        (lambda: Show().with_key("user", idle_timeout=secs(0)), "idle_timeout=datetime.timedelta(0): expected a timed"),
        (
            lambda: Show().with_timestamp_field("at", unit=BAD_VALUE),
            "unit=5: expected 's' or 'ms' or 'us' or 'ns'",
        ),
        (lambda: Show().with_timestamp_field(NO_VALUE), "field=None: expected the name of a field"),
        (lambda: Show().with_timestamp_extractor(BAD_VALUE), "extractor=5: expected a function of a tuple"),
        (lambda: Show().with_lag(secs(-1)), "lag="),
        (lambda: Show().with_max_future(secs(-1)), "max_future="),
        (
            lambda: Show().with_watermark_interval(secs(0)),
            "interval=datetime.timedelta(0): expected a timed",
        ),
        (lambda: Show().with_late_tuple_stream(BAD_VALUE), "stream=5: expected the name of a stream"),
        (lambda: Show().with_message_id_field(NO_VALUE), "field=None: expected the name of a field"),
        (lambda: Show().with_max_events_in_memory(0), "tuples=0: expected a whole number of at least 1"),
        (
            lambda: Show().with_timestamp_extractor(int).with_timestamp_extractor(int),
            "with_timestamp_extractor: a tuple has one time, and its windows have timestamp=int: leave one",
        ),
        (
            lambda: Show().with_timestamp_field("name").with_timestamp_field("at"),
            "with_timestamp_field: a tuple has one time, and its windows have timestamp='name': leave one",
        ),
        (lambda: in_event_time().with_timestamp_extractor(int), "with_timestamp_extractor: a tuple has one time"),
        (
            lambda: Show().with_window(HOUR).with_session_gap(HOUR),
            "with_session_gap: a window has one shape, and the bolt has Sliding(hours=1, every=Count(1)) already",
        ),
    ],
)
def test_an_invalid_value_of_a_setting_is_refused_where_it_is_set(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        call()
    assert sentence in str(caught.value)


MISTAKES: list[tuple[Callable[[], WindowedBolt], str]] = [
    (Show, "Window length is not specified: write window = Tumbling(minutes=1), or another window, in its class"),
    (
        lambda: Show().with_window(HOUR).with_late_tuple_stream("late"),
        "late='late' is for windows in event time: name the field of the time with timestamp (or with_timestamp_field)",
    ),
    (lambda: Show().with_window(HOUR).with_lag(secs(1)), "lag=seconds(1) is for windows in event time"),
    (
        lambda: Show().with_window(HOUR).with_watermark_interval(secs(1)),
        "watermark_interval=seconds(1) is for windows in event time",
    ),
    (
        lambda: Show().with_window(HOUR).with_idle_stream_timeout(secs(1)),
        "idle=seconds(1) is for windows in event time",
    ),
    (
        lambda: Show().with_window(HOUR).with_max_future(secs(1)),
        "max_future=seconds(1) is for windows in event time",
    ),
    (
        lambda: in_event_time().with_late_tuple_stream("default"),
        "late='default': this stream is among the bolt's outputs, with the fields ['names', 'new',",
    ),
    (
        lambda: Show().with_window(HOUR).with_timestamp_field("att"),
        "timestamp='att': there is no such field in stream 'default' of 'source': did you mean 'at'?",
    ),
    (lambda: Show().with_window(HOUR).with_key("usr"), "key='usr': there is no such field in stream 'default'"),
    (
        lambda: Show().with_window(HOUR).with_message_id_field("id"),
        "message_id='id': there is no such field in stream",
    ),
    (
        lambda: Show().with_window(Count(2)).with_message_id_field("at").with_ack_on_expiry(),
        "message_id and ack_on_expiry exclude each other: a tuple is retried if a bolt after its "
        "window fails, and would be dropped",
    ),
    (
        lambda: Show().with_tumbling_window(Count(3), closed="left").with_timestamp_field("at"),
        "closed='left' is for windows that slide by time: one that slides by tuples ends with a tuple, which is in it",
    ),
    (lambda: Show().with_window(HOUR, closed="left"), "closed='left' is for windows that slide by time"),
    (
        lambda: Show().with_tumbling_window(HOUR, closed="right"),
        "closed='right' is for windows in event time: on arrival a timer shows what came before it",
    ),
]


@pytest.mark.parametrize(("make", "sentence"), MISTAKES)
def test_settings_that_do_not_fit_together_are_refused_when_the_topology_is_built(
    make: Callable[[], WindowedBolt], sentence: str
) -> None:
    mistakes = refused(make())
    assert any(sentence in mistake for mistake in mistakes), mistakes


@pytest.mark.parametrize(
    ("length", "slide", "settings", "refusal"),
    [
        (secs(20), secs(10), {"message_timeout_secs": 29}, "Window duration (length + sliding interval) value 30000"),
        (secs(20), secs(10), {"message_timeout_secs": 30}, None),
        (secs(20), Count(10), {"message_timeout_secs": 19}, "Window duration"),
        (Count(10), secs(20), {"message_timeout_secs": 19}, "Window duration"),
        (timedelta(hours=5), secs(10), {"enable_message_timeouts": False}, None),
        (Count(10), Count(5), {"max_spout_pending": 14}, "Window count (length + sliding interval) value 15"),
        (Count(10), Count(5), {"max_spout_pending": 15}, None),
        (Count(10), Count(5), {}, None),
        (Count(10), secs(1), {"max_spout_pending": 9}, "Window count"),
    ],
)
def test_with_ack_on_expiry_a_window_must_fit_into_the_timeout_and_the_pending_tuples(
    length: Any, slide: Any, settings: dict[str, Any], refusal: str | None
) -> None:
    topology(Show().with_window(length, slide), **settings)  # the default needs no such check
    anchored = Show().with_window(length, slide).with_ack_on_expiry()
    if refusal is None:
        topology(anchored, **settings)
    else:
        [mistake] = refused(anchored, **settings)
        assert mistake.startswith(refusal)


def test_with_ack_on_expiry_a_session_gap_must_fit_into_the_timeout() -> None:
    topology(Show().with_session_gap(secs(31)), message_timeout_secs=30)
    topology(Show().with_session_gap(secs(30)).with_ack_on_expiry(), message_timeout_secs=30)
    [mistake] = refused(Show().with_session_gap(secs(31)).with_ack_on_expiry(), message_timeout_secs=30)
    assert mistake.startswith("Session gap value 31000 ms is more than topology.message.timeout.secs value 30000 ms")


def test_all_mistakes_are_reported_at_once() -> None:
    mistakes = refused(Show().with_window(HOUR, closed="left").with_lag(secs(1)).with_key("nobody"))
    assert len(mistakes) == 3
