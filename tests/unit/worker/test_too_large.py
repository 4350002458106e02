"""Tuples that are too large: each fails alone, whatever it travels with."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.worker.routing import Router

COUNT = 40
LARGE = 7
SMALL_BYTES = 20_000
LIMIT = 100_000
"""Five small tuples have as many bytes, and all that a task gets is less than two frames of the usual size."""


class Texts(BasicBolt):
    """A text for each number; that of one is too large."""

    outputs = ["n", "text"]

    def __init__(self, large: int, *, alike: bool, without: int = -1) -> None:
        self.large, self.alike, self.without = large, alike, without

    def execute(self, tup: Any, collector: Any) -> None:
        n = tup["n"]
        if n == self.without:
            collector.emit([n, None])
            return
        size = 2 * LIMIT if n == self.large else SMALL_BYTES
        collector.emit([n, ("x" if self.alike else chr(97 + n % 26)) * size])


class See(BasicBolt):
    transient = ["seen"]
    seen: ClassVar[list[int]] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen.append(tup["n"])


@pytest.mark.parametrize("large", [LARGE, -1])
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("field", ["text", "n"])
@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("without", [-1, LARGE + 1])
def test_a_tuple_that_is_too_large_fails_alone_at_its_first_attempt(
    large: int, alike: bool, field: str, parallelism: int, without: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(See, "seen", [])
    builder = TopologyBuilder("large", Config(tuple_bytes_max=LIMIT, max_attempts=1, dead_letters="log:"))
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(COUNT)), outputs=["n"]))
    builder.set_bolt("texts", Texts(large, alike=alike, without=without)).shuffle_grouping("numbers")
    builder.set_bolt("see", See(), parallelism=parallelism, fuse=False).fields_grouping("texts", [field])
    engine = LocalEngine(builder.build())
    reasons = []
    while (promotion := engine.step()) is not None:
        reasons += [tree.fail.reason for tree in promotion.failed]
    assert sorted(See.seen) == [n for n in range(COUNT) if n != large]
    metrics = engine.ledger.metrics.of("numbers")
    assert (metrics.acked, metrics.given_up) == (len(See.seen), COUNT - len(See.seen))
    assert len(reasons) == COUNT - len(See.seen)
    for reason in reasons:
        assert reason.startswith("a tuple of 200,"), "its own size, and not that of its frame"


def test_frames_that_are_not_too_large_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = Router._write

    def noting(self: Router, dest: int, frame: Any, refusals: Any) -> None:
        written.append(frame.rows)
        write(self, dest, frame, refusals)

    monkeypatch.setattr(Router, "_write", noting)
    builder = TopologyBuilder("small", Config())
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(COUNT)), outputs=["n"]))
    builder.set_bolt("texts", Texts(-1, alike=False)).shuffle_grouping("numbers")
    builder.set_bolt("see", See(), fuse=False).fields_grouping("texts", ["n"])
    engine = LocalEngine(builder.build())
    engine.step()
    assert written == [COUNT, COUNT], "one frame to each of the two bolts"
