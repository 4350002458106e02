"""What a worker gives Spark: rows in Arrow batches of a bounded size."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import pytest

from sparkbolt.layout.lane import lay_out
from sparkbolt.spark.executor import (
    ARROW_BYTES_MAX,
    BATCH_BYTES_MAX,
    _environment,
    _parts_of,
    batches_of,
    packed,
    rows_of,
)
from tests.unit.api.declared import words


def parts(*sizes: int) -> list[list[int]]:
    """How rows of these sizes are split; a range stands for a frame that would not fit into memory."""
    rows: Sequence[Any] = [(0, range(size)) for size in sizes]
    return [[len(frame) for _, frame in part] for part in _parts_of(rows)]


@pytest.mark.parametrize(
    ("sizes", "split"),
    [
        ([], []),
        ([BATCH_BYTES_MAX - 1, 1, 5], [[BATCH_BYTES_MAX - 1, 1], [5]]),
        ([BATCH_BYTES_MAX - 1, ARROW_BYTES_MAX, 5], [[BATCH_BYTES_MAX - 1], [ARROW_BYTES_MAX], [5]]),
        ([BATCH_BYTES_MAX - 1, ARROW_BYTES_MAX - BATCH_BYTES_MAX + 1], [[BATCH_BYTES_MAX - 1, 2146435072]]),
        ([7, ARROW_BYTES_MAX - 6, 0, 3], [[7], [ARROW_BYTES_MAX - 6], [0, 3]]),
        ([ARROW_BYTES_MAX] * 2, [[ARROW_BYTES_MAX]] * 2),
    ],
)
def test_a_batch_is_never_larger_than_arrow_can_count(sizes: list[int], split: list[list[int]]) -> None:
    assert parts(*sizes) == split


def test_rows_survive_a_round_trip() -> None:
    rows = [
        (dest, bytes([dest]) * size) for dest, size in enumerate([0, 1, BATCH_BYTES_MAX, 3, BATCH_BYTES_MAX - 1, 2])
    ]
    batches = list(batches_of(rows))
    assert [batch.num_rows for batch in batches] == [3, 2, 1]
    assert [(dest, bytes(frame)) for batch in batches for dest, frame in rows_of(batch)] == rows


def test_a_value_of_a_class_of_the_main_program_is_written_and_read_in_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Order:
        pass

    Order.__module__, Order.__qualname__ = "__main__", "Order"
    program, worker = ModuleType("__main__"), ModuleType("__main__")
    vars(program)["Order"] = Order
    monkeypatch.setitem(sys.modules, "__main__", program)
    bundle = packed(lay_out(words().build(), 2), "run")
    monkeypatch.setitem(sys.modules, "__main__", worker)
    _environment(bundle)
    assert isinstance(pickle.loads(pickle.dumps(Order())), Order)
    assert not vars(worker).keys() & {"Order"}, "the module of the worker's own program is as it was"
