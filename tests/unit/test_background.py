"""A call in the background has a deadline, returns, and raises where it is waited for."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future

import pytest

from sparkbolt.background import DeadlineError, in_background, within


def test_a_call_returns_its_result() -> None:
    assert within(30.0, lambda: threading.current_thread().name, "asks") == "asks"


def test_exception_of_a_call_is_raised_where_the_call_is_awaited() -> None:
    def leave() -> None:
        raise SystemExit(3)

    def is_late() -> None:
        raise TimeoutError("of its own")

    with pytest.raises(SystemExit):
        within(30.0, leave, "asks")
    with pytest.raises(TimeoutError, match="of its own") as raised:
        within(30.0, is_late, "asks")
    assert not isinstance(raised.value, DeadlineError)


def test_a_call_that_hangs_is_abandoned() -> None:
    hangs = threading.Event()
    with pytest.raises(DeadlineError, match=r"there is no answer within 0\.01 s"):
        within(0.01, hangs.wait, "asks")
    hangs.set()


def test_cancelling_does_not_stop_a_running_call() -> None:
    go_on = threading.Event()
    future: Future[bool] = in_background(go_on.wait, "asks")
    assert not future.cancel()
    go_on.set()
    assert future.result(30.0)


def test_a_call_that_hangs_does_not_keep_the_process_alive() -> None:
    code = (
        "import threading; from sparkbolt.background import in_background; in_background(threading.Event().wait, 'x')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
