"""``sparkbolt run --reload``: when the code of a running topology is loaded again, and when it goes on as it is."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import Topology
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.reloading import LOOK_SECS, Reloader
from sparkbolt.spark.output_ownership import OutputOwnership
from sparkbolt.testing import TopologyTestDriver
from tests.contract.engines import write_checkpoint

HELPER, MODULE = "reloaded_helper", "reloaded_code"
CODE = f"""
from collections import Counter
from sparkbolt import BasicBolt, Spout, TopologyBuilder
from sparkbolt.bolts import JsonLinesBolt
from {HELPER} import said

class Words(Spout):
    outputs = ["word"]
    def next_tuple(self, collector): ...

class Count(BasicBolt):
    outputs = ["word"]
    def prepare(self, context):
        self.counts = Counter()
    def execute(self, tup, collector):
        self.counts[tup["word"]] += 1
        collector.emit([said(tup["word"])])

builder = TopologyBuilder("reloaded")
builder.set_spout("words", Words())
builder.set_bolt("count", Count(), parallelism=2).fields_grouping("words", ["word"])
builder.set_bolt("out", JsonLinesBolt("out")).shuffle_grouping("count")
topology = builder.build()
"""
SAID = "def said(word):\n    return word.upper()\n"


class Project:
    """A file and a module that it imports, and the reloader of a topology that runs with them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._times = folder, count(1)
        self.write(HELPER, SAID)
        self.write(MODULE, CODE)
        self.reloader = Reloader(f"{MODULE}.py", "state", clock=lambda: 2 * LOOK_SECS * next(self._times))
        self.running = self.reloader.load()
        with TopologyTestDriver(self.running) as driver:
            driver.feed("words", ["be"], message_id=1)
            driver.run_until_idle()
            (folder / "state").mkdir()
            write_checkpoint(driver._engine, folder / "state")
        (folder / "state" / "identity").write_text("1" * 32)
        place = str(folder / "state")
        OutputOwnership(self.running, "1" * 32, place, is_lasting=True, is_new=True).claim()

    def write(self, name: str, text: str) -> None:
        """Write a module, each time with another time and perhaps the same size."""
        path = self.folder / f"{name}.py"
        path.write_text(text)
        time_ns = 10**18 + next(self._times)  # within the same second, as an editor and a script can
        os.utime(path, ns=(time_ns, time_ns))

    def changed(self) -> Topology | None:
        """What a few looks at the files say."""
        return next((found for _ in range(4) if (found := self.reloader.changed(self.running)) is not None), None)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield Project(tmp_path)
    sys.path[:] = path
    for name in (HELPER, MODULE):
        sys.modules.pop(name, None)


def said(topology: Topology) -> Any:
    with TopologyTestDriver(topology) as driver:
        driver.feed("words", ["be"], message_id=1)
        driver.run_until_idle()
        return driver.emitted("count")


def test_nothing_is_loaded_while_no_file_changes(project: Project) -> None:
    assert project.changed() is None


def test_a_changed_module_that_the_code_imports_is_loaded_also_if_its_size_is_the_same(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    assert said(project.running) == [["BE"]]
    project.write(HELPER, SAID.replace("upper", "title"))
    found = project.changed()
    assert found is not None
    assert said(found) == [["Be"]]
    assert "reloaded_helper.py has changed: topology 'reloaded' begins again from its checkpoint" in caplog.text
    assert project.changed() is None


def test_a_file_is_loaded_when_it_has_stayed_the_same_for_a_look(project: Project) -> None:
    project.write(HELPER, SAID.replace("upper", "title"))
    assert project.reloader.changed(project.running) is None
    project.write(HELPER, SAID.replace("upper", "lower"))
    assert project.reloader.changed(project.running) is None
    found = project.reloader.changed(project.running)
    assert found is not None
    assert said(found) == [["be"]]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("def said(word:\n", "cannot be imported"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("said = 1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_broken_code_is_reported_once_and_the_running_code_stays(
    project: Project, caplog: pytest.LogCaptureFixture, broken: str, why: str
) -> None:
    before = sys.modules[MODULE]
    project.write(HELPER, broken)
    assert project.changed() is None
    assert sys.modules[MODULE] is before
    assert said(project.running) == [["BE"]]
    [report] = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert "the topology goes on with the code that it has" in report
    assert why in report
    project.write(HELPER, SAID.replace("upper", "title"))
    found = project.changed()
    assert found is not None
    assert said(found) == [["Be"]]


def test_a_mistake_in_a_new_module_is_noticed_when_it_is_mended(project: Project) -> None:
    project.write("reloaded_new", "def f(:\n")
    project.write(HELPER, "from reloaded_new import said\n")
    assert project.changed() is None
    project.write("reloaded_new", SAID.replace("upper", "title"))
    found = project.changed()
    sys.modules.pop("reloaded_new", None)
    assert found is not None
    assert said(found) == [["Be"]]


def test_a_change_that_needs_a_decision_is_refused_with_the_plan(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    before = sys.modules[MODULE]
    project.write(MODULE, CODE.replace("parallelism=2", "parallelism=3"))
    assert project.changed() is None
    assert "its state is divided among them" in caplog.text
    assert "--apply" in caplog.text
    assert sys.modules[MODULE] is before
    project.write(MODULE, CODE)
    assert project.changed() is not None


def test_code_with_another_topology_is_refused(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    project.write(MODULE, CODE.replace('"reloaded"', '"other"'))
    assert project.changed() is None
    assert "it is topology 'other' now, and 'reloaded' runs" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "add --checkpoint DIR"),
        (["--checkpoint", "state", "--master", "spark://host:7077"], "needs a local master"),
    ],
)
def test_a_reload_needs_a_checkpoint_and_a_local_master(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "word_count.py", "--reload", *arguments]) == 2
    assert why in capsys.readouterr().err
