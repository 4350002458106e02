"""The history of a topology: bounded, summed by windows, and the same after it was written and read."""

from __future__ import annotations

import json
import zlib

import pytest

from sparkbolt.base.codec import encode
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.observe import history as history_module
from sparkbolt.observe.histogram import Histogram
from sparkbolt.observe.history import RINGS, Bucket, History, MicroBatchRecord
from sparkbolt.observe.measurements import Flow, FlowCounts

HOUR = 3_600_000
NOW = 500_000 * HOUR


def done(acked: int, latency_ms: float = 10.0) -> Bucket:
    made = Bucket(secs=1.0, micro_batches=1, micro_batch_ms=800.0, components={"lines": {"acked": acked}})
    made.flows[Flow("split", 0, "lines", "default")] = FlowCounts(executed=acked)
    made.complete["lines"] = Histogram()
    made.complete["lines"].add(latency_ms, acked)
    made.parts_ms["read"] = 100.0
    made.gauges["open_trees"] = acked
    made.lag["lines"] = {"a.txt": 100 - acked}
    made.slowest = latency_ms, "00", NOW
    return made


def written(history: History, now_ms: int) -> MemoryFiles:
    files = MemoryFiles()
    for name, data in history.changed_files(now_ms, all_rings=True).items():
        files.write(name, data)
    return files


def test_a_window_sums_its_buckets_and_keeps_the_last_gauges() -> None:
    history = History()
    for second in range(30):
        history.add(done(1, latency_ms=second + 1), NOW + second * 1000)
    found = history.window(10, NOW + 29_500)
    assert found.components == {"lines": {"acked": 20}}  # whole buckets of ten seconds
    assert found.complete["lines"].max_ms == 30
    assert found.slowest is not None
    assert found.slowest[0] == 30
    assert found.gauges == {"open_trees": 1}
    assert history.all_time().components == {"lines": {"acked": 30}}


def test_no_ring_keeps_more_than_its_buckets() -> None:
    history = History()
    for step in range(2 * RINGS[0].buckets):
        history.add(done(1), NOW + step * 10_000)
    _, buckets = history.buckets(NOW, NOW + HOUR * 2, NOW)
    assert len(buckets) == RINGS[0].buckets
    assert history.all_time().components == {"lines": {"acked": 2 * RINGS[0].buckets}}


def test_value_is_the_same_after_it_is_written_and_read() -> None:
    history = History()
    for step in range(100):
        history.add(done(step), NOW + step * 10_000)
    history.promoted(MicroBatchRecord(7, NOW, 800.0, [("read", 0.0, 100.0)], {"read": 150.0}))
    history.spark_took(7, {"addBatch": 700.0})
    end = NOW + 99 * 10_000
    again = History.load(written(history, end))
    assert again.damaged == []
    assert encode(again.window(600, end)) == encode(history.window(600, end))
    assert encode(again.all_time()) == encode(history.all_time())
    record = again.micro_batches[0]
    assert (record.micro_batch_id, record.spark_ms) == (7, {"addBatch": 700.0})
    assert [list(part) for part in record.parts] == [["read", 0.0, 100.0]]


def test_a_damaged_file_loses_only_its_own_content() -> None:
    history = History()
    history.add(done(5), NOW)
    files = written(history, NOW)
    name = next(name for name in files.names("history") if name.startswith("10-"))
    files.write(f"history/{name}", b"half a fi")
    files.write("history/micro-batches", zlib.compress(json.dumps({"not": "a list"}).encode()))
    files.write("history/notes of somebody", zlib.compress(b"[]"))
    again = History.load(files)
    assert f"history/{name}" in again.damaged
    assert again.all_time().components == {"lines": {"acked": 5}}


def test_old_files_and_the_oldest_beyond_the_limit_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History()
    for step in range(3 * RINGS[0].buckets):
        history.add(done(1), NOW + step * 10_000)
        history.changed_files(NOW + step * 10_000)
    end = NOW + 3 * HOUR
    old = history.old_files(end)
    assert old
    assert all(name.startswith("history/10-") for name in old)
    assert history.old_files(end) == []
    monkeypatch.setattr(history_module, "BYTES_MAX", 1)
    assert {name.split("/")[1].split("-")[0] for name in history.old_files(end)} == {"10", "300", "3600"}


def test_a_clock_that_was_set_back_loses_nothing() -> None:
    history = History()
    history.add(done(1), NOW)
    history.add(done(2), NOW - HOUR)
    assert history.window(600, NOW).components == {"lines": {"acked": 3}}
