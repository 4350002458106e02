"""Dead letters: describes a message that is given up, and defines the sinks that store such letters.

The id of a letter depends only on the message's last attempt. A letter may be written more than once, always with that
id, so a reader of letters must count each id once. Prior art: the dead letter topics of Kafka Connect and Kafka
Streams, whose headers contain cause and origin.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from sparkbolt.base.codec import decode, encode, record
from sparkbolt.base.exceptions import pass_on, printed
from sparkbolt.base.source_names import place_text

if TYPE_CHECKING:
    from sparkbolt.api.components import TopologyContext

ATTEMPTS_MAX = 20
"""How many attempts a letter lists: the first one and the newest; all are counted."""

FILE = "file:"
STREAM = "stream:"
NESTED_MAX = 100
"""How deep a value may be nested in a letter; deeper values are stored as their ``repr``."""
CHECKPOINT = "checkpoint:"
"""Letters go to the folder ``dead-letters`` of the checkpoint; this is the default."""
LOG = "log:"
"""No letters are written: only the log mentions the messages."""
STORY_FIELD = "story"
"""The last field of a stream of dead letters that the spout has not declared itself."""


@dataclass(frozen=True)
class Attempt:
    """One failed attempt at a message."""

    number: int
    """From 1; for a range that could not be read at all, the number of attempts to read it from its start."""
    root: str
    """The root of its tree, in the form that ``sparkbolt explain`` accepts."""
    cause: str
    """``exception``, ``fail``, ``timeout``, ``emit``, ``unreadable``, ``read``, ``killed`` and others."""
    reason: str
    """The exception's text, the reason that the bolt gave, or for a timeout which tuples were not acked, and where."""
    component: str
    """The component that failed it; for a timeout, the last component known to have had a tuple of the tree."""
    task: int
    """The index of that component's task."""
    micro_batch_id: int
    """The micro-batch in which it failed."""
    started_ms: int | None
    """When it began, in milliseconds since the epoch; None if unknown."""
    ended_ms: int
    """When it failed, in milliseconds since the epoch."""
    traceback: str | None = None

    def words(self) -> str:
        """Return the attempt as a sentence."""
        return f"attempt {self.number}: {self.cause} in {self.component}[{self.task}]: {self.reason}"


