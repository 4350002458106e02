"""Stories: the recorded path of one tree through the topology, as data and as text.

A story contains only what was recorded, and the times of its hops are those of their micro-batches, so a micro-batch
that runs again gives the same story.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sparkbolt.api.causes import Cause, MessageOutcome, outcome_words
from sparkbolt.api.tree_life import TreeState
from sparkbolt.base.codec import ROW
from sparkbolt.base.exceptions import pass_on
from sparkbolt.base.ids import mix64, split_key
from sparkbolt.base.shown_values import Mention, fields_text
from sparkbolt.base.source_names import long_path, place_text

HOPS_MAX = 100
"""How many hops of one tree are kept: the first ones."""
HOPS_IN_LINE_MAX = 10
"""How many of them the one-line story names."""
VALUES_CHARACTERS_MAX = 200
CODE_LINES = 4
"""How many lines at the end of a traceback may name a field: the code that raised, its marks, and the exception."""

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_SHORT.maxlong = 30
_ADDRESS = re.compile(" at 0x[0-9a-f]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Hop:
    """The work of one task on the tuples of one tree in one micro-batch."""

    JSON = ROW

    key: int
    micro_batch_id: int
    now_ms: int
    """The micro-batch's time, in milliseconds since the epoch."""
    depth: int
    """The component's longest distance from the spouts; hops of one micro-batch are listed in this order."""
    component: str
    task: int
    """The task's index within its component."""
    tuples: int = 0
    """How many tuples of the tree the task got; 0 for a spout, and if only its emission is known."""
    acked: int = 0
    failed: int = 0
    held: int = 0
    source: str = ""
    """The task that sent the tuple in ``values``, such as ``split[1]``."""
    values: str = ""
    """The tuple that failed, otherwise the first tuple that the task got (that a spout emitted), shortened."""
    emitted: tuple[tuple[str, int], ...] = ()
    """(stream, how many tuples); 0 if the number is unknown, because only the tuple that led to this story is known."""
    trace_parent: str = ""
    """For a spout: the ``traceparent`` that came with the message, if there was one."""

    @property
    def who(self) -> str:
        """The task, such as ``split[1]``."""
        return f"{self.component}[{self.task}]"

    @property
    def is_passage(self) -> bool:
        """Whether it is only known that a tuple came from this task."""
        return not (self.tuples or self.acked or self.failed or self.held or any(n for _, n in self.emitted))

    @property
    def is_answer(self) -> bool:
        """Whether it is the answer to the question whether the task holds tuples of a tree that timed out."""
        return self.held > 0 and not (self.tuples or self.acked or self.failed or self.emitted)

    def words(self) -> str:
        """Return the hop as a short text.

        >>> Hop(1, 12, 0, 1, "split", 1, tuples=1, acked=1, emitted=(("word", 3),)).words()
        'acked by split[1] in micro-batch 12, emitted 3 (word)'
        >>> Hop(1, 12, 0, 2, "count", 0, tuples=3, held=1, acked=2).words()
        'acked 2 and held 1 by count[0] in micro-batch 12'
        >>> Hop(1, 12, 0, 1, "split", 1).words()
        'sent on by split[1] in micro-batch 12'
        """
        if self.is_answer:
            return f"still held by {self.who} in micro-batch {self.micro_batch_id}"
        actions = [(word, n) for word in ("acked", "failed", "held") if (n := getattr(self, word))]
        if len(actions) == 1:
            done = actions[0][0] if actions[0][1] == 1 else f"{actions[0][0]} {actions[0][1]}"
        elif actions:
            done = " and ".join(f"{word} {n}" for word, n in actions)
        else:
            done = "sent on" if self.depth else "started"
        return f"{done} by {self.who} in micro-batch {self.micro_batch_id}{self.emission()}"

    def emission(self) -> str:
        """Return what it emitted, as the end of a sentence; empty if it emitted nothing, or the number is unknown."""
        lines = [f"{count} ({stream})" for stream, count in self.emitted if count]
        return f", emitted {', '.join(lines)}" if lines else ""


@dataclass
class TreeNotes:
    """The recorded path of a tree that has not ended."""

    hops: list[Hop] = field(default_factory=list)
    message_id: str | None = None

    def held_words(self, micro_batch_id: int) -> str:
        """Return which tuples tasks reported to hold in this micro-batch, as the end of a sentence; may be empty."""
        for hop in self.hops:
            if hop.is_answer and hop.micro_batch_id == micro_batch_id:
                more = f" and {hop.held - 1} more" if hop.held > 1 else ""
                return f": {hop.values} from {hop.source}{more}"
        return ""


NO_NOTES = TreeNotes()


