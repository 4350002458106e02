"""Coroutines: an ``AsyncBolt`` works on its rows at the same time.

Each row has a coroutine of its own, which succeeds or fails by itself, whatever user code does to the event loop.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from inspect import isawaitable
from typing import Any

from sparkbolt.api.components import AsyncBolt
from sparkbolt.api.tuples import Tuple
from sparkbolt.worker.collectors import BasicRowCollector
from sparkbolt.worker.crash_isolation import TaskWatch
from sparkbolt.worker.emissions import Output, Rows
from sparkbolt.worker.failures import Failure, failure_of
from sparkbolt.worker.returned_values import emit_all


class Coroutines:
    """The event loop of one task."""

    def __init__(self, bolt: AsyncBolt, output: Output, who: str) -> None:
        """Emit into ``output``; ``who`` names the call of ``execute``, for errors."""
        self._bolt = bolt
        self._output = output
        self._who = who
        self._runner: asyncio.Runner | None = None
        self.shown: dict[int, Tuple] = {}
        """By row: the tuples of the coroutines that are running."""

    def run(self, rows: Rows, failures: dict[int, Failure], watch: TaskWatch | None) -> None:
        """Call ``execute`` for each row, and await it.

        Args:
            rows: the rows.
            failures: gets, by row that failed: why.
            watch: notes each row before it runs, in a process that may die.
        """
        if self._runner is None:
            self._runner = asyncio.Runner()
            weakref.finalize(self, self._runner.get_loop().close)  # also for a task without a cleanup
        loop = self._runner.get_loop()
        # Not Runner.run, which turns Ctrl-C into a cancellation: here Ctrl-C is raised at once, as in any other bolt.
        work = loop.create_task(self._all(rows, failures, watch))
        while not work.done():
            # RuntimeError: user code has stopped the loop, which is not its own. SystemExit: a task that user code made
            # has exited; asyncio raises that here and where the task is awaited, and there it fails its tuple. Ctrl-C
            # is not suppressed.
            with suppress(RuntimeError, SystemExit):
                loop.run_until_complete(work)
        work.result()

    def close(self) -> None:
        """Close the event loop."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            with suppress(SystemExit):  # raised by a task that this cancels; the loop is closed all the same
                runner.close()

    async def _all(self, rows: Rows, failures: dict[int, Failure], watch: TaskWatch | None) -> None:
        # If a coroutine may kill the process, coroutines run one by one, so that the culprit is known.
        free = asyncio.Semaphore(max(1, self._bolt.concurrency) if watch is None else 1)
        running: set[asyncio.Task[None]] = set()
        broken: list[BaseException] = []

        async def one(tup: Tuple, collector: BasicRowCollector) -> None:
            try:
                if watch is not None:
                    watch.row(tup._row)
                self.shown[tup._row] = tup
                await self._one(self._bolt.execute(tup, collector), collector)
            except BaseException as error:  # noqa: BLE001  a cancelled coroutine has not done its work either
                failures[tup._row] = failure_of(error)
            finally:
                self.shown.pop(tup._row, None)

        def ended(tup: Tuple, collector: BasicRowCollector, task: asyncio.Task[None]) -> None:
            running.discard(task)
            collector.end()
            free.release()
            if task.cancelled():  # before it began, or by itself
                failures.setdefault(tup._row, failure_of(asyncio.CancelledError("its coroutine was cancelled")))
            elif (error := task.exception()) is not None:  # an exception that belongs to no tuple
                broken.append(error)

        tuples = []
        for row, values in enumerate(rows.values()):
            await _uncancelled(free.acquire)
            if broken:
                break
            tup = Tuple.of_row(rows.origin, rows, row)
            dict.update(tup, zip(rows.origin.fields, values, strict=True))
            tuples.append(tup)
            collector = BasicRowCollector(self._output, tup)
            task = asyncio.get_running_loop().create_task(one(tup, collector))
            running.add(task)
            task.add_done_callback(partial(ended, tup, collector))
        while running:
            await _uncancelled(partial(asyncio.wait, set(running)))
        if broken:
            raise broken[0]
        for tup in tuples:
            tup._settled = "failed" if tup._row in failures else "acked"
            tup.detach()

    async def _one(self, called: Any, collector: BasicRowCollector) -> None:
        """Await what ``execute`` returned, and emit its values."""
        if isinstance(called, AsyncGenerator):
            async with aclosing(called):
                async for values in called:
                    collector.emit(values)
            return
        returned = await called if isawaitable(called) else called
        if returned is not None:
            emit_all(returned, collector.emit, self._who, single=self._output.single)


async def _uncancelled(wait: Callable[[], Awaitable[Any]]) -> None:
    """Continue to wait even if user code cancels it: it may cancel its own coroutines, not other work of the loop."""
    while True:
        try:
            await wait()
            return
        except asyncio.CancelledError:
            continue
