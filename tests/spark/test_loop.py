"""Spark's loop, for real: beginnings without data, a micro-batch that fails, a commit that comes late.

The calls of Spark are recorded, and the loop of the simulator (``sparkbolt.sim.spark_loop``) must make the same calls.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.api.topology import Topology
from sparkbolt.faces.cli import main
from sparkbolt.sim.spark_loop import MicroBatchLoop, SimulatedLog
from sparkbolt.spark import lane_query
from sparkbolt.spark.life import Life
from sparkbolt.spark.running_on_spark import RunningOnSpark
from sparkbolt.spouts import TextSpout
from tests.patience import PATIENCE_SECS
from tests.spark import loop_calls
from tests.spark.loop_calls import Notes, recording

pytestmark = [pytest.mark.spark]


class CountLines(BasicBolt):
    outputs = ["count"]

    def prepare(self, context: Any) -> None:
        self.counts: Counter[str] = Counter()

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts[tup["line"]] += 1
        collector.emit([sum(self.counts.values())])


def topology(path: Path) -> Topology:
    builder = TopologyBuilder("following", Config(restart_backoff_secs=0.1))
    builder.set_spout("lines", TextSpout(str(path), follow=True))
    builder.set_bolt("count", CountLines()).fields_grouping("lines", ["line"])
    return builder.build()


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def until(running: RunningOnSpark, condition: Callable[[], bool]) -> None:
    assert running._await(condition, PATIENCE_SECS), running.metrics()


def _errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "sparkbolt"]


class EndedError(Exception):
    """The record of a query has come to its end."""


class Replayed:
    """A source that is asked what Spark has asked, and answers what was answered then."""

    def __init__(self, calls: list[list[Any]], log: SimulatedLog) -> None:
        self.left = list(calls)
        self.log = log

    def _take(self, *asked: Any) -> list[Any]:
        if not self.left:
            raise EndedError
        call = self.left.pop(0)
        assert call[: len(asked)] == [*asked], f"Spark has called {call}, the loop calls {asked}"
        return call

    def _raises(self) -> bool:
        return bool(self.left) and self.left[0][0] == "raised"

    def initial_offset(self) -> Mapping[str, Any]:
        self._take("initialOffset")
        return {"n": "before"}

    def latest_offset(self, start: Mapping[str, Any]) -> Mapping[str, Any]:
        _, _, end, last_commit = self._take("latestOffset", start["n"])
        assert last_commit == self.log.last_commit
        if end == "raised":
            raise EndedError
        return {"n": end}

    def spark_partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> None:
        self._take("partitions", start["n"], end["n"])

    def commit(self, end: Mapping[str, Any]) -> None:
        self._take("commit", end["n"])

    def run_micro_batch(self, micro_batch_id: int, parts: None) -> None:
        self._take("run", micro_batch_id)
        if self._raises():
            self._take("raised", micro_batch_id)
            raise EndedError

    def at(self, step: str, micro_batch_id: int) -> None:
        """Nothing of Spark's is seen there."""


def _trigger_for_ever(loop: MicroBatchLoop[None]) -> None:
    while True:
        loop.trigger()


def replay(record: list[dict[str, Any]]) -> None:
    """Compare the loop with what Spark has asked, query by query, each from the logs that it found."""
    for query in record:
        log = SimulatedLog({number: json.dumps({"n": end}) for number, end in query["offsets"]}, set(query["commits"]))
        source = Replayed(query["calls"], log)
        loop = MicroBatchLoop(log, source)
        with pytest.raises(EndedError):
            _trigger_for_ever(loop)
        assert not source.left, f"Spark has called {source.left[0]}, the loop is at its end"


def acked(running: RunningOnSpark) -> int:
    return running.metrics().of("lines").acked


def test_idle_starts_failures_and_late_commits_lose_nothing_and_spark_calls_match_the_simulator(
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.ERROR, logger="sparkbolt")
    source, checkpoint = tmp_path / "lines.log", tmp_path / "checkpoint"
    notes = Notes(str(tmp_path / "calls"), str(checkpoint))
    monkeypatch.setattr(lane_query, "data_source", recording(lane_query.data_source, notes))
    cloudpickle.register_pickle_by_value(loop_calls)
    begin, late = Life.start, []

    def start(self: Life) -> None:
        for path, content in late:  # the driver before comes to its commit after this one has loaded the ledger
            path.write_bytes(content)
        late.clear()
        notes.begin()
        begin(self)

    monkeypatch.setattr(Life, "start", start)
    end, fails = Life._end_of_lane, []

    def end_of_lane(self: Life, frame: Any, number: int) -> None:
        notes.add("run", number)
        end(self, frame, number)
        if fails:
            notes.add("raised", fails.pop())
            raise OSError("the commit cannot be written")

    monkeypatch.setattr(Life, "_end_of_lane", end_of_lane)
    try:
        # No data: one micro-batch that reads nothing, and then rest.
        running = topology(source).start(checkpoint=str(checkpoint), spark=spark)
        until(running, lambda: notes.has("latestOffset", 0, 0, 0))
        running.close()

        running = topology(source).start(checkpoint=str(checkpoint), spark=spark)
        write(tmp_path / "first", "a", "b")
        (tmp_path / "first").rename(source)
        until(running, lambda: acked(running) == 2)
        # A micro-batch whose commit fails: another query in the same driver runs it again.
        fails.append(2)
        write(source, "c")
        until(running, lambda: acked(running) == 3)
        assert running.await_idle(PATIENCE_SECS)
        running.close()
        [failed] = _errors(caplog)
        assert "the commit cannot be written" in failed
        caplog.clear()

        # A commit that comes late: Spark begins behind it, the ledger before it.
        last = checkpoint / "spark" / "commits" / "2"
        for path in (last, last.with_name(".2.crc")):
            if path.exists():
                late.append((path, path.read_bytes()))
                path.unlink()
        write(source, "d")
        running = topology(source).start(checkpoint=str(checkpoint), spark=spark)
        until(running, lambda: acked(running) == 4)
        assert running.metrics().of("count").executed == 4
        running.close()
        assert main(["checkpoint", "verify", str(checkpoint)]) == 0
        [failed] = _errors(caplog)
        assert "Spark has committed micro-batch 2, but the ledger of life" in failed
    finally:
        cloudpickle.unregister_pickle_by_value(loop_calls)
    record = notes.record()
    replay(record)
    calls = [call for query in record for call in query["calls"]]
    assert ["latestOffset", 0, 0, 0] in calls, "an idle query"
    assert any(call[0] == "raised" for call in calls), "a micro-batch that was not committed"
    assert any(call[0] == "latestOffset" and call[2] == "raised" for call in calls), "a commit that came late"
    assert record[1]["offsets"] == [[0, 0]], "micro-batch 0 has read nothing"

    # A power cut that took the ledger's last entry, which nothing has replaced yet: the micro-batch runs again.
    (checkpoint / "ledger" / "3.entry").unlink()
    monkeypatch.undo()
    capsys.readouterr()
    assert main(["checkpoint", "verify", str(checkpoint)]) == 1
    assert "micro-batch 3 is committed, but ledger/3.entry is missing" in capsys.readouterr().out
    assert main(["checkpoint", "repair", str(checkpoint)]) == 0
    running = topology(source).start(checkpoint=str(checkpoint), spark=spark)
    until(running, lambda: acked(running) == 4)
    assert running.metrics().of("count").executed == 4
    write(source, "e")
    until(running, lambda: acked(running) == 5)
    running.close()
    assert main(["checkpoint", "verify", str(checkpoint)]) == 0
