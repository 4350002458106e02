"""What may change about a topology while its checkpoint is kept: what moves no task just works, the rest is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, Count, PartitionedSpout, Range, Topology, TopologyBuilder, WindowedBolt, bolt
from sparkbolt.api.keyed_state import refusal
from sparkbolt.driver.ledger.generations import Generations
from sparkbolt.driver.transition import transition
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.windows import CountEvictionPolicy, CountTriggerPolicy, TimeTriggerPolicy
from tests.unit.windows.windowed import Run, Show, Source, secs
from tests.unit.windows.windowed import topology as show_topology

COUNT = 60


class Numbers(PartitionedSpout):
    """The numbers from 0 on, some at a time."""

    outputs = ["n"]
    first_budget = 10

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("n", 0)
        end = min(COUNT, start + min(budget, 10))
        return [Range(0, "n", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("n", 0) >= COUNT

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for number in range(range_.start, range_.end):
            yield number, [number]


@bolt(outputs=["n"])
def double(tup: Any) -> Iterator[list[int]]:
    if not tup.is_tick:
        yield [2 * tup["n"]]


class CountRests(BasicBolt):
    outputs = ["rest", "count"]

    def prepare(self, context: Any) -> None:
        self.counts: Counter[int] = Counter()

    def execute(self, tup: Any, collector: Any) -> None:
        rest = tup["n"] % 4
        self.counts[rest] += 1
        collector.emit([rest, self.counts[rest]])


class Last(BasicBolt):
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        pass


class First(BasicBolt):
    """Keeps state before ``double``, if it is there."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.seen = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen += 1
        collector.emit([tup["n"]])


def line(config: Config | None = None, **settings: Any) -> Topology:
    """Numbers, doubled, counted; ``settings`` are those of the bolt that doubles."""
    builder = TopologyBuilder("line", config or Config())
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("double", double, parallelism=2, **settings).shuffle_grouping("numbers")
    builder.set_bolt("count", CountRests()).global_grouping("double")
    builder.set_bolt("last", Last()).shuffle_grouping("count")
    return builder.build()


def fork(**settings: Any) -> Topology:
    """Two bolts that keep state, one of them behind the bolt that doubles."""
    builder = TopologyBuilder("fork")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("first", First()).shuffle_grouping("numbers")
    builder.set_bolt("double", double, **settings).shuffle_grouping("numbers")
    builder.set_bolt("count", CountRests(), parallelism=2).fields_grouping("double", ["n"])
    return builder.build()


