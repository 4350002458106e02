"""The command line without Spark: its grammar, its names, its displays, its outcomes."""

from __future__ import annotations

import importlib
import io
import json
import signal
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from sparkbolt import BasicBolt, Config, EngineError, PartitionedSpout, Topology, TopologyBuilder
from sparkbolt.cli import main, seconds
from sparkbolt.cli.aside import aside_lines
from sparkbolt.cli.display import JsonLines, PlainLines, summary_event
from sparkbolt.cli.live import LiveTable
from sparkbolt.cli.locate import BrokenModuleError, WrongUseError, load_topology, look_in
from sparkbolt.cli.program import Outcome, StopRequests, perform
from sparkbolt.core.metrics import ComponentMetrics, TopologyMetrics


class Lines(PartitionedSpout):
    outputs = ["line"]

    def next_ranges(self, progress: Any, budget: int) -> Any:
        return []

    def read(self, range_: Any) -> Any:
        return iter(())


class Split(BasicBolt):
    outputs = ["word"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["line"]])


def build() -> Topology:
    builder = TopologyBuilder("words", Config(message_timeout_secs=1))
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    return builder.build()


MODULE = """
from sparkbolt import TopologyBuilder
from tests.unit.test_cli_run import Lines, Split, build
topology = build()
builder = TopologyBuilder("b")
builder.set_spout("lines", Lines())
broken = TopologyBuilder("c")
number = 3
def raising():
    return 1 / 0
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "topologies_of_a_test"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "needy_of_a_test.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "wrong_of_a_test.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


def test_a_duration_is_seconds_minutes_or_hours() -> None:
    assert [seconds(text) for text in ("30s", "5m", "1h", "1.5", "2")] == [30, 300, 3600, 1.5, 2]


@pytest.mark.parametrize("attribute", ["topology", "builder", "build", "builder.build"])
def test_a_topology_a_builder_and_a_function_name_a_topology(module: str, attribute: str) -> None:
    assert isinstance(load_topology(f"{module}:{attribute}"), Topology)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("{}", "expected module:attribute"),
        ("{}:", "expected module:attribute"),
        ("{}.py:topology", "did you mean {}:topology?"),
        ("{}:topolgy", "did you mean 'topology'?"),
        ("{}:number", "is of type int, expected a Topology"),
        ("{}:Lines", "is the class Lines, expected a Topology"),
        ("no_such_module_at_all:topology", "there is no module 'no_such_module_at_all'"),
    ],
)
def test_wrong_use_is_a_sentence_and_exit_code_2(
    module: str, reference: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(WrongUseError) as raised:
        load_topology(reference.format(module))
    assert said.format(module) in str(raised.value)
    assert main(["check", reference.format(module)]) == 2
    out = capsys.readouterr()
    assert out.out == ""
    assert said.format(module) in out.err
    assert "Traceback" not in out.err


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("{}:raising", "ZeroDivisionError"),
        ("needy_of_a_test:topology", "needs module 'no_such_module_at_all'"),
        ("wrong_of_a_test:topology", "line 1"),
    ],
)
def test_a_module_that_raises_is_a_sentence_and_exit_code_1(
    module: str, reference: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BrokenModuleError, match=said):
        load_topology(reference.format(module))
    assert main(["run", reference.format(module)]) == 1
    assert "Traceback" not in capsys.readouterr().err


def test_py_files_are_found_by_the_program_that_names_them(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile("deps.zip", "w") as file:
        file.writestr("zipped_of_a_test.py", "X = 1")
    Path("below").mkdir()
    Path("below", "single_of_a_test.py").write_text("Y = 2")
    look_in(["deps.zip", "below/single_of_a_test.py", "hdfs://host/far.zip"])
    assert importlib.import_module("zipped_of_a_test").X + importlib.import_module("single_of_a_test").Y == 3
    assert main(["run", f"{module}:topology", "--py-files", "deps.zip,gone.py"]) == 2
    assert capsys.readouterr().err == "sparkbolt: --py-files names 'gone.py', which does not exist\n"


def test_debug_shows_the_traceback(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", f"{module}:raising", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_mistakes_of_a_topology_are_listed_with_exit_code_1(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{module}:broken"]) == 1
    assert "there is no spout" in capsys.readouterr().out
    assert main(["check", f"{module}:broken", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["mistakes"] == ["there is no spout: a topology needs at least one"]


@pytest.mark.parametrize(
    "arguments",
    [[], ["fly"], ["run"], ["run", "a:b", "--for", "3x"], ["run", "a:b", "--for", "0s"], ["run", "a:b", "--conf", "x"]],
)
def test_wrong_arguments_are_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "usage: sparkbolt" in capsys.readouterr().err


def test_version_and_help_are_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("sparkbolt ")
    assert main(["--help"]) == 0
    assert "exit codes: 0 finished" in capsys.readouterr().out


# ---- displays


def report(number: int, executed: int) -> Any:
    metrics = TopologyMetrics(
        {
            "lines": ComponentMetrics(emitted=10, acked=8, pending=2),
            "split": ComponentMetrics(executed=executed, errors=1),
        },
        micro_batches=number + 1,
        open_trees=2,
        micro_batch_ms=123.456,
    )
    return SimpleNamespace(promotion=SimpleNamespace(micro_batch_id=number), metrics=metrics)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_each_line_of_json_is_an_object_and_the_last_is_the_summary() -> None:
    out, clock = io.StringIO(), Clock()
    display = JsonLines(out, clock)
    display.starting(build())
    clock.now = 1.5
    display.micro_batch(report(0, 10), 3)
    display.summary(Outcome("stopped", 2.0, report(0, 10).metrics, drained=True, retries=3))
    first, last = (json.loads(line) for line in out.getvalue().splitlines())
    assert first == {
        "event": "micro_batch",
        "micro_batch_id": 0,
        "elapsed_s": 1.5,
        "micro_batch_ms": 123.5,
        "emitted": 10,
        "executed": 10,
        "acked": 8,
        "failed": 0,
        "open_trees": 2,
        "retries": 3,
    }
    assert last["event"] == "summary"
    assert (last["outcome"], last["elapsed_s"], last["drained"], last["open_trees"]) == ("stopped", 2.0, True, 2)
    assert {"emitted": 10, "acked": 8, "failed": 0, "pending": 2}.items() <= last["components"]["lines"].items()
    assert {"emitted": 0, "executed": 10, "acked": 0, "failed": 0}.items() <= last["components"]["split"].items()


def test_a_summary_names_the_failure_and_all_components_even_if_nothing_ran() -> None:
    event = summary_event(Outcome("failed", 0.1, failure="no Java"), build())
    assert event["failure"] == "no Java"
    assert list(event["components"]) == ["lines", "split"]


def test_plain_lines_come_every_five_seconds_at_most() -> None:
    out, clock = io.StringIO(), Clock()
    display = PlainLines(out, clock)
    display.starting(build())
    for number in range(100):
        clock.now = number / 10
        display.micro_batch(report(number, number * 100), 0)
    lines = [line for line in out.getvalue().splitlines() if "micro-batch" in line]
    assert len(lines) == 2
    assert "micro-batch 50  executed 5,000 (1,000/s)  acked 8  failed 0  open 2" in lines[1]


def test_the_live_table_shows_counters_rates_and_trees() -> None:
    clock = Clock()
    console = Console(file=io.StringIO(), width=120)
    display = LiveTable(console, clock)
    display.starting(build())
    display.micro_batch(report(0, 0), 0)
    clock.now = 2.0
    display.micro_batch(report(1, 5000), 7)
    with console.capture() as drawn:
        console.print(display.picture())
    display.close()
    text = drawn.get()
    assert "2,500" in text
    assert "micro-batch 1: 123 ms" in text
    assert "2 open" in text
    assert "retries: 7" in text


def test_a_reader_that_has_gone_closes_the_display_and_raises_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    display = JsonLines(Gone())
    display.starting(build())
    display.micro_batch(report(0, 1), 0)
    assert display.is_closed


# ---- outcomes


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome("finished", 1.0), 0),
        (Outcome("stopped", 1.0, drained=True), 0),
        (Outcome("stopped", 1.0, drained=False), 130),
        (Outcome("failed", 1.0, drained=True), 1),
    ],
)
def test_an_outcome_has_its_exit_code(outcome: Outcome, code: int) -> None:
    assert outcome.exit_code == code


@dataclass
class FakeRunning:
    """A running topology that sends signals when it is asked to wait."""

    topology: Topology
    signals: list[int]
    drains: bool = True
    failure: str | None = None
    deactivated: bool = False
    retries: int = 0
    set_aside_here: Mapping[str, int] = field(default_factory=dict)
    dead_letters_directory: str = "state/words/dead-letters"

    def _wait(self, answer: bool) -> bool:
        if self.failure is not None:
            raise EngineError(self.failure)
        if self.signals:
            signal.raise_signal(self.signals.pop(0))
        return answer

    def on_micro_batch(self, listener: Any) -> None:
        listener(report(0, 1))

    def await_finished(self, timeout_secs: float) -> bool:
        return self._wait(not self.signals)

    def await_drained(self, timeout_secs: float) -> bool:
        assert self.deactivated
        return self._wait(self.drains)

    def deactivate(self) -> None:
        self.deactivated = True

    def stop(self, drain: bool) -> bool:
        return self.drains and self.failure is None

    def close(self) -> None: ...

    def metrics(self) -> TopologyMetrics:
        return report(0, 1).metrics  # type: ignore[no-any-return]


def outcome_of(monkeypatch: pytest.MonkeyPatch, **fake: Any) -> tuple[Outcome, str]:
    topology, out = build(), io.StringIO()
    monkeypatch.setattr(Topology, "start", lambda self, **options: FakeRunning(topology, **fake))
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    outcome = perform(topology, PlainLines(out))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    return outcome, out.getvalue()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    outcome, text = outcome_of(monkeypatch, signals=[number])
    assert (outcome.kind, outcome.drained, outcome.exit_code) == ("stopped", True, 0)
    assert "stopping: no new tuples, 2 open trees are being finished" in text


def test_the_second_signal_leaves_trees_for_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, text = outcome_of(monkeypatch, signals=[signal.SIGINT, signal.SIGINT], drains=False)
    assert (outcome.kind, outcome.drained, outcome.exit_code) == ("stopped", False, 130)
    assert "2 trees left for replay" in text


def test_a_failure_is_told_and_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, text = outcome_of(monkeypatch, signals=[], failure="'split' raised")
    assert (outcome.kind, outcome.exit_code) == ("failed", 1)
    assert "'split' raised" in text


def test_a_run_that_ends_by_itself_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, text = outcome_of(monkeypatch, signals=[])
    assert (outcome.kind, outcome.exit_code) == ("finished", 0)
    assert "finished after" in text


def test_a_run_that_sets_messages_aside_ends_with_code_3_and_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, text = outcome_of(monkeypatch, signals=[], set_aside_here={"lines": 12})
    assert (outcome.kind, outcome.exit_code) == ("finished", 3)
    assert text.splitlines()[-1] == (
        "12 messages of lines were set aside: look at them with `sparkbolt dlq list state/words/dead-letters`, give "
        "them to the topology again with `sparkbolt dlq replay state/words/dead-letters --spout lines --into FILE`"
    )
    outcome, _ = outcome_of(monkeypatch, signals=[signal.SIGINT], set_aside_here={"lines": 12})
    assert outcome.exit_code == 3
    outcome, _ = outcome_of(monkeypatch, signals=[signal.SIGINT] * 2, drains=False, set_aside_here={"lines": 1})
    assert outcome.exit_code == 130, "what is left is the first thing to know"


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (
            "file:/tmp/x/dead letters.jsonl",
            "sparkbolt dlq replay '/tmp/x/dead letters.jsonl' --spout lines --into FILE",
        ),
        ("log:", "the log and `sparkbolt errors` tell which they were, and nothing keeps them"),
        (print, "their dead letters went to FunctionSink"),
    ],
)
def test_where_set_aside_messages_are_depends_on_the_spout(way: Any, said: str) -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("lines", Lines(), dead_letters=way)
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    [line] = aside_lines({"lines": 1}, builder.build(), "state/dead-letters")
    assert line.startswith("1 message of lines was set aside: ")
    assert said in line


def test_two_signals_during_a_start_interrupt_it() -> None:
    requests = StopRequests()
    with requests.caught():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
