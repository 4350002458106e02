"""Driver or executors judge the trees of a micro-batch, in one action of Spark, and the verdicts are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, KeyValueState, TopologyBuilder
from sparkbolt.spark import life
from sparkbolt.spark.running_on_spark import RunningOnSpark
from sparkbolt.spouts import TextSpout
from tests.patience import PATIENCE_SECS

pytestmark = [pytest.mark.spark]
LINES, BAD = 3_000, 97


class Words(BasicBolt):
    outputs = ["word"]

    def execute(self, tup: Any, collector: Any) -> None:
        for word in tup["line"].split():
            collector.emit([word])


class Fussy(BasicBolt):
    """Counts words; refuses a number that is divisible by ``BAD``."""

    outputs: list[str] = []

    def init_state(self, state: KeyValueState) -> None:
        self.counts = state

    def execute(self, tup: Any, collector: Any) -> None:
        word = tup["word"]
        if word.isdigit() and int(word) % BAD == 0:
            raise ValueError(f"{word} is bad")
        self.counts.put(word, self.counts.get(word, 0) + 1)


def stages_of_each_job(running: RunningOnSpark) -> list[int]:
    tracker = running._spark.sparkContext.statusTracker()
    query = running._supervisor.life.query
    assert query is not None
    jobs = sorted(tracker.getJobIdsForGroup(str(query.runId)))
    return [len(job.stageIds) for number in jobs if (job := tracker.getJobInfo(number)) is not None]


class Threshold(int):
    """Lets executors judge the second and third micro-batch, and the driver the others."""

    compared = 0

    def __le__(self, pairs: int) -> bool:
        self.compared += 1
        return pairs > 0 and self.compared <= 3


def test_verdicts_are_the_same_from_driver_and_executors(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "EXECUTOR_ACKER_PAIRS_MIN", Threshold())
    path = tmp_path / "lines"
    path.write_text("".join(f"{number} of many lines\n" for number in range(1, LINES + 1)))
    builder = TopologyBuilder("ackers", Config(max_attempts=2, micro_batch_bytes_max=16 * 1024))
    builder.set_spout("lines", TextSpout(path), parallelism=2)
    builder.set_bolt("words", Words()).shuffle_grouping("lines")
    builder.set_bolt("fussy", Fussy(), parallelism=3).fields_grouping("words", ["word"])
    running = builder.build().start(spark=spark, checkpoint=tmp_path / "state")
    assert isinstance(running, RunningOnSpark)

    try:
        assert running.await_finished(PATIENCE_SECS)
        metrics, jobs = running.metrics(), stages_of_each_job(running)
    finally:
        running.close()
    bad = LINES // BAD
    assert metrics.of("lines").acked == LINES - bad
    assert (metrics.of("fussy").failed, metrics.open_trees) == (2 * bad, 0)
    assert len(jobs) == metrics.micro_batches, "one action a micro-batch"
    assert jobs == [2, 3, 3, *[2] * (len(jobs) - 3)]
    assert len(jobs) > 3
