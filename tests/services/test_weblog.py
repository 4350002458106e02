"""The web-log example writes to PostgreSQL what a model computes from its log."""

from __future__ import annotations

import random
import runpy
import threading
import time
from collections import Counter, defaultdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from tests.patience import PATIENCE_SECS, TEST_SECS

FOLDER = Path(__file__).parents[2] / "examples" / "weblog"
MINUTE_MS = 60_000
GAP_MS, SESSIONS_LAG_MS, ALERTS_LAG_MS = 30 * MINUTE_MS, 15 * MINUTE_MS, 2 * MINUTE_MS


def hits_of(path: Path) -> list[tuple[str, int, str, int]]:
    """(user, time, path, status) of the lines that are not broken."""
    hits = []
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) > 20 and words[9].isdecimal():
            at = datetime.strptime(f"{words[3]} {words[4]}", "[%d/%b/%Y:%H:%M:%S %z]")
            hits.append((words[2], int(at.timestamp() * 1000), words[6].partition("?")[0], int(words[8])))
    return hits


def sessions_of(hits: list[tuple[str, int, str, int]]) -> set[tuple[str, int, int]]:
    """(user, begin, hits) of the sessions that have ended when the log ends."""
    watermark = max(at for _, at, _, _ in hits) - SESSIONS_LAG_MS
    times = defaultdict(list)
    for user, at, _, _ in hits:
        times[user].append(at)
    found = set()
    for user, every in times.items():
        every.sort()
        ends = [place for place, (one, other) in enumerate(pairwise(every), 1) if other - one >= GAP_MS]
        for begin, end in pairwise([0, *ends, len(every)]):
            if every[end - 1] + GAP_MS <= watermark:
                found.add((user, every[begin], end - begin))
    return found


def alerts_of(hits: list[tuple[str, int, str, int]], sections: dict[str, str], least: int) -> set[tuple[str, int, int]]:
    """(section, minute, failures) of the minutes with an alert that are over when the log ends.

    A hit on a boundary belongs to the minute that ends there.
    """
    watermark = max(at for _, at, _, _ in hits) - ALERTS_LAG_MS
    failed = Counter(
        (sections.get(path, "other"), (at - 1) // MINUTE_MS * MINUTE_MS)
        for _, at, path, status in hits
        if status >= 500
    )
    return {(*key, count) for key, count in failed.items() if count >= least and key[1] + MINUTE_MS <= watermark}


@pytest.mark.service
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(TEST_SECS)
@pytest.mark.usefixtures("spark")
def test_the_web_log_writes_the_sessions_and_alerts_of_a_model_to_postgresql(postgresql: str, tmp_path: Path) -> None:
    log, weblog = (runpy.run_path(str(FOLDER / name)) for name in ("make_log.py", "weblog.py"))
    log["make_pages"](tmp_path / "pages.db")
    log["write"](tmp_path / "access.log", log["START"], 3 * 3600, random.Random(1))
    hits = hits_of(tmp_path / "access.log")
    sections = {path: section for path, (section, _) in log["PAGES"].items()}
    expected = sessions_of(hits), alerts_of(hits, sections, weblog["FAILED_MIN"])
    assert all(expected)
    engine = sqlalchemy.create_engine(postgresql)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE SCHEMA weblog"))

    def results() -> tuple[set[Any], ...]:
        asked = ('SELECT "user", began, hits FROM weblog.sessions', "SELECT section, minute, failed FROM weblog.alerts")
        with engine.connect() as connection:
            return tuple({tuple(row) for row in connection.execute(sqlalchemy.text(one))} for one in asked)

    url = f"{postgresql}?options=-csearch_path%3Dweblog"
    topology = weblog["build"](tmp_path / "access.log", f"sqlite:///{tmp_path}/pages.db", url)
    with topology.start(checkpoint=tmp_path / "state") as running:
        running.await_idle(timeout_secs=PATIENCE_SECS)
        limit, pause = time.monotonic() + PATIENCE_SECS, threading.Event()
        while results() != expected and time.monotonic() < limit:  # a watermark moves once a second
            pause.wait(0.2)
        assert results() == expected
    engine.dispose()
