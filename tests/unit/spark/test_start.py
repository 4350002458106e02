"""What ``topology.start`` refuses before it touches anything."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import java_gateway

from sparkbolt import BasicBolt, Topology, TopologyBuilder
from sparkbolt.errors import CheckpointError, EngineError
from sparkbolt.spark import session as session_module
from sparkbolt.spark import starting as starting_module
from sparkbolt.spark.starting import start
from sparkbolt.spouts import GeneratorSpout
from tests.unit.control.test_home import wait_for


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


def test_a_session_with_a_dead_jvm_is_named_instead_of_the_checkpoint(tmp_path: Path) -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jvm=DeadJvm()))
    with pytest.raises(EngineError, match=r"Spark's JVM has died, .* in a new process"):
        start(build(), spark=session, checkpoint=str(tmp_path / "state"))
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"checkpoint": "file/state"}, CheckpointError, "file is no directory"),
        ({"py_files": ["gone.py"]}, EngineError, "'gone.py', which does not exist"),
        ({"master": "lcal[2]"}, EngineError, r"there is no master 'lcal\[2\]'"),
    ],
)
def test_mistakes_detectable_without_spark_are_refused_before_spark_starts(
    options: dict[str, Any], error: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session_module.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session_module, "_new_session", lambda *_: pytest.fail("Spark was started"))
    with pytest.raises(error, match=said):
        start(build(), **options)


def test_a_jvm_with_an_interrupted_start_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-C; the script stands in for Spark's, whose JVM would not end by itself."""
    script = tmp_path / "bin/spark-submit"
    script.parent.mkdir()
    script.write_text(
        '#!/bin/sh\necho $$ > "${0%/bin/*}/pid.part"\nmv "${0%/bin/*}/pid.part" "${0%/bin/*}/pid"\nexec sleep 600\n'
    )
    script.chmod(0o700)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    before = java_gateway.Popen

    def interrupt() -> None:
        wait_for(lambda: (tmp_path / "pid").exists())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt), session_module._jvm_ends_with_its_start():
        java_gateway.launch_gateway()
    interrupter.join()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert java_gateway.Popen is before


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
def test_a_checkpoint_with_a_dead_or_unknown_driver_is_waited_for(hold: Any, tmp_path: Path, owner: str) -> None:
    hold(owner)
    with pytest.raises(SparkIsStartedError):
        start(build(), checkpoint=tmp_path)


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
