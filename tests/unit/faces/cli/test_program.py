"""How a run ends: signals, time that is over, failures, messages that are given up; and its exit codes."""

from __future__ import annotations

import io
import logging
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import Topology, TopologyBuilder
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.progress import CallSight, Doing, Progress
from sparkbolt.control.log_reading import last_lines
from sparkbolt.errors import EngineError
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.display import PlainLines
from sparkbolt.faces.cli.dlq.summary import given_up_lines
from sparkbolt.faces.cli.program import Limits, RunOutcome, StopRequests, perform
from tests.topologies import Split
from tests.unit.faces.cli.words import Lines, build, report


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (RunOutcome("finished", 1.0), 0),
        (RunOutcome("stopped", 1.0, drained=True), 0),
        (RunOutcome("stopped", 1.0, drained=False), 130),
        (RunOutcome("stopped", 1.0, drained=False, time_over=True), 4),
        (RunOutcome("stopped", 1.0, drained=True, time_over=True), 0),
        (RunOutcome("stopped", 1.0, drained=True, retries=200), 130),
        (RunOutcome("stopped", 1.0, drained=True, retries=200, time_over=True), 4),
        (RunOutcome("failed", 1.0, drained=True), 1),
    ],
)
def test_an_outcome_has_its_exit_code(outcome: RunOutcome, code: int) -> None:
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
    killed: str | None = None
    exit_code: int | None = None
    is_running: bool = False
    given_up_here: Mapping[str, int] = field(default_factory=dict)
    dead_letters_directory: str = "state/words/dead-letters"
    drain_waits: int = 0
    """How often it was asked to wait until it is drained."""

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
        self.drain_waits += 1
        return self._wait(self.drains)

    def deactivate(self) -> None:
        self.deactivated = True

    def exits(self, exit_code: int) -> None:
        self.exit_code = exit_code

    def stop(self, drain: bool) -> bool:
        return self.drains and self.failure is None

    def close(self) -> None: ...

    def metrics(self) -> TopologyMetrics:
        return report(0, 1).metrics  # type: ignore[no-any-return]

    outages: tuple[str, ...] = ()


def outcome_of(
    monkeypatch: pytest.MonkeyPatch, limits: Limits | None = None, checkpoint: str | None = "here", **fake: Any
) -> tuple[RunOutcome, str]:
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


def test_a_run_with_a_disconnected_reader_stops_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    topology = build()
    monkeypatch.setattr(Topology, "start", lambda self, **options: FakeRunning(topology, [], finishes=False))
    outcome = perform(topology, PlainLines(Gone()))
    assert (outcome.kind, outcome.drained, outcome.exit_code) == ("failed", True, 1)
    with pytest.raises(EngineError, match="the reader of its output has closed the pipe"):
        topology.run(display=PlainLines(Gone()))


def test_a_hanging_micro_batch_is_interrupted_by_the_first_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    fake: dict[str, Any] = {"signals": [signal.SIGINT], "drains": False, "runs": 1}
    outcome, text = outcome_of(monkeypatch, Limits(drain_secs=0.0), **fake)
    assert (outcome.kind, outcome.drained, outcome.broken_off, outcome.exit_code) == ("stopped", False, 1, 130)
    last = text.splitlines()[-1]
    assert "2 trees and micro-batch 1, which was cancelled, left for replay (the next run with this check" in last


def test_a_killed_topology_ends_by_itself_and_its_exit_code_shows_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake: dict[str, Any] = {"signals": [], "finishes": False, "killed": "killed by alice"}
    outcome, text = outcome_of(monkeypatch, **fake)
    assert (outcome.kind, outcome.drained, outcome.exit_code) == ("stopped", True, 0)
    assert "stopped, killed by alice, after" in text
    assert outcome_of(monkeypatch, **fake, given_up_here={"lines": 1})[0].exit_code == 3
    assert outcome_of(monkeypatch, **fake, retries=1)[0].exit_code == 4
    assert outcome_of(monkeypatch, **fake, drains=False)[0].exit_code == 4


