"""What a spout may give as positions, columns and bad records, and what it may do with its memory afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from sparkbolt.api.causes import Cause
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.bolts.dead_letter_files import read_letters
from sparkbolt.errors import EnoughRead
from tests.unit.worker.reading import COUNT, SEEN, Columns, Numbers, run, what_came_again


class SameMemory(Numbers):
    """Uses its list, or its numpy array, again for each read, and clears the list as soon as it is asked on."""

    def __init__(self, *, as_array: bool, nested: bool = False) -> None:
        super().__init__(lambda number, times: None)
        self.as_array, self.nested = as_array, nested

    def prepare(self, context: TopologyContext) -> None:
        self.list: list[Any] = []
        self.numbers = np.zeros(COUNT, dtype=np.int64)
        self.value: list[int] = [0]

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        for number in range(range_.start, range_.end):
            if self.as_array:
                self.numbers[0] = number
                yield [number], [pa.array(self.numbers[:1])]
                continue
            self.value[0] = number
            self.list[:] = [self.value if self.nested else number]
            yield [number], [self.list]
            self.list.clear()


@pytest.mark.parametrize("spout", [SameMemory(as_array=True), SameMemory(as_array=False)])
@pytest.mark.parametrize("trace", [0.0, 1.0])
def test_a_spout_may_use_its_memory_again_for_the_next_read(
    spout: SameMemory, trace: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = what_came_again(spout, monkeypatch, trace)
    assert sorted(came) == list(range(COUNT))


def test_values_that_a_spout_changes_for_the_next_read_are_sent_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    came = what_came_again(SameMemory(as_array=False, nested=True), monkeypatch)
    assert sorted(came) == [[number] for number in range(COUNT)]


class ListsInDictionaries(Columns):
    """Each number is a list, in an Arrow dictionary of its own."""

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        for number in range(range_.start, range_.end):
            yield [number], [pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([[number]]))]


def test_dictionaries_that_arrow_does_not_put_together_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    came = what_came_again(ListsInDictionaries(lambda number, times: None), monkeypatch)
    assert sorted(came) == [[number] for number in range(COUNT)]


@pytest.mark.parametrize(
    ("given", "cause", "words"),
    [
        (BadRecord(7, ZeroDivisionError("by nothing")), Cause.UNREADABLE, "ZeroDivisionError: by nothing"),  # type: ignore[arg-type]
        (BadRecord(7, None), Cause.UNREADABLE, "the spout gave no reason"),  # type: ignore[arg-type]
        (BadRecord(7, b"no"), Cause.UNREADABLE, "b'no'"),  # type: ignore[arg-type]
        (BadRecord(np.int64(7), "no"), Cause.UNREADABLE, "no"),  # type: ignore[arg-type]
        (BadRecord(7, "no", np.int64(3)), Cause.UNREADABLE, "no"),  # type: ignore[arg-type]
        (BadRecord(7, "no", "3"), Cause.UNREADABLE, "expected BadRecord(position: int, reason: str, ...)"),  # type: ignore[arg-type]
    ],
)
def test_parts_of_a_bad_record_of_other_types_fail_its_tree_and_nothing_else(
    given: BadRecord, cause: Cause, words: str
) -> None:
    engine, failed = run(Numbers(lambda number, tried: given if number == 7 else None))
    causes = [tree.fail.cause for tree in failed if words in tree.fail.reason and tree.position == 7]
    assert causes == [cause], [tree.fail.reason for tree in failed]
    assert engine.ledger.metrics.of("numbers").set_aside == 1
    assert set(SEEN) == set(range(COUNT)) - {7}


def test_a_bad_record_without_a_position_is_an_error_of_the_spout() -> None:
    engine, failed = run(Numbers(lambda number, tried: BadRecord("7", "no") if number == 7 else None))  # type: ignore[arg-type]
    assert any("spout 'numbers' read a BadRecord at str" in tree.fail.reason for tree in failed)
    assert set(range(7)) | set(range(50, COUNT)) <= set(SEEN)
    assert engine.ledger.metrics.of("numbers").set_aside == 1


@pytest.mark.parametrize("reason", [None, ValueError("too much"), "enough"])
def test_a_numpy_position_and_any_reason_are_enough(reason: Any) -> None:
    def trouble(number: int, tried: int) -> None:
        if number == 30 and tried == 1:
            raise EnoughRead(np.int64(30), reason)  # type: ignore[arg-type]

    engine, failed = run(Numbers(trouble))
    assert {tree.fail.cause for tree in failed if tree.fail.cause != Cause.EXCEPTION} == {Cause.POSTPONED}
    assert engine.ledger.metrics.of("numbers").acked == COUNT


def test_enough_that_is_no_position_is_an_error_of_the_spout() -> None:
    def trouble(number: int, tried: int) -> None:
        if number == 30 and tried == 1:
            raise EnoughRead("30", "enough")  # type: ignore[arg-type]

    engine, failed = run(Numbers(trouble))
    assert any("expected EnoughRead(position: int, reason: str)" in tree.fail.reason for tree in failed)
    assert engine.ledger.metrics.of("numbers").acked == COUNT


class OddColumns(Columns):
    """Gives ten numbers at a time as what ``kind`` makes of them."""

    def __init__(self, kind: Callable[[list[int]], Any]) -> None:
        super().__init__(lambda number, times: None)
        self.kind = kind

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        for positions, columns in super().read_columns(range_):  # type: ignore[misc]
            yield positions, self.kind(columns[0])


@pytest.mark.parametrize(
    "kind",
    [
        lambda numbers: [pd.Series(numbers, index=range(7, 7 + len(numbers)))],
        lambda numbers: [dict.fromkeys(numbers).keys()],
        lambda numbers: [pa.chunked_array([numbers[:3], numbers[3:]])],
        lambda numbers: (range(numbers[0], numbers[-1] + 1),),
        lambda numbers: np.array([numbers]),
        lambda numbers: {"n": numbers}.values(),
    ],
)
def test_columns_of_any_kind_are_read_and_read_again(kind: Callable[[list[int]], Any]) -> None:
    engine, _ = run(OddColumns(kind), trace=1.0)
    assert engine.ledger.metrics.of("numbers").acked == COUNT
    expected = Counter({number: 2 if number == 20 else 1 for number in range(COUNT)})
    assert expected == SEEN


@pytest.mark.parametrize(
    "kind",
    [
        lambda numbers: {"n": numbers},
        lambda numbers: "n",
        lambda numbers: pd.DataFrame({"n": numbers}),
        lambda numbers: pa.RecordBatch.from_pydict({"n": numbers}),
        lambda numbers: None,
    ],
)
def test_columns_that_are_no_list_of_columns_are_an_error_of_the_spout(kind: Callable[[list[int]], Any]) -> None:
    engine, failed = run(OddColumns(kind))
    assert engine.ledger.metrics.of("numbers").acked == 0
    assert any("expected a list with a column for each field" in tree.fail.reason for tree in failed)


@pytest.mark.parametrize("told", [None, ["00-1-2-01"], 7])
def test_trace_parents_that_are_none_are_reported(told: Any) -> None:
    class Parents(Numbers):
        def trace_parents(self, positions: Sequence[int]) -> Any:
            return told

    engine, _ = run(Parents(lambda number, tried: None))
    assert engine.ledger.metrics.of("numbers").acked == COUNT
    assert engine.ledger.metrics.of("numbers").errors


@pytest.mark.parametrize("told", ["text", b"bytes", Range(0, "n", 1, 2)])
def test_a_raw_message_that_is_none_is_said_in_the_letter(told: Any, tmp_path: Path) -> None:
    class Raw(Numbers):
        def raw(self, range_: Range) -> Any:
            return told

    spout = Raw(lambda number, tried: BadRecord(7, "unlucky") if number == 7 else None)
    engine, _ = run(spout, dead_letters=f"file:{tmp_path}/dead.jsonl")
    [letter] = read_letters(tmp_path / "dead.jsonl").letters
    assert (letter.position, letter.raw) == (7, None)
    assert f"raw returned a {type(told).__name__}, expected a RawMessage or None" in letter.note
    assert engine.ledger.metrics.of("numbers").acked == COUNT - 1
