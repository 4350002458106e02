"""The command line without Spark: its grammar, its names, its displays, its outcomes."""

from __future__ import annotations

import importlib
import io
import json
import re
import signal
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from sparkbolt import BasicBolt, Config, EngineError, PartitionedSpout, Topology, TopologyBuilder
from sparkbolt.cli import main, program, seconds
from sparkbolt.cli.display import JsonLines, PlainLines, summary_event
from sparkbolt.cli.dlq.summary import aside_lines
from sparkbolt.cli.live import LiveTable
from sparkbolt.cli.locate import BrokenModuleError, WrongUseError, load_topology, look_in
from sparkbolt.cli.program import Limits, Outcome, StopRequests, perform
from sparkbolt.core.model.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.core.model.progress import CallSight, Doing, Progress


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


class Sink(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None: ...


def build() -> Topology:
    builder = TopologyBuilder("words", Config(message_timeout_secs=1))
    builder.set_spout("lines", Lines())
    builder.set_bolt("split", Split(), parallelism=2).shuffle_grouping("lines")
    return builder.build()


MODULE = """
from sparkbolt import TopologyBuilder
from tests.unit.cli.test_run import Lines, Split, build
topology = build()
builder = TopologyBuilder("b")
builder.set_spout("lines", Lines())
broken = TopologyBuilder("c")
number = 3
def wanting(argument):
    return topology


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
        ("{}:raising", r"ZeroDivisionError: .* \(.*topologies_of_a_test\.py, line \d+\)$"),
        ("{}:wanting", r"wanting cannot be called: TypeError: wanting\(\) missing 1 .* argument: 'argument'$"),
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "a:b", "--checkpont", "st"], "run: error: unrecognized arguments: --checkpont st: did you mean '--ch"),
        (
            ["checkpoint", "repair", "st", "--dryrun=1"],
            "repair: error: unrecognized arguments: --dryrun=1: did you mean '-",
        ),
        (["graph", "a:b", "more"], "graph: error: unrecognized arguments: more\n"),
    ],
)
def test_what_a_command_does_not_know_is_told_with_its_own_usage_and_the_nearest_option(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    text = capsys.readouterr().err
    assert text.startswith(f"usage: sparkbolt {arguments[0]} ")
    assert said in text


@pytest.mark.parametrize("command", [[], ["run"], ["dlq", "replay"], ["explain"], ["simulate"]])
def test_help_fits_80_columns(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*command, "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_the_help_of_dlq_names_every_place_that_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("list", "show", "replay"):
        assert main(["dlq", command, "--help"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "the checkpoint of the topology; file:PATH, or PATH; or kafka:HOST:PORT/TOPIC" in said
    assert "for messages of Kafka in a checkpoint kafka:HOST:PORT[/TOPIC]" in said


def test_version_and_help_are_exit_code_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("sparkbolt ")
    assert main(["--help"]) == 0
    assert "exit codes: 0 finished" in capsys.readouterr().out


DOCS = Path(__file__).parents[3] / "docs"


def test_every_exit_code_of_a_run_is_in_the_help_and_in_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    codes = {value for name, value in vars(program).items() if name.startswith("EXIT_")}
    assert codes == {0, 1, 2, 3, 4, 130}
    assert main(["--help"]) == 0
    said = capsys.readouterr().out.partition("exit codes:")[2].partition("environment:")[0]
    assert {int(number) for number in re.findall(r"\d+", said)} == codes
    page = (DOCS / "metrics-and-logs.md").read_text(encoding="utf-8")
    table = page.partition("| exit code | means |")[2].partition("\n\n")[0]
    assert {int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == codes


def test_how_long_a_stop_waits_for_a_micro_batch_is_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    secs = f"{program.DRAIN_SECS:g}"
    assert main(["run", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"before it is broken off and left for replay (default: {secs}s)" in said
    assert f"None for {secs} seconds" in " ".join((Topology.run.__doc__ or "").split())
    for page, sentence in (
        ("metrics-and-logs.md", "A micro-batch that still runs {} s later"),
        ("differences-from-storm.md", "do not wait for a micro-batch that runs on for {} s,"),
    ):
        assert sentence.format(secs) in " ".join((DOCS / page).read_text(encoding="utf-8").split()), page


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
    display.started(fake_running())
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


def fake_running(progress: Progress | None = None, **more: Any) -> Any:
    """What displays ask of a running topology; nothing was committed before."""
    known = {"waits_for": None, "outages": (), "retries": 0, "metrics": TopologyMetrics, **more}
    return SimpleNamespace(progress=lambda: progress or Progress(), **known)


def drawn(display: LiveTable, console: Console) -> str:
    with console.capture() as captured:
        console.print(display.picture())
    return captured.get()


def test_a_restart_shows_at_once_what_was_committed_before() -> None:
    out, clock, console = io.StringIO(), Clock(), Console(file=io.StringIO(), width=120)
    live, plain = LiveTable(console, clock), PlainLines(out, clock)
    running = fake_running(metrics=lambda: report(6, 5000).metrics)
    for display in (live, plain):
        display.starting(build())
        display.started(running)
        display.look(running)
    text = drawn(live, console)
    assert "5,000" in text
    assert "nothing is committed yet" not in text
    assert "has read nothing yet" not in text
    assert "it goes on after micro-batch 6  executed 5,000  acked 8  failed 0  open 2" in out.getvalue()
    live.micro_batch(report(7, 6000), 0)
    assert "6,000" in drawn(live, console)
    assert live.rate("executed", live.bolts) == 0, "one commit of this run tells no rate"
    live.close()


def test_what_has_nothing_to_do_for_a_while_waits_for_data() -> None:
    clock, console = Clock(), Console(file=io.StringIO(), width=120)
    display = LiveTable(console, clock)
    display.starting(build())
    done = report(0, 10)
    done.metrics.open_trees = 0
    display.micro_batch(done, 0)
    for progress, said in ((Progress(1), "running"), (Progress(), "waiting for data"), (Progress(2), "running")):
        running = fake_running(progress)
        display.started(running)
        display.look(running)
        clock.now += 1
        display.look(running)
        assert "  running" in drawn(display, console), "a short break is none"
        clock.now += 2
        display.look(running)
        assert f"  {said}" in drawn(display, console)
    display.micro_batch(report(3, 10), 0)  # with open trees
    clock.now += 60
    display.look(fake_running())
    assert "  running" in drawn(display, console)
    display.close()


def test_a_bolt_that_is_out_has_a_line_while_it_is_out() -> None:
    said = "db is out for 40 s (ConnectionError: refused), next probe in 12 s"
    out, clock, console = io.StringIO(), Clock(), Console(file=io.StringIO(), width=120)
    live, plain = LiveTable(console, clock), PlainLines(out, clock)
    for display in (live, plain):
        display.starting(build())
        display.started(fake_running())
        display.micro_batch(report(0, 10), 0)
    for _ in range(60):
        clock.now += 0.2
        for display in (live, plain):
            display.look(fake_running(outages=[said]))
    assert said in drawn(live, console)
    assert out.getvalue().count(said) == 3, "one in five seconds"
    live.look(fake_running())
    assert said not in drawn(live, console)
    live.close()


def test_the_live_table_ends_with_the_sentence_and_with_what_to_type_in_one_piece() -> None:
    console = Console(file=io.StringIO(), width=60)
    display = LiveTable(console, Clock())
    display.starting(build())
    display.close()
    with console.capture() as captured:
        display.summary(
            Outcome("finished", 1.0, drained=True, set_aside={"lines": 12}, letters_directory="state/letters")
        )
    sentence, aside = captured.get().splitlines()
    assert sentence == "finished after 1.0 s, 0 micro-batches"
    assert aside.startswith("12 messages of lines were set aside: ")


def big(number: int) -> Any:
    """Eight digits, and a name that is too long for any terminal."""
    metrics = TopologyMetrics(
        {
            "lines": ComponentMetrics(emitted=12_345_678, acked=12_340_012, pending=5_666, failed=3),
            "split-sentences-into-words-and-punctuation": ComponentMetrics(emitted=63_201_243, executed=12_345_678),
            "count": ComponentMetrics(executed=63_201_243, acked=63_201_240, errors=3),
        },
        micro_batches=number + 1,
        open_trees=5_666,
        complete_latency_ms=2_345.0,
        micro_batch_ms=1_234.5,
    )
    return SimpleNamespace(promotion=SimpleNamespace(micro_batch_id=number), metrics=metrics)


def wide() -> Topology:
    builder = TopologyBuilder("words", Config(message_timeout_secs=1))
    builder.set_spout("lines", Lines())
    builder.set_bolt("split-sentences-into-words-and-punctuation", Split()).shuffle_grouping("lines")
    builder.set_bolt("count", Sink()).shuffle_grouping("split-sentences-into-words-and-punctuation")
    return builder.build()


def drawn_at(width: int, progress: Progress, *, committed: bool = True) -> list[str]:
    clock, console = Clock(), Console(file=io.StringIO(), width=width)
    display = LiveTable(console, clock)
    display.starting(wide())
    running = fake_running(progress)
    display.started(running)
    if committed:
        display.micro_batch(big(0), 0)
        clock.now = 2.0
        display.micro_batch(big(1), 7)
    clock.now = 75.0
    display.look(running)
    with console.capture() as drawn:
        console.print(display.picture())
    display.close()
    return drawn.get().rstrip().splitlines()


SNAPSHOTS = Path(__file__).parent / "snapshots"
RUNS = Progress(2, 31.5, 1, 2, {"lines": (1_000, 0), "count": (0, 21_000)})


@pytest.mark.parametrize("width", [40, 80, 120])
def test_at_no_width_a_number_or_a_header_is_cut(width: int) -> None:
    lines = drawn_at(width, RUNS)
    assert max(map(len, lines)) <= width
    assert "\n".join(line.rstrip() for line in lines) + "\n" == (SNAPSHOTS / f"live_{width}.txt").read_text()
    words = set(" ".join(lines).split())
    assert words & {"63.2M", "63,222,243"}


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (Progress(), "waiting for data: lines has read nothing yet"),
        (Progress(0, 3.2, 1, 2), "micro-batch 0 runs for 3 s: level 1 of 2"),
        (
            Progress(0, 3.2, 1, 2, {"count": (0, 21_000)}),
            "micro-batch 0 runs for 3 s: level 1 of 2, 21,000 executed so far",
        ),
        (
            Progress(0, 31, 1, 2, hung=("count[1] is in execute for 31 s with ['a']",)),
            "count[1] is in execute for 31 s",
        ),
    ],
)
def test_before_the_first_commit_the_live_table_says_what_is_going_on(progress: Progress, said: str) -> None:
    assert said in " ".join(drawn_at(80, progress, committed=False))


def test_what_a_long_micro_batch_has_done_so_far_is_in_the_table() -> None:
    (count,) = (line for line in drawn_at(120, RUNS) if line.startswith("count"))
    assert "63,222,243" in count


def test_what_is_committed_meanwhile_is_not_counted_twice() -> None:
    (count,) = (line for line in drawn_at(120, replace(RUNS, micro_batch_id=1)) if line.startswith("count"))
    assert "63,201,243" in count


def test_plain_lines_go_on_within_a_long_micro_batch_and_say_once_that_nothing_comes() -> None:
    out, clock = io.StringIO(), Clock()
    display = PlainLines(out, clock)
    display.starting(build())
    for progress, until in ((Progress(), 60), (Progress(0, 12.0, 1, 1, {"split": (0, 5)}), 70)):
        running = fake_running(progress)
        while clock.now < until:
            clock.now += 0.25
            display.look(running)
    *_, waits, first, second = out.getvalue().splitlines()
    assert waits == "    5.0 s  waiting for data: lines has read nothing yet"
    assert first == "   60.2 s  micro-batch 0 runs for 12 s: level 1 of 1, 5 executed so far"
    assert second.startswith("   65.2 s  micro-batch 0 runs")


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
        (Outcome("stopped", 1.0, drained=False, time_over=True), 4),
        (Outcome("stopped", 1.0, drained=True, time_over=True), 0),
        (Outcome("stopped", 1.0, drained=True, retries=200), 130),
        (Outcome("stopped", 1.0, drained=True, retries=200, time_over=True), 4),
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
    finishes: bool = True
    runs: int | None = None
    """The micro-batch that never ends."""
    calls: tuple[CallSight, ...] = ()
    """What the driver is in."""
    trouble: str | None = None
    waits_for: str | None = None
    set_aside_here: Mapping[str, int] = field(default_factory=dict)
    dead_letters_directory: str = "state/words/dead-letters"

    def progress(self) -> Progress:
        return Progress(self.runs, calls=self.calls)

    def _wait(self, answer: bool) -> bool:
        if self.failure is not None:
            raise EngineError(self.failure)
        if self.signals:
            signal.raise_signal(self.signals.pop(0))
        return answer

    def on_micro_batch(self, listener: Any) -> None:
        listener(report(0, 1))

    def await_finished(self, timeout_secs: float) -> bool:
        return self._wait(self.finishes and not self.signals)

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

    outages: tuple[str, ...] = ()


def outcome_of(
    monkeypatch: pytest.MonkeyPatch, limits: Limits | None = None, checkpoint: str | None = "here", **fake: Any
) -> tuple[Outcome, str]:
    topology, out = build(), io.StringIO()
    monkeypatch.setattr(Topology, "start", lambda self, **options: FakeRunning(topology, **fake))
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    outcome = perform(topology, PlainLines(out), limits, checkpoint=checkpoint)
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


def test_a_micro_batch_that_does_not_end_is_broken_off_by_the_first_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: dict[str, Any] = {"signals": [signal.SIGINT], "drains": False, "runs": 1}
    outcome, text = outcome_of(monkeypatch, Limits(drain_secs=0.0), **fake)
    assert (outcome.kind, outcome.drained, outcome.broken_off, outcome.exit_code) == ("stopped", False, 1, 130)
    last = text.splitlines()[-1]
    assert "2 trees and micro-batch 1, which was broken off, left for replay (the next run with this check" in last


def test_how_long_a_micro_batch_may_run_on_is_said_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = build()
    running = FakeRunning(topology, [signal.SIGINT], drains=False, runs=1)
    monkeypatch.setattr(Topology, "start", lambda self, **options: running)
    options: dict[str, Any] = {"drain_secs": 0.0, "display": PlainLines(io.StringIO())}
    with pytest.raises(KeyboardInterrupt, match="open trees are left for replay") as raised:
        topology.run(checkpoint="state", **options)
    assert isinstance(raised.value, SystemExit), "a program that does not catch it ends without a traceback"
    assert raised.value.code == 130
    running = FakeRunning(topology, [signal.SIGINT], drains=False, runs=1)
    with pytest.raises(KeyboardInterrupt, match="open trees are lost to it: there is no checkpoint to replay from"):
        topology.run(**options)


def test_a_micro_batch_that_does_not_end_is_broken_off_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: dict[str, Any] = {"signals": [], "drains": False, "runs": 1, "finishes": False}
    outcome, text = outcome_of(monkeypatch, Limits(0.0, drain_secs=0.0), None, **fake)
    assert (outcome.broken_off, outcome.time_over, outcome.exit_code) == (1, True, 4)
    assert text.splitlines()[-1].endswith("left for replay (and there is no --checkpoint to replay from)")


def hung(secs: float, *, waited_for: bool = True) -> CallSight:
    return CallSight(Doing(3), secs, what="told of spout 'lines'", waited_for=waited_for)


def test_a_call_in_the_driver_that_does_not_return_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: dict[str, Any] = {"signals": [signal.SIGINT], "drains": False, "calls": (hung(1.0),)}
    outcome, _ = outcome_of(monkeypatch, Limits(drain_secs=0.0), **fake)
    assert (outcome.kind, outcome.broken_off, outcome.exit_code) == ("stopped", None, 130)


def test_when_the_time_is_over_while_a_call_in_the_driver_hangs_that_is_what_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake: dict[str, Any] = {"signals": [], "finishes": False, "waits_for": "Spark has not run its first micro-batch"}
    outcome, text = outcome_of(monkeypatch, Limits(0.0), calls=(hung(1.0), hung(12.4)), **fake)
    assert (outcome.kind, outcome.exit_code) == ("failed", 1)
    assert "when its time was over: told of spout 'lines' has not returned for 12 s" in text
    fake["waits_for"] = None
    outcome, _ = outcome_of(monkeypatch, Limits(0.0), calls=(hung(1.0), hung(9.0, waited_for=False)), **fake)
    assert (outcome.kind, outcome.exit_code) == ("stopped", 0), "a call may take a moment"


@pytest.mark.parametrize(
    ("fake", "said"),
    [
        ({"waits_for": "queue[0]: open has not returned"}, "it never came up: queue[0]: open has not returned"),
        ({"trouble": "its query failed"}, "its query failed"),
        ({"trouble": "its query failed", "waits_for": "Spark"}, "its query failed"),
    ],
)
def test_when_the_time_is_over_for_what_never_came_up_or_fails_just_now_that_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, fake: dict[str, Any], said: str
) -> None:
    outcome, text = outcome_of(monkeypatch, Limits(0.0), signals=[], finishes=False, **fake)
    assert (outcome.kind, outcome.exit_code) == ("failed", 1)
    assert f"when its time was over: {said}" in text
    outcome, _ = outcome_of(monkeypatch, signals=[signal.SIGINT], finishes=False, **fake)
    assert (outcome.kind, outcome.exit_code) == ("stopped", 0), "somebody has stopped it"


def test_a_run_whose_time_is_over_before_anything_is_committed_says_to_give_it_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "no micro-batch was committed in that time: if there was something to read, give it longer"
    fake: dict[str, Any] = {"signals": [], "drains": False, "runs": 0, "finishes": False}
    _, text = outcome_of(monkeypatch, Limits(0.0, drain_secs=0.0), **fake)
    assert said not in text
    monkeypatch.setattr(FakeRunning, "on_micro_batch", lambda self, listener: None)
    outcome, text = outcome_of(monkeypatch, Limits(0.0, drain_secs=0.0), **fake)
    assert said in text.splitlines()[-1]
    assert outcome.exit_code == 4
    fake = {"signals": [], "finishes": False, "waits_for": "Spark has not run its first micro-batch"}
    _, text = outcome_of(monkeypatch, Limits(0.0), **fake)
    assert "Spark has not run its first micro-batch; give it longer" in text.splitlines()[-1]


def test_from_when_the_time_counts_is_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    assert "counted from when Spark is up" in " ".join(capsys.readouterr().out.split())


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


def test_a_start_that_goes_on_after_a_signal_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "DRAIN_SECS", 0.05)
    requests = program.StopRequests()
    with requests.caught():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            threading.Event().wait(30)
    assert requests.count == 2
