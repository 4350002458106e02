"""Background calls: a function that runs in a thread of its own, for callers that wait for it with a deadline.

Unlike those of ``ThreadPoolExecutor`` the threads are daemons, so a call that hangs does not keep the process alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Answer = TypeVar("Answer")


class DeadlineError(TimeoutError):
    """A call has not returned in time; its thread is abandoned."""


def in_background(function: Callable[[], Answer], name: str) -> Future[Answer]:
    """Call a function in a daemon thread named ``name``; the future cannot be cancelled.

    >>> in_background(lambda: 7, "sparkbolt-example").result()
    7
    """
    future: Future[Answer] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001  raised where the result is awaited
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def within(secs: float, function: Callable[[], Answer], name: str) -> Answer:
    """Call a function in a daemon thread, and return its result.

    Raises:
        DeadlineError: The function has not returned within ``secs`` seconds.
        BaseException: Any exception that the function raises.
    """
    future = in_background(function, name)
    if not wait([future], secs).done:
        raise DeadlineError(f"there is no answer within {secs:g} s")
    return future.result()
