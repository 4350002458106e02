"""Windows of a transactional topology on Spark: what fails before and behind them is left out of their micro-batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkbolt import BasicBolt, Bolt, Committer, Config, Count, TopologyBuilder, WindowedBolt
from sparkbolt.spouts import GeneratorSpout
from tests.patience import PATIENCE_SECS

pytestmark = [pytest.mark.spark]

NUMBERS = 600


class Before(Bolt):
    """Sends on each number, and fails some of them after that."""

    outputs = ["n"]

    def execute(self, tup, collector):
        collector.emit([tup["n"]], anchors=[tup])
        if (tup["n"] % 70 == 0 and tup.attempt == 1) or tup["n"] % 100 == 0:
            collector.fail(tup)
        else:
            collector.ack(tup)


class Sum(WindowedBolt):
    outputs = ["total", "size"]

    def execute(self, window, collector):
        collector.emit([sum(tup["n"] for tup in window), len(window)])


class Behind(BasicBolt):
    """Counts what it gets, and fails each third total once."""

    outputs = ["total", "size", "count"]

    def prepare(self, context):
        self.count = 0

    def execute(self, tup, collector):
        self.count += 1
        if tup["total"] % 3 == 0 and tup.attempt == 1:
            raise ValueError("not at first")
        collector.emit([tup["total"], tup["size"], self.count])


class Lines(Committer):
    def __init__(self, path):
        self.path = path

    def commit(self, txid, rows):
        with Path(self.path).open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.mark.campaign
def test_each_number_is_in_one_window_and_each_window_leaves_once(tmp_path: Path) -> None:
    builder = TopologyBuilder("windows", Config(transactional=True, max_attempts=3))
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(1, NUMBERS)), outputs=["n"]))
    builder.set_bolt("before", Before(), parallelism=2).fields_grouping("numbers", ["n"])
    builder.set_bolt("sum", Sum().with_tumbling_window(Count(5))).global_grouping("before")
    builder.set_bolt("behind", Behind()).global_grouping("sum")
    builder.set_bolt("out", Lines(str(tmp_path / "out.jsonl"))).shuffle_grouping("behind")
    running = builder.build().start(checkpoint=str(tmp_path / "checkpoint"), master="local[2]")
    assert running.await_finished(PATIENCE_SECS)
    metrics = running.metrics()
    assert running.stop()
    good = [n for n in range(1, NUMBERS) if n % 100]
    assert metrics.components["numbers"].acked == len(good)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == len(good) // 5
    assert {row["size"] for row in rows} == {5}
    left = sum(good) - sum(row["total"] for row in rows)
    assert 0 <= left <= 4 * NUMBERS  # what the last window, which is not full, holds
    assert sorted(row["count"] for row in rows) == list(range(1, len(rows) + 1))
