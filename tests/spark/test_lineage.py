"""A topology that is started often, and each time ends soon, does not come to a state that cannot be written."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.spark import state_lineage
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.session import for_lane
from tests.patience import PATIENCE_SECS
from tests.spark.test_supervisor import COUNT, assert_exact, build

pytestmark = [pytest.mark.spark, pytest.mark.campaign]


def versions_below(spark: Any, checkpoint: Path) -> tuple[int, int]:
    """(the last micro-batch that is committed, how many versions its state stands on)."""
    held = Checkpoint(spark, str(checkpoint))
    try:
        return held.last_commit(), state_lineage.longest(spark, held)
    finally:
        held.close()


def test_a_state_spread_over_many_versions_is_written_as_a_snapshot_and_the_topology_continues(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_lineage, "LINEAGE_MAX", 3)
    checkpoint = tmp_path / "c"
    running = build(tmp_path).start(spark=spark, checkpoint=str(checkpoint))
    some = threading.Event()
    running.on_micro_batch(lambda report: some.set() if report.promotion.micro_batch_id >= 4 else None)
    assert some.wait(PATIENCE_SECS)
    running.stop(drain=False)
    last, before = versions_below(spark, checkpoint)
    assert before == last + 1, "nothing has made a snapshot yet but the first version"

    runs = []
    with caplog.at_level(logging.INFO, "sparkbolt"):
        running = build(tmp_path).start(spark=spark, checkpoint=str(checkpoint))
        try:
            running.on_micro_batch(lambda report: runs.append(running.run_id))
            assert running.await_finished(PATIENCE_SECS)
            assert running.metrics().of("numbers").acked == COUNT
        finally:
            assert running.stop()
    assert_exact(tmp_path)
    assert [f"stands on {before} versions" in record.getMessage() for record in caplog.records].count(True) == 1
    assert len(set(runs)) == 2, "one life for the snapshot, one for the rest"
    assert runs[0] != runs[-1]
    assert for_lane(spark, 2).conf.get(state_lineage.CHANGELOG) == "true", "what is chosen for one life stays with it"
    ended, after = versions_below(spark, checkpoint)
    assert after <= ended - last, "counted from the snapshot"
