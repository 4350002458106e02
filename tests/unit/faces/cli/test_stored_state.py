"""Stored state: what ``sparkbolt state`` shows of tasks, without Spark."""

from __future__ import annotations

import itertools
from json import loads
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.errors import StateError, WrongUseError
from sparkbolt.faces.cli import stored_state
from sparkbolt.spark.state_reading import StoredState
from sparkbolt.worker.state.task_state import DictStore, TaskState
from sparkbolt.worker.state.task_view import TaskView

STAMPS = itertools.count(1).__next__


def view(entries: dict[Any, Any]) -> TaskView:
    store, state = DictStore(), TaskState()
    state.begin(store)
    for key, value in entries.items():
        state.key_value().put(key, value)
    state.make_ready()
    state.commit(STAMPS)
    return TaskView(store)


@pytest.fixture
def checkpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A checkpoint whose bolt ``count`` has two tasks."""
    found = StoredState(str(tmp_path), 7, Generation(placement={"stateful": [["count"]]}))
    tasks = [view({"be": 2, 7: [1]}), view({("be", 7): 3, "7": "text"})]
    monkeypatch.setattr(StoredState, "of", lambda *_: found)
    monkeypatch.setattr(StoredState, "tasks", lambda *_: tasks)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("key", "task", "value"), [("be", 0, 2), ("7", 1, "text"), ('["be", 7]', 1, 3)], ids=["text", "text first", "tuple"]
)
def test_a_key_is_a_text_or_json(
    checkpoint: str, key: str, task: int, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    stored_state.state(checkpoint, "count", key, json=True)
    shown = loads(capsys.readouterr().out)
    assert (shown["micro_batch"], shown["task"], shown["value"]) == (7, task, value)


def test_a_key_that_is_not_there_is_named_with_the_nearest(checkpoint: str) -> None:
    with pytest.raises(WrongUseError, match=r"'count' has no key 'bee': did you mean 'be'\?"):
        stored_state.state(checkpoint, "count", "bee")


def test_each_task_and_each_key_is_shown_and_exported(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    stored_state.state(checkpoint)
    assert capsys.readouterr().out.split() == ["count[0]", "2", "keys", "count[1]", "2", "keys", "micro-batch", "7"]
    stored_state.state(checkpoint, "count", last=3)
    assert capsys.readouterr().out.splitlines()[-1] == (
        "micro-batch 7: 4 keys and attributes, 3 shown (--last, --export FILE)"
    )
    stored_state.state(checkpoint, export=f"{checkpoint}/out.jsonl")
    lines = [loads(line) for line in Path(checkpoint, "out.jsonl").read_text().splitlines()]
    assert [(line["task"], line["key"], line["value"]) for line in lines] == [
        (0, "be", 2),
        (0, 7, [1]),
        (1, "7", "text"),
        (1, ["be", 7], 3),
    ]


def test_a_checkpoint_without_a_commit_has_no_state_yet(tmp_path: Path) -> None:
    Path(tmp_path, "topology").write_text('{"generations": []}')
    with pytest.raises(StateError, match="no micro-batch is committed"):
        StoredState.of(str(tmp_path))
