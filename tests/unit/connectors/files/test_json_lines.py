"""JsonLinesSpout: objects become tuples, other lines fail alone."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.spouts import JsonLinesSpout

LINES = ['{"a":1,"b":"x"}', "", '{"b":[1],"c":2}', "[1]", "{", '{"a":{"k":null}}', "  "]
DATA = "\n".join(LINES).encode()


def spout_and_range(tmp_path: Path) -> tuple[JsonLinesSpout, Range]:
    path = tmp_path / "a.jsonl"
    path.write_bytes(DATA)
    return pickle.loads(pickle.dumps(JsonLinesSpout(path, outputs=["a", "b"]))), Range(0, str(path), 0, len(DATA))


def test_fields_are_taken_from_each_object_and_missing_ones_are_none(tmp_path: Path) -> None:
    spout, range_ = spout_and_range(tmp_path)
    records = list(spout.read(range_))
    assert [record for record in records if not isinstance(record, BadRecord)] == [
        (0, [1, "x"]), (17, [None, [1]]), (39, [{"k": None}, None])
    ]  # fmt: skip


def test_a_line_that_is_not_an_object_is_a_bad_record_with_its_position(tmp_path: Path) -> None:
    spout, range_ = spout_and_range(tmp_path)
    bad = [record for record in spout.read(range_) if isinstance(record, BadRecord)]
    assert [record.position for record in bad] == [33, 37]
    assert "expected a JSON object" in bad[0].reason
    assert "not JSON" in bad[1].reason


def test_columns_hold_the_same_as_rows(tmp_path: Path) -> None:
    spout, range_ = spout_and_range(tmp_path)
    rows = []
    for chunk in spout.read_columns(range_):
        if isinstance(chunk, BadRecord):
            rows.append(chunk)
        else:
            rows += [(p, list(values)) for p, *values in zip(chunk[0], *chunk[1], strict=True)]
    assert sorted(rows, key=str) == sorted(spout.read(range_), key=str)


def test_deep_nesting_is_a_bad_record(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    path.write_text("[" * 200_000 + "\n" + json.dumps({"a": 1}) + "\n")
    deep, good = JsonLinesSpout(path, outputs=["a"]).read(Range(0, str(path), 0, path.stat().st_size))
    assert isinstance(deep, BadRecord)
    assert good == (200_001, [1])
