"""``sparkbolt simulate``: what it prints, and its exit codes."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import pytest

from sparkbolt.faces.cli import main
from sparkbolt.sim.subprocess_runner import close_processes

pytestmark = pytest.mark.slow

PROGRAM = """
import random

from sparkbolt import BasicBolt, TopologyBuilder, Unavailable
from sparkbolt.bolts import JsonLinesBolt, KafkaBolt
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


class Away(BasicBolt):
    def execute(self, tup, collector):
        raise Unavailable("connection refused")


class Sum(BasicBolt):
    def prepare(self, context):
        self.sum = 0

    def execute(self, tup, collector):
        self.sum += tup["n"]


def numbers():
    return ([number] for number in range(30))


def build(middle, spout=None, sum_them=True):
    builder = TopologyBuilder("program")
    builder.set_spout("numbers", spout or GeneratorSpout(numbers, outputs=["n"], count=30))
    builder.set_bolt("middle", middle, parallelism=2).shuffle_grouping("numbers")
    if sum_them:
        builder.set_bolt("sum", Sum()).global_grouping("middle")
    return builder.build()


tame = build(Double())
wild = build(Wild())
written = build(JsonLinesBolt("out"), sum_them=False)
sent = build(KafkaBolt("localhost:1", "numbers"), sum_them=False)
away = build(Away(), sum_them=False)
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


def test_a_topology_that_writes_files_is_not_blamed_and_changes_none(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = tmp_path / "out" / "part-000000-middle-0.jsonl"
    real.parent.mkdir()
    real.write_text("precious")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    assert main(["simulate", f"{program}:written", "--seeds", "45", "--workers", "2"]) == 0
    assert "all guarantees hold" in capsys.readouterr().out
    assert main(["simulate", f"{program}:written", "--seed", "2"]) == 0
    close_processes()
    gc.collect()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert [path.name for path in real.parent.iterdir()] == [real.name]
    assert real.read_text() == "precious"


def test_a_bolt_that_is_unavailable_for_ever_ends_it_with_its_name_and_what_takes_long_is_told(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkbolt.faces.cli.simulate.LINE_EVERY_SECS", 0.01)
    for arguments, code, told in (
        (["--seeds", "400", "--strict"], 1, ("the first seeds are run in two processes", "a run without any fault")),
        (["--seed", "2"], 0, ("seed 2 is run",)),
    ):
        assert main(["simulate", f"{program}:away", *arguments]) == code
        captured = capsys.readouterr()
        assert captured.out.startswith("5 seeds, " if "--seeds" in arguments else "seed 2: every promise was kept")
        assert "'middle': 30 messages were never taken\n" in captured.out
        assert "what it depends on is not there in a simulation" in captured.out
        for words in told:
            assert f" s: {words}" in captured.err
            assert words not in captured.out


def test_a_component_that_is_not_deterministic_ends_it_with_1(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", f"{program}:wild", "--seeds", "40", "--workers", "2"]) == 1
    assert "'middle' did something else the second time: it is not deterministic" in capsys.readouterr().out


def test_one_seed_tells_what_happened(program: str, capsys: pytest.CaptureFixture[str]) -> None:
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
        (["--seeds", "none"], "expected a number of at least 1"),
        (["--seed", "1", "--history", "0:x:y"], "is no fault"),
        (["--history", "0:run:slow:0"], "add --seed N"),
        (["--feed", "numbers=missing.jsonl"], "No such file"),
    ],
)
def test_wrong_use_ends_with_2(
    words: list[str], complaint: str, program: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", f"{program}:tame", *words]) == 2
    assert complaint in capsys.readouterr().err
