"""The web-log example: what becomes of a line of its log."""

from __future__ import annotations

import random
import runpy
from pathlib import Path

from sparkbolt.testing import TopologyTestDriver

FOLDER = Path(__file__).parents[2] / "examples" / "weblog"


def test_a_line_of_the_web_log_becomes_a_hit_and_a_broken_one_is_rejected(tmp_path: Path) -> None:
    log, weblog = (runpy.run_path(str(FOLDER / name)) for name in ("make_log.py", "weblog.py"))
    log["make_pages"](tmp_path / "pages.db")
    places = (f"sqlite:///{tmp_path}/{name}.db" for name in ("pages", "results"))
    line = log["line"](random.Random(1), log["START"], "ann")
    with TopologyTestDriver(weblog["build"]("access.log", *places)) as driver:
        driver.feed("lines", {"line": line}, message_id=1)
        driver.feed("lines", {"line": line[:40]}, message_id=2)
        driver.feed("lines", {"line": line.replace(" 200 ", " n/a ")}, message_id=3)
        driver.run_until_idle()
        [[user, at, path, status, section, team]] = driver.emitted("section")
        assert (user, at, status) == ("ann", log["START"].timestamp() * 1000, 200)
        assert (section, team) == log["PAGES"][path]
        assert [letter.last.cause for letter in driver.dead_letters("lines")] == ["rejected", "rejected"]
