"""The handle of a running topology in asyncio, over an engine that finishes when the test says so."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from sparkbolt import RunningTopology
from sparkbolt.api import running as running_module
from sparkbolt.errors import EngineError
from tests.patience import PATIENCE_SECS


class Partial(RunningTopology):
    """Blocks in ``await_finished`` as the engine does, and notes how it is stopped."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.failure_ = ""
        self.began = threading.Event()
        self.waiting = 0
        self.drained: list[bool] = []

    def await_finished(self, timeout_secs: float | None = None) -> bool:
        self.began.set()
        self.waiting += 1
        try:
            if self.failure_:
                raise EngineError(self.failure_)
            return self.done.wait(timeout_secs)
        finally:
            self.waiting -= 1

    def stop(self, drain: bool = True, timeout_secs: float | None = None) -> bool:
        assert threading.current_thread() is not threading.main_thread(), "it would block the event loop"
        self.drained.append(drain)
        return True


Partial.__abstractmethods__ = frozenset()  # what these tests do not call
Handle: Any = Partial


def test_wait_leaves_the_event_loop_free_until_the_topology_has_finished() -> None:
    async def program() -> Any:
        running = Handle()
        waiting = asyncio.create_task(running.wait())
        await asyncio.to_thread(running.began.wait, PATIENCE_SECS)
        assert not waiting.done()
        running.done.set()  # the loop gets here while it is awaited
        return await waiting

    assert asyncio.run(program())


def test_wait_returns_false_when_its_time_is_over() -> None:
    assert not asyncio.run(Handle().wait(timeout_secs=0.01))
    assert not asyncio.run(Handle().wait(timeout_secs=0))


def test_wait_raises_what_the_topology_failed_of() -> None:
    running = Handle()
    running.failure_ = "the query has ended"
    with pytest.raises(EngineError, match="the query has ended"):
        asyncio.run(running.wait())


def test_after_a_cancelled_wait_no_thread_waits_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_module, "WAIT_SECS", 0.02)
    running = Handle()

    async def program() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await running.wait()

    began_s = time.monotonic()
    asyncio.run(program())  # ends only when its threads have ended
    assert time.monotonic() - began_s < PATIENCE_SECS
    assert running.waiting == 0
    assert running.drained == []


def test_async_with_stops_the_topology_outside_of_the_event_loop() -> None:
    running = Handle()

    async def program(fails: bool) -> None:
        async with running as same:
            assert same is running
            if fails:
                raise ValueError("in the block")

    asyncio.run(program(fails=False))
    with pytest.raises(ValueError, match="in the block"):
        asyncio.run(program(fails=True))
    assert running.drained == [True, False]
