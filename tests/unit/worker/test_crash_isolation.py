"""What kills a worker fails; all else is done. Here "kill" is an exception that nothing catches: no process dies."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from sparkbolt.api.components import AsyncBolt, BasicBolt, Bolt, BoltBase, ColumnBolt
from sparkbolt.api.config import Config
from sparkbolt.api.function_bolts import bolt
from sparkbolt.api.progress import Activity
from sparkbolt.api.reports import QueryFailure
from sparkbolt.base.exceptions import Interruption
from sparkbolt.driver.ledger.ledger import FailedTree
from sparkbolt.errors import EngineError, LostWorkerError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.sim.executors import by_dest
from sparkbolt.streams import TopologyBuilder
from sparkbolt.wire.acker import judge_rows
from sparkbolt.wire.frames import Moment
from sparkbolt.wire.plan import MicroBatchPlan, Piece
from sparkbolt.worker import crash_isolation as deaths_module
from sparkbolt.worker.crash_isolation import Crashes, Watch, WorkPlace
from sparkbolt.worker.routing import Row
from sparkbolt.worker.source_reader import clock_rows, run_piece
from sparkbolt.worker.stage import run_level
from sparkbolt.worker.worker import Worker
from tests.unit.worker.test_source_reader import Numbers

SEEN: Counter[int] = Counter()
DEADLY = (7, 8, 33, 60)


class Died(Interruption):
    """Goes through every ``except Exception``, as a signal would."""


def die_of(number: int) -> None:
    if number in DEADLY:
        raise Died
    SEEN[number] += 1


class Basic(BasicBolt):
    outputs = ["n"]

    def execute(self, tup, collector):
        die_of(tup["n"])
        collector.emit([tup["n"]])


class ByHand(Bolt):
    outputs = ["n"]

    def prepare(self, context):
        self.before = None

    def execute(self, tup, collector):
        die_of(tup["n"])
        collector.emit([tup["n"]], anchors=tup)
        if self.before is not None:
            collector.ack(self.before)
        self.before = tup
        if tup["n"] in (49, 99):
            collector.ack(tup)
            self.before = None


class Async(AsyncBolt):
    outputs = ["n"]

    async def execute(self, tup, collector):
        die_of(tup["n"])
        collector.emit([tup["n"]])


class Columns(ColumnBolt):
    outputs = ["n"]

    def execute(self, batch, collector):
        numbers = batch["n"].to_pylist()
        if set(numbers) & set(DEADLY):
            raise Died
        SEEN.update(numbers)
        collector.emit([batch["n"]], anchors=range(len(numbers)))


@bolt(outputs=["n"])
def function(tup):
    die_of(tup["n"])
    yield [tup["n"]]


class Last(BasicBolt):
    """Sees what came through."""

    def execute(self, tup, collector):
        SEEN[1000 + tup["n"]] += 1


class Watched(LocalEngine):
    """A ``LocalEngine`` whose every piece of work is begun again after a death."""

    def run(self, plan: MicroBatchPlan) -> list[Row]:
        moment = Moment(plan.micro_batch_id, plan.now_ms)
        rows = clock_rows(self.lane, plan)
        for piece, entry in enumerate(plan.alive_entries(self.coordinator.life)):
            rows += self.alive(
                lambda worker, p=piece, e=entry: run_piece(worker, moment, Piece(p, e)).to_rows(worker.lane)
            )
        for level in self.lane.levels:
            runs = by_dest(rows) if level.stateful else [rows]
            rows = []
            for came in runs:
                rows += self.alive(
                    lambda worker, n=level.number, r=came: run_level(worker, n, r, self._store_of).to_rows(worker.lane)
                )
        return judge_rows(rows)

    def alive(self, work: Callable[[Worker], list[Row]]) -> list[Row]:
        deaths = Crashes(self.topology.task_owner)
        while True:
            noted: list[bytes] = []
            worker = Worker(self._environment, Watch(deaths, noted.append))
            try:
                return work(worker)
            except (Died, BaseExceptionGroup):
                deaths.add(WorkPlace.unpack(noted[-1]), "signal 11")
            finally:
                worker.abandon()


def run(
    tested: BoltBase, *, spout: Numbers | None = None, kind: type[LocalEngine] = Watched, **settings: Any
) -> tuple[LocalEngine, list[FailedTree]]:
    SEEN.clear()
    Numbers.tried.clear()
    builder = TopologyBuilder("deaths", Config(max_attempts=1, **settings))
    builder.set_spout("numbers", spout or Numbers(lambda number, times: None))
    builder.set_bolt("tested", tested).shuffle_grouping("numbers")
    builder.set_bolt("last", Last()).shuffle_grouping("tested")
    engine = kind(builder.build())
    failed: list[FailedTree] = []
    while (promotion := engine.step()) is not None:
        failed += promotion.failed
    engine.worker.abandon()
    assert engine.coordinator.finished
    return engine, failed


def through() -> Iterable[int]:
    return sorted(number - 1000 for number in SEEN if number >= 1000)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize(
    "tested", [Basic(), ByHand(), Async(), Columns(), function], ids=lambda bolt: type(bolt).__name__
)
def test_each_tuple_that_kills_its_worker_fails_and_all_others_are_acked(tested: BoltBase, fuse: bool) -> None:
    engine, failed = run(tested, fuse=fuse)
    assert {tree.position for tree in failed} == set(DEADLY)
    assert {(tree.fail.cause, tree.fail.reason) for tree in failed} == {("killed", "killed its worker (signal 11)")}
    assert engine.ledger.metrics.of("numbers").acked == 100 - len(DEADLY)
    assert through() == sorted(set(range(100)) - set(DEADLY))


def test_the_same_deaths_give_the_same_log() -> None:
    engine, _ = run(Basic())
    other, _ = run(Basic())
    assert engine.log == other.log


@pytest.mark.parametrize("tested", [Basic(), ByHand(), Async(), Columns(), function], ids=lambda of: type(of).__name__)
def test_monitored_work_gives_the_same_ids(tested: BoltBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "DEADLY", ())
    watched, _ = run(tested)
    plain, _ = run(tested, kind=LocalEngine)
    assert watched.log == plain.log


class Flushing(BasicBolt):
    """Dies in the flush of the first micro-batch."""

    outputs = ["n"]

    def prepare(self, context):
        self.context = context

    transient = ("context",)

    def execute(self, tup, collector):
        collector.emit([tup["n"]])

    def flush(self):
        if self.context.micro_batch_id == 0:
            raise Died


def test_a_flush_that_kills_the_worker_fails_all_tuples_of_its_task_in_that_micro_batch() -> None:
    _, failed = run(Flushing())
    assert sorted(tree.position or 0 for tree in failed) == list(range(50))
    assert {tree.fail.reason for tree in failed} == {"killed its worker (signal 11) in flush"}


class Sending(BasicBolt):
    """What it emits kills where it is sent."""

    outputs = ["n"]

    def execute(self, tup, collector):
        collector.emit([Bomb() if tup["n"] in DEADLY else tup["n"]])


class Bomb:
    def __reduce__(self):
        raise Died


def test_a_tuple_that_kills_the_worker_while_its_emission_is_sent_is_found() -> None:
    _, failed = run(Sending(), fuse=False)
    assert {tree.position for tree in failed} == set(DEADLY)
    assert {tree.fail.cause for tree in failed} == {"killed"}


def test_a_read_that_kills_the_worker_ends_its_range_early() -> None:
    def trouble(number: int, tried: int) -> None:
        if number == 30:
            raise Died

    _, failed = run(Basic(), spout=Numbers(trouble))
    reasons = [tree.fail.reason for tree in failed if tree.fail.cause == "read"]
    assert reasons == ["reading n@0 and what follows it up to 50: killed its worker (signal 11) in read"]


def test_a_worker_death_outside_any_task_restarts_the_query_and_does_not_end_the_topology() -> None:
    with pytest.raises(LostWorkerError, match=r"^a worker process died \(signal 9\) between the tuples") as raised:
        Crashes(lambda task: ("count", 0)).add(WorkPlace(), "signal 9")
    assert not QueryFailure(str(raised.value), type(raised.value)).hopeless


def test_rows_of_a_task_fail_without_execution_after_too_many_worker_deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths_module, "CRASHES_MAX", 2)
    engine, failed = run(Basic())
    of_first = {tree.position: tree.fail.reason for tree in failed if (tree.position or 0) < 50}
    assert of_first[7] == of_first[8] == "killed its worker (signal 11)"
    assert set(of_first) == {7, *range(8, 50)}
    assert of_first[9] == "was not executed: 2 tuples of the micro-batch had killed their worker before it"
    assert 33 not in SEEN
    assert engine.ledger.metrics.of("numbers").acked == 7 + 49


def test_what_dies_without_end_is_an_error() -> None:
    deaths = Crashes(lambda task: ("count", task - 1))
    for block in range(200):
        deaths.add(WorkPlace(Activity.FLUSH, 3, block), "exit code 3")
    with pytest.raises(EngineError, match=r"count\[2\] killed its worker \(exit code 3\) in flush, and 200 times"):
        deaths.add(WorkPlace(Activity.FLUSH, 3, 200), "exit code 3")
