"""Processes that really die, without Spark: the shield's children under the engine in one process."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import time
from collections import Counter
from typing import Any

import pytest

from sparkbolt.api.components import BasicBolt, Bolt
from sparkbolt.api.config import Config
from sparkbolt.driver.ledger.ledger import FailedTree
from sparkbolt.errors import EngineError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spark import crash_shield
from sparkbolt.streams import TopologyBuilder
from sparkbolt.wire.acker import judge_rows
from sparkbolt.wire.frames import Moment
from sparkbolt.wire.plan import MicroBatchPlan, Piece
from sparkbolt.worker.routing import Row
from sparkbolt.worker.source_reader import clock_rows, run_piece
from sparkbolt.worker.stage import run_level
from tests.unit.worker.test_source_reader import Numbers

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
WAYS = {
    3: "signal 11",
    4: "exit code 3",
    5: "signal 9",
    6: "exit code 0",
    7: "exit code 5",
    8: "signal 6",
    9: "closed its files",
    10: "closed its files",
    11: "closed its files",
    60: "signal 11",
    99: "closed its files",
}
"""By number, how it dies: the last of all as well, behind which no other tuple comes."""


def die_of(number: int) -> None:
    faulthandler.disable()  # pytest's, which would print where each of them died
    if number in (3, 60):
        ctypes.string_at(0)
    elif number == 4:
        os._exit(3)
    elif number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    elif number == 6:
        os._exit(0)
    elif number == 7:
        sys.exit(5)
    elif number == 8:
        os.abort()
    elif number in (9, 99):
        os.closerange(3, 10_000)
    elif number == 10:
        os.closerange(3, 10_000)
        raise ValueError("and then it raises")
    elif number == 11:
        os.closerange(3, 10_000)
        for _ in range(100):
            os.open("/dev/null", os.O_RDONLY)  # under the numbers of what was closed


class CountOrDie(BasicBolt):
    """Durable counts, in an attribute."""

    outputs = ["digit", "count"]

    def prepare(self, context):
        self.counts = Counter()

    def execute(self, tup, collector):
        die_of(tup["n"])
        digit = tup["n"] % 10
        self.counts[digit] += 1
        collector.emit([digit, self.counts[digit]])


class Keys(Bolt):
    """Durable counts, in a key-value state."""

    outputs = ["digit", "count"]

    def init_state(self, state):
        self.state = state

    def execute(self, tup, collector):
        die_of(tup["n"])
        digit = tup["n"] % 10
        count = (self.state.get(digit) or 0) + 1
        self.state.put(digit, count)
        collector.emit([digit, count], anchors=tup)
        collector.ack(tup)


class Shielded(LocalEngine):
    """Every piece of work runs in children, as on Spark in a second attempt."""

    def run(self, plan: MicroBatchPlan) -> list[Row]:
        moment = Moment(plan.micro_batch_id, plan.now_ms)
        rows = clock_rows(self.lane, plan)
        for piece, entry in enumerate(plan.alive_entries(self.coordinator.life)):
            rows += crash_shield.shielded(
                self.worker, lambda own, _, p=piece, e=entry: run_piece(own, moment, Piece(p, e)).to_rows(own.lane)
            )
        for level in self.lane.levels:
            came = rows
            rows = crash_shield.shielded(
                self.worker,
                lambda own, stores, n=level.number, r=came: run_level(own, n, r, stores).to_rows(own.lane),
                self._store_of,
            )
        return judge_rows(rows)


def run(
    tested: Any, monkeypatch: pytest.MonkeyPatch, alternate: bool = False
) -> tuple[list[list[Any]], dict[int, str]]:
    """The counts in the end, and why which number failed; with ``alternate`` every other work is a first try."""
    tries = iter(range(10**6))
    monkeypatch.setattr(crash_shield, "is_repeated", lambda: not alternate or next(tries) % 2 == 0)
    builder = TopologyBuilder("shield", Config(max_attempts=1, fuse=False))
    builder.set_spout("numbers", Numbers(lambda number, times: None))
    builder.set_bolt("tested", tested).shuffle_grouping("numbers")
    engine = Shielded(builder.build())
    failed: list[FailedTree] = []
    while (promotion := engine.step()) is not None:
        failed += promotion.failed
    assert engine.coordinator.finished
    assert engine.ledger.metrics.of("numbers").acked == 100 - len(failed)
    # A task with the committed state, to see what was counted.
    state = engine.worker.load(engine.topology.tasks("tested")[0], next(iter(engine.stores.values())))
    bolt = state.bolt
    counts = dict(bolt.counts) if isinstance(bolt, CountOrDie) else {d: bolt.state.get(d) for d in range(10)}
    return sorted([d, c] for d, c in counts.items()), {tree.position or 0: tree.fail.reason for tree in failed}


EXPECTED = sorted([digit, 10 - sum(n % 10 == digit for n in WAYS)] for digit in range(10))


@pytest.mark.slow
@pytest.mark.parametrize("alternate", [False, True])
@pytest.mark.parametrize("tested", [CountOrDie(), Keys()], ids=lambda of: type(of).__name__)
def test_the_state_counts_all_tuples_but_those_that_killed(
    tested: Any, alternate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if alternate:  # nothing may kill this process
        monkeypatch.setattr(sys.modules[__name__], "die_of", lambda number: None)
    counts, failed = run(tested, monkeypatch, alternate)
    if alternate:
        assert (counts, failed) == ([[digit, 10] for digit in range(10)], {})
    else:
        assert counts == EXPECTED
        raised = failed.pop(7)  # an exception like any other: nothing died
        assert raised.startswith(
            "SystemExit: 5 (the work was repeated without an earlier call of the same task: killed"
        )
        assert failed == {number: f"killed its worker ({how})" for number, how in WAYS.items() if number != 7}


class Dying(CountOrDie):
    def prepare(self, context):
        os._exit(9)


def test_a_child_that_dies_in_prepare_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match=r"tested\[0\] killed its worker \(exit code 9\) in prepare"):
        run(Dying(), monkeypatch)


class Forking(CountOrDie):
    """Leaves a process behind that holds the child's pipe open."""

    def execute(self, tup, collector):
        if tup["n"] == 1:
            if os.fork() == 0:
                signal.alarm(30)
                signal.pause()
            os._exit(2)
        super().execute(tup, collector)


@pytest.mark.slow
def test_a_process_that_a_dead_child_left_behind_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    _, failed = run(Forking(), monkeypatch)
    assert failed[1] == "killed its worker (exit code 2)"
    assert time.monotonic() - began < 25
