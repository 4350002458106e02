"""Worker processes that die on real Spark: their tuples fail, all others are acked, the query lives."""

from __future__ import annotations

import ctypes
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, ColumnBolt, Config, TopologyBuilder, WindowedBolt, bolt
from sparkbolt import Count as CountOf
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.driver.ledger.ledger import FailedTree
from tests.patience import PATIENCE_SECS
from tests.topologies import Numbers
from tests.windows.books import rows_of

pytestmark = [pytest.mark.spark]

COUNT = 400
SEGFAULTS = frozenset(range(100, 150, 5))
"""Ten of the first micro-batch."""
DEATHS = {
    7: ("fused", "killed its worker (exit code 3)"),
    8: ("columns", "killed its worker (signal 11)"),
    9: ("columns", "killed its worker (signal 9)"),
    17: ("fused", "killed its worker (closed its files)"),
    360: ("count", "killed its worker (closed its files)"),
    350: ("count", "killed its worker (signal 9)"),
    **dict.fromkeys(SEGFAULTS, ("count", "killed its worker (signal 11)")),
}


@bolt(outputs=["n"])
def fused(tup):
    if tup["n"] == 7:
        os._exit(3)
    if tup["n"] == 17:
        os.closerange(3, 10_000)
    yield [tup["n"]]


class Columns(ColumnBolt):
    outputs = ["n"]
    stateless = True

    def execute(self, batch, collector):
        numbers = batch["n"].to_pylist()
        if 8 in numbers:
            ctypes.string_at(0)
        if 9 in numbers:
            os.kill(os.getpid(), signal.SIGKILL)  # what the memory killer does
        collector.emit([batch["n"]], anchors=range(len(numbers)))


class CountOrDie(BasicBolt):
    outputs = ["digit", "count"]

    def prepare(self, context):
        self.counts = Counter()

    def execute(self, tup, collector):
        if tup["n"] in SEGFAULTS:
            ctypes.string_at(0)
        if tup["n"] == 350:
            os.kill(os.getpid(), signal.SIGKILL)
        if tup["n"] == 360:
            os.closerange(3, 10_000)
        digit = tup["n"] % 10
        self.counts[digit] += 1
        collector.emit([digit, self.counts[digit]])


class Together(WindowedBolt):
    outputs = ["first"]

    def execute(self, window, collector):
        collector.emit([window[0]["n"]])
        if window[0]["n"] == 50:
            ctypes.string_at(0)


def test_workers_that_die_fail_only_their_tuples(spark: Any, tmp_path: Path) -> None:
    builder = TopologyBuilder("deaths", Config(max_attempts=1, dead_letters="log:"))
    builder.set_spout("numbers", Numbers(COUNT))
    builder.set_bolt("fused", fused).shuffle_grouping("numbers")
    builder.set_bolt("columns", Columns(), parallelism=2, fuse=False).shuffle_grouping("fused")
    builder.set_bolt("count", CountOrDie(), parallelism=2, fuse=False).global_grouping("columns")
    builder.set_bolt("out", JsonLinesBolt(tmp_path / "out"), parallelism=2).shuffle_grouping("count")
    builder.set_bolt("together", Together().with_tumbling_window(CountOf(50))).global_grouping("numbers")
    builder.set_bolt("windows", JsonLinesBolt(tmp_path / "windows")).shuffle_grouping("together")
    running = builder.build().start(spark=spark, checkpoint=str(tmp_path / "state"))
    failed: list[FailedTree] = []
    try:
        running.on_micro_batch(lambda report: failed.extend(report.promotion.failed))
        assert running.await_finished(PATIENCE_SECS)
        metrics = running.metrics()
    finally:
        running.stop()
    assert {tree.position: (tree.fail.component, tree.fail.reason) for tree in failed} == DEATHS
    assert metrics.of("numbers").acked == COUNT - len(DEATHS)
    assert metrics.micro_batches == 2, "the query was never started again"
    assert metrics.of("together").errors == 1, "a window that kills is over, and its tuples are none the worse"
    assert {row["first"] for row in rows_of(tmp_path / "windows")} == set(range(0, COUNT, 50)) - {50}
    written = Counter((row["digit"], row["count"]) for row in rows_of(tmp_path / "out"))
    totals = Counter(number % 10 for number in range(COUNT) if number not in DEATHS)
    assert written == {(digit, count): 1 for digit, total in totals.items() for count in range(1, total + 1)}
