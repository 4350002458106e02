"""The programs with streams as functions run unchanged: under the test driver, in the simulator and on Spark."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.sim.subprocess_runner import close_processes
from sparkbolt.testing import TopologyTestDriver, simulate
from tests.api.stream_windows import builder as windows
from tests.api.stream_word_count import topology as word_count

LINES = ["to be or not to be", "that is the question"]
MINUTE = 60_000


def feed(driver: TopologyTestDriver, spout: str, *rows: dict[str, Any]) -> None:
    """Feed rows, each with its number as its message id."""
    for number, row in enumerate(rows):
        driver.feed(spout, row, message_id=f"{spout}-{number}-{row['at']}")
    driver.run_until_idle()


def test_the_word_count_under_the_test_driver() -> None:
    with TopologyTestDriver(word_count) as driver:
        driver.feed("lines", {"line": LINES[0]}, message_id=1)
        driver.run_until_idle()
        assert driver.emitted("count")[-1] == {"word": "be", "count": 2}
        assert driver.acked("lines") == [1]
        driver.advance(timedelta(minutes=1))
        busy = {row[0]: (row[2] - row[1], row[3]) for row in driver.emitted("busy")}
        assert busy == {"to": (MINUTE, 2), "be": (MINUTE, 2), "or": (MINUTE, 1), "not": (MINUTE, 1)}


def test_windows_and_joins_under_the_test_driver() -> None:
    with TopologyTestDriver(windows) as driver:
        feed(driver, "clicks", {"user": "ann", "at": 0, "path": "/"}, {"user": "ann", "at": MINUTE, "path": "/a"})
        feed(driver, "purchases", {"user": "ann", "at": 5 * MINUTE, "amount": 7})
        feed(driver, "clicks", {"user": "bob", "at": 100 * MINUTE, "path": "/"})
        driver.advance(timedelta(seconds=2))
        assert driver.emitted("clicks-window-aggregate-1") == [
            {"user": "ann", "start": 0, "end": 31 * MINUTE, "pages": 2, "last": MINUTE}
        ]
        feed(driver, "clicks", {"user": "ann", "at": 2 * MINUTE, "path": "/late"})
        assert [dict(row[0]) for row in driver.emitted("clicks-window-aggregate-1", "late")] == [
            {"user": "ann", "at": 2 * MINUTE, "path": "/late"}
        ]
        assert [(row[1], row[4]) for row in driver.emitted("bought")] == [(0, 7), (MINUTE, 7), (2 * MINUTE, 7)]
        feed(driver, "readings", *({"sensor": "roof", "at": at, "value": at / 1000} for at in (3_000, 5_000, 40_000)))
        driver.advance(timedelta(seconds=2))
        assert driver.emitted("readings-window-apply-1")[0] == ["roof", -10_000, 10_000, 4.0]


@pytest.mark.slow
def test_programs_keep_their_promises_in_the_simulator() -> None:
    reports = [
        simulate(word_count, seed=7, feed={"lines": [[line, "a.txt", 0] for line in LINES * 10]}),
        simulate(
            windows,
            seed=7,
            feed={
                "clicks": [[f"u{number % 4}", number * MINUTE, "/"] for number in range(40)],
                "purchases": [[f"u{number % 4}", number * 3 * MINUTE, number] for number in range(15)],
                "readings": [["roof", number * 3_000, number] for number in range(40)],
            },
        ),
    ]
    close_processes()
    for report in reports:
        assert report.ok, report.story


@pytest.mark.spark
def test_the_word_count_runs_on_spark(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    for number in range(2):
        (tmp_path / "books" / f"{number}.txt").write_text("\n".join(LINES * 50) + "\n")
    program = Path(__file__).with_name("stream_word_count.py").read_text()
    program = program.replace("minutes=1", "seconds=1")  # it ends when its windows have been shown
    names: dict[str, Any] = {"__name__": "stream_word_count"}
    exec(compile(program, "stream_word_count.py", "exec"), names)
    metrics = names["topology"].run(spark=spark)
    assert (metrics.components["lines"].acked, metrics.components["lines"].failed) == (200, 0)
    written = [json.loads(line) for path in Path("out").glob("*.jsonl") for line in path.read_text().splitlines()]
    largest: dict[str, int] = {}
    for row in written:
        largest[row["word"]] = max(row["count"], largest.get(row["word"], 0))
    assert (largest["to"], largest["be"], largest["question"]) == (200, 200, 100)
    assert len(written) == 100 * sum(len(line.split()) for line in LINES)
