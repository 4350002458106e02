"""The web-log example: a user copies its files into an empty folder, and runs the commands of its README."""

from __future__ import annotations

import importlib.util
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from sparkbolt.testing import TopologyTestDriver
from tests.docs.pages import ROOT, Runner, blocks_of, text_of
from tests.patience import PATIENCE_SECS

PAGE = "examples/weblog/README.md"
FOLDER = ROOT / "examples" / "weblog"


def module(name: str) -> Any:
    """A program of the example."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.campaign
def test_the_commands_of_the_web_log_example_do_what_its_readme_says(tmp_path: Path) -> None:
    for file in FOLDER.glob("*.py"):
        shutil.copy(file, tmp_path)
    runner = Runner(tmp_path)
    with runner.entered():
        for block in blocks_of(PAGE, text_of(PAGE)):
            runner.run(block)


def test_a_line_of_the_web_log_becomes_a_hit_and_a_broken_one_is_rejected(tmp_path: Path) -> None:
    log = module("make_log")
    log.make_pages(tmp_path / "pages.db")
    topology = module("weblog").build("access.log", f"sqlite:///{tmp_path}/pages.db", f"sqlite:///{tmp_path}/out.db")
    line = log.line(random.Random(1), log.START, "ann")
    with TopologyTestDriver(topology) as driver:
        driver.feed("lines", {"line": line}, message_id=1)
        driver.feed("lines", {"line": line[:40]}, message_id=2)
        driver.feed("lines", {"line": line.replace(" 200 ", " n/a ")}, message_id=3)
        driver.run_until_idle()
        [[user, at, path, status, section, team]] = driver.emitted("section")
        assert (user, at, status) == ("ann", log.START.timestamp() * 1000, 200)
        assert (section, team) == log.PAGES[path]
        assert [letter.last.cause for letter in driver.dead_letters("lines")] == ["rejected", "rejected"]


@pytest.mark.service
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_the_web_log_example_writes_its_results_to_postgresql(postgresql: str, tmp_path: Path) -> None:
    log = module("make_log")
    log.make_pages(tmp_path / "pages.db")
    log.write(tmp_path / "access.log", log.START, 3 * 3600, random.Random(1))
    engine = sqlalchemy.create_engine(postgresql)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE SCHEMA weblog"))
    url = f"{postgresql}?options=-csearch_path%3Dweblog"
    topology = module("weblog").build(tmp_path / "access.log", f"sqlite:///{tmp_path}/pages.db", url)
    with topology.start(checkpoint=tmp_path / "state") as running:
        running.await_idle(timeout_secs=PATIENCE_SECS)
        emitted = {name: running.metrics().components[name].emitted for name in ("sessions", "alerts")}
    with engine.connect() as connection:
        for name, count in emitted.items():
            rows = connection.execute(sqlalchemy.text(f"SELECT count(*) FROM weblog.{name}")).scalar_one()
            assert rows == count > 0
    engine.dispose()
