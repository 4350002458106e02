"""Every kind of window against a model that recomputes it from all lines, and books that see what is wrong."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path

import pytest

from sparkbolt.spouts import TextSpout
from sparkbolt.testing import TopologyTestDriver
from tests.windows.books import Found, check
from tests.windows.shapes import Feed, shapes, topology_of

UNIT_MS = 100
SHAPES = shapes(UNIT_MS)


def run(directory: Path, seed: int, lines: int = 150) -> None:
    """Feed lines at random times; now and then the driver is killed when all that was fed is processed."""
    chance, feed = random.Random(seed), Feed(seed, UNIT_MS)
    topology = topology_of(list(SHAPES.values()), TextSpout(str(directory / "text")), str(directory))
    left = lines
    with TopologyTestDriver(topology) as driver:
        while left:
            count = min(left, chance.choice((1, 3, 10, 60)))
            for line in feed.lines(count):
                driver.feed("lines", {"line": line}, message_id=line)
            left -= count
            driver.run_until_idle()
            driver.advance(timedelta(milliseconds=chance.choice((0, 30, 170, 400, 1500))))
            if chance.random() < 0.3:
                driver.restart()
        driver.advance(timedelta(seconds=5))
        assert driver.failed("lines") == []
        assert [str(error) for error in driver.errors()] == []


def found_in(directory: Path) -> Found:
    return check(directory, SHAPES.values(), exact=True)


@pytest.mark.parametrize("seed", range(3))
def test_every_kind_of_window_is_what_a_model_makes_of_all_lines_over_restarts(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed)
    found = found_in(tmp_path)
    assert (found.wrong, found.lacking) == ([], [])
    assert found.shown > 1000


def test_books_see_a_window_that_lacks_a_tuple_has_one_twice_or_was_never_shown(tmp_path: Path) -> None:
    run(tmp_path, seed=1, lines=60)
    file = max((tmp_path / "windows").glob("*.jsonl"), key=lambda path: path.stat().st_size)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    place = next(place for place, row in enumerate(rows) if row["of"][0][0] < row["of"][-1][1])
    [first, last], *rest = (row := rows[place])["of"]

    def wrong_with(**changed: object) -> str:
        written = [*rows[:place], {**row, **changed}, *rows[place + 1 :]]
        file.write_text("".join(json.dumps(one) + "\n" for one in written))
        found = found_in(tmp_path)
        return "; ".join(found.wrong)

    assert found_in(tmp_path).wrong == []
    assert "expected" in wrong_with(of=[[first + 1, last], *rest] if first < last else rest)
    assert "expected" in wrong_with(of=[[first, last], [first, last], *rest])
    assert "were counted as" in wrong_with(count=row["count"] + 1)
    file.write_text("".join(json.dumps(one) + "\n" for one in rows[:place] + rows[place + 1 :]))
    assert found_in(tmp_path).lacking
    file.write_text("".join(json.dumps(one) + "\n" for one in [*rows, {**row, "count": 10_000}]))
    assert found_in(tmp_path).wrong
