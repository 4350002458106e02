"""What becomes of a message that is given up: its letter, its position, and everything behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sparkbolt import (
    BadRecord,
    BasicBolt,
    Config,
    DeadLetter,
    PartitionedSpout,
    Range,
    RetryPolicy,
    Spout,
    TopologyBuilder,
)
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.ledger_settings import ledger_settings
from sparkbolt.driver.ledger.retry_schedule import Retry
from sparkbolt.driver.plan_entries import LETTERS_PER_ENTRY_MAX, LETTERS_PER_PLAN_MAX, letter_entries
from sparkbolt.errors import SourceUnavailable
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.types import RawMessage
from sparkbolt.worker.dead_letter_reader import READS_MAX, REFUSALS_MAX
from tests.ledgers import restored
from tests.unit.lives import next_life, next_plan


class Numbers(PartitionedSpout):
    """The numbers below ``end``; ``reading`` is asked before each of them, and may raise."""

    outputs = ["n"]
    reading: Callable[[int], Any] = staticmethod(lambda position: None)

    def __init__(self, end: int = 10) -> None:
        self.end = end

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("numbers", 0)
        return [Range(0, "numbers", start, min(self.end, start + 5))] if start < self.end else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("numbers", 0) >= self.end

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        for position in range(range_.start, range_.end):
            said = type(self).reading(position)
            if isinstance(said, BadRecord):
                yield said
            elif said != "gone":
                yield position, [position]


class Picky(BasicBolt):
    """Raises for 3."""

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] == 3:
            raise ValueError("no 3")


class Grave:
    """A sink in memory, which is away as long as it is told to be."""

    def __init__(self) -> None:
        self.letters: list[DeadLetter] = []
        self.away = False
        self.opened = 0
        self.asked = 0

    def open(self, context: Any) -> None:
        self.opened += 1

    def write(self, letters: Sequence[DeadLetter]) -> None:
        self.asked += 1
        if self.away:
            raise OSError("the grave is away")
        self.letters += letters

    def close(self) -> None: ...


class Run:
    """A topology on the local engine, its letters in memory."""

    def __init__(self, spout: Any, bolt: Any = None, *, config: Config | None = None, **settings: Any) -> None:
        self.grave = Grave()
        builder = TopologyBuilder("t", config or Config(max_attempts=3))
        builder.set_spout("numbers", spout, **{"dead_letters": Grave(), **settings})
        builder.set_bolt("bolt", bolt or Picky()).shuffle_grouping("numbers")
        self.topology = builder.build()
        self.engine = LocalEngine(self.topology, letter_sink=self.sink)

    def sink(self, number: int) -> Grave:
        return self.grave

    def steps(self, secs: float = 0) -> list[Any]:
        """All that is due within a time, as it becomes due."""
        promotions = []
        until = self.engine.now_ms + int(secs * 1000)
        while True:
            promotion = self.engine.step()
            if promotion is not None:
                promotions.append(promotion)
                continue
            due = self.engine.next_due_ms()
            if due is None or due > until or self.engine.coordinator.finished:
                return promotions
            self.engine.now_ms = max(due, self.engine.now_ms + 1)

    @property
    def finished(self) -> int:
        return self.engine.ledger.finished["numbers"]["numbers"]

    @property
    def counts(self) -> Any:
        return self.engine.ledger.metrics.of("numbers")


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], Any]], None]:
    """Sets what ``Numbers`` asks before each number."""
    return lambda asked: monkeypatch.setattr(Numbers, "reading", staticmethod(asked))


def test_given_up_message_is_finished_only_when_its_dead_letter_is_durable() -> None:
    run = Run(Numbers())
    run.grave.away = True
    promotions = run.steps(secs=20)
    assert run.finished == 3, "nothing passes what has no letter yet"
    assert run.counts.acked == 9, "what is behind it goes on"
    assert (run.counts.given_up, run.counts.dead_letters, run.counts.waiting) == (0, 0, 1)
    tried = [tree for promotion in promotions for tree in promotion.letters_failed]
    assert [tree.attempt for tree in tried] == [1, 2, 3, 4, 5]
    assert "dead letter of numbers[0] numbers@3, attempt 1" in tried[0].story
    assert run.grave.opened == 5, "after a failure another copy is opened"
    waits = [tree.due_ms - tree.ended_ms for tree in tried]
    assert all(900 * 2**place <= wait <= 1000 * 2**place for place, wait in enumerate(waits))
    assert not run.engine.coordinator.finished

    run.grave.away = False
    run.steps(secs=40)
    assert [letter.position for letter in run.grave.letters] == [3]
    assert run.finished == 10
    assert (run.counts.given_up, run.counts.dead_letters, run.counts.waiting) == (1, 1, 0)
    assert run.counts.failed == 3, "a letter that failed is no failure of a message"
    assert run.engine.coordinator.finished


def test_a_range_that_cannot_be_read_is_one_letter(reading: Any) -> None:
    def broken(position: int) -> None:
        if position >= 7:
            raise RuntimeError("the disk is broken")

    reading(broken)
    run = Run(Numbers())
    run.steps()
    letter = next(letter for letter in run.grave.letters if letter.last.cause == "read")
    assert (letter.position, letter.end, letter.tuples) == (7, 10, ())
    assert letter.note == "it stands for all of numbers from 7 to 10"
    assert letter.where == "numbers[0] numbers@7 to 10"
    assert run.finished == 10


def test_nothing_of_a_range_is_finished_before_its_letter_is_written_however_often_that_is_tried(reading: Any) -> None:
    def broken(position: int) -> None:
        if position >= 7:
            raise RuntimeError("the disk is broken")

    reading(broken)
    run = Run(Numbers())
    run.grave.away = True
    run.steps(secs=20)
    assert run.counts.waiting == 2
    view = run.engine.ledger.views("numbers")["numbers"]
    assert (view.finished, view.done(9)) == (3, [(4, 7)])


def test_a_record_that_is_gone_has_a_letter_all_the_same(reading: Any) -> None:
    run = Run(Numbers())
    run.grave.away = True
    run.steps()
    reading(lambda position: "gone" if position == 3 else None)
    run.grave.away = False
    run.steps(secs=2)
    [letter] = run.grave.letters
    assert (letter.tuples, letter.note) == ((), "the record at numbers@3 is gone, or became no tuple")
    assert letter.last.reason == "ValueError: no 3"


def test_a_record_that_raises_is_requested_a_few_times_and_then_written_without_its_content(reading: Any) -> None:
    run = Run(Numbers(), retry=RetryPolicy(max_retries=0))
    run.engine.step()

    def broken(position: int) -> None:
        if position == 3:
            raise RuntimeError("the disk is broken")

    reading(broken)
    promotions = run.steps(secs=60)
    failed = [tree for promotion in promotions for tree in promotion.letters_failed]
    assert [tree.attempt for tree in failed] == list(range(1, READS_MAX))
    [letter] = run.grave.letters
    assert "numbers@3 could not be read again: RuntimeError: the disk is broken" in letter.note


def test_an_unavailable_source_is_asked_until_it_is_available(reading: Any) -> None:
    run = Run(Numbers(5), retry=RetryPolicy(max_retries=0))
    run.engine.step()

    def away(position: int) -> None:
        raise SourceUnavailable("no route")

    reading(away)
    run.steps(secs=40)
    assert run.grave.letters == []
    reading(lambda position: None)
    run.steps(secs=70)
    assert [letter.values() for letter in run.grave.letters] == [[{"n": 3}]]


def test_dead_letter_has_the_original_message_or_the_reason_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Numbers, "raw", lambda self, range_: RawMessage(str(range_.start).encode()))
    run = Run(Numbers())
    run.steps()
    assert run.grave.letters[0].raw == RawMessage(b"3")
    monkeypatch.setattr(Numbers, "raw", lambda self, range_: 1 // 0)
    run = Run(Numbers())
    run.steps()
    assert run.grave.letters[0].raw is None
    assert run.grave.letters[0].note.startswith("the message as it came could not be read: ZeroDivisionError")


def test_waiting_dead_letters_survive_the_driver_and_log_compaction() -> None:
    run = Run(Numbers())
    run.grave.away = True
    run.steps(secs=3)
    ledger = run.engine.ledger
    settings = ledger_settings(run.engine.lane)
    assert restored(ledger.snapshot(), **settings).snapshot() == ledger.snapshot()
    run.engine.restart()
    assert run.engine.ledger.messages.retries.attempts == ledger.messages.retries.attempts
    run.grave.away = False
    run.steps(secs=70)
    [letter] = run.grave.letters
    assert [attempt.number for attempt in letter.attempts] == [1, 2, 3]
    assert run.counts.dead_letters == 1


def test_what_was_decided_with_dead_letters_stays_decided_without() -> None:
    run = Run(Numbers())
    run.grave.away = True
    run.steps()
    settings = ledger_settings(run.engine.lane)
    without = [replace(info, dead_letters=False) for info in settings["spouts"]]
    ledger = Ledger(**{**settings, "spouts": without})
    for entry in run.engine.log:
        ledger.replay(entry)
    [waiting] = ledger.messages.retries.due(10)
    assert (waiting.position, waiting.letter is not None, waiting.attempt) == (3, True, 2)


def test_a_topology_that_starts_again_without_dead_letters_sets_aside_what_waits() -> None:
    run = Run(Numbers())
    run.grave.away = True
    run.steps()
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", Numbers(), dead_letters="log:")
    builder.set_bolt("bolt", Picky()).shuffle_grouping("numbers")
    engine = LocalEngine(builder.build())
    engine.files, engine.last_commit = run.engine.files, run.engine.last_commit
    engine.restart()
    engine.now_ms = 60_000
    promotion = engine.step()
    assert promotion is not None
    [tree] = promotion.failed
    assert (tree.outcome, tree.letter) == ("given_up", True)
    assert "has no sink of dead letters any more" in tree.fail.reason
    assert engine.ledger.finished["numbers"]["numbers"] == 10


# Plans.


def test_a_plan_takes_a_limited_number_of_letters_and_the_others_wait() -> None:
    waiting = [Retry(1, "s", position, 1, letter="{}") for position in range(LETTERS_PER_PLAN_MAX + 1)]
    entries = letter_entries(waiting, lambda task: 7)
    assert sum(entry.reserved for entry in entries) == LETTERS_PER_PLAN_MAX
    assert max(entry.reserved for entry in entries) == LETTERS_PER_ENTRY_MAX
    long = [Retry(1, "s", position, 1, letter="x" * 300_000) for position in range(10)]
    assert sum(entry.reserved for entry in letter_entries(long, lambda task: 0)) == 4
    keys = [key for entry in entries for key in range(entry.first_key, entry.first_key + entry.reserved)]
    assert len(set(keys)) == len(keys)


# A Spout's messages.


class Jobs(Spout):
    outputs = ["n"]

    def __init__(self) -> None:
        self.waiting = [3, 4]
        self.heard: list[tuple[str, Any]] = []

    def next_tuple(self, collector: Any) -> None:
        if self.waiting:
            n = self.waiting.pop(0)
            collector.emit([n], message_id=("job", n))

    def ack(self, message_id: Any) -> None:
        self.heard.append(("ack", message_id))

    def fail(self, message_id: Any) -> None:
        self.heard.append(("fail", message_id))


def test_a_spout_buffer_in_a_new_life_takes_over_the_records_that_wait_for_letters() -> None:
    run = Run(Jobs())
    run.grave.away = True
    run.steps()
    old = run.engine.coordinator
    for _ in range(2):  # the second life takes over what the first one has planned and never committed
        old = next_life(old)
        [entry] = next_plan(old, run.engine.now_ms + 60_000).entries
        [record] = old.records_of(entry)
        assert (record.values, record.message_id, len(entry.letters or ())) == ([3], "('job', 3)", 1)
        [attempts] = old.ledger.messages.retries.attempts.values()
        assert [attempt.number for attempt in attempts.attempts] == [1, 2, 3]


# In tests of topologies.


def test_a_test_driver_shows_letters_and_writes_none(tmp_path: Any) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", Numbers(), dead_letters=f"file:{tmp_path}/dead.jsonl")
    builder.set_bolt("bolt", Picky()).shuffle_grouping("numbers")
    with TopologyTestDriver(builder.build()) as driver:
        for n in (2, 3, 3):
            driver.feed("numbers", [n], message_id=n)
        driver.run_until_idle()
        assert driver.acked("numbers") == [2]
        assert [(failed.message_id, failed.cause) for failed in driver.failed("numbers")] == [(3, "exception")] * 2
        assert driver.pending("numbers") == []
        assert [letter.values() for letter in driver.dead_letters("numbers")] == [[{"n": 3}]] * 2
    assert list(tmp_path.iterdir()) == []


def test_an_unavailable_sink_is_not_waited_for_once_per_letter() -> None:
    class Grim(BasicBolt):
        def execute(self, tup: Any, collector: Any) -> None:
            raise ValueError("no")

    run = Run(Numbers(40), Grim())
    run.grave.away = True
    asked = []
    for _ in range(60):
        before = run.grave.asked
        if run.engine.step() is None:
            run.engine.now_ms += 500
        asked.append(run.grave.asked - before)
    assert max(asked) == REFUSALS_MAX
    assert (run.finished, run.counts.waiting) == (0, 40)
    run.grave.away = False
    run.steps(secs=70)
    assert sorted(letter.position for letter in run.grave.letters) == list(range(40))
    assert run.engine.coordinator.finished


def test_nothing_is_remembered_of_a_message_that_is_acked_at_last() -> None:
    class Moody(BasicBolt):
        def execute(self, tup: Any, collector: Any) -> None:
            if tup.attempt == 1:
                raise ValueError("not now")

    run = Run(Numbers(), Moody(), retry=RetryPolicy(max_retries=3, min_backoff=timedelta(seconds=1)))
    run.engine.step()
    assert len(run.engine.ledger.messages.retries.attempts) == 5
    run.steps(secs=5)
    assert run.engine.coordinator.finished
    assert len(run.engine.ledger.messages.retries.attempts) == 0
    assert run.grave.letters == []
