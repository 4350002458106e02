"""The servers of the tests keep their rules: they come back as they were, and end with who started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.services import Kafka, ZooKeeper
from tests.services.__main__ import main

pytestmark = pytest.mark.service

SLEEPER = """
import signal, sys, threading
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
sys.path.insert(0, {root!r})
from tests.services.server import Server

class Sleeper(Server):
    address = "nowhere"
    def prepare(self): ...
    def command(self): return ["sleep", "600"], {{}}
    def answers(self): return True

with Sleeper({directory!r}) as server:
    print(server.process.pid, flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_server_ends_with_the_process_that_started_it(how: signal.Signals, tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    program = SLEEPER.format(root=root, directory=str(tmp_path / "sleeper"))
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert starter.stdout is not None
    server = psutil.Process(int(starter.stdout.readline()))
    starter.send_signal(how)
    starter.wait(10)
    starter.stdout.close()
    assert not psutil.wait_procs([server], timeout=10)[1]


def test_command_receives_the_server_addresses_and_its_exit_code_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    program = f"import os, sys; open({str(told)!r}, 'w').write(os.environ['SPARKBOLT_TEST_X']); sys.exit(7)"
    server = ZooKeeper(tmp_path / "zookeeper")
    monkeypatch.setattr("tests.services.__main__.make", lambda _: {"SPARKBOLT_TEST_X": server})
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # these handlers are for a process of its own
    assert main([sys.executable, "-c", program]) == 7
    assert told.read_text() == server.address
    assert server.process is None


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    kafka = Kafka(tmp_path / "kafka", {"process.roles": "nothing"})
    with pytest.raises(RuntimeError, match=r"process\.roles"):
        kafka.start()
    assert os.listdir(tmp_path / "kafka")