@dataclass(frozen=True)
class Story:
    """All records about one tree.

    >>> hop = Hop(1 << 48, 12, 1500, 0, "lines", 0, emitted=(("line", 1),))
    >>> story = Story(1 << 48, "lines", 0, TreeState.ACKED, source="a.txt", position=40, attempt=1, hops=(hop,))
    >>> for line in story.lines(): print(line)
    root 33c3a78b9b45efb1: acked
      message   lines[0] a.txt@40, attempt 1 (task 1, sequence 0)
      00:00:01.500Z  started by lines[0] in micro-batch 12, emitted 1 (line)
    """

    key: int
    component: str
    """The spout (or window) that started the tree."""
    task: int
    """The index of its task."""
    state: TreeState
    """``open``, ``acked``, ``failed``, or ``unknown`` (nothing is stored about it); each is a str."""
    source: str | None = None
    position: int | None = None
    """The position of the record; ``source`` and ``position`` are None if the record cannot be read again."""
    message_id: str | None = None
    """The ``repr`` of the message id, for a ``Spout``."""
    attempt: int | None = None
    started_in: int | None = None
    """The micro-batch that started the tree."""
    started_ms: int | None = None
    ended_in: int | None = None
    """The micro-batch that ended it."""
    ended_ms: int | None = None
    why: str = ""
    """Which task failed it and why, or which tasks still hold which tuples; a sentence."""
    cause: Cause | None = None
    """For a failed tree, as in ``Fail``."""
    outcome: MessageOutcome | None = None
    """For a failed tree, as in ``FailedTree``."""
    traceback: str | None = None
    hops: tuple[Hop, ...] = ()

    @property
    def root(self) -> str:
        """The tree's root, 16 hexadecimal digits."""
        return root_text(self.key)

    @property
    def message(self) -> str:
        """Identifies the message with the short name of its source, such as ``lines[0] a.txt@40``."""
        return message_text(self.component, self.task, self.source, self.position, self.message_id)

    @property
    def trace_parent(self) -> str | None:
        """The ``traceparent`` that came with the message, if there was one and the tree was followed."""
        return next((hop.trace_parent for hop in self.hops if hop.trace_parent), None)

    def to_json(self) -> dict[str, Any]:
        """Return the story for programs: ``root``, ``task_number`` and ``sequence`` for the key, hops as objects."""
        number, sequence = split_key(self.key)
        body = {name: value for name, value in vars(self).items() if name not in ("key", "hops")}
        hops = [{**vars(hop), "emitted": dict(hop.emitted)} for hop in self.hops]
        for hop in hops:
            del hop["key"], hop["depth"], hop["trace_parent"]
        parent = {"trace_parent": self.trace_parent} if self.trace_parent else {}
        return {"root": self.root, "task_number": number, "sequence": sequence, **body, **parent, "hops": hops}

    def lines(self) -> list[str]:
        """Return the story for people, line by line."""
        number, sequence = split_key(self.key)
        attempt = f", attempt {self.attempt}" if self.attempt is not None else ""
        lines = [
            f"root {self.root}: {self.state}",
            f"  message   {self.message}{attempt} (task {number}, sequence {sequence})",
        ]
        lines += [f"  source    {path}"] if (path := long_path(self.source)) else []
        if self.started_in is not None:
            lines.append(f"  started   in micro-batch {self.started_in}, {time_text(self.started_ms)}")
        for hop in self.hops:
            got = f" from {hop.source}" if hop.source else ""
            values = f": {hop.values}{got}" if hop.values else ""
            lines.append(f"  {clock_text(hop.now_ms)}  {hop.words()}{values}")
        if self.ended_in is not None:
            lines.append(f"  ended     in micro-batch {self.ended_in}, {time_text(self.ended_ms)}")
        lines += [f"  {self.state:<9} {self.why}"] if self.why else []
        lines += [f"  then      {then}"] if (then := outcome_words(self.outcome)) else []
        if self.traceback:
            lines += ["", *("    " + line for line in self.traceback.rstrip().split("\n"))]
        return lines


def root_text(key: int) -> str:
    """Return the root of a tree as text: 16 hexadecimal digits.

    >>> root_text(1 << 48)
    '33c3a78b9b45efb1'
    """
    return f"{mix64(key):016x}"


def message_text(component: str, task: int, source: str | None, position: int | None, message_id: str | None) -> str:
    """Return a text that identifies the message of a tree, with the short name of its source.

    >>> message_text("lines", 0, "/books/a.txt", 40, None), message_text("jobs", 1, None, None, "17")
    ('lines[0] a.txt@40', 'jobs[1] message 17')
    """
    place = f" {place_text(source, position or 0)}" if source is not None else ""
    return f"{component}[{task}]{place}{f' message {message_id}' if message_id is not None else ''}"


