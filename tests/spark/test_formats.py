"""The checkpoint of this format is continued; those of other formats that were released are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbolt.driver.ledger.ledger_files import FORMAT
from sparkbolt.errors import CheckpointError
from tests.archives import unpack
from tests.checkpoints.topology import ALL, LATE, made
from tests.contract.parts import notes
from tests.patience import PATIENCE_SECS

KEPT = Path(__file__).parents[1] / "checkpoints"

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize("number", sorted(int(path.name[7:-7]) for path in KEPT.glob("format-*.tar.gz")))
def test_a_checkpoint_is_continued_without_loss_if_it_has_this_format(number: int, spark: Any, tmp_path: Path) -> None:
    unpack(KEPT / f"format-{number}.tar.gz", tmp_path)
    if number != FORMAT:
        with pytest.raises(CheckpointError, match=f"has format {number}, and this version of Sparkbolt reads"):
            made(str(tmp_path), ALL).start(spark=spark, checkpoint=str(tmp_path / "checkpoint"))
        return
    running = made(str(tmp_path), ALL).start(spark=spark, checkpoint=str(tmp_path / "checkpoint"))
    try:
        assert running.await_finished(PATIENCE_SECS), running.progress().sentence
        metrics = running.metrics()
    finally:
        running.stop(drain=False)
    spout = metrics.of("numbers")
    assert (spout.acked, spout.pending, spout.waiting, spout.given_up) == (ALL - 1, 0, 0, 1)
    of = {name: notes(str(tmp_path), name) for name in metrics.components}
    assert of["holds"] == [[[0, 1, 2, 3]]]
    assert of["counts"][-1] == [ALL - 1], "all but the rejected one; the late one at its third attempt"
    twice = 2  # attempts at the late one that failed in another bolt
    assert dict(of["remembers"]) == {rest: ALL // 4 + (twice if rest == LATE % 4 else 0) for rest in range(4)}
    assert [total for _, total in of["by_count"]][:2] == [sum(range(8)), sum(range(16))]
    for end, (_, total) in zip(range(0, ALL, 8), of["by_time"], strict=True):
        once = sum(number for number in range(end - 19, end + 1) if number > 0)
        assert total - once in (0, LATE, 2 * LATE), "each number, and the late one perhaps with other attempts"
    assert sorted(of["takes"]) == [[tenth] for tenth in range(0, ALL, 10)]
