"""What a process is at, seen by somebody who looks while user code runs. Here user code itself looks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparkbolt import AsyncBolt, BasicBolt, Bolt, ColumnBolt, Count, TopologyBuilder, WindowedBolt, bolt
from sparkbolt.api.components import BoltBase
from sparkbolt.api.progress import Activity, Doing, Progress, Sight
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.worker.activity import ActivityMonitor, Hangs, Looker, progress_of, sight_of

HUNG_AT = 7
LOOK: list[Callable[[], None]] = []


def look_if(number: int) -> None:
    if number == HUNG_AT and LOOK:
        LOOK[-1]()


class Basic(BasicBolt):
    def execute(self, tup, collector):
        look_if(tup["n"])


class Keeping(Bolt):
    def prepare(self, context):
        self.kept = []

    def execute(self, tup, collector):
        self.kept.append(tup)
        look_if(tup["n"])
        collector.ack(tup)


class Async(AsyncBolt):
    async def execute(self, tup, collector):
        await asyncio.sleep(0)
        look_if(tup["n"])


class Columns(ColumnBolt):
    def execute(self, batch, collector):
        look_if(HUNG_AT)


class Flushing(BasicBolt):
    def execute(self, tup, collector): ...

    def flush(self):
        look_if(HUNG_AT)


class Preparing(BasicBolt):
    transient = ("connection",)

    def prepare(self, context):
        look_if(HUNG_AT)

    def execute(self, tup, collector): ...


class Windows(WindowedBolt):
    def execute(self, window, collector):
        look_if(HUNG_AT)


@bolt(outputs=["n"])
def function(tup):
    look_if(tup["n"])
    return []


def numbers():
    for number in range(20):
        yield [number, "x" * number]


class Scene:
    """A topology in one process whose activity is looked at; ``sentences`` are what was seen 31 s into the call."""

    def __init__(self, component: BoltBase) -> None:
        builder = TopologyBuilder("scene")
        builder.set_spout("numbers", GeneratorSpout(numbers, outputs=["n", "text"], count=20))
        builder.set_bolt("bolt", component, fuse=False).shuffle_grouping("numbers")
        self.engine = LocalEngine(builder.build())
        self.notes: list[bytes] = []
        self.now_s = 100.0
        monitor = self.engine.worker.monitor = ActivityMonitor(lambda: self.now_s, self.notes.append)
        self.looker = Looker(monitor, lambda: "scene.py:1, in call")
        self.sights: list[Sight] = []

    def see(self) -> None:
        self.looker.look(self.now_s)
        self.now_s += 31
        sight = sight_of(self.notes[-1], self.looker.look(self.now_s), self.now_s)
        assert sight is not None
        self.sights.append(sight)

    def run(self) -> list[str]:
        LOOK.append(self.see)
        try:
            while self.engine.step() is not None:
                pass
        finally:
            LOOK.pop()
        return [sight.sentence(self.engine.topology.task_owner) for sight in self.sights]


@pytest.mark.parametrize(
    ("component", "said"),
    [
        (Basic(), "with [7, 'xxxxxxx'] (tuple 8 of 20 of its frame), at scene.py:1, in call"),
        (Keeping(), "with [7, 'xxxxxxx'] (tuple 8 of 20 of its frame), at scene.py:1, in call"),
        (function, "with [7, 'xxxxxxx'] (tuple 8 of 20 of its frame), at scene.py:1, in call"),
        (Columns(), "with 20 tuples, at scene.py:1, in call"),
        (Windows().with_tumbling_window(Count(20)), "with 20 tuples, at scene.py:1, in call"),
    ],
)
def test_a_call_of_execute_that_hangs_is_named_with_its_tuple(component: BoltBase, said: str) -> None:
    assert Scene(component).run() == [f"bolt[0] is in execute for 31 s {said}"]


def test_coroutines_that_hang_are_named_by_the_first_of_them() -> None:
    (said,) = Scene(Async()).run()
    assert said.startswith("bolt[0] is in execute for 31 s with [")
    assert said.endswith(" others, at scene.py:1, in call")


@pytest.mark.parametrize(("component", "what"), [(Flushing(), "flush"), (Preparing(), "prepare")])
def test_other_calls_of_a_component_are_named(component: BoltBase, what: str) -> None:
    assert f"bolt[0] is in {what} for 31 s, at scene.py:1, in call" in Scene(component).run()


def test_what_is_done_so_far_is_counted_by_component_and_once() -> None:
    scene = Scene(Keeping())
    scene.run()
    (sight,) = scene.sights
    assert sight.counts["numbers"] == (20, 0)
    assert scene.engine.worker.monitor is not None
    assert scene.engine.worker.monitor.counts["bolt"] == (0, 20)
    assert not scene.engine.worker.monitor.doing.task


def test_what_a_task_has_done_of_its_frame_is_counted_while_it_is_at_it() -> None:
    scene = Scene(Basic())
    scene.run()
    (sight,) = scene.sights
    assert sight.counts.get("bolt", (0, 0)) == (0, 0)
    progress = progress_of(scene.engine.lane, sight.doing.micro_batch_id, 31.0, [sight])
    assert (progress.components["numbers"], progress.components["bolt"]) == ((20, 0), (0, 7))
    assert replace(sight, more=3).done == 0, "coroutines end in any order"


def test_a_look_costs_a_tuple_nothing_that_its_bolt_could_see() -> None:
    """A look takes a reference to the tuple for a moment, which is how a kept one is told from others."""
    scene = Scene(Basic())
    scene.run()
    assert scene.engine.ledger.metrics.of("bolt").acked == 20


def test_who_keeps_the_interpreter_lock_is_named_without_its_tuple() -> None:
    monitor = ActivityMonitor(lambda: 10.0, lambda data: notes.append(data))
    notes: list[bytes] = []
    looker = Looker(monitor)
    before = monitor.begin(Activity.EXECUTE, 3, 4096)
    look = looker.look(11.0)
    sight = sight_of(notes[-1], look, 45.0)
    assert sight is not None
    assert sight.sentence(lambda task: ("count", 0)) == (
        "count[0] is in execute for 34 s with one of 4,096 tuples, in code that keeps Python's interpreter lock"
    )
    monitor.back(before)
    sight = sight_of(notes[-1], look, 90.0)
    assert sight is not None
    assert not sight.busy


def test_a_note_or_a_look_that_is_half_written_is_no_sight_and_no_error() -> None:
    note = bytearray(Doing(7, 0, Activity.EXECUTE, 1, 10, 5.0).pack())
    note[0] = 8
    assert sight_of(bytes(note), b"{}", 6.0) is None
    sight = sight_of(Doing(7, 0, Activity.EXECUTE, 1, 10, 5.0).pack(), b'{"serial": 7, "num', 8.0)
    assert sight is not None
    assert (sight.secs, sight.values) == (3.0, None)


def test_the_clock_of_a_call_begins_anew_with_each_tuple() -> None:
    class Task:
        current = (0, ["a"], 0)

    task, clock = Task(), [0.0]
    monitor = ActivityMonitor(lambda: clock[0])
    looker = Looker(monitor)
    monitor.begin(Activity.EXECUTE, 1, 10, task)
    secs = []
    for now, row in ((10.0, 0), (20.0, 1), (50.0, 1), (60.0, 2)):
        task.current = (row, ["a"], 0)
        sight = sight_of(monitor.doing.pack(), looker.look(now), now)
        assert sight is not None
        secs.append(sight.secs)
    assert secs == [10.0, 0.0, 30.0, 0.0]
    assert "with" in json.loads(looker.look(100.0))


def hung(serial: int, secs: float, number: int = 0) -> dict[str, Sight]:
    return {"1": Sight(Doing(serial, 0, Activity.EXECUTE, 1, 10), secs, number)}


def test_a_hang_is_told_once_then_at_growing_distance_and_anew_for_another_tuple() -> None:
    hangs = Hangs()
    told = [secs for secs in range(0, 4000, 5) if hangs.worth(hung(1, secs))]
    assert told == [30, 60, 120, 240, 480, 960, 1560, 2160, 2760, 3360, 3960]
    assert not hangs.worth(hung(1, 0, number=1))
    assert hangs.worth(hung(1, 31, number=1))
    assert hangs.worth(hung(2, 31))
    assert not hangs.worth({})


def test_a_micro_batch_in_words() -> None:
    words: Any = [
        Progress().sentence,
        Progress(4, 0.2).sentence,
        Progress(4, 75, 2, 3, {"a": (5, 1200)}).sentence,
        Progress(4, 75, 2, 3, {}, (3, 8)).sentence,
        Progress(4, 75, 2, 3, {"a": (5, 1200)}, committing=True).sentence,
    ]
    assert words == [
        "no micro-batch runs",
        "micro-batch 4 runs for 0 s",
        "micro-batch 4 runs for 1 min 15 s: level 2 of 3, 1,200 executed so far",
        "micro-batch 4 runs for 1 min 15 s: level 2 of 3, 3 of 8 spark_tasks done",
        "micro-batch 4 runs for 1 min 15 s: it is being committed, 1,200 executed so far",
    ]


def test_a_window_that_is_shown_is_a_call_of_its_own() -> None:
    scene = Scene(Windows().with_window(Count(5), slide=Count(5)))
    scene.run()
    assert [sight.secs for sight in scene.sights] == [31.0] * 4
