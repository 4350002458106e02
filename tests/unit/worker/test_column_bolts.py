"""Column bolts: in which form fields come, and what they may emit."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkbolt import BasicBolt, ColumnBolt, Spout, TopologyBuilder
from sparkbolt.api.tuples import Origin
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.wire.edges import Anchoring
from sparkbolt.worker.emissions import Rows


class Words(Spout):
    outputs = ["word", "n"]

    def next_tuple(self, collector: Any) -> None: ...


class Types(ColumnBolt):
    outputs = ["field", "type", "values"]

    def __init__(self, *dictionaries: str) -> None:
        self.dictionaries = dictionaries

    def execute(self, batch: pa.RecordBatch, collector: Any) -> None:
        for name in batch.schema.names:
            kind = type(batch[name]).__name__
            collector.emit([[name], [kind], [repr(batch[name].to_pylist())]], anchors=[0])


def types(bolt: Types, *rows: Any, grouped: bool) -> dict[str, tuple[str, str]]:
    builder = TopologyBuilder("types")
    builder.set_spout("words", Words())
    declared = builder.set_bolt("types", bolt, parallelism=2 if grouped else 1)
    if grouped:
        declared.fields_grouping("words", ["word"])
    else:
        declared.shuffle_grouping("words")
    with TopologyTestDriver(builder.build()) as driver:
        for number, (word, n) in enumerate(rows):
            driver.feed("words", {"word": word, "n": n}, message_id=number)
        driver.run_until_idle()
        assert driver.acked("words") == list(range(len(rows)))
        return {field: (kind, values) for field, kind, values in driver.emitted("types")}


@pytest.mark.parametrize("grouped", [True, False])
def test_fields_that_a_column_bolt_names_come_as_dictionaries_and_all_others_as_plain_arrays(grouped: bool) -> None:
    assert types(Types("word"), ("be", 7), grouped=grouped) == {
        "word": ("DictionaryArray", "['be']"),
        "n": ("Int64Array", "[7]"),
    }
    assert types(Types("n"), (None, 7), grouped=grouped) == {
        "word": ("NullArray", "[None]"),
        "n": ("DictionaryArray", "[7]"),
    }
    assert types(Types(), ("be", 7), grouped=grouped)["word"] == ("StringArray", "['be']")


def test_retried_messages_are_separate_and_first_attempts_are_together() -> None:
    attempts = np.array([1, 129, 2, 2, 130, 3, 1, 1], dtype=np.uint8)
    roots = np.array([11, 12, 13, 13, 14, 15, 16, 17], dtype=np.uint64)
    rows = Rows(Origin("s", 0, "default", ("n",)), 8, [list(range(8))], Anchoring(roots, roots), attempts)
    parts = [part.columns[0] for part in rows.with_retries_apart()]
    assert parts == [[0, 1], [2, 3], [4], [5], [6, 7]], "129 is a first attempt that is traced, 130 a second one"
    rows = Rows(rows.origin, 8, rows.columns, None, attempts)
    assert [part.columns[0] for part in rows.with_retries_apart()] == [[0, 1], [2], [3], [4], [5], [6, 7]]
    first = Rows(rows.origin, 8, rows.columns, None, np.full(8, 129, dtype=np.uint8))
    assert list(first.with_retries_apart()) == [first]


class EmitsAndSplits(ColumnBolt):
    outputs = ["n"]
    splits_frames = True

    def execute(self, batch: pa.RecordBatch, collector: Any) -> None:
        numbers = batch["n"].to_pylist()
        collector.emit([numbers], anchors=range(len(numbers)))
        if 2 in numbers:
            raise ValueError("two")


def test_tuples_emitted_for_half_a_frame_belong_to_that_half_and_are_dropped_if_it_fails() -> None:
    class FailsThree(BasicBolt):
        def execute(self, tup: Any, collector: Any) -> None:
            if tup["n"] == 3:
                raise ValueError("three")

    builder = TopologyBuilder("halves")
    builder.set_spout("words", Words())
    builder.set_bolt("halves", EmitsAndSplits()).shuffle_grouping("words")
    builder.set_bolt("last", FailsThree()).shuffle_grouping("halves")
    with TopologyTestDriver(builder.build()) as driver:
        for number in range(6):
            driver.feed("words", {"n": number}, message_id=number)
        driver.run_until_idle()
        assert driver.emitted("halves") == [[0], [1], [3], [4], [5]]
        assert driver.acked("words") == [0, 1, 4, 5]
        reasons = {failed.message_id: failed.reason for failed in driver.failed("words")}
        assert reasons == {2: "ValueError: two", 3: "ValueError: three"}
