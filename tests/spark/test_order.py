"""On Spark, what leaves a micro-batch leaves it after its entry and its commit; a step out of order is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Committer, Config, TopologyBuilder
from sparkbolt.spouts import GeneratorSpout
from tests.patience import PATIENCE_SECS
from tests.sim.misordered import Patch, a_promotion_before_the_entry, commits_before_the_entry

pytestmark = [pytest.mark.spark]

EARLY: list[str] = []
"""What came before the entry, or the commit, of its micro-batch."""


def look(checkpoint: str, micro_batch_id: int, what: str) -> None:
    for name in (f"ledger/{micro_batch_id}.entry", f"spark/commits/{micro_batch_id}"):
        if not Path(checkpoint, name).exists():
            EARLY.append(f"{what} before {name}")


class Pass(BasicBolt):
    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"]])


class Out(Committer):
    def __init__(self, checkpoint: str) -> None:
        self.checkpoint = checkpoint

    def commit(self, txid: int, rows: list[Any]) -> None:
        look(self.checkpoint, txid - 1, "rows")


def run(spark: Any, checkpoint: str) -> list[str]:
    """Run a topology to its end; returns what came too early."""
    EARLY.clear()
    builder = TopologyBuilder("order", Config(transactional=True))
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(20)), outputs=["n"]))
    builder.set_bolt("pass", Pass()).shuffle_grouping("numbers")
    builder.set_bolt("out", Out(checkpoint)).shuffle_grouping("pass")
    running = builder.build().start(checkpoint=checkpoint, spark=spark)
    try:
        running.on_micro_batch(lambda report: look(checkpoint, report.promotion.micro_batch_id, "a promotion"))
        assert running.await_finished(PATIENCE_SECS)
    finally:
        running.close()
    return list(EARLY)


@pytest.mark.parametrize("plant", [None, a_promotion_before_the_entry, commits_before_the_entry])
def test_no_output_leaves_a_micro_batch_before_its_entry_and_commit(
    plant: Callable[[Patch], None] | None, spark: Any, tmp_path: Path, monkeypatch: Patch
) -> None:
    if plant is not None:
        plant(monkeypatch)
    assert bool(run(spark, str(tmp_path / "checkpoint"))) == (plant is not None)
