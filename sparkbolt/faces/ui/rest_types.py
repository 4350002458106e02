"""The values of the REST interface that are not documents of ``operate``.

The OpenAPI document shows these types, and bodies of requests are checked against them.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from sparkbolt.api.dead_letters import Attempt
from sparkbolt.control.documents import Gist, NowDocument, TopologyEntry


class HopValue(TypedDict):
    """A hop: the work of one task on the tuples of one tree in one micro-batch."""

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
    """The story of one tree."""

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
    """The other trees of the same message; only if you get a single story."""


class LetterValue(TypedDict):
    """A dead letter: a message that was given up."""

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
    """The open trees that one task holds, among the trees that were read (``last``)."""

    holder: str
    """``COMPONENT[TASK]``; empty if no task has reported that it holds them."""
    trees: int
    tuples: int
    oldest_ms: int | None
    """When the oldest of them started."""
    stories: list[StoryValue]


class OpenTrees(TypedDict):
    """The open trees by the tasks that hold them."""

    open_trees: int
    """The number of all open trees; ``holders`` counts only those that were read (``last``)."""
    holders: list[HolderValue]


class WindowsValue(TypedDict):
    """The windows and the watermark of a bolt."""

    component: str
    watermark_ms: int | None
    behind_ms: int | None
    windows: int | None
    late_tuples: int | None


class SettingsValue(TypedDict):
    """The current settings of a topology and of its components."""

    settings: dict[str, Any]
    components: dict[str, dict[str, Any]]


class NumbersEvent(TypedDict):
    """The event ``numbers`` of the stream of changes."""

    time_ms: int
    gist: Gist
    now: NowDocument


class StateEvent(TypedDict):
    """The event ``state`` of the stream of changes: the first event, and one for each change of the state."""

    entry: TopologyEntry
    live: bool


class KillBody(TypedDict):
    """How long open trees have to finish."""

    wait_secs: NotRequired[float | None]
    """In seconds; null: the message timeout."""


class SetBody(TypedDict):
    """A setting to change."""

    key: str
    """``log-level``, ``max-spout-pending``, ``micro-batch-target`` ..."""
    value: str
    component: NotRequired[str | None]


class RebalanceBody(TypedDict):
    """The layout that you want."""

    executors: NotRequired[dict[str, int]]
    num_workers: NotRequired[int]


class TraceBody(TypedDict):
    """The message to trace."""

    message: str
    """A message id, or ``SOURCE@POSITION``."""
    component: NotRequired[str | None]


class LettersBody(TypedDict):
    """Dead letters, by their ids."""

    ids: list[str]


class ReplayManyBody(TypedDict):
    """The dead letters to replay, and their destination."""

    ids: list[str]
    target: NotRequired[str | None]
    """The destination; default: the topics that the messages came from."""


class ReplayBody(TypedDict):
    """How to replay a dead letter."""

    values: NotRequired[dict[str, Any] | None]
    """New values for fields of its record."""
    target: NotRequired[str | None]
    """The destination: a file, or a topic of Kafka; default: the topic that the message came from."""
