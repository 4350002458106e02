"""What a spout may give as positions, columns and bad records, and what it may do with its memory afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkbolt.api.causes import Cause
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.ranges import BadRecord, Range
from tests.unit.worker.reading import COUNT, SEEN, Numbers, run, what_came_again


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
def test_a_spout_may_reuse_its_memory_for_the_next_read(
    spout: SameMemory, trace: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    came = what_came_again(spout, monkeypatch, trace)
    assert sorted(came) == list(range(COUNT))


def test_values_that_a_spout_changes_for_the_next_read_are_sent_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    came = what_came_again(SameMemory(as_array=False, nested=True), monkeypatch)
    assert sorted(came) == [[number] for number in range(COUNT)]


@pytest.mark.parametrize(
    ("given", "cause", "words"),
    [
        (BadRecord(7, ZeroDivisionError("by nothing")), Cause.UNREADABLE, "ZeroDivisionError: by nothing"),  # type: ignore[arg-type]
        (BadRecord(7, None), Cause.UNREADABLE, "the spout gave no reason"),  # type: ignore[arg-type]
        (BadRecord(7, b"no"), Cause.UNREADABLE, "b'no'"),  # type: ignore[arg-type]
        (BadRecord(np.int64(7), "no"), Cause.UNREADABLE, "no"),  # type: ignore[arg-type]
        (BadRecord(7, "no", np.int64(3)), Cause.UNREADABLE, "no"),  # type: ignore[arg-type]
    ],
)
def test_parts_of_a_bad_record_of_other_types_fail_its_tree_and_nothing_else(
    given: BadRecord, cause: Cause, words: str
) -> None:
    engine, failed = run(Numbers(lambda number, tried: given if number == 7 else None))
    causes = [tree.fail.cause for tree in failed if words in tree.fail.reason and tree.position == 7]
    assert causes == [cause], [tree.fail.reason for tree in failed]
    assert engine.ledger.metrics.of("numbers").given_up == 1
    assert set(SEEN) == set(range(COUNT)) - {7}
