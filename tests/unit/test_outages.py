"""A dependency that is away: nothing is drained, nothing is lost, and everything goes on by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from sparkbolt import BadRecord, BasicBolt, Config, Range, RetryPolicy, Spout, TopologyBuilder, Unavailable
from sparkbolt.api.outage import MICRO_BATCHES_MIN, PROBE_TUPLES, TUPLES_MIN
from sparkbolt.driver.ledger.ledger_settings import ledger_settings
from tests.ledgers import restored as restored_of
from tests.unit.outages import HOUR_MS, MICRO_BATCH_MS, WORLD, Log, Run, Store, calls_between, topology
from tests.unit.outages import _new_world as _new_world

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("away_ms", [2_000, 2 * HOUR_MS])
@pytest.mark.parametrize("error", [ConnectionError, Unavailable])
def test_an_unavailable_database_drains_no_source(away_ms: int, error: type[Exception]) -> None:
    WORLD.away, WORLD.error = (0, away_ms), lambda n: error("the database is away")
    patience = {} if error is Unavailable else {"outage_patience_secs": 3 * 3600}
    run = Run(topology(**patience))
    run.to_the_end()
    assert WORLD.stored == dict.fromkeys(range(1000), 1)
    assert (run.counts.acked, run.counts.given_up) == (1000, 0)
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
    assert (run.counts.acked, run.counts.given_up) == (1000, 0)


def test_last_failing_records_of_a_source_are_bad_records_and_not_an_outage() -> None:
    WORLD.bad = lambda n: ValueError(f"no {n}") if n % 5 == 0 else None
    run = Run(topology(Log(2000), retry=RetryPolicy(max_retries=5, jitter=0)))
    run.to_the_end()
    assert run.phases == []
    assert (run.counts.acked, run.counts.given_up, len(run.letters)) == (1600, 400, 400)
    assert run.engine.now_ms < 60_000


def test_a_source_with_only_bad_records_ends_when_patience_ends() -> None:
    WORLD.bad = lambda n: ValueError(f"no {n}")
    run = Run(topology(Log(300), outage_patience_secs=60, max_attempts=3))
    run.to_the_end()
    assert run.phases == ["out", "spent"]
    assert (run.counts.acked, run.counts.given_up, run.counts.dead_letters) == (0, 300, 300)
    assert sorted(letter.position for letter in run.letters) == list(range(300))
    assert all(letter.attempts[-1].cause == "exception" for letter in run.letters)
    assert 60_000 < run.engine.now_ms < 200_000
    [out, _] = run.changes
    assert (out.component, out.reason.startswith("ValueError: no "), out.away) == ("store", True, False)
    assert out.reasons == out.failures >= TUPLES_MIN, "failures that differ by a number count as one kind"
    assert out.failures >= MICRO_BATCHES_MIN * 10


def test_a_burst_of_bad_records_delays_good_ones_by_one_probe_only() -> None:
    WORLD.bad = lambda n: ValueError("no") if n < 700 else None
    run = Run(topology(Log(5000, first_budget=100), max_attempts=3))
    run.to_the_end()
    assert run.phases == ["out", "well"]
    assert (run.counts.acked, run.counts.given_up) == (4300, 700)
    assert run.engine.now_ms < 30_000


class Encoded(Log):
    """Its decoder raises as ``WORLD`` says."""

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        for number in range(range_.start, range_.end):
            away = WORLD.away[0] <= WORLD.now_ms < WORLD.away[1]
            error = WORLD.error(number) if away else WORLD.bad(number)
            yield (number, [number]) if error is None else BadRecord(number, str(error))


class Fine(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None: ...


def encoded(count: int, **settings: Any) -> Run:
    builder = TopologyBuilder("encoded", Config(**settings))
    builder.set_spout("orders", Encoded(count, first_budget=100))
    builder.set_bolt("fine", Fine()).shuffle_grouping("orders")
    return Run(builder.build())


def test_a_decoder_that_fails_for_everything_drains_no_source() -> None:
    WORLD.away, WORLD.error = (MICRO_BATCH_MS, HOUR_MS), lambda n: ValueError(f"no schema for {n}")
    run = encoded(5000, outage_patience_secs=3 * 3600)
    run.to_the_end()
    assert run.phases == ["out", "well"]
    assert (run.changes[0].component, run.changes[0].spout) == ("orders", True)
    before = run.counts.given_up
    assert TUPLES_MIN <= before == len(run.letters) < 1500, "those of the micro-batches before it was noticed"
    assert run.counts.acked == 5000 - before


def test_records_that_a_spout_cannot_read_are_given_up_at_once_while_it_can_read_others() -> None:
    WORLD.bad = lambda n: ValueError("no number") if n % 4 else None
    run = encoded(2000)
    run.to_the_end()
    assert run.phases == []
    assert (run.counts.acked, run.counts.given_up, run.counts.retried) == (500, 1500, 0)


def test_a_spout_with_only_unreadable_records_ends_when_patience_ends() -> None:
    WORLD.bad = lambda n: ValueError(f"no {n}")
    run = encoded(3000, outage_patience_secs=60)
    run.to_the_end()
    assert run.phases == ["out", "spent"]
    assert sorted(letter.position for letter in run.letters) == list(range(3000))


def test_kill_9_during_an_outage_neither_resets_nor_loses_anything() -> None:
    WORLD.away = (0, 180_000)
    run = Run(topology(Log(200)))
    kills = 0
    while run.counts.acked < 200:
        for _ in range(4):
            if not run.engine.coordinator.finished and not run.step():
                due = run.engine.next_due_ms()
                run.engine.now_ms = max(run.engine.now_ms, (due or 0) - MICRO_BATCH_MS)
        known = run.engine.ledger.outages.known
        settings = ledger_settings(run.engine.lane)
        restored = restored_of(run.engine.ledger.snapshot(), **settings)
        assert restored.outages.known == known
        run.engine.restart()
        assert run.engine.ledger.outages.known == known
        kills += 1
    assert kills > 3
    assert run.phases == ["out", "well"]
    assert (run.counts.acked, run.counts.given_up) == (200, 0)


def test_only_spouts_that_feed_the_bolt_are_slowed() -> None:
    WORLD.away, WORLD.error = (0, 60_000), lambda n: Unavailable("away")
    builder = TopologyBuilder("two")
    builder.set_spout("orders", Log(1000))
    builder.set_spout("others", Log(1000, first_budget=100))
    builder.set_bolt("store", Store()).shuffle_grouping("orders")

    builder.set_bolt("fine", Fine()).shuffle_grouping("others")
    run = Run(builder.build())
    run.until(lambda: run.engine.ledger.metrics.of("others").acked == 1000)
    assert run.engine.now_ms < 10_000
    assert run.counts.acked == 0
    run.to_the_end()
    assert run.counts.acked == 1000


def test_a_bolt_unavailable_for_some_tuples_slows_no_others_and_costs_no_attempt() -> None:
    shard_away = {"is": True}
    WORLD.bad = lambda n: Unavailable("shard 3 is away") if n % 4 == 3 and shard_away["is"] else None
    run = Run(topology(max_attempts=1))
    run.until(lambda: run.counts.acked == 750)
    assert run.phases == []
    run.until(lambda: run.engine.now_ms > HOUR_MS)
    assert run.micro_batches < 300, "what waits comes ever more rarely"
    shard_away["is"] = False
    run.to_the_end()
    assert (run.counts.acked, run.counts.given_up) == (1000, 0)


def test_a_limit_on_uncommitted_records_does_not_prevent_the_success_of_a_probe() -> None:
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
def test_a_queue_is_probed_too_when_the_queue_itself_redelivers_its_messages(retry: RetryPolicy | None) -> None:
    WORLD.away, WORLD.error = (0, 120_000), lambda n: Unavailable("away")
    run = Run(topology(Queue(retry=retry)))
    run.to_the_end()
    assert WORLD.stored == dict.fromkeys(range(500), 1)
    assert calls_between(5_000, 120_000) <= PROBE_TUPLES * 10
    assert {what for what, _ in WORLD.heard} == ({"ack"} if retry is not None else {"ack", "fail"})


def test_given_up_message_of_a_queue_with_a_policy_is_a_dead_letter_and_then_fails_at_the_queue() -> None:
    WORLD.bad = lambda n: ValueError("no 7") if n == 7 else None
    run = Run(topology(Queue(10, retry=RetryPolicy(max_retries=1))))
    run.to_the_end()
    [letter] = run.letters
    assert (letter.message_id, letter.values(), letter.attempts_in_all) == ("7", [{"n": 7}], 2)
    assert Counter(WORLD.heard) == Counter(("fail" if n == 7 else "ack", n) for n in range(10))
