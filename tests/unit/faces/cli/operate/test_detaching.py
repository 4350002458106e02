"""``sparkbolt run --detach``: whoever starts a topology learns how it came up; its process has no terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt.control.documents import TopologyState
from sparkbolt.control.log_reading import last_lines
from sparkbolt.control.logs import LogFormat, TopologyLog
from sparkbolt.control.verdicts import verdict_of
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.display import PlainLines
from sparkbolt.faces.cli.operate import detaching
from sparkbolt.faces.cli.operate.detaching import READY_ENV, Detached, await_word, log_directory, ready, start_detached
from sparkbolt.faces.cli.program import RunEnd, RunOutcome
from tests.unit.control.topologies import entry_of
from tests.unit.faces.cli.words import build


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            pass  # it was closed by what is tested


def running(waits_for: str | None = None, trouble: str | None = None) -> Any:
    progress = SimpleNamespace(micro_batch_id=None, sentence="", hung=())
    return SimpleNamespace(progress=lambda: progress, waits_for=waits_for, outages=(), trouble=trouble)


# The one who waits.


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Let ``detach`` start some code, which finds the pipe's number in ``telling``."""
    head = f"import os, sys\ntelling = int(os.environ[{READY_ENV!r}])\n"
    real, started = subprocess.Popen, []

    def give(code: str) -> None:
        def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
            started.append(real([sys.executable, "-c", head + code, *command[3:]], **options))
            return started[-1]

        monkeypatch.setattr(detaching.subprocess, "Popen", start)

    yield give
    for process in started:
        process.kill()
        process.wait()


def detached(tmp_path: Path, *given: str) -> int:
    return start_detached(build(), ["run", "a:b", "--detach", *given], str(tmp_path / "log"), LogFormat.TEXT)


