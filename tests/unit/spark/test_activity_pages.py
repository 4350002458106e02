"""Pages between real processes: what a worker is at is seen from outside, also when it cannot run another thread."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkbolt.api.progress import Activity, Sight
from sparkbolt.spark import activity_pages as pages_module
from sparkbolt.spark.activity_pages import LookOut, Pages, warning
from sparkbolt.worker.activity import Hangs

PATIENCE_SECS = 100
PAUSE = threading.Event()
WORKER = """
import sys, threading
from sparkbolt.api.progress import Activity
from sparkbolt.spark import activity_pages
from sparkbolt.spark.activity_pages import LookOut
from sparkbolt.worker import activity

activity_pages.LOOK_EVERY_SECS, activity.SHOWN_AFTER_SECS = 0.01, 0.0

class Task:
    current = 4, ["a word"], 0

def call_of_a_user():
    monitor.begin(Activity.EXECUTE, 3, 10, Task)
    print("at it", flush=True)
    threading.Event().wait()

monitor = LookOut(sys.argv[1], lambda task: ("count", 0)).monitor
monitor.stage(7, {})
call_of_a_user()
"""


@contextmanager
def worker(folder: Path) -> Iterator[subprocess.Popen[str]]:
    script = folder / "hanging.py"
    script.write_text(WORKER)
    with subprocess.Popen(
        [sys.executable, str(script), str(folder / "pages")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "at it\n"
            yield process
        finally:
            process.kill()


def seen(pages: Pages, name: str, what: str) -> Sight:
    """The sight whose sentence holds ``what``, once there is one."""
    until = time.monotonic() + PATIENCE_SECS
    while time.monotonic() < until:
        sight = pages.sights().get(name)
        if sight is not None and what in sight.sentence(lambda task: ("count", task)):
            return sight
        PAUSE.wait(0.02)
    raise AssertionError(f"process {name} was not seen at {what!r}: {pages.sights()}")


def test_a_hanging_call_is_detected_with_its_tuple_and_its_line_and_its_process_is_killed(tmp_path: Path) -> None:
    pages = Pages(str(tmp_path / "pages"))
    with worker(tmp_path) as process:
        name = str(process.pid)
        sight = seen(pages, name, "with ['a word'] (tuple 5 of 10 of its frame), at hanging.py:16, in call_of_a_user")
        assert (sight.doing.micro_batch_id, sight.doing.activity, sight.doing.task) == (7, Activity.EXECUTE, 3)
        assert pages.kill_busy() == 1
        assert process.wait() == -signal.SIGKILL
    assert pages.sights() == {}
    assert list(Path(pages.directory).iterdir()) == []


def test_worker_logs_the_hang_itself_if_the_driver_is_on_another_machine(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_module, "Hangs", lambda: Hangs(hung_secs=0.0))
    monkeypatch.setattr(pages_module, "LOOK_EVERY_SECS", 0.001)
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        look_out = LookOut(None, lambda task: ("count", 1))
        with look_out.monitor.at(Activity.FLUSH, 1):
            until = time.monotonic() + PATIENCE_SECS
            while not caplog.records and time.monotonic() < until:
                PAUSE.wait(0.02)
        look_out.close()
    assert caplog.records[0].getMessage().startswith("count[1] has been in flush for 0 s")
    assert "Ctrl-C or stop() breaks it off" in warning(Sight(look_out.monitor.doing), lambda task: ("count", 1))
