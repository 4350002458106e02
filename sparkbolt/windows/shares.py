"""Shares: the windows by key of one task, divided among another number of tasks.

A key moves with its window: its tuples, their trees, the place up to which they were shown, and the time at which it is
due. Every new task gets the watermark of its old ones: the least of them, so that no tuple becomes late by a move.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkbolt.base.intervals import Interval, union
from sparkbolt.errors import StateError
from sparkbolt.windows.keyed import DueKeys

if TYPE_CHECKING:
    from sparkbolt.worker.state.task_state import TaskState

HEAD = "__window"
"""The segment of state that holds the head: everything that a task stores, except large segments and keys' windows."""
WINDOWS = "windows"
"""The name of the key-value state with the windows of the keys."""


@dataclass
class _Keys:
    """The keys that one new task gets of one old one."""

    head: tuple[Any, ...]
    """Of the old task."""
    windows: list[tuple[Any, bytes]]
    """(key, its window as ``KeyedWindows`` stores it)."""
    segments: list[tuple[Any, bytes]]
    """(name in the key-value state, large segment of a window)."""


def split_windows(
    state: TaskState, places: Callable[[Sequence[Any]], Mapping[int, Any]], parts: int
) -> dict[int, bytes]:
    """By index of a new task: its share of the windows of an old one; see ``RuntimeBolt.split_state``."""
    data = state.read(HEAD)
    if data is None:
        return {}
    head = pickle.loads(data)
    stored = dict(state.key_value(WINDOWS))
    shares = [_Keys(head, [], []) for _ in range(parts)]
    keys = [name[1] for name in stored if name[0] == "window"]
    part_of: dict[Any, int] = {}
    for part, rows in (places(keys) if keys else {}).items():
        for row in rows:
            part_of[keys[row]] = part
            shares[part].windows.append((keys[row], stored["window", keys[row]]))
    for name, segment in stored.items():
        if name[0] == "segment":
            shares[part_of[name[1]]].segments.append((name, segment))
    return {part: pickle.dumps(vars(share), 5) for part, share in enumerate(shares)}


def join_windows(state: TaskState, pieces: Sequence[bytes]) -> None:
    """Write the windows of a new task; see ``RuntimeBolt.join_state``.

    Raises:
        StateError: the old tasks have windows with different settings, since some have not run since a change.
    """
    shares = [_Keys(**pickle.loads(piece)) for piece in pieces]
    if not shares:
        return
    table = state.key_value(WINDOWS)
    due, idle = DueKeys("due", 1), DueKeys("idle", 1)
    for share in shares:
        for key, data in share.windows:
            slot, idle_slot, *_ = pickle.loads(data)
            for lists, listed in ((due, slot), (idle, idle_slot)):
                if listed is not None:
                    lists.add(listed, key)
            table.put(("window", key), data)
        for name, segment in share.segments:
            table.put(name, segment)
    heads = [share.head for share in shares]
    if len({head[6:7] for head in heads}) > 1:
        raise StateError(
            "some of its tasks have not run since the settings of its windows were changed: start it once with as many "
            "tasks as it had, and change their number then"
        )
    news = any(head[4][2] for head in heads)
    state.write_own(HEAD, pickle.dumps(_joined(heads, (due.save(table), idle.save(table), news)), 5), alone=True)


def _joined(heads: Sequence[tuple[Any, ...]], window: Any) -> tuple[Any, ...]:
    """The head of a task that follows several ones."""
    origins, next_marks, marks, seen, _, next_dues, *_ = zip(*heads, strict=False)
    runs: dict[Any, list[Interval]] = {}
    for source, (starts, ends) in (item for one in seen for item in one.items()):
        runs[source] = union(runs.get(source, []), zip(starts, ends, strict=True))
    ids = {source: ([start for start, _ in some], [end for _, end in some]) for source, some in runs.items()}
    grids = [head[6:] for head in heads]
    rest = (grids[0][0], max(since for _, since in grids)) if grids[0] else ()
    return (min(origins), min(next_marks), _joined_marks(marks), ids, window, min(next_dues), *rest)


def _joined_marks(marks: Sequence[Any]) -> Any:
    """The least watermark, and the newest times of all streams; None on arrival."""
    known = [one for one in marks if one is not None]
    if not known:
        return None
    latest: dict[Any, int | None] = {}
    heard: dict[Any, int] = {}
    for _, times, silences in known:
        for stream, time_ms in times.items():
            before = latest.get(stream)
            latest[stream] = time_ms if before is None else before if time_ms is None else max(before, time_ms)
        for stream, now_ms in silences.items():
            heard[stream] = max(heard.get(stream, now_ms), now_ms)
    return min(last for last, _, _ in known), latest, heard