@pytest.mark.parametrize(
    ("fake", "said"),
    [
        ({"waits_for": "queue[0]: open has not returned"}, "it did not start in time: queue[0]: open has not returned"),
        ({"trouble": "its query failed"}, "its query failed"),
        ({"trouble": "its query failed", "waits_for": "Spark"}, "its query failed"),
    ],
)
def test_time_limit_is_a_failure_if_the_topology_never_started_or_is_failing(
    monkeypatch: pytest.MonkeyPatch, fake: dict[str, Any], said: str
) -> None:
    outcome, text = outcome_of(monkeypatch, Limits(0.0), signals=[], finishes=False, **fake)
    assert (outcome.kind, outcome.exit_code) == ("failed", 1)
    assert f"when its time was over: {said}" in text
    outcome, _ = outcome_of(monkeypatch, signals=[signal.SIGINT], finishes=False, **fake)
    assert (outcome.kind, outcome.exit_code) == ("stopped", 0), "somebody has stopped it"


def test_a_failure_is_reported_with_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, text = outcome_of(monkeypatch, signals=[], failure="'split' raised")
    assert (outcome.kind, outcome.exit_code) == ("failed", 1)
    assert "'split' raised" in text


def test_a_run_that_ends_by_itself_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, text = outcome_of(monkeypatch, signals=[])
    assert (outcome.kind, outcome.exit_code) == ("finished", 0)
    assert "finished after" in text


def test_a_run_that_sets_messages_aside_ends_with_exit_code_3_and_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome, text = outcome_of(monkeypatch, signals=[], given_up_here={"lines": 12})
    assert (outcome.kind, outcome.exit_code) == ("finished", 3)
    assert text.splitlines()[-1] == (
        "12 dead letters of lines are waiting: list them with `sparkbolt dlq list state/words/dead-letters`, "
        "give them back with `sparkbolt dlq replay state/words/dead-letters --spout lines`"
    )
    outcome, _ = outcome_of(monkeypatch, signals=[signal.SIGINT], given_up_here={"lines": 12})
    assert outcome.exit_code == 3
    outcome, _ = outcome_of(monkeypatch, signals=[signal.SIGINT] * 2, drains=False, given_up_here={"lines": 1})
    assert outcome.exit_code == 130, "what is left is the first thing to know"


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (
            "file:/tmp/x/dead letters.jsonl",
            "1 dead letter of lines is waiting: list them with `sparkbolt dlq list '/tmp/x/dead letters.jsonl'`, "
            "give them back with `sparkbolt dlq replay '/tmp/x/dead letters.jsonl' --spout lines`",
        ),
        (
            "log:",
            "1 message of lines was given up: the log and `sparkbolt errors` show them; Sparkbolt does not keep them",
        ),
        (print, "their dead letters went to FunctionSink"),
    ],
)
def test_location_of_given_up_messages_depends_on_the_spout(way: Any, said: str) -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("lines", Lines(), dead_letters=way)
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    [line] = given_up_lines({"lines": 1}, builder.build(), "state/dead-letters")
    assert said in line
    [line] = given_up_lines({"lines": 1}, builder.build(), "/tmp/dead-letters-of-words-1f/dead-letters")
    assert ("--into FILE" in line) == ("dlq replay" in said), "without a checkpoint nothing can go back"


def test_two_signals_during_a_start_interrupt_it() -> None:
    requests = StopRequests()
    with requests.caught():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_log_directory_receives_logged_and_printed_lines_and_they_are_still_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = build()

    def start(self: Topology, **options: Any) -> FakeRunning:
        assert options == {"checkpoint": "here"}
        print("a spout opens")
        logging.getLogger("sparkbolt").warning("it is slow", extra={"component": "split", "task": 1})
        return FakeRunning(topology, [])

    monkeypatch.setattr(Topology, "start", start)
    out = io.StringIO()
    topology.run(checkpoint="here", display=PlainLines(out), log_dir=tmp_path)
    assert capsys.readouterr().out == "a spout opens\n"
    assert "finished after" in out.getvalue()
    first, *lines, last = last_lines(str(tmp_path), "words")
    assert first["text"] == "words: starting Spark"
    assert last["text"].startswith("finished after ")
    assert [(line["level"], line["component"], line["task"], line["text"]) for line in lines] == [
        ("PRINT", None, None, "a spout opens"),
        ("WARNING", "split", 1, "it is slow"),
    ]


def test_an_unwritable_log_is_reported_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["run", "tests.unit.faces.cli.words:build", "--log-dir", str(tmp_path / "file" / "logs")]) == 1
    assert "name another directory with --log-dir" in capsys.readouterr().err


