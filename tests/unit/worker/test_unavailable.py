"""A bolt whose dependency is away, wherever the bolt is called: in prepare, execute or flush, or later."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbolt import BasicBolt, Bolt, Config, Count, TopologyBuilder, Unavailable, WindowedBolt
from sparkbolt.api.outage import PROBE_TUPLES
from sparkbolt.errors import (
    ConfigError,
    EmitError,
    FailedException,
    PrepareError,
    Reject,
    ReportedFailedException,
    SourceUnavailable,
    StateError,
)
from sparkbolt.testing import TopologyTestDriver
from tests.unit.outages import WORLD, Log, Run, Store, calls_between
from tests.unit.outages import _new_world as _new_world

pytestmark = pytest.mark.slow


class Connects(Store):
    """Opens its connection in ``prepare``; what it keeps is durable."""

    error: type[Exception] = Unavailable

    def __init__(self) -> None:
        self.seen = 0

    def prepare(self, context: Any) -> None:
        begin_ms, end_ms = WORLD.away
        if begin_ms <= WORLD.now_ms < end_ms:
            raise self.error("no connection")

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen += 1
        super().execute(tup, collector)


class Fails(Connects):
    """As most clients do it."""

    error = OSError


class Flushes(BasicBolt):
    """Writes what it has got at the end of a micro-batch."""

    stateless = True

    def prepare(self, context: Any) -> None:
        self.rows: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.rows.append(tup["n"])

    def flush(self) -> None:
        rows, self.rows = self.rows, []
        WORLD.asked += [(WORLD.now_ms, n) for n in rows]
        begin_ms, end_ms = WORLD.away
        if begin_ms <= WORLD.now_ms < end_ms:
            raise Unavailable("no connection")
        WORLD.stored.update(rows)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("bolt", [Connects, Flushes, Store])
def test_a_bolt_may_raise_unavailable_in_any_of_its_methods(bolt: type[BasicBolt], fuse: bool) -> None:
    WORLD.away, WORLD.error = (0, 30_000), lambda n: Unavailable("no connection")
    builder = TopologyBuilder("outage", Config(max_attempts=1))
    builder.set_spout("orders", Log(200))
    builder.set_bolt("store", bolt(), fuse=fuse).shuffle_grouping("orders")
    run = Run(builder.build())
    run.to_the_end()
    assert run.phases == ["out", "well"]
    assert WORLD.stored == dict.fromkeys(range(200), 1)
    assert (run.counts.acked, run.counts.given_up) == (200, 0)
    assert calls_between(5_000, 30_000) <= PROBE_TUPLES * 5


@pytest.mark.parametrize("fuse", [True, False])
def test_an_exception_in_prepare_is_handled_like_one_in_execute(fuse: bool) -> None:
    WORLD.away = (0, 60_000)
    builder = TopologyBuilder("outage")
    builder.set_spout("orders", Log(2000))
    builder.set_bolt("store", Fails(), fuse=fuse).shuffle_grouping("orders")
    run = Run(builder.build())
    run.to_the_end()
    assert WORLD.stored == dict.fromkeys(range(2000), 1)
    assert (run.counts.acked, run.counts.given_up) == (2000, 0)
    assert run.phases == ["out", "well"]


class VainWindow(WindowedBolt):
    def prepare(self, context: Any) -> None:
        open("/no/such/file").close()

    def execute(self, window: Any, collector: Any) -> None: ...


class Refuses(BasicBolt):
    def __init__(self, where: str, error: Exception) -> None:
        self.where, self.error = where, error

    def prepare(self, context: Any) -> None:
        self.reach("prepare")

    def init_state(self, state: Any) -> None:
        self.reach("init_state")

    def execute(self, tup: Any, collector: Any) -> None:
        self.reach("execute")

    def flush(self) -> None:
        self.reach("flush")

    def reach(self, where: str) -> None:
        if where == self.where:
            raise self.error


@pytest.mark.parametrize("where", ["prepare", "init_state", "execute", "flush"])
@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (Reject("no licence"), "rejected"),
        (FailedException("no licence"), "fail"),
        (ReportedFailedException("no licence"), "fail"),
        (EmitError("no licence"), "emit"),
        (ConfigError("no licence"), "exception"),
        (StateError("no licence"), "exception"),
        (SourceUnavailable("no licence"), "exception"),
    ],
)
def test_each_error_affects_the_tuples_in_the_same_way_wherever_a_bolt_raises_it(
    where: str, error: Exception, cause: str
) -> None:
    builder = TopologyBuilder("vain")
    builder.set_spout("orders", Log(3))
    builder.set_bolt("vain", Refuses(where, error)).shuffle_grouping("orders")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("orders", [1], message_id=1)
        driver.run_until_idle()
        (failure,) = driver.failed("orders")
    assert failure.cause == cause
    if where in ("prepare", "init_state"):
        said = f"{where} of 'vain' raised {type(error).__name__}: no licence, at test_unavailable.py:"
        assert failure.reason.startswith(said)


def test_an_unpreparable_window_fails_the_query_with_its_position() -> None:
    builder = TopologyBuilder("vain")
    builder.set_spout("orders", Log(3))
    builder.set_bolt("vain", VainWindow().with_tumbling_window(Count(2))).shuffle_grouping("orders")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("orders", [1], message_id=1)
        with pytest.raises(PrepareError, match=r"^prepare of 'vain' raised FileNot.*, at test_unavailable.py:\d+$"):
            driver.run_until_idle()


@pytest.mark.parametrize("by_hand", [False, True])
def test_an_unavailable_dependency_is_not_waited_for_once_per_tuple(by_hand: bool) -> None:
    class Slow(Bolt):
        outputs = ["n"]

        def execute(self, tup: Any, collector: Any) -> None:
            Store().execute(tup, collector)
            collector.emit([tup["n"]], anchors=tup)
            collector.ack(tup)

    class Passes(Store):
        outputs = ["n"]

        def execute(self, tup: Any, collector: Any) -> None:
            super().execute(tup, collector)
            collector.emit([tup["n"]])

    WORLD.away = (0, 200)
    WORLD.error = lambda n: Unavailable("no connection") if n % 100 >= 50 else None
    builder = TopologyBuilder("outage")
    builder.set_spout("orders", Log(1000))
    builder.set_bolt("store", Slow() if by_hand else Passes()).shuffle_grouping("orders")
    run = Run(builder.build())
    run.step()
    asked = [n for _, n in WORLD.asked]
    assert asked == list(range(60)), "ten in a row were enough"
    assert run.counts.acked == 50
    run.to_the_end()
    assert WORLD.stored == dict.fromkeys(range(1000), 1)
    assert run.engine.ledger.metrics.of("store").emitted == 1000


class Batches(Bolt):
    """Keeps what it gets, and writes it when a tick comes; what could not be written it fails with what it was told."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        if not tup.is_tick:
            self.held.append(tup)
            return
        held, self.held = self.held, []
        WORLD.asked += [(WORLD.now_ms, one["n"]) for one in held]
        begin_ms, end_ms = WORLD.away
        for one in held:
            if begin_ms <= WORLD.now_ms < end_ms:
                collector.fail(one, Unavailable("no connection"))
            else:
                WORLD.stored[one["n"]] += 1
                collector.ack(one)


def test_a_bolt_that_keeps_tuples_and_fails_them_later_is_probed_until_it_acks_some() -> None:
    WORLD.away = (0, 60_000)
    builder = TopologyBuilder("outage", Config(max_attempts=1))
    builder.set_spout("orders", Log(200))
    builder.set_bolt("store", Batches(), tick_tuple_freq_secs=1).shuffle_grouping("orders")
    run = Run(builder.build())
    run.to_the_end()
    assert run.phases == ["out", "well"]
    assert (run.counts.acked, run.counts.given_up) == (200, 0)
    assert WORLD.stored == dict.fromkeys(range(200), 1)
    assert calls_between(5_000, 60_000) <= PROBE_TUPLES * 30
