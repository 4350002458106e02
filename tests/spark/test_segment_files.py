"""Python workers of this machine find each other's newest segments in the driver's folder, and do without it."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, KeyValueState, TopologyBuilder
from sparkbolt.spark.jvm import jvm_output
from sparkbolt.spark.segment_files import KEPT_FILES_MAX
from sparkbolt.spouts import TextSpout
from tests.patience import PATIENCE_SECS

pytestmark = [pytest.mark.spark]
WORDS, TURNS = 4000, 6


class CountInState(BasicBolt):
    outputs = ["word", "count"]

    def init_state(self, state: KeyValueState) -> None:
        self.counts = state

    def execute(self, tup: Any, collector: Any) -> None:
        count = self.counts.get(tup["line"], 0) + 1
        self.counts.put(tup["line"], count)
        if count == TURNS:
            collector.emit([tup["line"], count])


class Whole(BasicBolt):
    """Every word here has come as often as it should."""

    outputs: list[str] = []

    def execute(self, tup: Any, collector: Any) -> None:
        assert tup["count"] == TURNS


def test_counts_are_right_with_the_folder_and_without_it(spark: Any, tmp_path: Path) -> None:
    """The folder is there for half of the turns; it is removed then."""
    half = "".join(f"word {number}\n" for _ in range(TURNS // 2) for number in range(WORDS))
    (tmp_path / "first.txt").write_text(half)
    spout = TextSpout(str(tmp_path / "*.txt"), follow=True)
    spout.first_budget = len(half) // 5
    builder = TopologyBuilder("segments")
    builder.set_spout("lines", spout, parallelism=2)
    builder.set_bolt("count", CountInState(), parallelism=2).fields_grouping("lines", ["line"])
    builder.set_bolt("whole", Whole()).shuffle_grouping("count")
    folder = Path(jvm_output().environment()["spark.executorEnv.SPARKBOLT_SEGMENTS"])
    others = set(folder.glob("*"))
    all_counted = threading.Event()
    running = builder.build().start(spark=spark, checkpoint=tmp_path / "state")
    (own,) = set(folder.glob("*")) - others

    def look(report: Any) -> None:
        if report.metrics.of("count").executed == WORDS * TURNS:
            all_counted.set()

    try:
        running.on_micro_batch(look)
        assert running.await_idle(PATIENCE_SECS)
        tasks = [list(task.glob("*")) for task in own.glob("*")]
        shutil.rmtree(own)
        (tmp_path / "second.txt").write_text(half)
        assert all_counted.wait(PATIENCE_SECS)
        metrics, left = running.metrics(), list(own.glob("*/*"))
    finally:
        running.close()
    assert not own.exists(), "what users count is on the disk no longer than it is of use"
    assert metrics.of("count").executed == WORDS * TURNS
    assert metrics.of("whole").executed == WORDS
    assert not [name for name, counts in metrics.components.items() if counts.failed]
    assert [path for files in tasks for path in files if path.name.startswith("kv_d@")]
    assert all(len(files) <= KEPT_FILES_MAX for files in tasks)
    assert not left
