"""User code that ends in an odd way: coroutines that are cancelled, methods that exit, a cleanup that raises."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import AsyncBolt, Bolt, TopologyBuilder
from sparkbolt.testing import TopologyTestDriver
from tests.unit.worker.emitting import BAD, Numbers, run


class Ending(AsyncBolt):
    """Ends in an odd way where it gets BAD."""

    outputs = ["n"]
    transient = ("way",)
    concurrency = 2

    def __init__(self, way: Callable[[], Any]) -> None:
        self.way = way

    async def execute(self, tup: Any, collector: Any) -> None:
        await asyncio.sleep(0)
        if tup["n"] == BAD:
            result = self.way()
            if result is not None:
                await result
        collector.emit([tup["n"]])


async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


def raise_(error: BaseException) -> None:
    raise error


async def leave() -> None:
    await asyncio.sleep(0)
    raise SystemExit(3)


async def leave_in_a_gathered_task() -> None:
    await asyncio.gather(leave(), asyncio.sleep(0))


async def leave_in_a_task() -> None:
    await asyncio.create_task(leave())


async def leave_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(leave())


async def leave_in_time() -> None:
    await asyncio.wait_for(asyncio.create_task(leave()), 3600)


async def wait_for_what_is_cancelled() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize(
    ("way", "why"),
    [
        (lambda: raise_(asyncio.CancelledError("away")), "CancelledError: away"),
        (cancel_itself, "CancelledError"),
        (wait_for_what_is_cancelled, "CancelledError"),
        (lambda: raise_(GeneratorExit()), "GeneratorExit"),
        (lambda: raise_(StopIteration(1)), "RuntimeError: coroutine raised StopIteration"),
        (lambda: raise_(SystemExit(3)), "SystemExit: 3"),
        (leave_in_a_gathered_task, "SystemExit: 3"),
        (leave_in_a_task, "SystemExit: 3"),
        (leave_in_a_group, "SystemExit: 3"),
        (leave_in_time, "SystemExit: 3"),
        (
            lambda: raise_(BaseExceptionGroup("two", [asyncio.CancelledError()])),
            "BaseExceptionGroup: two (1 sub-",
        ),
        (lambda: asyncio.run(cancel_itself()), "RuntimeError: asyncio.run() cannot be called"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine 'cancel_itself' was never awaited")
def test_a_coroutine_that_is_cancelled_or_ends_oddly_fails_its_tuple_alone(way: Any, why: str) -> None:
    driver = run(Ending(way), numbers=range(6))
    [failed] = driver.failed("numbers")
    assert (failed.message_id, why in failed.reason) == (BAD, True), failed.reason
    assert sorted(driver.acked("numbers")) == [0, 2, 3, 4, 5]
    assert sorted(driver.emitted("tested")) == [[0], [2], [3], [4], [5]]


def test_ctrl_c_in_a_coroutine_ends_the_program() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Ending(lambda: raise_(KeyboardInterrupt())))


class Leaving(Bolt):
    """Exits where it is prepared, or cleaned up."""

    outputs = ["n"]
    stateless = True

    def __init__(self, where: str) -> None:
        self.where = where

    def prepare(self, context: Any) -> None:
        if self.where == "prepare":
            sys.exit(3)

    def execute(self, tup: Any, collector: Any) -> None:
        collector.ack(tup)

    def cleanup(self) -> None:
        if self.where == "cleanup":
            sys.exit(3)


class LeavingWithState(Leaving):
    stateless = False

    def init_state(self, state: Any) -> None:
        if self.where == "init_state":
            sys.exit(3)


@pytest.mark.parametrize("where", ["prepare", "init_state"])
def test_a_bolt_that_exits_before_its_first_tuple_fails_the_tuples_sent_to_it(where: str) -> None:
    builder = TopologyBuilder("leaving")
    builder.set_spout("numbers", Numbers())
    bolt = (LeavingWithState if where == "init_state" else Leaving)(where)
    builder.set_bolt("tested", bolt).shuffle_grouping("numbers")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("numbers", [1], message_id=1)
        driver.run_until_idle()
        (failure,) = driver.failed("numbers")
    assert f"{where} of 'tested' raised SystemExit: 3" in failure.story


def test_an_exit_in_cleanup_of_a_bolt_is_handled_like_any_other_exception() -> None:
    with pytest.raises(RuntimeError, match="cleanup of 'tested' raised SystemExit: 3"):
        run(Leaving("cleanup"))


def test_a_cleanup_that_raises_does_not_prevent_the_other_cleanups(tmp_path: Path) -> None:
    class Tidy(Leaving):
        def cleanup(self) -> None:
            (tmp_path / self.where).touch()
            super().cleanup()

    builder = TopologyBuilder("tidy")
    builder.set_spout("numbers", Numbers())
    for name in ("a", "cleanup", "z"):
        builder.set_bolt(name, Tidy(name)).shuffle_grouping("numbers")
    driver = TopologyTestDriver(builder.build())
    driver.feed("numbers", [1])
    driver.run_until_idle()
    with pytest.raises(RuntimeError, match="cleanup of 'cleanup' raised SystemExit: 3"):
        driver.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "cleanup", "z"]


def test_a_coroutine_that_cancels_all_others_fails_them_and_the_rest_is_run() -> None:
    def cancel_all() -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    driver = run(Ending(cancel_all), numbers=range(6))
    failed = {tree.message_id for tree in driver.failed("numbers")}
    assert BAD in failed
    assert failed | set(driver.acked("numbers")) == set(range(6))
    assert {values[0] for values in driver.emitted("tested")} >= set(driver.acked("numbers"))
    assert {3, 4, 5} <= set(driver.acked("numbers"))