def test_a_run_that_times_out_before_anything_is_committed_advises_a_longer_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = "no micro-batch was committed in that time: if there is data to read, use a longer time"
    fake: dict[str, Any] = {"signals": [], "drains": False, "runs": 0, "finishes": False}
    _, text = outcome_of(monkeypatch, Limits(0.0, drain_secs=0.0), **fake)
    assert said not in text
    monkeypatch.setattr(FakeRunning, "on_micro_batch", lambda self, listener: None)
    outcome, text = outcome_of(monkeypatch, Limits(0.0, drain_secs=0.0), **fake)
    assert said in text.splitlines()[-1]
    assert outcome.exit_code == 4
    fake = {"signals": [], "finishes": False, "waits_for": "Spark has run no micro-batch since the start"}
    _, text = outcome_of(monkeypatch, Limits(0.0), **fake)
    assert "Spark has run no micro-batch since the start; use a longer time" in text.splitlines()[-1]


def test_run_reports_how_long_a_micro_batch_may_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = build()
    running = FakeRunning(topology, [signal.SIGINT], drains=False, runs=1)
    monkeypatch.setattr(Topology, "start", lambda self, **options: running)
    options: dict[str, Any] = {"drain_secs": 0.0, "display": PlainLines(io.StringIO())}
    with pytest.raises(KeyboardInterrupt, match="open trees are left for replay") as raised:
        topology.run(checkpoint="state", **options)
    assert isinstance(raised.value, SystemExit), "a program that does not catch it ends without a traceback"
    assert raised.value.code == 130
    running = FakeRunning(topology, [signal.SIGINT], drains=False, runs=1)
    with pytest.raises(KeyboardInterrupt, match="open trees are lost, because it has no checkpoint"):
        topology.run(**options)


def hung(secs: float, *, waited_for: bool = True) -> CallSight:
    return CallSight(Doing(3), secs, what="told of spout 'lines'", waited_for=waited_for)


def test_time_limit_reports_the_hanging_call_in_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake: dict[str, Any] = {
        "signals": [],
        "finishes": False,
        "waits_for": "Spark has run no micro-batch since the start",
    }
    outcome, text = outcome_of(monkeypatch, Limits(0.0), calls=(hung(1.0), hung(12.4)), **fake)
    assert (outcome.kind, outcome.exit_code) == ("failed", 1)
    assert "when its time was over: told of spout 'lines' has not returned for 12 s" in text
    fake["waits_for"] = None
    outcome, _ = outcome_of(monkeypatch, Limits(0.0), calls=(hung(1.0), hung(9.0, waited_for=False)), **fake)
    assert (outcome.kind, outcome.exit_code) == ("stopped", 0), "a call may take a moment"


def reloaded(
    monkeypatch: pytest.MonkeyPatch, broken: int = 0
) -> tuple[RunOutcome, list[tuple[Topology, dict[str, Any]]]]:
    """A run whose code changes until it has started twice; the starts of the first ``broken`` changes fail."""
    first, starts = build(), []

    def start(self: Topology, **options: Any) -> FakeRunning:
        starts.append((self, options))
        if 1 < len(starts) <= 1 + broken:
            raise EngineError("the spout cannot be opened")
        ends = len(starts) == 2 + broken
        return FakeRunning(self, [], finishes=ends, given_up_here={"lines": 2})

    monkeypatch.setattr(Topology, "start", start)
    display = PlainLines(io.StringIO())
    options = {"checkpoint": "here", "master": "local[2]", "apply": True}
    return perform(first, display, Limits(600.0), lambda running: build(), **options), starts


def test_a_run_begins_again_with_changed_code_and_counts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, starts = reloaded(monkeypatch)
    assert (outcome.kind, outcome.committed, outcome.given_up) == ("finished", 2, {"lines": 4})
    (before, options), (after, again) = starts
    assert before is not after
    assert options == {"open_secs": 600.0, "checkpoint": "here", "master": "local[2]", "apply": True}
    assert 0 < again.pop("open_secs") < 600.0, "the time of the run goes on"
    assert again == {"checkpoint": "here"}, "the session is there, and the first start was decided"


def test_changed_code_that_cannot_be_started_waits_for_the_next_change(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outcome, starts = reloaded(monkeypatch, broken=2)
    assert (outcome.kind, len(starts)) == ("finished", 4)
    assert caplog.text.count("cannot be started, so the topology waits for the next change: the spout cannot be") == 2
