"""The crawler of ``examples/crawler.py`` on Spark: a loop that comes to each page of a generated web once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from examples.crawler import build
from sparkbolt.driver.ledger.ledger_files import LOOPED_FOLDER
from tests.patience import PATIENCE_SECS

pytestmark = [pytest.mark.spark]


@pytest.mark.parametrize("pages", [2_000, pytest.param(100_000, marks=pytest.mark.campaign)])
def test_crawler_fetches_each_page_once_and_its_seed_is_acked_at_the_end(
    spark: Any, tmp_path: Path, pages: int
) -> None:
    running = build(pages).start(spark=spark, checkpoint=str(tmp_path / "c"))
    open_trees = []
    running.on_micro_batch(lambda _: open_trees.append(running.metrics().open_trees))
    try:
        assert running.await_finished(3 * PATIENCE_SECS)
        metrics = running.metrics()
        assert metrics.of("fetch").executed == metrics.of("frontier").emitted == pages
        assert (metrics.of("seeds").acked, metrics.of("seeds").failed, metrics.open_trees) == (1, 0, 0)
        assert open_trees[:8] == [1] * 8
        assert any((tmp_path / "c" / LOOPED_FOLDER).iterdir())
    finally:
        running.stop()


@pytest.mark.campaign
def test_crawler_that_goes_on_with_other_tasks_fetches_each_page_once(spark: Any, tmp_path: Path) -> None:
    checkpoint, pages = str(tmp_path / "c"), 20_000
    running = build(pages).start(spark=spark, checkpoint=checkpoint)
    some = threading.Event()
    running.on_micro_batch(lambda report: some.set() if report.promotion.micro_batch_id >= 8 else None)
    assert some.wait(PATIENCE_SECS)
    running.stop(drain=False)
    running = build(pages, tasks=3).start(spark=spark, checkpoint=checkpoint, apply=True)
    try:
        assert running.await_finished(PATIENCE_SECS)
        metrics = running.metrics()
        assert metrics.of("fetch").executed == metrics.of("frontier").emitted == pages
        assert (metrics.of("seeds").acked, metrics.of("seeds").failed) == (1, 0)
    finally:
        running.stop()
