"""The values of the REST interface that are not documents of ``operate``.

The OpenAPI document shows these types, and bodies of requests are checked against them.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from sparkbolt.core.model.dead_letters import Attempt
from sparkbolt.operate.documents import Gist, NowDocument, TopologyEntry


class HopValue(TypedDict):
    """What one task did with the tuples of one tree in one micro-batch."""

    micro_batch_id: int
    now_ms: int
    component: str
    task: int
    tuples: int
    acked: int
    failed: int
    held: int
    source: str
    values: str
    emitted: dict[str, int]


class StoryValue(TypedDict):
    """Everything that is known about one tree."""

    root: str
    """16 hexadecimal digits."""
    task_number: int
    sequence: int
    component: str
    task: int
    state: str
    """``open``, ``acked``, ``failed`` or ``unknown``."""
    source: str | None
    position: int | None
    message_id: str | None
    attempt: int | None
    started_in: int | None
    started_ms: int | None
    ended_in: int | None
    ended_ms: int | None
    why: str
    cause: str | None
    outcome: str | None
    traceback: str | None
    hops: list[HopValue]
    other_attempts: NotRequired[list[Any]]
    """Of one story that was asked for: the same message's other trees."""


class LetterValue(TypedDict):
    """A message that was given up."""

    id: str
    """32 hexadecimal digits."""
    topology: str
    version: str
    component: str
    task: int
    attempts: list[Attempt]
    attempts_left_out: int
    source: str | None
    position: int | None
    end: int | None
    message_id: str | None
    stream: str
    fields: list[str]
    tuples: list[list[Any]]
    raw: dict[str, Any] | None
    note: str
    replayed: NotRequired[bool]
    discarded: NotRequired[bool]


class HolderValue(TypedDict):
    """The open trees that one task holds, of those that were looked at."""

    holder: str
    """``COMPONENT[TASK]``; empty if no task has told that it holds them."""
    trees: int
    tuples: int
    oldest_ms: int | None
    """When the oldest of them started."""
    stories: list[StoryValue]


class OpenTrees(TypedDict):
    """The open trees by who holds them."""

    open_trees: int
    """All of them; the holders' are of those that were looked at (``last``)."""
    holders: list[HolderValue]


class WindowsValue(TypedDict):
    """A windowed bolt now."""

    component: str
    watermark_ms: int | None
    behind_ms: int | None
    windows: int | None
    late_tuples: int | None


class SettingsValue(TypedDict):
    """The settings of a topology as they apply now, and those that its components have of their own."""

    settings: dict[str, Any]
    components: dict[str, dict[str, Any]]


class NumbersEvent(TypedDict):
    """What the stream of changes tells when numbers have changed."""

    time_ms: int
    gist: Gist
    now: NowDocument


class StateEvent(TypedDict):
    """What the stream of changes tells first, and when a topology's state has changed."""

    entry: TopologyEntry
    live: bool


class KillBody(TypedDict):
    """How long open trees may finish."""

    wait_secs: NotRequired[float | None]
    """In seconds; null: the message timeout."""


class SetBody(TypedDict):
    """A setting to change."""

    key: str
    """``log-level``, ``max-spout-pending``, ``micro-batch-target`` ..."""
    value: str
    component: NotRequired[str | None]


class RebalanceBody(TypedDict):
    """What a restart should change."""

    executors: NotRequired[dict[str, int]]
    num_workers: NotRequired[int]


class TraceBody(TypedDict):
    """Messages to trace from now on."""

    message: str
    """A message id, or ``SOURCE@POSITION``."""
    component: NotRequired[str | None]


class LettersBody(TypedDict):
    """Dead letters, by their ids."""

    ids: list[str]


class ReplayManyBody(TypedDict):
    """Which dead letters are given again, and where to."""

    ids: list[str]
    target: NotRequired[str | None]
    """Where they are given to, if not where their messages came from."""


class ReplayBody(TypedDict):
    """How a dead letter is given again."""

    values: NotRequired[dict[str, Any] | None]
    """Fields of its record that get another value."""
    target: NotRequired[str | None]
    """Where it is given to, if not where its message came from: a file, a topic or a queue, as its spout needs it."""