@dataclass(frozen=True)
class ExhaustedMessage:
    """A message that is given up, as the driver knows it: everything except its record."""

    attempts: tuple[Attempt, ...]
    """The first and the newest ones, in order; at least one."""
    attempts_left_out: int = 0
    """How many attempts after the first one are not listed."""
    end: int | None = None
    """The range's end, if it represents a whole range that could not be read."""
    message_id: str | None = None
    """The ``repr`` of the message id, for a ``Spout``."""
    record: str | None = None
    """If an earlier dead letter of the message was given back: the record that was given back, as JSON."""

    def dumps(self) -> str:
        """Return it as JSON, to be sent in a plan."""
        return json.dumps(encode(self), separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> ExhaustedMessage:
        """The inverse of ``dumps``.

        >>> one = Attempt(1, "33c3a78b9b45efb1", "fail", "no", "count", 0, 7, 1000, 1500)
        >>> exhausted = ExhaustedMessage((one,), message_id="'a'")
        >>> ExhaustedMessage.loads(exhausted.dumps()) == exhausted
        True
        """
        return decode(cls, json.loads(text))

    def id_in(self, topology: str, component: str) -> str:
        """Return the letter's id: 32 hexadecimal digits, the same each time that the letter is written."""
        last = self.attempts[-1]
        text = f"{topology}/{component}/{last.root}/{last.ended_ms}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def remember(told: Sequence[Attempt], attempt: Attempt) -> tuple[Attempt, ...]:
    """Add an attempt to those at a message; keep at most ``ATTEMPTS_MAX``, the first and the newest ones.

    >>> attempts = ()
    >>> for number in range(1, 101):
    ...     attempts = remember(attempts, Attempt(number, "", "fail", "no", "count", 0, number, None, number))
    >>> len(attempts), attempts[0].number, attempts[1].number, attempts[-1].number
    (20, 1, 82, 100)
    """
    kept = [*told, attempt]
    return tuple(kept if len(kept) <= ATTEMPTS_MAX else [kept[0], *kept[-(ATTEMPTS_MAX - 1) :]])


@dataclass(frozen=True)
class RawMessage:
    """A message before it was decoded, as ``PartitionedSpout.raw`` returns it."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    """The message's timestamp at its source, in milliseconds since the epoch."""

    def to_json(self) -> dict[str, Any]:
        """Return the message as a JSON object; bytes are encoded by ``plain``."""
        return {name: plain(value) for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> RawMessage:
        """The inverse of ``to_json``."""
        known = {name: restored(value) for name, value in body.items()}
        return cls(**{**known, "headers": tuple((name, value) for name, value in known["headers"])})


@dataclass(frozen=True)
class DeadLetter:
    """A message that was given up, with its story.

    >>> one = Attempt(1, "33c3a78b9b45efb1", "exception", "ValueError: no", "count", 0, 7, 1000, 1500)
    >>> letter = DeadLetter("5f", "word-count", "a1", "lines", 0, (one,), source="a.txt", position=40)
    >>> DeadLetter.from_json(json.loads(letter.to_line())) == letter
    True
    >>> letter.where, letter.last.cause
    ('lines[0] a.txt@40', 'exception')
    """

    id: str
    """32 hexadecimal digits; a letter that is written again has the same id."""
    topology: str
    version: str
    """The version of the topology: 16 hexadecimal digits that change with ``Topology.fingerprint``."""
    component: str
    """The spout."""
    task: int
    """The index of the spout's task."""
    attempts: tuple[Attempt, ...]
    """The first and the newest ones, in order."""
    attempts_left_out: int = 0
    """How many attempts after the first one are not listed."""
    source: str | None = None
    """The message's source: a file, or topic and kafka_partition as ``orders/3``; None for a ``Spout``."""
    position: int | None = None
    """The message's position in its source: a byte, an offset."""
    end: int | None = None
    """The range's end, if the letter represents a range that could not be read."""
    message_id: str | None = None
    """The ``repr`` of the message id, for a ``Spout``."""
    stream: str = "default"
    """The spout's stream on which the tuples were emitted."""
    fields: tuple[str, ...] = ()
    """The fields of that stream."""
    tuples: tuple[tuple[Any, ...], ...] = ()
    """The values of each tuple that the message becomes; empty if it could not be read."""
    raw: RawMessage | None = None
    """The undecoded message, if the spout provides it."""
    note: str = ""
    """Why the record is missing or incomplete; empty if it is complete."""

    @property
    def last(self) -> Attempt:
        """The last attempt."""
        return self.attempts[-1]

    @property
    def where(self) -> str:
        """Identifies the message: task, short name of the source and position, or task and message id."""
        if self.source is not None:
            place = f" {place_text(self.source, self.position or 0, self.end)}"
        else:
            place = f" message {self.message_id}"
        return f"{self.component}[{self.task}]{place}"

    @property
    def attempts_in_all(self) -> int:
        """How often the message was tried."""
        return len(self.attempts) + self.attempts_left_out

    def values(self) -> list[dict[str, Any]]:
        """Return each tuple as a dict by field."""
        return [dict(zip(self.fields, values, strict=True)) for values in self.tuples]

    def to_json(self) -> dict[str, Any]:
        """Return the letter as a JSON object; values are encoded by ``plain``."""
        return {**_LETTER.encode(self), "tuples": [[plain(value) for value in values] for values in self.tuples]}

    def to_line(self) -> str:
        """Return the letter as one line of JSON, without a line feed."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> DeadLetter:
        """The inverse of ``to_json``; values of unknown types become ``Printed``.

        Raises:
            ValueError: the object is not a dead letter.
        """
        try:
            letter: DeadLetter = _LETTER.decode(body)
            return replace(letter, tuples=tuple(tuple(map(restored, values)) for values in letter.tuples))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"this JSON object is no dead letter ({type(error).__name__}: {error})") from error


_LETTER = record(DeadLetter)

LETTER_NAMES = (
    *("id", "topology", "version", "component", "task", "attempts", "attempts_left_out", "source", "position", "end"),
    *("message_id", "stream", "note"),
)
"""Names that a stream of dead letters may have as fields, besides the spout's own fields."""
LAST_NAMES = ("cause", "reason", "traceback", "root")
"""More such names, for values of the last attempt."""


def story_of_letter(letter: DeadLetter) -> dict[str, Any]:
    """Return a letter without its record as a JSON object: the field ``story`` of a stream of dead letters."""
    body = letter.to_json()
    return {name: body[name] for name in LETTER_NAMES} | {name: getattr(letter.last, name) for name in LAST_NAMES}


def row_of_letter(letter: DeadLetter, values: Mapping[str, Any], fields: Sequence[str]) -> list[Any]:
    """Return the values of one tuple of a stream of dead letters, in the order of its fields.

    Args:
        letter: the dead letter.
        values: the spout's own values by field; empty if the message could not be read.
        fields: the stream's fields: fields of the spout, ``story``, or names of ``LETTER_NAMES`` and ``LAST_NAMES``.
    """
    story = story_of_letter(letter)
    return [
        values[name] if name in values else dict(story) if name == STORY_FIELD else story.get(name) for name in fields
    ]


@dataclass(frozen=True)
class Printed:
    """A value that could not be stored itself, only its ``repr``."""

    text: str


def plain(value: Any) -> Any:
    """Encode a value for JSON; a value without a JSON form becomes an object with one key that begins with ``$``.

    It never raises: a value that raises when it is examined, or is nested too deeply, is stored as its ``repr``.

    >>> plain([b"ab", {"n": 1}, (1, 2)])
    [{'$bytes': 'YWI='}, {'n': 1}, [1, 2]]
    >>> restored(plain({"at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}))
    {'at': datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)}
    >>> restored(plain({1, 2}))
    Printed(text='{1, 2}')
    """
    return _plain(value, 0)


def _plain(value: Any, depth: int) -> Any:
    if type(value) is Printed:
        return {"$printed": value.text}
    try:
        found = _form_of(value, depth) if depth < NESTED_MAX else None
    except BaseException as error:  # noqa: BLE001  user code may raise anything
        pass_on(error)
        found = None
    if found is None and value is not None:
        return {"$printed": printed(value)}
    return found


def _form_of(value: Any, depth: int) -> Any:
    """Return the JSON form of a value; None if it has none."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | None):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < _INT_MAX else {"$int": hex(value)}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, dt.datetime):
        return {"$datetime": value.isoformat()}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        body = {str.__str__(key): _plain(item, depth + 1) for key, item in value.items()}
        return body if not any(key.startswith("$") for key in body) else {"$object": list(body.items())}
    return None


_INT_MAX = 10**4000
"""Larger ints are stored in hexadecimal, because Python does not convert ints of many more digits to decimal text."""
_RESTORE: Mapping[str, Callable[[Any], Any]] = {
    "$bytes": base64.b64decode,
    "$datetime": dt.datetime.fromisoformat,
    "$float": float,
    "$int": lambda text: int(text, 16),
    "$printed": Printed,
    "$object": lambda items: {key: restored(item) for key, item in items},
}


def restored(value: Any) -> Any:
    """The inverse of ``plain``, except that tuples become lists."""
    if isinstance(value, list):
        return [restored(item) for item in value]
    if isinstance(value, dict):
        if len(value) == 1:
            [(key, inner)] = value.items()
            if key in _RESTORE:
                return _RESTORE[key](inner)
        return {key: restored(item) for key, item in value.items()}
    return value


@runtime_checkable
class DeadLetterSink(Protocol):
    """Stores dead letters; implement it and pass an instance as ``dead_letters=``. It is pickled with the topology.

    For each task of the spout that has letters to write, an executor opens a copy and keeps it open. After an exception
    the copy is closed, and a new one is opened for the next attempt.
    """

    def open(self, context: TopologyContext) -> None:
        """Called once before the first ``write`` of a copy; ``context`` belongs to the spout's task."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Store the letters; they must be durable when it returns.

        The same letters may be passed again, in this process or in another one, with the same ids. After an exception
        all of them are retried later; their messages count as unfinished until then.
        """

    def close(self) -> None:
        """Called when the copy is no longer used; not called after a crash."""


LetterFunction: TypeAlias = Callable[[DeadLetter], None]
DeadLetters: TypeAlias = str | LetterFunction | DeadLetterSink
"""The values of ``dead_letters=``: ``checkpoint:``, ``file:PATH``, ``stream:NAME``, a name that the spout knows (a
topic), a function, a sink, or ``log:`` for no letters at all."""


@dataclass
class FunctionSink:
    """A sink that calls a function for each letter."""

    function: LetterFunction

    def open(self, context: TopologyContext) -> None:
        """Nothing to open."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Call the function for each letter."""
        for letter in letters:
            self.function(letter)

    def close(self) -> None:
        """Nothing to close."""


def is_dead_letters(value: object) -> bool:
    """Whether a value has a type of ``DeadLetters``; the meaning of a str is checked later."""
    if isinstance(value, str):
        return bool(value) and value not in (FILE, STREAM)
    return is_sink(value) or (callable(value) and not isinstance(value, type))


def is_sink(value: object) -> bool:
    """Whether a value has the methods of a ``DeadLetterSink``."""
    return isinstance(value, DeadLetterSink) and not isinstance(value, type)


def stream_of(dead_letters: object) -> str | None:
    """Return the name of the stream that takes dead letters; None if they do not go to a stream.

    >>> stream_of("stream:dead"), stream_of("file:dead.jsonl")
    ('dead', None)
    """
    return dead_letters[len(STREAM) :] if isinstance(dead_letters, str) and dead_letters.startswith(STREAM) else None