class Seen:
    """A run of a topology, and the counts that it emitted."""

    def __init__(self, topology: Topology) -> None:
        self.counted: Counter[tuple[int, int]] = Counter()
        self.engine = LocalEngine(topology, capture=self._capture)

    def _capture(self, component: str, index: int, stream: str, columns: Sequence[Any]) -> None:
        if component == "count":
            self.counted.update(zip(*columns, strict=True))

    def finish(self) -> None:
        """To the end: each count must have been emitted once, so no task has lost its state."""
        engine = self.engine
        while not engine.coordinator.finished:
            engine.now_ms += 1000
            assert engine.step() is not None or engine.coordinator.finished
        half = range(1, COUNT // 2 + 1)
        assert self.counted == Counter({(rest, count): 1 for rest in (0, 2) for count in half})


CHANGES = {
    "unfused": ({}, {"fuse": False}),
    "fused": ({"fuse": False}, {}),
    "a tick is new": ({}, {"tick_tuple_freq_secs": 2}),
    "a tick is gone": ({"tick_tuple_freq_secs": 2}, {}),
    "a tick at another rate": ({"tick_tuple_freq_secs": 2}, {"tick_tuple_freq_secs": 0.5}),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_bolt_without_state_may_later_be_fused_or_get_a_tick(change: str) -> None:
    before, after = CHANGES[change]
    seen = Seen(line(**before))
    engine = seen.engine
    for _ in range(3):
        engine.now_ms += 2500
        assert engine.step() is not None
    old = engine.lane.dests
    engine.restart(line(**after))
    assert {task: engine.lane.dests[task] for task in old} == old, "no task moves"
    used = [*engine.lane.dests.values(), *engine.lane.acker_dests, engine.lane.feedback_dest]
    assert len(set(used)) == len(used), "no two have one dest"
    seen.finish()
    assert engine.ledger.metrics.of("numbers").acked == COUNT
    assert engine.ledger.open_trees == 0


@pytest.mark.parametrize("change", list(CHANGES))
def test_a_plan_of_an_earlier_topology_is_run_by_the_current_topology(change: str) -> None:
    before, after = CHANGES[change]
    seen = Seen(line(**before))
    engine = seen.engine
    engine.step()
    engine.now_ms += 2500
    logged = engine.perform_all(engine.coordinator.next_plan(engine.now_ms, engine.now_ms / 1000))
    assert logged is not None
    assert logged.ticks == (("double",) if before.get("tick_tuple_freq_secs") else ())
    engine.restart(line(**after))
    engine.coordinator.confirm(logged, engine.now_ms / 1000)
    assert engine.step() is not None
    seen.finish()


@pytest.mark.parametrize(
    ("before", "after", "ackers"), [(0, None, 2), (None, 0, 0), (None, 5, 5), (5, 1, 1), (3, None, 3)]
)
def test_the_number_of_ackers_may_change(before: int | None, after: int | None, ackers: int) -> None:
    seen = Seen(line(Config(acker_tasks=before)))
    engine = seen.engine
    for _ in range(2):
        engine.step()
    engine.restart(line(Config(acker_tasks=after)))
    assert len(engine.lane.acker_dests) == ackers
    seen.finish()


class Sum(WindowedBolt):
    outputs = ["sum"]

    def execute(self, window: Any, collector: Any) -> None:
        collector.emit([sum(tup["n"] for tup in window)])


def windowed(*, on_expiry: bool) -> Topology:
    window = Sum().with_tumbling_window(timedelta(seconds=2))
    builder = TopologyBuilder("windowed")
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("sum", window.with_ack_on_expiry() if on_expiry else window).global_grouping("numbers")
    builder.set_bolt("count", double).shuffle_grouping("sum")
    return builder.build()


def window_changes(before: WindowedBolt, after: WindowedBolt) -> list[str]:
    """Why a checkpoint of one windowed bolt refuses another."""
    generations: Generations = Generations()
    for bolt_ in (before, after):
        builder = TopologyBuilder("windowed")
        builder.set_spout("source", Source())
        builder.set_bolt("show", bolt_).global_grouping("source")
        started = transition(builder.build(), 2, generations, 0, refusal)
        generations = started.generations
    return [step.why.partition(": ")[0] for step in started.refusals]


def in_event_time(**unit: Any) -> WindowedBolt:
    return Show().with_window(secs(60), slide=secs(20)).with_timestamp_field("at", **unit)


REALIGNED: list[tuple[WindowedBolt, WindowedBolt]] = [
    (Show().with_tumbling_window(secs(60)), Show().with_tumbling_window(secs(120))),
    (Show().with_window(Count(5)), Show().with_window(secs(0.5), slide=Count(2))),
    (Show().with_session_gap(secs(60)), Show().with_session_gap(secs(90))),
    (Show().with_window(secs(60)), Show().with_session_gap(secs(60))),
    (in_event_time(), in_event_time().with_window(Count(3), slide=Count(2))),
]


@pytest.mark.parametrize(("before", "after"), REALIGNED)
def test_the_length_slide_gap_and_kind_of_a_window_may_change(before: WindowedBolt, after: WindowedBolt) -> None:
    assert window_changes(before, after) == window_changes(after, before) == []


REFUSED: list[tuple[WindowedBolt, WindowedBolt, list[str]]] = [
    (
        Show().with_window(secs(60), slide=secs(20)),
        in_event_time(),
        ["the time was that of arrival and is now that of the field 'at'"],
    ),
    (
        in_event_time(),
        Show().with_window(secs(60), slide=secs(20)).with_timestamp_extractor(lambda tup: tup["at"]),
        ["the time was that of the field 'at' and is now that of an extractor"],
    ),
    (
        in_event_time(),
        Show().with_window(secs(60), slide=secs(20), closed="left").with_timestamp_field("at"),
        ["the closed side of the window was right and is now left"],
    ),
    (
        in_event_time().with_key("user"),
        in_event_time().with_key("user", "name"),
        ["the key of the windows was 'user' and is now 'user', 'name'"],
    ),
    (in_event_time(), in_event_time().with_key("user"), ["the key of the windows was not set and is now 'user'"]),
    (
        in_event_time().with_message_id_field("name"),
        in_event_time().with_message_id_field("at"),
        ["the message id field was 'name' and is now 'at'"],
    ),
    (
        Show().with_policies(CountEvictionPolicy(5), CountTriggerPolicy(3)),
        Show().with_policies(CountEvictionPolicy(9), TimeTriggerPolicy(3)),
        [
            "the pair of policies was CountEvictionPolicy(threshold=5), CountTriggerPolicy(count=3) and is now "
            "CountEvictionPolicy(threshold=9), TimeTriggerPolicy(interval_ms=3)"
        ],
    ),
]


@pytest.mark.parametrize(("before", "after", "expected"), REFUSED)
def test_a_window_with_another_time_key_side_or_policy_is_refused(
    before: WindowedBolt, after: WindowedBolt, expected: list[str]
) -> None:
    assert window_changes(before, after) == expected
    assert len(window_changes(after, before)) == len(expected)
    assert window_changes(before, before) == []


HARMLESS: dict[str, Callable[[WindowedBolt], WindowedBolt]] = {
    "the closed side that is the default": lambda w: w.with_window(secs(60), slide=secs(20), closed="right"),
    "lag": lambda w: w.with_lag(secs(5)),
    "watermark interval": lambda w: w.with_watermark_interval(secs(3)),
    "idle streams": lambda w: w.with_idle_stream_timeout(secs(5)),
    "far future": lambda w: w.with_max_future(secs(3600)),
    "memory": lambda w: w.with_max_events_in_memory(2),
    "idle keys": lambda w: w.with_key("user", idle_timeout=secs(3600)),
    "message ids": lambda w: w.with_message_id_field("at"),
}


def restarted_with(driver: TopologyTestDriver, windowed: WindowedBolt) -> None:
    fed, show = driver._topology, show_topology(windowed).components["show"]
    driver._engine.restart(Topology(fed.name, fed.config, {**fed.components, "show": show}))


def test_message_ids_of_a_field_that_was_given_up_drop_nothing_of_another_field() -> None:
    bolts = [Show().with_window(Count(1)) for _ in range(3)]
    with TopologyTestDriver(show_topology(bolts[0].with_message_id_field("at"))) as driver:
        Run(driver).feed("a", at=1, user=5)
        driver.run_until_idle()
        for windowed, name in ((bolts[1], "b"), (bolts[2].with_message_id_field("user"), "c")):
            restarted_with(driver, windowed)
            Run(driver).feed(name, at=7, user=1)
            driver.run_until_idle()
        assert Run(driver).shown() == ["a", "b", "c"]


@pytest.mark.parametrize("change", HARMLESS)
@pytest.mark.parametrize("back", [False, True])
def test_other_window_settings_may_change_without_losing_or_repeating_tuples(change: str, back: bool) -> None:
    bolts = [in_event_time().with_key("user"), HARMLESS[change](in_event_time().with_key("user"))]
    first, second = reversed(bolts) if back else bolts
    assert window_changes(first, second) == []
    with TopologyTestDriver(show_topology(first)) as driver:
        run = Run(driver)
        for at in range(0, 120_000, 5000):
            if at == 65_000:
                restarted_with(driver, second)
            run.feed(f"{at // 5000:x},", at=at)
            driver.advance(secs(5))
        shown = [(end - at_, names) for names, _, _, at_, end, _ in driver.emitted("show")]
        assert {length for length, _ in shown} == {60_000}
        ends = [values[4] for values in driver.emitted("show")]
        assert ends == list(range(ends[0], ends[0] + 20_000 * len(ends), 20_000))
        for end, (_, names) in zip(ends, shown, strict=True):
            inside = range(max(0, (end - 60_000) // 5000 + 1), end // 5000 + 1)
            assert names == "".join(f"{number:x}," for number in inside)
        assert (driver.failed("source"), driver.metrics().of("show").late_tuples) == ([], 0)
