"""A program in asyncio: an async generator as a spout, awaited until it has finished."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sparkbolt import BasicBolt, TopologyBuilder, spout
from tests.patience import PATIENCE_SECS

pytestmark = pytest.mark.spark


@spout(outputs=["n"])
async def numbers(end: int) -> AsyncIterator[list[int]]:
    for n in range(end):
        await asyncio.sleep(0.001)
        yield [n]


class Refuse(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        if tup.n == 7 and tup.attempt == 1:
            raise ValueError("not at the first attempt")


def test_an_async_spout_is_tracked_and_awaited(spark: Any) -> None:
    builder = TopologyBuilder("in-asyncio")
    builder.set_spout("numbers", numbers(50), max_attempts=2)
    builder.set_bolt("refuse", Refuse()).shuffle_grouping("numbers")

    async def program() -> tuple[bool, Any]:
        running = await asyncio.to_thread(builder.build().start, spark=spark)
        async with running:
            return await running.wait(PATIENCE_SECS), running.metrics().components["numbers"]

    finished, counts = asyncio.run(program())
    assert finished
    assert (counts.acked, counts.failed, counts.pending) == (50, 1, 0)
