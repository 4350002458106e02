"""What a windowed bolt sees of a window, and keeps beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pytest

from sparkbolt import Config, Count, TopologyBuilder, WindowedBolt
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.windows import (
    CountTriggerPolicy,
    EvictionPolicy,
    TimeEvictionPolicy,
    TriggerPolicy,
    TupleWindow,
    WindowCollector,
)
from tests.unit.windows.windowed import Run, Source, secs, topology


class Sums(WindowedBolt):
    """A running sum beside the one that looks at everything."""

    outputs = ["running", "sum", "column"]

    def prepare(self, context: Any) -> None:
        self.totals: Counter[str] = Counter()

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        new = window.get_new()
        self.totals[window.key] -= sum(tup["at"] for tup in window.get_expired())
        self.totals[window.key] += sum(tup["at"] for tup in new)
        whole = sum(tup["at"] for tup in window)
        collector.emit([self.totals[window.key], whole, pc.sum(window.column("at")).as_py()])


def every_third() -> tuple[EvictionPolicy, TriggerPolicy]:
    return TimeEvictionPolicy(3000), CountTriggerPolicy(3)


@pytest.mark.parametrize(
    "shape",
    [
        lambda windowed: windowed.with_window(Count(4), slide=Count(3)),
        lambda windowed: windowed.with_window(secs(6), slide=secs(4)),
        lambda windowed: windowed.with_window(secs(3), slide=Count(1)),
        lambda windowed: windowed.with_tumbling_window(secs(2)),
        lambda windowed: windowed.with_window(Count(2), slide=secs(4)),
        lambda windowed: windowed.with_window(secs(3), slide=secs(4)),
        lambda windowed: windowed.with_window(Count(1), slide=Count(3)),
        lambda windowed: windowed.with_window(secs(1), slide=Count(3)),
        lambda windowed: windowed.with_session_gap(secs(2)),
        lambda windowed: windowed.with_policies(*every_third()),
    ],
)
@pytest.mark.parametrize(
    "how",
    [
        "on arrival",
        "event time",
        "acked on expiry",
        "by key",
        "event time, acked on expiry",
        "event time, by key",
        "by key, acked on expiry",
        "event time, by key, acked on expiry",
    ],
)
def test_new_and_expired_tuples_keep_a_running_sum_even_over_empty_windows(
    shape: Callable[[WindowedBolt], WindowedBolt], how: str
) -> None:
    windowed = shape(Sums())
    if "event time" in how:
        windowed.with_timestamp_extractor(lambda tup: int(tup["name"]))
    if "acked on expiry" in how:
        windowed.with_ack_on_expiry()
    if "by key" in how:
        windowed.with_key("user")
    builder = TopologyBuilder("sums", Config(message_timeout_secs=60))
    builder.set_spout("source", Source())
    builder.set_bolt("sums", windowed).global_grouping("source")
    with TopologyTestDriver(builder.build()) as driver:
        run, now = Run(driver), 0
        for i, pause in enumerate([0, 1, 1, 0, 20, 1, 3, 0, 0, 9, 1]):
            driver.advance(secs(pause))
            now += pause * 1000
            run.feed(str(now), at=10**i, user="ab"[i % 5 == 1])
            if i == 6:
                driver.run_until_idle()
                driver.restart()
        run.feed(str(now + 40_000), at=10**11)
        driver.advance(secs(20))
        by_key_in_trees = "by key, acked on expiry" in how  # the restart drops open trees, and two keys share the rest
        assert len(driver.emitted("sums")) >= (2 if by_key_in_trees else 3)
        for running, whole, column in driver.emitted("sums"):
            assert running == whole == column


def test_a_window_is_a_sequence_of_tuples() -> None:
    seen: list[Any] = []

    class Look(WindowedBolt):
        def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
            collector.report_error(f"{len(window)} {window[0]['name']} {window[-1]['name']} {len(window[1:])}")
            collector.report_error(repr(window.get().timestamps().to_pylist() == [window.end_ms] * 3))
            try:
                window[3]
            except IndexError as error:
                collector.report_error(error)
            try:
                window.column("nmae")
            except KeyError as error:
                collector.report_error(error)

    with TopologyTestDriver(topology(Look().with_tumbling_window(Count(3)))) as driver:
        run = Run(driver)
        for name in "abc":
            run.feed(name)
        driver.run_until_idle()
        seen = [error.text for error in driver.errors()]
    assert seen[:2] == ["3 a c 2", "True"]
    assert seen[2] == "IndexError: a window of 3 tuples has none at 3"
    assert "'nmae' does not exist in stream 'default' of 'source'" in seen[3]
