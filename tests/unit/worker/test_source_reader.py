"""A spout whose reading raises, or reads nonsense: nothing is lost, nothing is tried for ever, the task lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from sparkbolt.api.components import Bolt, ColumnBolt, TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.api.tuples import Tuple
from sparkbolt.errors import EnoughRead
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spark.error_log import ErrorLog
from sparkbolt.streams import TopologyBuilder
from sparkbolt.worker.collectors import BoltRowCollector
from sparkbolt.worker.emissions import Rows
from sparkbolt.worker.tasks import BoltTask
from tests.unit.worker import unreadable
from tests.unit.worker.reading import (
    COUNT,
    SEEN,
    Columns,
    FailAtFirst,
    Numbers,
    run,
    topology,
    what_came_again,
)
from tests.unit.worker.unreadable import damaged_text


class Weighed(Numbers):
    """Says how large what it reads is: a number is as many bytes."""

    heard: ClassVar[list[list[tuple[Range, int]]]] = []

    def prepare(self, context: TopologyContext) -> None:
        self.size: int | None = None

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        self.size = 0
        for record in super().read(range_):
            self.size += record.position if isinstance(record, BadRecord) else record[0]
            yield record

    def read_bytes(self) -> int | None:
        return self.size

    def on_read(self, reads: Sequence[tuple[Range, int]]) -> None:
        self.heard.append(list(reads))


def raising(*numbers: int, times: int = 10**9) -> Callable[[int, int], None]:
    def trouble(number: int, tried: int) -> None:
        if number in numbers and tried <= times:
            raise OSError("the disk is away")

    return trouble


@pytest.mark.parametrize("kind", [Numbers, Columns])
def test_a_read_that_raises_once_loses_nothing(kind: type[Numbers]) -> None:
    engine, failed = run(kind(raising(30, 71, times=1)))
    assert set(SEEN) == set(range(COUNT))
    assert engine.ledger.metrics.of("numbers").given_up == 0
    (first, rest) = sorted(tree.position or 0 for tree in failed if tree.fail.cause in ("read", "cut"))[:2]
    assert (first, rest) == (29, 30)
    assert "reading n@30 and what follows it up to 50: OSError: the disk is away" in [
        tree.fail.reason for tree in failed if tree.position == 30
    ]


def test_a_read_that_always_raises_at_a_record_sets_aside_the_rest_of_its_range_with_a_story() -> None:
    engine, failed = run(Numbers(raising(30)), max_attempts=3)
    assert set(SEEN) == set(range(30)) | set(range(50, COUNT))
    assert Numbers.tried[30] == 3
    (tree,) = engine.ledger.given_up
    assert (tree.position, tree.end, tree.attempt) == (30, 50, 3)
    assert "n@30, attempt 3; failed by numbers[0] in micro-batch" in tree.story
    assert "reading n@30 and what follows it up to 50: OSError: the disk is away" in tree.story
    assert [tree.outcome for tree in failed if tree.position == 30] == ["retry", "retry", "given_up"]


def test_a_read_that_makes_progress_each_time_is_never_given_up() -> None:
    engine, _ = run(Numbers(raising(*range(1, COUNT, 3), times=1)), max_attempts=2)
    assert set(SEEN) == set(range(COUNT))
    assert engine.ledger.metrics.of("numbers").given_up == 0


def test_a_second_cause_of_failure_in_a_tree_does_not_lose_the_rest_of_its_range() -> None:
    engine, failed = run(Numbers(raising(21, times=1)))
    assert {(tree.position, tree.end) for tree in failed} == {(20, None), (21, 50)}
    assert set(SEEN) == set(range(COUNT))
    assert engine.ledger.metrics.of("numbers").given_up == 0


@pytest.mark.parametrize("values", [[1, 2], [], None, {"m": 7}, {7}, range])
def test_a_record_with_wrong_values_fails_alone(values: Any) -> None:
    def trouble(number: int, tried: int) -> Any:
        return (number, values) if number == 40 else None

    engine, failed = run(Numbers(trouble))
    assert set(SEEN) == set(range(COUNT)) - {40}
    (tree,) = engine.ledger.given_up
    assert (tree.position, tree.fail.cause) == (40, "unreadable")
    assert f"the spout read {values!r} as values, expected a list of 1, for ('n',)" in tree.story
    assert {tree.position for tree in failed} == {20, 40}


class WithMore(Columns):
    """A field more, of an array that has two values that Python cannot hold."""

    outputs: ClassVar[list[str]] = ["n", "more"]

    def __init__(self, more: Callable[[list[bool]], Any]) -> None:
        super().__init__(lambda number, tried: None)
        self.more = more

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        for positions, columns in super().read_columns(range_):
            yield positions, [*columns, self.more([position in (42, 43) for position in positions])]


def test_a_column_value_that_python_cannot_represent_is_a_bad_record() -> None:
    engine, failed = run(WithMore(unreadable.of(pa.timestamp("s"), 0, 10**12)))
    assert set(SEEN) == set(range(COUNT)) - {42, 43}
    assert sorted(tree.position for tree in engine.ledger.given_up) == [42, 43]
    assert {tree.position for tree in failed} == {20, 42, 43}
    for tree in engine.ledger.given_up:
        assert tree.fail.cause == "unreadable"
        assert "field 'more' cannot be read: " in tree.story


class Tripled(WithMore):
    """Number 42 is three tuples, of which one has a value that Python cannot hold."""

    def __init__(self, bad_row: int) -> None:
        super().__init__(damaged_text)
        self.bad_row = bad_row

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        positions = [n for n in range(range_.start, range_.end) for _ in range(3 if n == 42 else 1)]
        first = positions.index(42) if 42 in positions else COUNT
        yield positions, [positions, damaged_text([row == first + self.bad_row for row in range(len(positions))])]


@pytest.mark.parametrize("bad_row", [0, 1, 2])
def test_of_a_record_with_a_value_that_cannot_be_read_no_tuple_is_left(bad_row: int) -> None:
    engine, _ = run(Tripled(bad_row))
    assert sorted(SEEN) == [number for number in range(COUNT) if number != 42]
    assert [tree.position for tree in engine.ledger.given_up] == [42]
    assert engine.ledger.metrics.of("numbers").acked == COUNT - 1


@pytest.mark.parametrize(
    ("nonsense", "text"),
    [
        (([60], [[1], [2]]), "read 2 columns on stream 'default', which declares 1 field(s)"),
        (([60, 61], [[1]]), "lengths [1, 2]"),
        (([100], [[1]]), "expected them to rise from 59 on and to stay below 100"),
        (([60, 59], [[1, 2]]), "expected them to rise from 59 on"),
        (([3], [[1]]), "expected them to rise from 59 on"),
        (BadRecord(3, "bad"), "expected them to rise from 59 on"),
        ("nonsense", "ValueError"),
    ],
)
def test_a_chunk_that_is_none_breaks_the_range_off(nonsense: Any, text: str) -> None:
    def trouble(number: int, tried: int) -> Any:
        return nonsense if number == 60 and tried == 1 else None

    engine, failed = run(Columns(trouble))
    assert set(SEEN) == set(range(COUNT))
    assert [tree.position for tree in failed if tree.fail.cause == "read"] == [60]
    assert any(text in tree.fail.reason for tree in failed)
    assert engine.ledger.metrics.of("numbers").given_up == 0


class BadFirst(Numbers):
    """Once gives a record that cannot be read before the columns of earlier ones."""

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        self.tried[range_.start] += 1
        numbers = list(range(range_.start, range_.end))
        if range_.start == 0 and self.tried[0] == 1:
            yield BadRecord(30, "unreadable")
            yield numbers[:30], [numbers[:30]]
            return
        yield numbers, [numbers]


def test_records_that_arrive_after_later_ones_are_not_lost() -> None:
    run(BadFirst(lambda number, times: None))
    assert sorted(SEEN) == [number for number in range(COUNT) if number != 30], "what is unreadable is not tried again"


def test_a_spout_in_the_driver_gets_the_sizes_of_ranges_read_by_executors_without_repeats() -> None:
    Weighed.heard.clear()
    run(Weighed(lambda number, times: None))
    assert SEEN[20] == 2
    assert Weighed.heard == [[(Range(0, "n", 0, 50), sum(range(50)))], [(Range(0, "n", 50, 100), sum(range(50, 100)))]]


def test_interrupted_range_reports_the_part_that_was_read_and_later_the_rest() -> None:
    Weighed.heard.clear()
    run(Weighed(raising(30, times=1)))
    told = [(range_.start, range_.end, size) for reads in Weighed.heard for range_, size in reads]
    assert (0, 30, sum(range(30))) in told
    assert (30, 50, sum(range(30, 50))) in told
    assert len(told) == 3


def enough_at(*numbers: int, times: int = 1) -> Callable[[int, int], None]:
    def trouble(number: int, tried: int) -> None:
        if number in numbers and tried <= times:
            raise EnoughRead(number, "that is enough")

    return trouble


@pytest.mark.parametrize("members", [{}, {"tracked": False}, {"once": True}])
def test_rest_of_a_too_large_range_is_read_next_before_anything_new(members: dict[str, Any]) -> None:
    spout = Numbers(enough_at(10, 30))
    vars(spout).update(members)
    engine, failed = run(spout, retry=RetryPolicy(max_retries=0, min_backoff=timedelta(seconds=5), jitter=0))
    seen = [number for number in SEEN if number != 20]
    assert seen == [number for number in range(COUNT) if number != 20], "in their order"
    assert {number: count for number, count in SEEN.items() if count > 1} == {}, "what was given is whole"
    rests = [tree for tree in failed if tree.fail.cause == "postponed"]
    assert [(tree.position, tree.end, tree.outcome, tree.attempt) for tree in rests] == [
        (10, 50, "retry", 1),
        (30, 50, "retry", 1),
    ]
    assert [tree.due_ms for tree in rests] == [tree.ended_ms for tree in rests], "at once"
    assert rests[0].fail.reason == "n from 10 up to 50 is read later: that is enough"
    numbers = engine.ledger.metrics.of("numbers")
    assert (numbers.errors, numbers.failed, numbers.retried) == (0, len(failed) - 2, 0)


@pytest.mark.parametrize("position", [0, 12, 49, 50, 1000])
def test_a_rest_that_cannot_begin_where_the_spout_says_breaks_the_range_off(position: int) -> None:
    def trouble(number: int, tried: int) -> None:
        if number == 13 + 37 * (position == 49) and tried == 1:
            raise EnoughRead(position, "that is enough")

    engine, failed = run(Numbers(trouble))
    assert set(SEEN) == set(range(COUNT))
    (tree,) = [tree for tree in failed if tree.fail.cause == "read"]
    assert f"has read enough of 'n' up to {position}: expected the rest to begin at" in tree.fail.reason
    assert engine.ledger.metrics.of("numbers").given_up == 0


def test_without_ackers_a_rest_that_nobody_asks_for_again_is_reported() -> None:
    Numbers.tried.clear()
    SEEN[20] = 1  # so that its bolt fails nothing
    engine = LocalEngine(topology(Numbers(enough_at(30)), acker_tasks=0))
    promotion = engine.step()
    assert promotion is not None
    assert [report.text for report in promotion.reports] == ["n from 30 up to 50 is read later: that is enough"]


class Pairs(Columns):
    """Each number is two tuples, each in a chunk of its own."""

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        for number in range(range_.start, range_.end):
            for half in ("first", "second"):
                yield [number], [[f"{number}, {half}"]]


class Together(Columns):
    """Each number is two tuples, in one chunk."""

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        for number in range(range_.start, range_.end):
            yield [number, number], [[f"{number}, {half}" for half in ("first", "second")]]


class Hold(Bolt):
    """Fails what is given for the first time, and holds what comes again until a tick finds that it may go."""

    transient = ["tried"]
    may_go: ClassVar[bool] = False
    tried: ClassVar[Counter[str]] = Counter()

    def prepare(self, context: TopologyContext) -> None:
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple, collector: BoltRowCollector) -> None:
        if tup.is_tick:
            while self.held and self.may_go:
                collector.ack(self.held.pop())
            return
        self.tried[tup["n"]] += 1
        if self.tried[tup["n"]] == 1:
            collector.fail(tup)
        else:
            self.held.append(tup)


@pytest.mark.parametrize("spout", [Pairs, Together])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_retried_message_of_several_tuples_is_acked_only_with_its_last_tuple(
    parallelism: int, spout: type[Columns], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hold, "tried", Counter())
    builder = TopologyBuilder("held", Config(max_attempts=9, message_timeout_secs=600))
    builder.set_spout("numbers", spout(lambda number, times: None))
    hold = builder.set_bolt("hold", Hold(), parallelism=parallelism, fuse=False, tick_tuple_freq_secs=20)
    hold.shuffle_grouping("numbers")
    engine = LocalEngine(builder.build())
    for _ in range(8):
        engine.step()
        engine.now_ms += 20_000
    metrics = engine.ledger.metrics.of("numbers")
    assert set(Hold.tried.values()) == {2}, "each was given again, and none came a third time"
    assert (metrics.acked, metrics.failed, engine.ledger.open_trees) == (0, COUNT, COUNT)
    monkeypatch.setattr(Hold, "may_go", True)
    engine.step()
    assert (metrics.acked, metrics.failed, engine.ledger.open_trees) == (COUNT, COUNT, 0)


class Lettered(Columns):
    """Each number is a text; as an Arrow dictionary of its own, whose codes have too few bits for all texts."""

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        codes = pa.array(np.arange(100, dtype=np.int8))
        for number in range(range_.start, range_.end):
            texts = pa.array([f"{number}, {n}" for n in range(100)])
            yield [number] * 100, [pa.DictionaryArray.from_arrays(codes, texts)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "at_once"), [(Numbers, 50), (Columns, 50), (Pairs, 2), (Lettered, 100)])
def test_records_read_again_one_by_one_are_processed_together_if_possible(
    kind: type[Numbers], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    run_task = BoltTask.run

    def noting(self: BoltTask, rows: Rows) -> Any:
        if not FailAtFirst.fails:
            counts.append(rows.count)
        return run_task(self, rows)

    monkeypatch.setattr(BoltTask, "run", noting)
    came = what_came_again(kind(lambda number, times: None), monkeypatch)
    tuples = {Pairs: 2, Lettered: 100}.get(kind, 1)
    assert len(came) == len(set(came)) == tuples * COUNT
    assert max(counts) >= at_once


class Thirteen(ColumnBolt):
    """Cannot work on a frame with number 13; notes what it could work on."""

    outputs = ["n"]
    stateless = True
    done: ClassVar[list[list[Any]]] = []

    def execute(self, batch: Any, collector: Any) -> None:
        if 13 in batch["n"].to_pylist():
            raise ValueError("thirteen")
        self.done.append(batch["n"].to_pylist())
        collector.emit([batch["n"]], anchors=range(batch.num_rows))


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("kind", [Numbers, Columns])
def test_a_message_that_failed_with_others_of_its_frame_fails_no_second_time_with_them(
    kind: type[Numbers], fuse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Thirteen, "done", [])
    monkeypatch.setattr(FailAtFirst, "came", [])
    monkeypatch.setattr(FailAtFirst, "fails", False)
    builder = TopologyBuilder("thirteen", Config(max_attempts=2, dead_letters="log:"))
    builder.set_spout("numbers", kind(lambda number, times: None))
    builder.set_bolt("once", Thirteen(), fuse=fuse).shuffle_grouping("numbers")
    builder.set_bolt("twice", Thirteen(), fuse=False).shuffle_grouping("once")
    builder.set_bolt("note", FailAtFirst(), fuse=False).shuffle_grouping("twice")
    engine = LocalEngine(builder.build())
    while engine.step() is not None:
        engine.now_ms += 60_000
    metrics = engine.ledger.metrics.of("numbers")
    assert (metrics.acked, metrics.given_up) == (COUNT - 1, 1)
    assert sorted(FailAtFirst.came) == [number for number in range(COUNT) if number != 13]
    assert max(map(len, Thirteen.done)) >= 10, "what comes for the first time comes together"


def test_a_warning_reports_the_part_of_a_range_that_is_read_later(caplog: pytest.LogCaptureFixture) -> None:
    Numbers.tried.clear()
    SEEN[20] = 1  # so that the bolt fails nothing
    engine = LocalEngine(topology(Numbers(enough_at(30))))
    promotion = engine.step()
    assert promotion is not None
    ErrorLog(engine.topology.config).promotion(promotion)
    assert caplog.messages == [
        "numbers: n from 30 up to 50 is read later: that is enough; the next micro-batch reads it, before anything new"
    ]
