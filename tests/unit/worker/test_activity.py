"""What a process is at, seen by somebody who looks while user code runs. Here user code itself looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparkbolt import BasicBolt, Bolt, ColumnBolt, Count, TopologyBuilder, WindowedBolt, bolt
from sparkbolt.api.components import BoltBase
from sparkbolt.api.outside import WritesOutside
from sparkbolt.api.progress import Activity, Doing, Sight
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


class Columns(ColumnBolt):
    def execute(self, batch, collector):
        look_if(HUNG_AT)


class Flushing(BasicBolt):
    def execute(self, tup, collector): ...

    def flush(self):
        look_if(HUNG_AT)


class Storing(WritesOutside, Flushing):
    place = "table orders at sqlite:////srv/shop.db"


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
    """A topology in one process whose activity is seen so many seconds after the beginning of a call."""

    def __init__(self, component: BoltBase, secs: float = 31.0) -> None:
        self.secs = secs
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
        self.now_s += self.secs
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
    assert Scene(component).run() == [f"bolt[0] has been in execute for 31 s {said}"]


@pytest.mark.parametrize(("component", "what"), [(Flushing(), "flush"), (Preparing(), "prepare")])
def test_other_calls_of_a_component_are_named(component: BoltBase, what: str) -> None:
    assert f"bolt[0] has been in {what} for 31 s, at scene.py:1, in call" in Scene(component).run()


@pytest.mark.parametrize(("secs", "waits"), [(4.0, ()), (12.0, (f"bolt[0] waits for {Storing.place} for 12 s",))])
def test_a_flush_that_waits_for_a_database_is_named_long_before_it_counts_as_hung(
    secs: float, waits: tuple[str, ...]
) -> None:
    scene = Scene(Storing(), secs)
    scene.run()
    (sight,) = scene.sights
    progress = progress_of(scene.engine.lane, sight.doing.micro_batch_id, secs, [sight])
    assert (progress.waits, progress.hung) == (waits, ())


def test_finished_part_of_a_frame_is_counted_while_the_task_runs() -> None:
    scene = Scene(Basic())
    scene.run()
    (sight,) = scene.sights
    assert sight.counts.get("bolt", (0, 0)) == (0, 0)
    progress = progress_of(scene.engine.lane, sight.doing.micro_batch_id, 31.0, [sight])
    assert (progress.components["numbers"], progress.components["bolt"]) == ((20, 0), (0, 7))
    assert replace(sight, more=3).done == 0, "coroutines end in any order"


def hung(serial: int, secs: float, number: int = 0) -> dict[str, Sight]:
    return {"1": Sight(Doing(serial, 0, Activity.EXECUTE, 1, 10), secs, number)}


def test_a_hang_is_reported_once_then_at_growing_intervals_and_again_for_another_tuple() -> None:
    hangs = Hangs()
    told = [secs for secs in range(0, 4000, 5) if hangs.worth(hung(1, secs))]
    assert told == [30, 60, 120, 240, 480, 960, 1560, 2160, 2760, 3360, 3960]
    assert not hangs.worth(hung(1, 0, number=1))
    assert hangs.worth(hung(1, 31, number=1))
    assert hangs.worth(hung(2, 31))
    assert not hangs.worth({})
