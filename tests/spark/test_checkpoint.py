"""The lock of a checkpoint, held by a JVM, and what a start finds in one that was broken off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.errors import CheckpointError
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.checkpoint_lock import is_locked
from tests.patience import PATIENCE_SECS
from tests.topologies import Numbers

pytestmark = pytest.mark.spark


class CountNumbers(BasicBolt):
    """Keeps a number, so that Spark keeps state."""

    def prepare(self, context: Any) -> None:
        self.count = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.count += 1


def test_a_lock_held_by_a_jvm_is_visible_from_outside(spark: Any, tmp_path: Path) -> None:
    assert not is_locked(str(tmp_path))
    held = Checkpoint(spark, str(tmp_path))
    assert is_locked(str(tmp_path))
    assert is_locked(str(tmp_path)), "to look takes no lock away"
    held.close()
    assert not is_locked(str(tmp_path))


def test_a_lock_that_cannot_be_opened_is_one_sentence(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()  # as if it belonged to another user, which the superuser would not notice
    with pytest.raises(CheckpointError, match=r"cannot be locked \(.*lock.*\): run as the user to whom it belongs"):
        Checkpoint(spark, str(tmp_path))


def test_a_file_that_spark_had_not_finished_when_its_machine_went_off_keeps_no_topology_from_starting(
    spark: Any, tmp_path: Path
) -> None:
    left = tmp_path / "spark" / "offsets" / ".0.850568b9-2903-484e-ba0f-f5ecad04edbe.tmp"
    left.parent.mkdir(parents=True)
    left.touch()
    builder = TopologyBuilder("begins")
    builder.set_spout("numbers", Numbers(200))
    builder.set_bolt("count", CountNumbers()).global_grouping("numbers")
    with builder.build().start(spark=spark, checkpoint=str(tmp_path)) as running:
        assert running.await_finished(PATIENCE_SECS)
