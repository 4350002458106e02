"""A dependency that is away: nothing is drained, nothing is lost, and everything goes on by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from sparkbolt import (
    BasicBolt,
    Bolt,
    Config,
    Count,
    PartitionedSpout,
    Range,
    Reject,
    RetryPolicy,
    Spout,
    Topology,
    TopologyBuilder,
    Unavailable,
    WindowedBolt,
)
from sparkbolt.core.driver.ledger.ledger import FailedTree, Ledger
from sparkbolt.core.driver.ledger.settings import ledger_settings
from sparkbolt.core.model.outage import MICRO_BATCHES_MIN, PROBE_TUPLES, TUPLES_MIN, Health, Outage, OutageChange, Phase
from sparkbolt.errors import PrepareError
from sparkbolt.sim.checkers.dead_letters import letters_in
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import TopologyTestDriver

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
MICRO_BATCH_MS = 50


# The machine.


def after(*healths: Health, of: Outage | None = None, every_ms: int = 1000, patience_ms: int = HOUR_MS) -> Outage:
    known = of or Outage()
    start_ms = known.next_probe_ms
    for place, health in enumerate(healths):
        known = known.after(health, start_ms + place * every_ms, patience_ms)
    return known


BROKEN = Health(got=40, raised=40, trailing=40)
AWAY = Health(got=10, raised=5, unavailable=5)
FINE = Health(got=40, raised=10)


@pytest.mark.parametrize(
    ("healths", "phase"),
    [
        ([AWAY], Phase.OUT),
        ([Health(got=10, raised=4, unavailable=4)], Phase.WELL),
        ([BROKEN, BROKEN], Phase.WELL),
        ([BROKEN, BROKEN, BROKEN], Phase.OUT),
        ([BROKEN, BROKEN, FINE, BROKEN], Phase.WELL),
        ([BROKEN, BROKEN, Health(0), BROKEN], Phase.OUT),
        ([Health(got=1000, raised=1000, trailing=1000)] * 2, Phase.WELL),
        ([Health(got=20, raised=20, trailing=20)] * 4, Phase.WELL),
        ([Health(got=20, raised=20, trailing=20)] * 5, Phase.OUT),
        ([Health(got=1000, raised=950, trailing=100)] * 3, Phase.OUT),
        ([Health(got=1000, raised=949, trailing=100)] * 3, Phase.WELL),
        ([Health(got=1000, raised=1000)] * 9, Phase.WELL),  # what had failed before, and nothing else
        ([Health(got=1000, raised=300, trailing=120), *[Health(got=120, raised=120)] * 3], Phase.OUT),
    ],
)
def test_a_bolt_is_out_when_it_says_so_or_fails_nearly_everything_for_long_enough(
    healths: list[Health], phase: Phase
) -> None:
    assert after(*healths).phase is phase


def test_a_bolt_that_is_out_is_probed_ever_more_rarely_until_it_takes_something() -> None:
    out = after(AWAY)
    waits = []
    for _ in range(10):
        known = out.after(AWAY, out.next_probe_ms, HOUR_MS)
        waits.append(known.next_probe_ms - out.next_probe_ms)
        out = known
    assert waits == [1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000, 30000]
    assert out.after(Health(got=10, raised=9), out.next_probe_ms, HOUR_MS).phase is Phase.WELL


def test_a_probe_that_does_not_reach_the_bolt_is_followed_by_a_larger_one_at_once() -> None:
    out = after(AWAY)
    at_ms = out.next_probe_ms
    assert out.after(Health(0), at_ms, HOUR_MS, probed=False) == out
    larger = out.after(Health(0), at_ms, HOUR_MS)
    assert (larger.probe_tuples, larger.next_probe_ms) == (2 * PROBE_TUPLES, at_ms)


def test_patience_is_used_by_probes_and_not_by_the_time_between_two_drivers() -> None:
    out = after(BROKEN, BROKEN, BROKEN)
    long = out.after(BROKEN, out.next_probe_ms + 10 * HOUR_MS, HOUR_MS)
    assert (long.phase, long.probed_ms) == (Phase.OUT, 60_000)
    known = out
    while known.phase is Phase.OUT:
        known = known.after(BROKEN, known.next_probe_ms, HOUR_MS)
    assert HOUR_MS <= known.seen_ms - out.since_ms < HOUR_MS + 60_000
    assert known.after(BROKEN, known.seen_ms + 1000, HOUR_MS).phase is Phase.SPENT
    assert known.after(AWAY, known.seen_ms + 1000, HOUR_MS).phase is Phase.OUT
    assert known.after(FINE, known.seen_ms + 1000, HOUR_MS).phase is Phase.WELL


def test_of_a_bolt_that_says_that_it_is_unavailable_nobody_loses_patience() -> None:
    out = after(AWAY)
    for _ in range(1000):
        out = out.after(AWAY, out.next_probe_ms, 1000)
    assert (out.phase, out.probed_ms) == (Phase.OUT, 0)


# A topology on virtual time.


class World:
    """What a test says of the database; the classes below are pickled, so it is one for all."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.away: tuple[int, int] = (-1, -1)
        self.error: Callable[[int], Exception | None] = lambda n: ConnectionError(f"refused, try {n}")
        self.bad: Callable[[int], Exception | None] = lambda n: None
        self.stored: Counter[int] = Counter()
        self.asked: list[tuple[int, int]] = []
        """(time, number) of each call."""
        self.heard: list[tuple[str, Any]] = []


