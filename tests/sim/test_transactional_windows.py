"""Windows in transactional topologies: what fails before them is in no window, what fails behind them is kept."""

from __future__ import annotations

import pytest

from sparkbolt import BasicBolt, Bolt, Committer, Config, Count, Topology, TopologyBuilder, WindowedBolt
from sparkbolt.errors import InvalidTopology
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver, simulate

pytestmark = pytest.mark.slow

SEEDS = 8


class Before(Bolt):
    """Sends on each number, and fails some of them after that."""

    outputs = ["n"]

    def execute(self, tup, collector):
        collector.emit([tup["n"]], anchors=[tup])
        if (tup["n"] % 7 == 0 and tup.attempt == 1) or tup["n"] % 50 == 0:
            collector.fail(tup)
        else:
            collector.ack(tup)


class Sum(WindowedBolt):
    outputs = ["total", "size"]

    def execute(self, window, collector):
        collector.emit([sum(tup["n"] for tup in window), len(window)])


class Behind(BasicBolt):
    """Fails each third total once."""

    outputs = ["total", "size"]

    def execute(self, tup, collector):
        if tup["total"] % 3 == 0 and tup.attempt == 1:
            raise ValueError("not at first")
        collector.emit([tup["total"], tup["size"]])


class Nowhere(Committer):
    def commit(self, txid, rows):
        pass


def _sums(windows: WindowedBolt | None = None) -> Topology:
    builder = TopologyBuilder("sums", Config(transactional=True, max_attempts=3))
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(1, 60)), outputs=["n"]))
    builder.set_bolt("before", Before(), parallelism=2).fields_grouping("numbers", ["n"])
    builder.set_bolt("sum", windows or Sum().with_tumbling_window(Count(5))).global_grouping("before")
    builder.set_bolt("behind", Behind()).shuffle_grouping("sum")
    builder.set_bolt("out", Nowhere(), parallelism=2).shuffle_grouping("behind")
    return builder.build()


def test_each_number_is_in_one_window_and_each_window_is_delivered_once():
    with TopologyTestDriver(_sums()) as driver:
        numbers = [n for n in range(1, 60) if n % 50 and n % 7]
        for n in range(1, 60):
            driver.feed("numbers", [n], message_id=n)
        driver.run_until_idle()
        rows = driver.committed("out")
        assert {row["size"] for row in rows} == {5}
        assert len(rows) == len(numbers) // 5
        assert sum(row["total"] for row in rows) == sum(numbers[: 5 * len(rows)])
        assert len(driver.acked("numbers")) == len(numbers)


@pytest.mark.parametrize("seed", range(0, 8 * SEEDS, 8))
def test_windows_are_exact_whatever_dies(seed: int):
    report = simulate(_sums(), seed=seed, repeat=False)
    assert report.ok, report.story


def test_windows_that_hold_tuples_are_refused():
    with pytest.raises(InvalidTopology, match="leave ack_on_expiry out"):
        _sums(Sum().with_tumbling_window(Count(5)).with_ack_on_expiry())