def time_text(now_ms: int | None) -> str:
    """Return a micro-batch's time in UTC as text, to the millisecond.

    >>> time_text(1500)
    '1970-01-01 00:00:01.500Z'
    """
    if now_ms is None:
        return "at an unknown time"
    try:
        moment = _EPOCH + timedelta(milliseconds=now_ms)
    except OverflowError:  # a timestamp of event time may be any number
        return f"{now_ms} ms"
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + "Z"


def clock_text(now_ms: int) -> str:
    """``time_text`` without its day."""
    return time_text(now_ms)[11:]


def since_text(since_ms: int, now_ms: int) -> str:
    """Return the time of day, in UTC to the minute, at which something began; with its day if that is not today.

    >>> since_text(50_520_000, 60_000_000), since_text(50_520_000, 90_000_000)
    ('14:02 UTC', '1970-01-01 14:02 UTC')
    """
    since = time_text(since_ms)
    return f"{since[11:16] if since[:10] == time_text(now_ms)[:10] else since[:16]} UTC"


def short(value: Any) -> str:
    """Return the ``repr`` of a value, shortened and without addresses; if the ``repr`` raises, describe that instead.

    >>> short("a" * 1000)
    "'aaaaaaaaaaaaaaaaaaaaaaaaaaa...aaaaaaaaaaaaaaaaaaaaaaaaaaaa'"
    """
    try:
        text = _SHORT.repr(value)
    except BaseException as error:  # noqa: BLE001  user code may raise anything
        pass_on(error)
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    text = _ADDRESS.sub("", text)  # addresses differ from run to run, and a story must not
    return text if len(text) <= VALUES_CHARACTERS_MAX else text[: VALUES_CHARACTERS_MAX - 3] + "..."


def short_values(fields: Sequence[str], values: Iterable[Any], why: str = "", code: str | None = None) -> str:
    """Return a tuple's values by field as text, shortened; those that an error names stay (``base.shown_values``).

    Args:
        fields: the names of the fields.
        values: their values.
        why: the reason of the failure; "" if there is none.
        code: the traceback; its last lines may name a field that the reason does not name.

    >>> short_values(["word", "n"], ["be", 2])
    "{'word': 'be', 'n': 2}"
    """
    mention, pairs = Mention(why), dict(zip(fields, values, strict=False))
    if code and not any(mention.names(name, value) for name, value in pairs.items()):
        mention = Mention("\n".join(code.rstrip().split("\n")[-CODE_LINES:]))
    return fields_text(list(pairs), pairs.values(), VALUES_CHARACTERS_MAX, mention)


def merged(hops: Iterable[Hop]) -> list[Hop]:
    """Return the hops in the order of a story, with all hops of one task in one micro-batch merged into one.

    The result does not depend on the order of the input. A passage is dropped if more is known about the task.

    >>> one = Hop(1, 12, 0, 1, "split", 1, tuples=1, acked=1)
    >>> [hop.tuples for hop in merged([one, Hop(1, 12, 0, 1, "split", 1), one])]
    [2]
    """
    groups: dict[tuple[int, int, str, int, int], Hop] = {}
    for hop in sorted(hops, key=lambda hop: (*_place(hop), hop.is_passage, -hop.failed, hop.values, hop.emitted)):
        first = groups.get(_place(hop))
        if first is None:
            groups[_place(hop)] = hop
        elif not hop.is_passage or hop.trace_parent:
            groups[_place(hop)] = _added(first, hop)
    return list(groups.values())


def _place(hop: Hop) -> tuple[int, int, str, int, int]:
    return hop.micro_batch_id, hop.depth, hop.component, hop.task, hop.key


def _added(one: Hop, other: Hop) -> Hop:
    emitted: dict[str, int] = dict(one.emitted)
    for stream, count in other.emitted:
        emitted[stream] = emitted.get(stream, 0) + count
    values = (one.source, one.values) if one.values else (other.source, other.values)
    return replace(
        one,
        tuples=one.tuples + other.tuples,
        acked=one.acked + other.acked,
        failed=one.failed + other.failed,
        held=one.held + other.held,
        source=values[0],
        values=values[1],
        emitted=tuple(sorted(emitted.items())),
        trace_parent=one.trace_parent or other.trace_parent,
    )


def on_the_way(hops: Sequence[Hop]) -> str:
    """Return the hops between the spout and the end of the tree, for a one-line story; empty, or ends with "; ".

    A task that only failed the tree is not named here, because the end of the story names it.
    """
    between = [hop for hop in hops if hop.depth and (hop.acked or hop.held or hop.emitted) and not hop.is_answer]
    listed = [hop.words() for hop in between[:HOPS_IN_LINE_MAX]]
    if len(between) > HOPS_IN_LINE_MAX:
        listed.append(f"and {len(between) - HOPS_IN_LINE_MAX} more")
    return "".join(f"{words}; " for words in listed)
