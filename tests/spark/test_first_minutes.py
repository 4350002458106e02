"""A user's first minutes on Spark: a new project runs, and goes on with changed code while it runs."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.display import PlainLines
from sparkbolt.faces.cli.program import perform
from sparkbolt.faces.cli.reloading import Reloader
from tests.patience import PATIENCE_SECS
from tests.spark.asked import Asked

pytestmark = [pytest.mark.spark, pytest.mark.slow]

CODE = """
from collections import Counter
from pathlib import Path
from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.spouts import JsonLinesSpout
from first_words import said

HERE = Path(__file__).parent

class Count(BasicBolt):
    outputs = ["word", "count"]
    def prepare(self, context):
        self.counts = Counter()
    def execute(self, tup, collector):
        self.counts[tup.word] += 1
        collector.emit([said(tup.word), self.counts[tup.word]])

builder = TopologyBuilder("first")
builder.set_spout("words", JsonLinesSpout(HERE / "words.jsonl", outputs=["word"], follow=True))
builder.set_bolt("count", Count(), parallelism=2).fields_grouping("words", ["word"])
builder.set_bolt("out", JsonLinesBolt(HERE / "out")).shuffle_grouping("count")
topology = builder.build()
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    path, known = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in {"first_words", "first_code", "sums"} - known:
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("spark", "home", "modules")
def test_a_new_project_runs_and_ends_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", str(tmp_path / "sums")]) == 0
    run = ["run", str(tmp_path / "sums" / "sums.py"), "--checkpoint", str(tmp_path / "state"), "--master", "local[2]"]
    assert main(run) == 0
    shown = capsys.readouterr().out
    assert "{'customer': 'ann', 'total': 17}" in shown
    assert "{'customer': 'ben', 'total': 35}" in shown
    assert main(run) == 0, "it goes on after the last order"


class Files:
    """The input, the code and the output of a topology that follows a file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "first_code.py").write_text(CODE)
        self.say("upper")

    def say(self, how: str) -> None:
        (self.folder / "first_words.py").write_text(f"def said(word):\n    return word.{how}()\n")

    def add(self, word: str) -> None:
        with (self.folder / "words.jsonl").open("a") as file:
            file.write(json.dumps({"word": word}) + "\n")

    def rows(self) -> list[tuple[str, int]]:
        parts = sorted(self.folder.glob("out/**/*.jsonl"))
        rows = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
        return sorted((row["word"], row["count"]) for row in rows)

    def until(self, *rows: tuple[str, int]) -> None:
        limit, pause = time.monotonic() + PATIENCE_SECS, threading.Event()
        while not set(rows) <= set(self.rows()):
            assert time.monotonic() < limit, self.rows()
            pause.wait(0.05)
        assert len(self.rows()) == len(set(self.rows()))


@pytest.mark.usefixtures("modules")
def test_a_running_topology_goes_on_with_changed_code_and_what_it_keeps(
    spark: Any, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    files.add("be")
    reloader = Reloader("first_code.py", str(tmp_path / "state"))
    topology, asked = reloader.load(), Asked()
    with ThreadPoolExecutor() as threads:
        options = {"spark": spark, "checkpoint": tmp_path / "state"}
        run = threads.submit(perform, topology, PlainLines(), None, reloader.changed, **options)
        try:
            files.until(("BE", 1))
            files.say("title")
            asked.until(lambda _: "begins again from its checkpoint" in caplog.text)
            files.add("be")
            files.until(("BE", 1), ("Be", 2))
            files.say("nothing + (")
            asked.until(lambda _: "goes on with the code that it has" in caplog.text)
            files.add("be")
            files.until(("BE", 1), ("Be", 2), ("Be", 3))
            name = asked.until(lambda found: found["now"]["open_trees"] == 0)["entry"]["id"]
            assert not asked.operator.change(name, "kill", wait_secs=60, by="the test")["refused"]
            assert run.result(PATIENCE_SECS).exit_code == 0
        finally:
            asked.end()
