"""Stored state: what ``sparkbolt state`` shows of tasks, without Spark."""

from __future__ import annotations

from datetime import date
from json import loads
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sparkbolt.api.groupings import fields_targets
from sparkbolt.errors import StateError, WrongUseError
from sparkbolt.faces.cli import stored_state
from sparkbolt.spark.state_reading import StoredState
from tests.unit.kept import KeptInMemory

DAY = date(2026, 1, 2)


@pytest.fixture
def checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A checkpoint whose bolt ``count`` has two tasks."""
    found = KeptInMemory.of_tasks({"be": 2, 7: [1]}, {("be", 7): 3, "7": "text", DAY: 4})
    monkeypatch.setattr(StoredState, "of", lambda *_: found)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("key", "task", "value"),
    [("be", 0, 2), ('"be"', 0, 2), ("7", 0, [1]), ('"7"', 1, "text"), ('["be", 7]', 1, 3), ("2026-01-02", 1, 4)],
)
def test_a_key_is_json_or_else_a_text(
    checkpoint: str, key: str, task: int, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    stored_state.state(checkpoint, "count", key, json=True)
    shown = loads(capsys.readouterr().out)
    assert (shown["micro_batch"], shown["task"], shown["value"]) == (7, task, value)


@pytest.mark.parametrize(("key", "meant"), [("bee", "be"), ("27", "7"), ('["be", 8]', '["be", 7]')])
def test_a_key_that_is_not_there_is_named_with_the_nearest(checkpoint: str, key: str, meant: str) -> None:
    with pytest.raises(WrongUseError, match=r"'count' has no key .*: did you mean ") as refused:
        stored_state.state(checkpoint, "count", key)
    assert f"{meant!r}?" in str(refused.value)


def test_each_task_and_each_key_is_shown_and_exported(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    stored_state.state(checkpoint)
    words = capsys.readouterr().out.split()
    assert words[:3] + words[5:8] + words[-2:] == ["count[0]", "2", "keys", "count[1]", "3", "keys", "micro-batch", "7"]
    stored_state.state(checkpoint, "count", last=3)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1:] for line in lines[:2]] == [["7", "[1]"], ['"be"', "2"]]
    assert lines[-1] == "micro-batch 7: 5 keys and attributes, 3 shown (--last, --export FILE)"
    stored_state.state(checkpoint, export=f"{checkpoint}/out.jsonl")
    exported = [loads(line) for line in Path(checkpoint, "out.jsonl").read_text().splitlines()]
    assert [(line["task"], line["key"], line["value"]) for line in exported] == [
        (0, 7, [1]),
        (0, "be", 2),
        (1, "7", "text"),
        (1, ["be", 7], 3),
        (1, "2026-01-02", 4),
    ]
    stored_state.state(checkpoint, export=f"{checkpoint}/out.parquet")
    table = pq.read_table(f"{checkpoint}/out.parquet").to_pylist()
    assert [(row["task"], loads(row["key"]), loads(row["value"])) for row in table] == [
        (line["task"], line["key"], line["value"]) for line in exported
    ]


def test_the_task_that_the_grouping_chooses_for_a_key_is_read_first_and_alone_if_it_has_it() -> None:
    words = ["to", "be", "or", "not", "that", "is", "the", "question"]
    owner = {word: int(fields_targets([[word]], 4)[0]) for word in words}
    assert len(set(owner.values())) > 2
    kept = KeptInMemory.of_tasks(*({word: 1 for word in words if owner[word] == task} for task in range(4)))
    for word in words:
        kept.read.clear()
        assert kept.named("count", word)["entries"][0]["task"] == owner[word]
        assert kept.read == [owner[word]]
    kept.read.clear()
    with pytest.raises(WrongUseError):
        kept.named("count", "nothing")
    assert sorted(kept.read) == [0, 1, 2, 3], "a key that no task has is looked for in all of them"
    with pytest.raises(WrongUseError, match="'split' keeps no state: expected one of count"):
        kept.named("split", "be")


def test_a_checkpoint_without_a_commit_has_no_state_yet(tmp_path: Path) -> None:
    Path(tmp_path, "topology").write_text('{"generations": []}')
    with pytest.raises(StateError, match="no micro-batch is committed"):
        StoredState.of(str(tmp_path))