def test_a_detached_topology_is_up_once_it_is_listed_and_an_inactive_one_is_said_to_be_inactive(
    tmp_path: Path,
    child: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = iter([TopologyState.STARTING, TopologyState.STARTING, TopologyState.INACTIVE])

    def entries(self: Any) -> list[Any]:
        pid = int(capsys.readouterr().out.partition("process ")[2].partition(",")[0] or pids[-1])
        pids.append(pid)
        entry = entry_of("words-1-100", pid=pid, state=next(states), why="deactivated by ann")
        return [{**entry, "verdict": verdict_of(entry)}]

    pids: list[int] = []
    monkeypatch.setattr(detaching.Home, "entries", entries)
    child("os.write(telling, b'up \\n')")
    assert detached(tmp_path) == 0
    said = "words is up, but inactive: deactivated by ann (`sparkbolt activate words` starts its spouts); "
    assert capsys.readouterr().out.startswith(said)
    assert next(states, None) is None, "it was listed as starting until then"


@pytest.mark.parametrize(
    ("code", "expected", "said"),
    [
        ("os.write(telling, b'up \\n')", 0, "words is up; `sparkbolt tail words -f` shows its log"),
        ("os.write(telling, b'finished after 3 s\\n')", 0, "words has finished already, after 3 s\n"),
        ("os.write(telling, b'finished after 3 s\\n'); sys.exit(3)", 3, "after 3 s; messages were given up"),
        ("os.write(telling, b'failed after 3 s\\n'); sys.exit(1)", 1, "words did not come up (exit code 1)"),
        ("print('Fatal error'); sys.stdout.flush(); os.abort()", 1, "(signal 6); the end of its log:\n  Fatal error\n"),
        ("sys.exit(4)", 4, "words did not come up (exit code 4)"),
    ],
)
def test_message_and_exit_code_report_how_a_detached_topology_started(
    tmp_path: Path,
    child: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
    code: str,
    expected: int,
    said: str,
) -> None:
    child(code)
    assert detached(tmp_path) == expected
    out, err = capsys.readouterr()
    assert out.startswith("words: starting as process ")
    assert said in out + err


def test_a_topology_that_is_not_up_in_time_is_reported_as_continuing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    child: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    child("import signal; signal.pause()")
    monkeypatch.setattr(detaching, "UP_SECS_MAX", 0.0)
    assert detached(tmp_path) == 4
    assert "words is not up after 0 s and is still starting" in capsys.readouterr().out


def test_process_has_its_own_session_its_own_arguments_and_no_input(
    tmp_path: Path, child: Callable[[str], None]
) -> None:
    code = (
        "print(os.getsid(0) == os.getpid(), sys.stdin.read() == '', sys.argv[1:], flush=True)\n"
        "os.write(telling, b'finished \\n')"
    )
    child(code)
    assert detached(tmp_path, "--log-dir", "elsewhere", "--for", "3s") == 0
    said = (tmp_path / "log" / "words.out").read_text()
    assert said == f"True True ['run', 'a:b', '--for', '3s', '--log-dir={tmp_path}/log']\n"


@pytest.mark.slow
def test_a_topology_that_fails_before_it_is_up_shows_the_end_of_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A real process: its checkpoint is refused before Spark is started."""
    (tmp_path / "state").write_text("no directory")
    log, state = str(tmp_path / "log"), str(tmp_path / "state")
    run = ["run", "tests.unit.faces.cli.words:build", "--checkpoint", state, "--detach", "--log-dir", log]
    assert main(run) == 1
    said = capsys.readouterr().err
    assert "words did not come up (exit code 1); the end of its log:\n" in said
    assert "ERROR    | failed after " in said
    assert "is no directory" in said
    assert (tmp_path / "log" / "words.log").exists()


def test_logs_of_detached_topologies_are_kept_in_the_home_and_the_oldest_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKBOLT_HOME", str(tmp_path))
    monkeypatch.setattr(detaching, "LOGS_MAX", 2)
    for number in range(4):
        old = tmp_path / "logs" / f"old-{number}"
        old.mkdir(parents=True)
        (old / "old.log").touch()
        os.utime(old / "old.log", (1_000_000 + number, 1_000_000 + number))
    assert log_directory("my words").startswith(str(tmp_path / "logs" / "my_words-"))
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["old-2", "old-3"]
    monkeypatch.setenv("SPARKBOLT_HOME", "hdfs://host/sparkbolt")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert log_directory("words").startswith(str(tmp_path / ".local" / "state" / "sparkbolt" / "logs"))


# The detached process.


def test_a_detached_process_is_up_when_it_waits_for_nothing(tmp_path: Path, pipe: tuple[int, int]) -> None:
    listening, telling = pipe
    with TopologyLog(tmp_path, "words") as log:
        display = Detached(log, telling)
        display.starting(build())
        display.look(running(waits_for="lines[0]: open has not returned"))
        display.look(running(trouble="its query failed"))
        assert await_word(listening, 0.0) is None
        display.look(running())
        assert await_word(listening, 10.0) == "up"
        display.summary(RunOutcome(RunEnd.STOPPED, 3.0, drained=True))
    texts = [line["text"] for line in last_lines(str(tmp_path), "words")]
    assert texts == ["words: starting Spark", "stopped after 3.0 s, 0 micro-batches"]


def test_a_failing_detached_process_reports_it_once(tmp_path: Path, pipe: tuple[int, int]) -> None:
    listening, telling = pipe
    with TopologyLog(tmp_path, "words") as log:
        display = Detached(log, telling)
        display.summary(RunOutcome(RunEnd.FAILED, 3.0, failure="the disk is full"))
        display.tell("up", "")
    assert os.read(listening, 100) == b"failed after 3.0 s\n"
    said = [(line["level"], line["text"]) for line in last_lines(str(tmp_path), "words")]
    assert said == [("ERROR", "failed after 3.0 s: the disk is full")]


def test_the_log_of_a_detached_process_contains_everything_that_it_prints(
    tmp_path: Path, pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listening, telling = pipe
    monkeypatch.setenv(READY_ENV, str(telling))

    def work() -> None:
        with ready(PlainLines()) as display:
            assert isinstance(display, Detached)
            assert READY_ENV not in os.environ
            print("a print")
            print("an error", file=sys.stderr)
            display.printed("logged by the pipe of tasks already\n")
            raise RuntimeError("unexpected")

    with TopologyLog(tmp_path, "words"), pytest.raises(RuntimeError):
        work()
    assert capsys.readouterr() == ("", "")
    texts = [line["text"] for line in last_lines(str(tmp_path), "words")]
    assert texts == ["a print", "an error", "RuntimeError: unexpected"]
    assert await_word(listening, 10.0) == "failed"
