"""Windows whose length, slide, gap or kind changes while they hold tuples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from sparkbolt import Config, Count, Topology, TopologyBuilder, WindowedBolt
from sparkbolt.errors import CheckpointError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.windows.event_time import EventTimeWindows
from sparkbolt.windows.realignment import Handover
from sparkbolt.worker.bolt_runtime import RuntimeEffects
from sparkbolt.worker.results import Settlements
from sparkbolt.worker.state.task_state import DictStore
from tests.unit.windows.windowed import Run, Show, Source, secs, topology
from tests.windows.changing import UNIT_MS, Story, run, shapes_of, wrong_in
from tests.windows.shapes import Shape

LAGS = pytest.mark.parametrize("lag", [None, 3 * UNIT_MS], ids=["on arrival", "in event time"])
KEYS = pytest.mark.parametrize("keyed", [False, True], ids=["no key", "by key"])


@LAGS
@KEYS
@pytest.mark.parametrize("seed", [5, 38, 40])
def test_windows_that_change_show_each_tuple_as_their_settings_promise(lag: int | None, keyed: bool, seed: int) -> None:
    story = run(seed, shapes_of(lag, keyed=keyed))
    assert list(wrong_in(story)) == []
    assert story.notes


OVERLAPPING = [Shape(f"by {slide}", 12 * UNIT_MS, slide * UNIT_MS, lag=3 * UNIT_MS) for slide in (3, 4, 6)]


def broken(monkeypatch: pytest.MonkeyPatch, name: str, made: Any, shapes: Sequence[Shape]) -> list[str]:
    """What is wrong in some runs if a method of ``Handover`` or of ``EventTimeWindows`` is another one."""
    owner: Any = Handover if hasattr(Handover, name) else EventTimeWindows
    monkeypatch.setattr(owner, name, made(getattr(owner, name)))
    stories: list[Story] = [run(seed, shapes) for seed in range(6)]
    return [text for story in stories for text in wrong_in(story)]


def test_tuples_that_are_taken_over_as_if_no_window_had_shown_them_are_detected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgetful(hand_over: Any) -> Any:
        def made(self: EventTimeWindows, *arguments: Any) -> Handover:
            past: Handover = hand_over(self, *arguments)
            past.shown = np.zeros_like(past.shown)
            return past

        return made

    found = broken(monkeypatch, "hand_over", forgetful, shapes_of(3 * UNIT_MS, keyed=False))
    assert any("a window has shown before" in text for text in found)


def test_a_window_that_is_shown_again_or_left_out_after_a_change_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def early(next_end: Any) -> Any:
        return lambda self, grid, reached: next_end(self, grid, reached) - 2 * grid.slide

    def late(next_end: Any) -> Any:
        return lambda self, grid, reached: next_end(self, grid, reached) + 2 * grid.slide

    with monkeypatch.context() as patch:
        found = broken(patch, "next_end", early, OVERLAPPING)
        assert any("with these bounds" in text for text in found)
    found = broken(monkeypatch, "next_end", late, shapes_of(3 * UNIT_MS, keyed=False))
    assert any("were in no window" in text for text in found)


def by_time(length: float, slide: float | None = None) -> WindowedBolt:
    return Show().with_window(secs(length), slide=secs(slide or length)).with_timestamp_field("at")


def changed(before: WindowedBolt, after: WindowedBolt, times: str, rest: str = "") -> tuple[list[Any], list[str]]:
    """The (names, end in s) of the windows, and the notes, if the bolt changes behind the first times, in seconds."""
    with TopologyTestDriver(topology(before)) as driver:
        fed = Run(driver)
        for part, bolt in ((times, after), (rest, None)):
            for at in part.split():
                fed.feed(f"{at},", at=int(at) * 1000)
                driver.advance(secs(1))
            if bolt is not None:
                driver.restart(topology(bolt))
        driver.advance(secs(1))
        shown = [(names[:-1], end // 1000) for names, end in zip(fed.shown(0), fed.shown(4), strict=True)]
        return shown, [error.text for error in driver.errors()]


def test_shorter_windows_show_at_once_what_no_longer_window_has_shown() -> None:
    #  60 s:  (----------------60]
    #  20 s:  (--20](--40](--60]    the watermark is at 50 s
    shown, notes = changed(by_time(60), by_time(20), "5 25 45 50", "70")
    assert shown == [("5", 20), ("25", 40), ("45,50", 60)]
    assert notes == ["its windows were 60 s by 60 s and are 20 s by 20 s from now on"]


def test_longer_windows_take_what_is_still_there_and_say_from_when_on_they_are_whole() -> None:
    shown, notes = changed(by_time(20, 10), by_time(60, 10), "5 15 25 35 45", "75")
    assert shown[:4] == [("5", 10), ("5,15", 20), ("15,25", 30), ("25,35", 40)]
    assert shown[4:] == [("25,35,45", 50), ("25,35,45", 60), ("25,35,45", 70)]
    assert notes == [
        "its windows were 20 s by 10 s and are 60 s by 10 s from now on: windows are whole from "
        "1970-01-01 00:00:20.000Z on: one that ends before 1970-01-01 00:01:20.000Z is not"
    ]


def test_a_tuple_is_in_one_window_if_windows_follow_one_another_also_across_a_change() -> None:
    shown, notes = changed(by_time(20), by_time(60), "5 15 25 35 45", "125")
    assert shown == [("5,15", 20), ("25,35", 40), ("45", 60)]
    assert "windows are whole from 1970-01-01 00:01:00.000Z on" in notes[0]


def test_count_windows_that_become_longer_go_on_with_the_tuples_that_they_keep() -> None:
    shown, notes = changed(Show().with_window(Count(2)), Show().with_window(Count(4)), "1 2 3", "4 5 6")
    assert [names for names, _ in shown] == ["1", "1,2", "2,3", "2,3,4", "2,3,4,5", "3,4,5,6"]
    assert notes == [
        "its windows were Count(2) by Count(1) and are Count(4) by Count(1) from now on: a window is whole once 4 "
        "tuples have come after the change"
    ]


def test_a_tumbling_count_that_becomes_smaller_shows_the_full_windows_at_once() -> None:
    tumbling = Show().with_tumbling_window
    shown, _ = changed(tumbling(Count(8)), Show().with_tumbling_window(Count(2)), "1 2 3 4 5", "6")
    assert [names for names, _ in shown] == ["1,2", "3,4", "5,6"]


def test_sessions_with_a_shorter_gap_are_cut_and_those_with_a_longer_one_are_joined() -> None:
    def sessions(gap: float) -> WindowedBolt:
        return Show().with_session_gap(secs(gap)).with_timestamp_field("at")

    assert changed(sessions(20), sessions(5), "1 2 10 11")[0] == [("1,2", 7)]
    shown, notes = changed(sessions(5), sessions(20), "1 2 10 11", "20 60")
    assert shown == [("1,2", 7), ("10,11,20", 40)]
    assert "sessions are whole from 1970-01-01 00:00:26.000Z on" in notes[0]


def test_windows_are_whole_only_after_the_last_of_several_changes() -> None:
    with TopologyTestDriver(topology(by_time(10))) as driver:
        fed = Run(driver)
        for at, bolt in ((35, by_time(30, 10)), (36, by_time(60, 10))):
            for name in "ab":  # the watermark moves with the second one
                driver.advance(secs(1))
                fed.feed(f"{at}{name}", at=at * 1000)
            driver.advance(secs(1))
            driver.restart(topology(bolt))
        driver.advance(secs(1))
        assert ["whole from 1970-01-01 00:00:20.000Z" in error.text for error in driver.errors()] == [True, True]


def numbers() -> Iterator[list[int]]:
    for number in range(60):
        yield [number, 1000 * number]


class Total(WindowedBolt):
    outputs = ("total",)

    def execute(self, window: Any, collector: Any) -> None:
        collector.emit([sum(tup["n"] for tup in window)])


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("tasks", [(1, 1, 1, 1), (2, 3, 5, 2)], ids=["one task", "by key, with other numbers of tasks"])
def test_tuples_that_are_acked_when_they_expire_stay_open_over_a_change(crash: bool, tasks: tuple[int, ...]) -> None:
    def acking(length: Any, slide: Any, place: int) -> Topology:
        bolt = Total().with_window(length, slide=slide).with_timestamp_field("at").with_ack_on_expiry()
        builder = TopologyBuilder("acking", Config(message_timeout_secs=900, max_spout_pending=25))
        builder.set_spout("numbers", GeneratorSpout(numbers, outputs=["n", "at"], count=60))
        keyed = len(set(tasks)) > 1
        declared = builder.set_bolt("total", bolt.with_key("n") if keyed else bolt, parallelism=tasks[place])
        if keyed:
            declared.fields_grouping("numbers", ["n"])
        else:
            declared.global_grouping("numbers")
        return builder.build()

    second = timedelta(seconds=1)
    engine = LocalEngine(acking(20 * second, 10 * second, 0))

    def step(times: int) -> None:
        for _ in range(times):
            engine.step()
            engine.now_ms += 1000

    step(4)
    counts = engine.ledger.metrics.of("numbers")
    assert counts.emitted - counts.acked > 0, "some are open"
    changes = [(5 * second, 5 * second), (9 * second, 3 * second), (8 * second, 4 * second)]
    for place, (length, slide) in enumerate(changes, 1):
        engine.restart(acking(length, slide, place))
        if crash:
            engine.restart()
        step(3)
    step(20)
    counts = engine.ledger.metrics.of("numbers")
    assert (counts.emitted, counts.failed) == (60, 0)
    assert 60 - counts.acked <= 13, "only the tuples of the last windows are open"
    engine.close()


@KEYS
def test_a_micro_batch_that_fails_while_windows_change_is_repeated_from_what_is_stored(keyed: bool) -> None:
    def tumbling(length: float) -> Topology:
        bolt = Total().with_tumbling_window(secs(length)).with_timestamp_field("at")
        builder = TopologyBuilder("repeated", Config(max_spout_pending=20))
        builder.set_spout("numbers", GeneratorSpout(numbers, outputs=["n", "at"], count=20))
        builder.set_bolt("total", bolt.with_key("n") if keyed else bolt).fields_grouping("numbers", ["n"])
        return builder.build()

    engine = LocalEngine(tumbling(100))
    for _ in range(3):
        engine.step()
        engine.now_ms += 1000
    engine.restart(tumbling(4))
    [task] = engine.topology.tasks("total")
    stored = dict(engine.stores[engine.lane.dests[task]])
    shown = []
    for _ in range(2):  # the same process, and nothing is committed
        engine.worker.load(task, DictStore(stored))
        runtime = engine.worker.attach(task, None)
        assert runtime is not None
        runtime.begin(Settlements())
        shown.append(runtime.effects.metrics.window_tuples)
        runtime.effects = RuntimeEffects()
    assert shown[0] == shown[1] > 10
    engine.close()


@pytest.mark.parametrize("lag", [None, 3 * UNIT_MS], ids=["on arrival", "in event time"])
@pytest.mark.parametrize("tasks", [(1, 2, 3, 5, 7), (2, 2, 4, 5, 5)])
def test_windows_move_with_their_keys_to_other_tasks_also_while_their_settings_change(
    lag: int | None, tasks: tuple[int, ...]
) -> None:
    shapes = shapes_of(lag, keyed=True)
    assert list(wrong_in(run(1, shapes, tasks=tasks))) == []
    assert list(wrong_in(run(2, shapes[2:3], tasks=tasks))) == []


def refused(before: WindowedBolt, after: WindowedBolt, fields: list[str]) -> str:
    def of(bolt: WindowedBolt, tasks: int) -> Topology:
        builder = TopologyBuilder("refused")
        builder.set_spout("source", Source())
        builder.set_bolt("show", bolt, parallelism=tasks).fields_grouping("source", fields)
        return builder.build()

    with TopologyTestDriver(of(before, 2)) as driver:
        driver.feed("source", {"name": "a", "at": 1, "user": "u"}, message_id=1)
        driver.run_until_idle()
        with pytest.raises(CheckpointError) as caught:
            driver.restart(of(after, 3))
    return str(caught.value)


def test_windows_that_cannot_move_are_refused_with_what_to_do() -> None:
    plain, by_name = Show().with_window(Count(5)), Show().with_window(Count(5)).with_key("name")
    assert "its windows have no key: let it have as many tasks as before" in refused(plain, plain, ["user"])
    assert "its windows have the key 'name', and their tuples are not grouped by these" in refused(
        by_name, by_name, ["user"]
    )


def test_ids_that_were_seen_are_known_to_each_task_that_follows() -> None:
    def of(tasks: int) -> Topology:
        builder = TopologyBuilder("ids")
        builder.set_spout("source", Source())
        bolt = Show().with_window(Count(1)).with_key("user").with_message_id_field("at")
        builder.set_bolt("show", bolt, parallelism=tasks).fields_grouping("source", ["user"])
        return builder.build()

    with TopologyTestDriver(of(2)) as driver:
        for tasks in (2, 5):
            driver.restart(of(tasks))
            for number in range(20):
                values = {"name": f"{number}", "at": number, "user": f"u{number}"}
                driver.feed("source", values, message_id=(tasks, number))
            driver.run_until_idle()
        assert sorted(Run(driver).shown(), key=int) == [f"{number}" for number in range(20)]
