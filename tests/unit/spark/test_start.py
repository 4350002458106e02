"""What ``topology.start`` refuses before it touches anything."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt import BasicBolt, CheckpointError, EngineError, Topology, TopologyBuilder
from sparkbolt.spark import starting as starting_module
from sparkbolt.spark.starting import start
from sparkbolt.spouts import GeneratorSpout


class Nothing(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        pass


def build() -> Topology:
    builder = TopologyBuilder("nothing")
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(10)), ["number"]))
    builder.set_bolt("nothing", Nothing()).shuffle_grouping("numbers")
    return builder.build()


class DeadJvm:
    """What py4j gives when nobody listens any more."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")


def test_a_session_whose_jvm_has_died_is_named_and_not_the_checkpoint(tmp_path: Path) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=DeadJvm()))
    with pytest.raises(EngineError, match=r"Spark's JVM has died, .* in a new process"):
        start(build(), spark=session, checkpoint=str(tmp_path / "state"))
    assert not (tmp_path / "state").exists()


HOLDER = """
import fcntl, os, sys
lock = open(sys.argv[1] + "/lock", "wb")
fcntl.lockf(lock, fcntl.LOCK_EX)
open(sys.argv[1] + "/owner", "w").write(sys.argv[2].format(os.getpid()))
print("locked", flush=True)
sys.stdin.read()
"""


class SparkIsStartedError(Exception):
    """Somebody asked for a session."""


@pytest.fixture
def hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Another process locks ``tmp_path`` and says who it is."""

    def make_session(*_: Any) -> Any:
        raise SparkIsStartedError

    monkeypatch.setattr(starting_module, "make_session", make_session)
    with ExitStack() as stack:

        def begin(owner: str) -> Any:
            command = [sys.executable, "-c", HOLDER, str(tmp_path), owner]
            process = stack.enter_context(Popen(command, stdin=PIPE, stdout=PIPE, text=True))
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
            return process

        yield begin


OWNER = "another driver (process {0}, its JVM is {0})"


def test_a_checkpoint_that_another_driver_has_is_refused_before_spark_is_started(hold: Any, tmp_path: Path) -> None:
    process = hold(OWNER)
    said = rf"^checkpoint {tmp_path} is in use by another driver \(process {process.pid}, .*: stop that one first"
    with pytest.raises(CheckpointError, match=said):
        start(build(), checkpoint=f"file://{tmp_path}")
    process.communicate()
    with pytest.raises(SparkIsStartedError):
        start(build(), checkpoint=tmp_path)


@pytest.mark.parametrize("owner", ["another driver (process 4194304, its JVM is {0})", "another driver", ""])
def test_a_checkpoint_whose_driver_is_dead_or_unknown_is_waited_for(hold: Any, tmp_path: Path, owner: str) -> None:
    hold(owner)
    with pytest.raises(SparkIsStartedError):
        start(build(), checkpoint=tmp_path)


def test_a_checkpoint_that_was_never_locked_is_none_in_use(hold: Any, tmp_path: Path) -> None:
    with pytest.raises(SparkIsStartedError):
        start(build(), checkpoint=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("used", [True, False])
def test_a_checkpoint_of_another_user_is_refused_before_spark_is_started(
    used: bool, hold: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if used:
        hold("")
    else:
        (tmp_path / "lock").touch()
    monkeypatch.setattr("os.access", lambda path, mode: False)  # the superuser may write everywhere
    with pytest.raises(CheckpointError, match=r"cannot be locked .+ run as the user"):
        start(build(), checkpoint=tmp_path)
