"""``@spout``: generators and async generators as spouts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import pytest

from sparkbolt import BasicBolt, Config, TopologyBuilder, TopologyContext, bolt, spout
from sparkbolt.errors import EmitError, InvalidTopology
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import TopologyTestDriver, simulate


class Number(NamedTuple):
    n: int


@spout(outputs=["line"])
def lines(path: str, skip: int = 0) -> Iterator[str]:
    """Read the lines of a file."""
    with open(path) as file:
        yield from itertools.islice((line.rstrip() for line in file), skip, None)


@spout(outputs=Number)
def numbers(end: int = 10, index: int = 0, parallelism: int = 1) -> Iterator[Number]:
    yield from map(Number, range(index, end, parallelism))


@spout(outputs=["n"])
async def counted(end: int = 10) -> AsyncIterator[list[int]]:
    for n in range(end):
        await asyncio.sleep(0)
        yield [n]


def run(source: Any, parallelism: int = 1, fail_once: int | None = None) -> list[Any]:
    """The values that a bolt gets of a spout, on the local engine, where failed messages are retried."""
    failed: list[Any] = []

    class Take(BasicBolt):
        outputs = ["value"]

        def execute(self, tup: Any, collector: Any) -> None:
            (value,) = tup.values()
            if value == fail_once and not failed:
                failed.append(value)
                raise ValueError(value)
            collector.emit([value])

    taken: list[Any] = []
    builder = TopologyBuilder("generators", Config(message_timeout_secs=30))
    builder.set_spout("source", source, parallelism)
    builder.set_bolt("take", Take()).shuffle_grouping("source")

    def capture(component: str, task: int, stream: str, columns: Any) -> None:
        if component == "take":
            taken.extend(columns[0].to_pylist() if hasattr(columns[0], "to_pylist") else columns[0])

    engine = LocalEngine(builder.build(), capture=capture)
    try:
        while not engine.coordinator.finished:
            engine.step()
            engine.now_ms += 100
    finally:
        engine.close()
    return taken


def test_a_generator_function_is_a_spout_and_a_call_binds_its_arguments(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("title\nto be\nor not\n")
    assert run(lines(str(path), skip=1)) == ["to be", "or not"]
    assert run(lines(str(path))) == ["title", "to be", "or not"]
    assert run(numbers) == list(range(10))


def test_a_failed_item_is_read_again_by_another_call() -> None:
    assert sorted(run(numbers, fail_once=4)) == list(range(10))


def test_each_task_reads_its_share_if_the_function_has_parameters_for_it() -> None:
    assert sorted(run(numbers(20), parallelism=3)) == list(range(20))


def test_without_these_parameters_one_task_reads_everything() -> None:
    @spout(outputs=["n"])
    def few() -> Iterator[int]:
        yield from range(5)

    assert run(few, parallelism=3) == list(range(5))
    assert run(counted(5), parallelism=3) == list(range(5))


def test_an_async_generator_is_a_spout_whose_failed_items_are_retried_from_memory() -> None:
    assert run(counted) == list(range(10))
    assert sorted(run(counted(30), fail_once=4)) == list(range(30))


class Collector:
    def __init__(self, room: int = 100) -> None:
        self.room = room
        self.emitted: list[Any] = []
        self.reported: list[Any] = []

    def emit(self, values: Any, message_id: Any = None, stream: str = "default") -> None:
        if values == "odd":
            raise EmitError("odd values")
        self.emitted.append((message_id, values))

    def emit_direct(self, task: int, values: Any, message_id: Any = None, stream: str = "default") -> None: ...

    def report_error(self, error: BaseException | str) -> None:
        self.reported.append(str(error))


def opened(source: Any, index: int = 0) -> Any:
    task = cloudpickle.loads(cloudpickle.dumps(source))
    task.open(TopologyContext("t", "source", index, 2, 1, Config()))
    return task


def test_an_async_generator_that_waits_does_not_block_its_thread() -> None:
    @spout(outputs=["n"])
    async def slow() -> AsyncIterator[list[int]]:
        yield [1]
        await asyncio.Event().wait()

    task, collector = opened(slow), Collector()
    for _ in range(3):
        task.next_tuple(collector)
    assert collector.emitted == [(1, [1])]
    assert not task.exhausted
    task.close()


def test_an_async_generator_is_asked_for_as_many_items_as_there_is_room_for() -> None:
    asked: list[int] = []

    async def endless() -> AsyncIterator[list[int]]:
        for n in itertools.count():
            asked.append(n)
            yield [n]

    task, collector = spout(outputs=["n"])(endless), Collector(room=3)
    task.open(TopologyContext("t", "source", 0, 1, 1, Config()))
    task.next_tuple(collector)
    assert (len(collector.emitted), asked) == (3, [0, 1, 2])
    task.next_tuple(collector)
    assert [message_id for message_id, _ in collector.emitted] == [1, 2, 3, 4, 5, 6]
    task.close()


def test_an_async_generator_that_raises_is_called_again_after_the_error() -> None:
    connections: list[int] = []

    async def flaky() -> AsyncIterator[list[int]]:
        connections.append(1)
        yield [len(connections)]
        if len(connections) == 1:
            raise ConnectionError("gone")

    task, collector = spout(outputs=["n"])(flaky), Collector()
    task.open(TopologyContext("t", "source", 0, 1, 1, Config()))
    with pytest.raises(ConnectionError, match="gone"):
        task.next_tuple(collector)
    task.next_tuple(collector)
    assert collector.emitted == [(1, [1]), (2, [2])]
    assert task.exhausted
    task.close()


def test_an_item_that_cannot_be_emitted_is_reported_and_the_next_ones_are_emitted() -> None:
    @spout(outputs=["n"])
    async def mixed() -> AsyncIterator[Any]:
        for item in ([1], "odd", [2]):
            yield item

    task, collector = opened(mixed), Collector()
    task.next_tuple(collector)
    assert (collector.emitted, collector.reported) == ([(1, [1]), (3, [2])], ["odd values"])
    task.close()


def test_close_runs_the_finally_of_an_async_generator() -> None:
    closed: list[bool] = []

    async def connected() -> AsyncIterator[list[int]]:
        try:
            yield [1]
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    task = spout(outputs=["n"])(connected)
    task.open(TopologyContext("t", "source", 0, 1, 1, Config()))
    task.next_tuple(Collector())
    task.close()
    assert closed == [True]


@bolt(outputs=["n"])
def same(tup: Any) -> Any:
    yield [tup.n]


def behind(source: Any) -> TopologyBuilder:
    builder = TopologyBuilder("behind")
    builder.set_spout("source", source)
    builder.set_bolt("same", same).shuffle_grouping("source")
    return builder


@pytest.mark.parametrize("source", [numbers, counted])
def test_both_kinds_are_fed_by_the_test_driver(source: Any) -> None:
    with TopologyTestDriver(behind(source)) as driver:
        driver.feed("source", {"n": 3}, message_id=1)
        driver.run_until_idle()
        assert driver.emitted("same") == [{"n": 3}]


@pytest.mark.slow
def test_the_simulator_runs_a_generator() -> None:
    report = simulate(behind(numbers(40)).build(), seed=3)
    assert report.ok, report.story


def test_build_names_the_argument_that_is_missing() -> None:
    why = r"its function lines cannot be called: missing a required argument: 'path'; write lines\(\.\.\.\)"
    with pytest.raises(InvalidTopology, match=why):
        behind(lines).build()


def test_an_argument_that_the_function_does_not_take_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="too many positional arguments"):
        counted(1, 2)  # type: ignore[call-arg]


def test_mistakes_of_the_decorator_are_named() -> None:
    with pytest.raises(TypeError, match=r"write @spout\(outputs=\[\.\.\.\]\) above the generator function"):
        spout(counted)
    with pytest.raises(TypeError, match="outputs is missing"):
        spout()

    async def once() -> list[Any]:
        return []

    with pytest.raises(TypeError, match="once is a coroutine"):
        spout(outputs=["n"])(once)  # type: ignore[arg-type]


def test_the_spout_keeps_the_name_and_the_docstring_of_its_function() -> None:
    assert (lines.__name__, lines.__doc__) == ("lines", "Read the lines of a file.")  # type: ignore[attr-defined]
