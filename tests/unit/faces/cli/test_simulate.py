"""``sparkbolt simulate``: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkbolt.faces.cli import main

pytestmark = pytest.mark.slow

PROGRAM = """
import random

from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.spouts import GeneratorSpout, TextSpout


class Double(BasicBolt):
    outputs = ["n"]

    def execute(self, tup, collector):
        print("a line that nobody wants")
        collector.emit([2 * tup["n"]])


class Wild(BasicBolt):
    outputs = ["n"]

    def execute(self, tup, collector):
        collector.emit([random.random()])


class Sum(BasicBolt):
    def prepare(self, context):
        self.sum = 0

    def execute(self, tup, collector):
        self.sum += tup["n"]


def numbers():
    return ([number] for number in range(30))


def build(middle, spout=None):
    builder = TopologyBuilder("program")
    builder.set_spout("numbers", spout or GeneratorSpout(numbers, outputs=["n"], count=30))
    builder.set_bolt("middle", middle, parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("sum", Sum()).global_grouping("middle")
    return builder.build()


tame = build(Double())
wild = build(Wild())
gone = build(Double(), TextSpout("no/such/file.txt"))
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module with topologies; each test has one of its own, since modules are kept."""
    name = f"program_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_seeds_that_keep_every_promise_end_with_0(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", f"{program}:tame", "--seeds", "45", "--workers", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("45 seeds, ")
    assert "all guarantees hold" in out
    assert "nobody wants" not in out


def test_json_is_one_object_a_line(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", f"{program}:tame", "--seeds", "3", "--workers", "1", "--json"]) == 0
    (summary,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (summary["event"], summary["outcome"], summary["seeds"]) == ("summary", "finished", 3)
    assert main(["simulate", f"{program}:wild", "--seeds", "3", "--workers", "1", "--json"]) == 1
    failure, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (failure["event"], failure["component"], failure["ok"]) == ("failure", "middle", False)
    assert summary["outcome"] == "failed"


def test_a_nondeterministic_component_ends_the_command_with_exit_code_1(
    program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", f"{program}:wild", "--seeds", "40", "--workers", "2"]) == 1
    assert "'middle' did something else the second time: it is not deterministic" in capsys.readouterr().out


def test_run_of_one_seed_reports_what_happened(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    history = "0:run:driver-dies:0,0:level:worker-dies:3"
    assert main(["simulate", f"{program}:tame", "--seed", "2", "--history", history]) == 0
    out = capsys.readouterr().out
    assert "seed 2: every promise was kept" in out
    assert "the driver dies before the micro-batch is staged" in out
    assert "nobody wants" not in out


def test_messages_may_come_from_a_file(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", f"{program}:gone", "--seed", "1"]) == 1
    assert "spout 'numbers' cannot be read here" in capsys.readouterr().err
    Path("lines.jsonl").write_text('["to be", "a", 0]\n{"line": "or not"}\n')
    assert main(["simulate", f"{program}:gone", "--seed", "1", "--feed", "numbers=lines.jsonl"]) == 0
    Path("lines.jsonl").write_text("to be\n")
    assert main(["simulate", f"{program}:gone", "--seed", "1", "--feed", "numbers=lines.jsonl"]) == 2
    assert "expected a JSON list or object on each line" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--seeds", "none"], "must be a whole number of at least 1"),
        (["--seed", "1", "--history", "0:x:y"], "is no fault"),
        (["--history", "0:run:slow:0"], "add --seed N"),
        (["--feed", "numbers=missing.jsonl"], "No such file"),
    ],
)
def test_wrong_use_exits_with_2(
    words: list[str], complaint: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", f"{program}:tame", *words]) == 2
    assert complaint in capsys.readouterr().err