WORLD = World()


@pytest.fixture(autouse=True)
def _new_world() -> None:
    WORLD.__init__()  # type: ignore[misc]


class Log(PartitionedSpout):
    """The numbers from 0 on."""

    outputs = ["n"]

    def __init__(self, count: int = 1000, **members: Any) -> None:
        self.count = count
        vars(self).update(members)

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("log", 0)
        end = min(self.count, start + budget)
        return [Range(0, "log", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("log", 0) >= self.count

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for number in range(range_.start, range_.end):
            yield number, [number]


class Store(BasicBolt):
    """Writes to a database that may be away."""

    def execute(self, tup: Any, collector: Any) -> None:
        n = tup["n"]
        WORLD.asked.append((WORLD.now_ms, n))
        begin_ms, end_ms = WORLD.away
        error = WORLD.error(n) if begin_ms <= WORLD.now_ms < end_ms else WORLD.bad(n)
        if error is not None:
            raise error
        WORLD.stored[n] += 1


def topology(spout: Any = None, **settings: Any) -> Topology:
    builder = TopologyBuilder("outage", Config(**settings))
    builder.set_spout("orders", spout or Log())
    builder.set_bolt("store", Store()).shuffle_grouping("orders")
    return builder.build()


class Run:
    """An engine whose clock goes on by 50 ms a micro-batch, and from one due time to the next when it is idle."""

    def __init__(self, built: Topology) -> None:
        self.engine = LocalEngine(built)
        self.failed: list[FailedTree] = []
        self.changes: list[OutageChange] = []
        self.micro_batches = 0

    def step(self) -> bool:
        self.engine.now_ms += MICRO_BATCH_MS
        WORLD.now_ms = self.engine.now_ms
        promotion = self.engine.step()
        if promotion is not None:
            self.failed += promotion.failed
            self.changes += promotion.outages
            self.micro_batches += 1
        return promotion is not None

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(3000):
            if condition():
                return
            if not self.step():
                due = self.engine.next_due_ms()  # None: a spout of the driver is yet to say what it has
                self.engine.now_ms = max(self.engine.now_ms, (due or 0) - MICRO_BATCH_MS)
        raise AssertionError(f"it never came to that: {self.engine.ledger.metrics} {self.engine.ledger.outages.known}")

    def to_the_end(self) -> None:
        self.until(lambda: self.engine.coordinator.finished)

    @property
    def counts(self) -> Any:
        return self.engine.ledger.metrics.of("orders")

    @property
    def phases(self) -> list[str]:
        return [change.after.value for change in self.changes]

    @property
    def letters(self) -> list[Any]:
        return letters_in(self.engine.letters.values())


def calls_between(begin_ms: int, end_ms: int) -> int:
    return sum(begin_ms <= at_ms < end_ms for at_ms, _ in WORLD.asked)


@pytest.mark.parametrize("away_ms", [2_000, 2 * HOUR_MS])
@pytest.mark.parametrize("error", [ConnectionError, Unavailable])
def test_a_database_that_is_away_drains_no_source(away_ms: int, error: type[Exception]) -> None:
    WORLD.away, WORLD.error = (0, away_ms), lambda n: error("the database is away")
    patience = {} if error is Unavailable else {"outage_patience_secs": 3 * 3600}
    run = Run(topology(**patience))
    run.to_the_end()
    assert WORLD.stored == dict.fromkeys(range(1000), 1)
    assert (run.counts.acked, run.counts.set_aside) == (1000, 0)
    assert run.letters == []
    assert run.phases == ["out", "well"]
    assert calls_between(5_000, away_ms) <= PROBE_TUPLES * (away_ms // 10_000 + 1), "only probes"
    assert WORLD.asked[-1][0] <= away_ms + 40_000, "at full speed as soon as a probe succeeds"
    assert max(tree.attempt for tree in run.failed) <= MICRO_BATCHES_MIN, "an outage costs no attempt"


def test_a_database_that_goes_away_while_the_last_micro_batch_runs_is_an_outage_too() -> None:
    WORLD.away = (0, HOUR_MS)
    WORLD.error = lambda n: ConnectionError("broken pipe") if n >= 700 or WORLD.now_ms > MICRO_BATCH_MS else None
    run = Run(topology(outage_patience_secs=3 * 3600))
    run.to_the_end()
    assert (run.counts.acked, run.counts.set_aside) == (1000, 0)


def test_what_is_left_of_a_source_at_its_end_is_bad_and_no_outage() -> None:
    WORLD.bad = lambda n: ValueError(f"no {n}") if n % 5 == 0 else None
    run = Run(topology(Log(2000), retry=RetryPolicy(max_retries=5, jitter=0)))
    run.to_the_end()
    assert run.phases == []
    assert (run.counts.acked, run.counts.set_aside, len(run.letters)) == (1600, 400, 400)
    assert run.engine.now_ms < 60_000


def test_a_source_of_nothing_but_bad_records_ends_when_patience_does() -> None:
    WORLD.bad = lambda n: ValueError(f"no {n}")
    run = Run(topology(Log(300), outage_patience_secs=60, max_attempts=3))
    run.to_the_end()
    assert run.phases == ["out", "spent"]
    assert (run.counts.acked, run.counts.set_aside, run.counts.dead_letters) == (0, 300, 300)
    assert sorted(letter.position for letter in run.letters) == list(range(300))
    assert all(letter.attempts[-1].cause == "exception" for letter in run.letters)
    assert 60_000 < run.engine.now_ms < 200_000
    [out, _] = run.changes
    assert (out.component, out.reason.startswith("ValueError: no "), out.away) == ("store", True, False)
    assert out.reasons == out.failures >= TUPLES_MIN, "failures that differ by a number count as one kind"
    assert out.failures >= MICRO_BATCHES_MIN * 10


def test_a_burst_of_bad_records_holds_up_good_ones_for_a_probe_only() -> None:
    WORLD.bad = lambda n: ValueError("no") if n < 700 else None
    run = Run(topology(Log(5000, first_budget=100), max_attempts=3))
    run.to_the_end()
    assert run.phases == ["out", "well"]
    assert (run.counts.acked, run.counts.set_aside) == (4300, 700)
    assert run.engine.now_ms < 30_000


def test_kill_9_in_an_outage_neither_resets_nor_loses_anything() -> None:
    WORLD.away = (0, 180_000)
    run = Run(topology(Log(200)))
    kills = 0
    while not run.engine.coordinator.finished:
        for _ in range(4):
            if not run.engine.coordinator.finished and not run.step():
                due = run.engine.next_due_ms()
                run.engine.now_ms = max(run.engine.now_ms, (due or 0) - MICRO_BATCH_MS)
        known = run.engine.ledger.outages.known
        settings = ledger_settings(run.engine.lane)
        restored = Ledger.restore(run.engine.ledger.snapshot(), **settings)
        assert restored.outages.known == known
        run.engine.restart()
        assert run.engine.ledger.outages.known == known
        kills += 1
    assert kills > 3
    assert run.phases == ["out", "well"]
    assert (run.counts.acked, run.counts.set_aside) == (200, 0)


def test_only_the_spouts_are_slowed_whose_tuples_come_to_the_bolt() -> None:
    WORLD.away, WORLD.error = (0, 60_000), lambda n: Unavailable("away")
    builder = TopologyBuilder("two")
    builder.set_spout("orders", Log(1000))
    builder.set_spout("others", Log(1000, first_budget=100))
    builder.set_bolt("store", Store()).shuffle_grouping("orders")

    class Fine(BasicBolt):
        def execute(self, tup: Any, collector: Any) -> None: ...

    builder.set_bolt("fine", Fine()).shuffle_grouping("others")
    run = Run(builder.build())
    run.until(lambda: run.engine.ledger.metrics.of("others").acked == 1000)
    assert run.engine.now_ms < 10_000
    assert run.counts.acked == 0
    run.to_the_end()
    assert run.counts.acked == 1000


def test_a_bolt_that_is_unavailable_for_a_part_slows_nobody_and_costs_no_attempt() -> None:
    shard_away = {"is": True}
    WORLD.bad = lambda n: Unavailable("shard 3 is away") if n % 4 == 3 and shard_away["is"] else None
    run = Run(topology(max_attempts=1))
    run.until(lambda: run.counts.acked == 750)
    assert run.phases == []
    run.until(lambda: run.engine.now_ms > HOUR_MS)
    assert run.micro_batches < 300, "what waits comes ever more rarely"
    shard_away["is"] = False
    run.to_the_end()
    assert (run.counts.acked, run.counts.set_aside) == (1000, 0)


def test_a_limit_on_what_is_uncommitted_does_not_keep_a_probe_from_its_success() -> None:
    WORLD.away, WORLD.error = (0, 60_000), lambda n: Unavailable("away")
    run = Run(topology(Log(1000, max_uncommitted=20, first_budget=20), max_spout_pending=5))
    run.to_the_end()
    assert run.counts.acked == 1000


class Queue(Spout):
    """A queue that gives what failed again, or lets the engine do it."""

    outputs = ["n"]

    def __init__(self, count: int = 500, **members: Any) -> None:
        self.waiting = list(range(count))
        self.done: set[int] = set()
        self.count = count
        vars(self).update(members)

    def next_tuple(self, collector: Any) -> None:
        for n in self.waiting[:100]:
            collector.emit([n], message_id=n)
        del self.waiting[:100]

    def ack(self, message_id: Any) -> None:
        self.done.add(message_id)
        WORLD.heard.append(("ack", message_id))

    def fail(self, message_id: Any) -> None:
        WORLD.heard.append(("fail", message_id))
        if self.retry is None:
            self.waiting.append(message_id)
        else:
            self.done.add(message_id)

    @property
    def exhausted(self) -> bool:
        return len(self.done) == self.count


@pytest.mark.parametrize("retry", [None, RetryPolicy(max_retries=3)])
def test_a_queue_is_probed_too_whoever_gives_its_messages_again(retry: RetryPolicy | None) -> None:
    WORLD.away, WORLD.error = (0, 120_000), lambda n: Unavailable("away")
    run = Run(topology(Queue(retry=retry)))
    run.to_the_end()
    assert WORLD.stored == dict.fromkeys(range(500), 1)
    assert calls_between(5_000, 120_000) <= PROBE_TUPLES * 10
    assert {what for what, _ in WORLD.heard} == ({"ack"} if retry is not None else {"ack", "fail"})


def test_what_is_given_up_of_a_queue_with_a_policy_is_a_letter_and_then_the_queue_hears_that_it_failed() -> None:
    WORLD.bad = lambda n: ValueError("no 7") if n == 7 else None
    run = Run(topology(Queue(10, retry=RetryPolicy(max_retries=1))))
    run.to_the_end()
    [letter] = run.letters
    assert (letter.message_id, letter.values(), letter.attempts_in_all) == ("7", [{"n": 7}], 2)
    assert Counter(WORLD.heard) == Counter(("fail" if n == 7 else "ack", n) for n in range(10))


def test_a_spout_that_decides_itself_still_does() -> None:
    WORLD.bad = lambda n: ValueError("no 7") if n == 7 and ("fail", 7) not in WORLD.heard else None
    run = Run(topology(Queue(10)))
    run.to_the_end()
    assert (run.letters, WORLD.heard.count(("fail", 7)), WORLD.stored[7]) == ([], 1, 1)


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
def test_a_bolt_may_be_unavailable_wherever_it_is_called(bolt: type[BasicBolt], fuse: bool) -> None:
    WORLD.away, WORLD.error = (0, 30_000), lambda n: Unavailable("no connection")
    builder = TopologyBuilder("outage", Config(max_attempts=1))
    builder.set_spout("orders", Log(200))
    builder.set_bolt("store", bolt(), fuse=fuse).shuffle_grouping("orders")
    run = Run(builder.build())
    run.to_the_end()
    assert run.phases == ["out", "well"]
    assert WORLD.stored == dict.fromkeys(range(200), 1)
    assert (run.counts.acked, run.counts.set_aside) == (200, 0)
    assert calls_between(5_000, 30_000) <= PROBE_TUPLES * 5


@pytest.mark.parametrize("fuse", [True, False])
def test_an_exception_in_prepare_is_one_in_execute(fuse: bool) -> None:
    WORLD.away = (0, 60_000)
    builder = TopologyBuilder("outage")
    builder.set_spout("orders", Log(2000))
    builder.set_bolt("store", Fails(), fuse=fuse).shuffle_grouping("orders")
    run = Run(builder.build())
    run.to_the_end()
    assert WORLD.stored == dict.fromkeys(range(2000), 1)
    assert (run.counts.acked, run.counts.set_aside) == (2000, 0)
    assert run.phases == ["out", "well"]


class Vain(BasicBolt):
    def prepare(self, context: Any) -> None:
        open("/no/such/file").close()

    def execute(self, tup: Any, collector: Any) -> None: ...


class VainState(BasicBolt):
    def init_state(self, state: Any) -> None:
        open("/no/such/file").close()

    def execute(self, tup: Any, collector: Any) -> None: ...


class VainWindow(WindowedBolt):
    def prepare(self, context: Any) -> None:
        open("/no/such/file").close()

    def execute(self, window: Any, collector: Any) -> None: ...


@pytest.mark.parametrize("bolt", [Vain, VainState])
def test_a_mistake_in_prepare_fails_tuples_with_its_place(bolt: type[BasicBolt]) -> None:
    builder = TopologyBuilder("vain")
    builder.set_spout("orders", Log(3))
    builder.set_bolt("vain", bolt()).shuffle_grouping("orders")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("orders", [1], message_id=1)
        driver.run_until_idle()
        (failure,) = driver.failed("orders")
    assert failure.cause == "exception"
    method = "prepare" if bolt is Vain else "init_state"
    said = f"{method} of 'vain' raised FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'"
    assert f"{said}, at test_outages.py:" in failure.story


def test_a_window_that_cannot_be_prepared_fails_the_query_with_its_place() -> None:
    builder = TopologyBuilder("vain")
    builder.set_spout("orders", Log(3))
    builder.set_bolt("vain", VainWindow().with_tumbling_window(Count(2))).shuffle_grouping("orders")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("orders", [1], message_id=1)
        with pytest.raises(PrepareError, match=r"^prepare of 'vain' raised FileNot.*, at test_outages.py:\d+$"):
            driver.run_until_idle()


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_dependency_that_is_away_is_not_waited_for_as_often_as_there_are_tuples(by_hand: bool) -> None:
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
    assert (run.counts.acked, run.counts.set_aside) == (200, 0)
    assert WORLD.stored == dict.fromkeys(range(200), 1)
    assert calls_between(5_000, 60_000) <= PROBE_TUPLES * 30


# Reject, and the letters of the checkpoint.


def test_what_a_bolt_rejects_is_a_dead_letter_at_once() -> None:
    WORLD.bad = lambda n: Reject(f"{n} is no order") if n % 10 == 3 else None
    run = Run(topology(Log(100)))
    run.to_the_end()
    assert run.engine.now_ms < 1000
    assert Counter(n for _, n in WORLD.asked) == dict.fromkeys(range(100), 1)
    assert run.phases == []
    assert {letter.position for letter in run.letters} == set(range(3, 100, 10))
    assert [(one.cause, one.reason) for one in run.letters[0].attempts] == [("rejected", "3 is no order")]


def test_a_bolt_that_rejects_everything_is_not_out() -> None:
    WORLD.bad = lambda n: Reject("no order")
    run = Run(topology(Log(3000, first_budget=500)))
    run.to_the_end()
    assert (run.phases, run.counts.dead_letters) == ([], 3000)


def test_without_a_word_ten_attempts_are_made_over_minutes() -> None:
    WORLD.bad = lambda n: ValueError("no 7") if n == 7 else None
    run = Run(topology(Log(10)))
    run.to_the_end()
    [letter] = run.letters
    assert letter.attempts_in_all == 10
    waits = [later.started_ms - before.ended_ms for before, later in pairwise(letter.attempts)]
    for place, wait in enumerate(waits):
        assert 0.9 * min(500 * 2**place, 120_000) <= wait <= min(500 * 2**place, 120_000) + MICRO_BATCH_MS
    assert 200_000 < run.engine.now_ms < 260_000


def test_a_letter_that_is_too_long_is_kept_without_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkbolt.core.worker.dead_letter_reader.HANDED_OVER_BYTES_MAX", 2000)
    long = Log(5, read=lambda range_: ((n, ["y" * 5000 if n == 2 else n]) for n in range(range_.start, range_.end)))
    WORLD.bad = lambda n: Reject("no order")
    run = Run(topology(long))
    run.to_the_end()
    assert run.counts.dead_letters == 5
    assert {letter.position for letter in run.letters} == set(range(5)), "what did not fit came with a later plan"
    [cut] = [letter for letter in run.letters if letter.position == 2]
    assert cut.tuples == ()
    assert "its values are left out: the letter would have" in cut.note


def test_nothing_is_written_where_the_log_is_enough() -> None:
    WORLD.bad = lambda n: Reject("no order")
    run = Run(topology(Log(5), dead_letters="log:"))
    run.to_the_end()
    assert (run.letters, run.counts.set_aside, run.counts.dead_letters) == ([], 5, 0)
