"""Each program of the public interface runs unchanged."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest

from sparkbolt import AsyncBolt, BasicBolt, Bolt, ColumnBolt, Spout, Topology, TopologyBuilder, bolt
from sparkbolt.faces.cli import main
from sparkbolt.sim.subprocess_runner import close_processes
from sparkbolt.testing import TopologyTestDriver, simulate
from tests.api.orders import Order
from tests.api.orders import topology as orders
from tests.api.typed_orders import check_totals
from tests.api.word_count import topology as word_count

LINES = ["to be or not to be", "that is the question"]


class Join(Bolt):
    outputs = ["user", "pair"]

    def prepare(self, context):
        self.waiting = {}

    def execute(self, tup, collector):
        other = self.waiting.pop(tup["user"], None)
        if other is None:
            self.waiting[tup["user"]] = tup
        else:
            collector.emit([tup["user"], (other["v"], tup["v"])], anchors=[other, tup])
            collector.ack(other)
            collector.ack(tup)


class Queue(Spout):
    outputs = ["user", "v"]

    def open(self, context):
        self.emitted, self.acked = False, []

    def next_tuple(self, collector):
        if not self.emitted:
            collector.emit(["ann", 1], message_id=17)
            collector.emit(["ann", 2], message_id=18)
            self.emitted = True

    def ack(self, message_id):
        self.acked.append(message_id)

    def fail(self, message_id): ...


@bolt(outputs=["word"])
def split(tup):
    for word in tup["line"].split():
        yield [word]


async def fetch_profile(user):
    await asyncio.sleep(0)
    return {"user": user}


class Enrich(AsyncBolt):
    outputs = ["user", "profile"]
    concurrency = 100

    async def execute(self, tup, collector):
        collector.emit([tup["user"], await fetch_profile(tup["user"])])


class SplitColumns(ColumnBolt):
    outputs = ["word"]

    def execute(self, batch, collector):
        words = pc.utf8_split_whitespace(batch["line"])
        collector.emit([pc.list_flatten(words)], anchors=pc.list_parent_indices(words))


class Lines(Spout):
    outputs = ["line"]

    def next_tuple(self, collector): ...


def behind(spout: Spout, bolt_: object) -> Topology:
    """A spout and one bolt."""
    builder = TopologyBuilder("program")
    builder.set_spout("source", spout)
    builder.set_bolt("bolt", bolt_).fields_grouping("source", [spout.outputs[0]])
    return builder.build()


def test_the_word_count_under_the_test_driver() -> None:
    with TopologyTestDriver(word_count) as driver:
        driver.feed("lines", {"line": "to be or not to be"}, message_id=1)
        driver.run_until_idle()
        assert driver.emitted("count")[-1] == ["be", 2]
        assert driver.acked("lines") == [1]
        driver.feed("lines", {"line": "lost"}, message_id=2)
        driver.advance(timedelta(seconds=31))
        assert driver.acked("lines") == [1, 2]
        assert driver.failed("lines") == []


@pytest.mark.slow
def test_the_word_count_in_the_simulator(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(str(project))
    topology = importlib.import_module("word_count").topology
    report = simulate(topology, seed=7)
    assert report.ok, report.story
    close_processes()


def test_the_join_acks_both_halves() -> None:
    with TopologyTestDriver(behind(Queue(), Join())) as driver:
        driver.feed("source", ["ann", 1], message_id=17)
        driver.run_until_idle()
        assert driver.acked("source") == []
        driver.feed("source", ["ann", 2], message_id=18)
        driver.run_until_idle()
        assert driver.emitted("bolt") == [["ann", (1, 2)]]
        assert sorted(driver.acked("source")) == [17, 18]


@pytest.mark.parametrize("splitter", [split, SplitColumns()])
def test_functions_and_columns_split(splitter: object) -> None:
    with TopologyTestDriver(behind(Lines(), splitter)) as driver:
        driver.feed("source", [LINES[0]], message_id=1)
        driver.run_until_idle()
        assert [word for (word,) in driver.emitted("bolt")] == LINES[0].split()
        assert driver.acked("source") == [1]


def test_the_coroutine_enriches() -> None:
    with TopologyTestDriver(behind(Queue(), Enrich())) as driver:
        for number in range(5):
            driver.feed("source", [f"user-{number}", number], message_id=number)
        driver.run_until_idle()
        assert driver.emitted("bolt") == [[f"user-{number}", {"user": f"user-{number}"}] for number in range(5)]
        assert sorted(driver.acked("source")) == list(range(5))


def test_the_orders_by_name_under_the_test_driver() -> None:
    with TopologyTestDriver(orders) as driver:
        driver.feed("orders", {"customer": "ann", "amount": 3}, message_id=1)
        driver.run_until_idle()
        assert driver.emitted("check") == [Order("ann", 3.0)]
        assert driver.emitted("total") == [{"customer": "ann", "total": 3.0}]
        assert driver.emitted("total") == [["ann", 3.0]]
        assert driver.emitted("total") != [{"customer": "ann", "sum": 3.0}]
        assert driver.emitted("total") != [["ann", 4.0]]
        assert driver.acked("orders") == [1]


def test_the_orders_with_types() -> None:
    check_totals()


class Pairs(BasicBolt):
    outputs = ["first", "second"]

    def execute(self, tup, collector):
        collector.emit(tup["line"])


def test_a_str_is_never_taken_for_a_list_of_values() -> None:
    with TopologyTestDriver(behind(Lines(), Pairs())) as driver:
        driver.feed("source", ["ab"], message_id=1)
        driver.run_until_idle()
        assert driver.emitted("bolt") == []
        (failed,) = driver.failed("source")
        assert failed.cause == "emit"
        assert "did you mean ['ab']" in failed.story


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder as a user has it: the program and its books."""
    shutil.copy(Path(__file__).with_name("word_count.py"), tmp_path)
    (tmp_path / "books").mkdir()
    for number in range(3):
        (tmp_path / "books" / f"{number}.txt").write_text("\n".join(LINES * 50) + "\n")
    return tmp_path


def command(project: Path, *words: str, timeout_secs: float = 600) -> subprocess.CompletedProcess[str]:
    """Run Python in the project's folder."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        [sys.executable, *words],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_secs,
        check=False,
    )


@pytest.mark.slow
def test_check_and_graph_need_no_spark(project: Path) -> None:
    checked = command(project, "-m", "sparkbolt", "check", "word_count:topology")
    assert checked.returncode == 0, checked.stderr
    assert "split" in checked.stdout
    drawn = command(project, "-m", "sparkbolt", "graph", "word_count:topology", "--svg", "topology.svg")
    assert drawn.returncode == 0, drawn.stderr
    assert (project / "topology.svg").read_text().lstrip().startswith("<svg")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_program_runs_unchanged_and_from_the_command_line(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = command(project, "word_count.py")
    assert ran.returncode == 0, ran.stderr[-3000:]
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(project)
    code = main(["run", "word_count:topology", "--master", "local[2]", "--checkpoint", "state", "--json"])
    del sys.modules["word_count"]
    told = capsys.readouterr()
    assert code == 0, told.err[-3000:]
    summary = json.loads(told.out.splitlines()[-1])
    assert (summary["event"], summary["outcome"]) == ("summary", "finished")
    lines = summary["components"]["lines"]
    assert (lines["emitted"], lines["acked"], lines["failed"], lines["pending"]) == (300, 300, 0, 0)
    assert summary["components"]["count"]["executed"] == 150 * sum(len(line.split()) for line in LINES)
