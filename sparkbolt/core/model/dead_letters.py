"""Dead letters: what is told of a message that is given up, and who takes it.

Which question it answers: what does a dead letter say, how is it written down, and where may it go?

Rule 1: the driver knows a message's attempts and never its record (``ExhaustedMessage``); the letter is made where the
record is read again.
Rule 2: a letter has an id that depends on the message's last attempt alone. It may be written more than once, always
under that id: whoever reads letters counts ids.
Rule 3: everything in a letter can be written as JSON and read back. A value that JSON has no form for is told apart
from text by the shape of its form; one of a type that nobody knows is kept as it prints, and says so.

Prior art: the dead letter topics of Kafka Connect and Kafka Streams, whose headers tell cause and origin.
Read before: ``components``, ``story``.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from sparkbolt.core.base.exceptions import pass_on, printed

if TYPE_CHECKING:
    from sparkbolt.core.model.components import TopologyContext

ATTEMPTS_MAX = 20
"""How many attempts a letter tells, the first one and the newest; all are counted."""

FILE = "file:"
STREAM = "stream:"
NESTED_MAX = 100
"""How deep a value may be nested in a letter; what is deeper is kept as it prints."""
CHECKPOINT = "checkpoint:"
"""Letters go to the folder ``dead-letters`` of the checkpoint: where nothing else is said."""
LOG = "log:"
"""There are no letters: the log tells, and that is all."""
STORY_FIELD = "story"
"""The last field of a stream of dead letters that the spout has not declared itself."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a message that failed."""

    number: int
    """From 1; a range of which nothing could be read counts how often reading was tried from its start on."""
    root: str
    """The root of its tree, as ``sparkbolt explain`` takes it."""
    cause: str
    """``exception``, ``fail``, ``timeout``, ``emit``, ``unreadable``, ``read``, ``killed`` and others."""
    reason: str
    """What was said: the exception's text, the bolt's reason, or what was still not acked and who held it."""
    component: str
    """Who failed it; of a timeout, who was seen last with a tuple of the tree."""
    task: int
    """The index of that component's task."""
    micro_batch_id: int
    """The micro-batch in which it failed."""
    started_ms: int | None
    """When it began, in milliseconds since the epoch; None where that is not known."""
    ended_ms: int
    """When it failed."""
    traceback: str | None = None

    def words(self) -> str:
        """The attempt in a sentence."""
        return f"attempt {self.number}: {self.cause} in {self.component}[{self.task}]: {self.reason}"


@dataclass(frozen=True)
class ExhaustedMessage:
    """What the driver knows of a message that is given up: all but its record."""

    attempts: tuple[Attempt, ...]
    """The first and the newest ones, in order; at least one."""
    attempts_left_out: int = 0
    """How many attempts behind the first one are not told."""
    end: int | None = None
    """Where it stands for a whole range of which nothing could be read: the range's end."""
    message_id: str | None = None
    """How the id prints that a ``Spout`` gave."""

    def dumps(self) -> str:
        """As JSON: it travels in a plan."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> ExhaustedMessage:
        """The inverse of ``dumps``.

        >>> one = Attempt(1, "33c3a78b9b45efb1", "fail", "no", "count", 0, 7, 1000, 1500)
        >>> exhausted = ExhaustedMessage((one,), message_id="'a'")
        >>> ExhaustedMessage.loads(exhausted.dumps()) == exhausted
        True
        """
        body = json.loads(text)
        return cls(**{**body, "attempts": tuple(Attempt(**attempt) for attempt in body["attempts"])})

    def id_in(self, topology: str, component: str) -> str:
        """The letter's id: 32 hexadecimal digits, the same for whoever writes it again."""
        last = self.attempts[-1]
        text = f"{topology}/{component}/{last.root}/{last.ended_ms}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def remember(told: Sequence[Attempt], attempt: Attempt) -> tuple[Attempt, ...]:
    """The attempts at a message with one more: of many, the first and the newest ones.

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
    """A message as it came, before anything was decoded: what ``PartitionedSpout.raw`` gives."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    """When the source has it from, in milliseconds since the epoch."""


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
    """32 hexadecimal digits; a letter that is written again has the same."""
    topology: str
    version: str
    """Of the topology: 16 hexadecimal digits that change with what ``Topology.fingerprint`` says."""
    component: str
    """The spout."""
    task: int
    """The index of the spout's task."""
    attempts: tuple[Attempt, ...]
    """The first and the newest ones, in order."""
    attempts_left_out: int = 0
    """How many attempts behind the first one are not told."""
    source: str | None = None
    """Where the message is: a file, or topic and kafka_partition as ``orders/3``; None for a ``Spout``."""
    position: int | None = None
    """The message's position there: a byte, an offset."""
    end: int | None = None
    """Where the letter stands for a range of which nothing could be read: its end."""
    message_id: str | None = None
    """How the id prints that a ``Spout`` gave."""
    stream: str = "default"
    """The spout's stream on which the tuples were emitted."""
    fields: tuple[str, ...] = ()
    """The fields of that stream."""
    tuples: tuple[tuple[Any, ...], ...] = ()
    """The values of each tuple that the message becomes; empty where it could not be read."""
    raw: RawMessage | None = None
    """The message as it came, where the spout gives that."""
    note: str = ""
    """Why the record is not here, or not whole; empty where it is."""

    @property
    def last(self) -> Attempt:
        """The last attempt."""
        return self.attempts[-1]

    @property
    def where(self) -> str:
        """Which message it is: task, source and position, or the spout's id of it."""
        if self.source is not None:
            place = f" {self.source}@{self.position}{f' to {self.end}' if self.end is not None else ''}"
        else:
            place = f" message {self.message_id}"
        return f"{self.component}[{self.task}]{place}"

    @property
    def attempts_in_all(self) -> int:
        """How often the message was tried."""
        return len(self.attempts) + self.attempts_left_out

    def values(self) -> list[dict[str, Any]]:
        """Each tuple by field."""
        return [dict(zip(self.fields, values, strict=True)) for values in self.tuples]

    def to_json(self) -> dict[str, Any]:
        """The letter as a JSON object; values and bytes in the forms of ``plain``."""
        body = dict(vars(self))  # not asdict, which copies values of the user's, as deep as they are
        body["attempts"] = [asdict(attempt) for attempt in self.attempts]
        body["fields"] = list(self.fields)
        body["tuples"] = [[plain(value) for value in values] for values in self.tuples]
        body["raw"] = plain(vars(self.raw)) if self.raw is not None else None
        return body

    def to_line(self) -> str:
        """The letter as one line of JSON, without its end."""
        return json.dumps(self.to_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> DeadLetter:
        """The inverse of ``to_json``; values of unknown types come back as ``Printed``.

        Raises:
            ValueError: the object is no dead letter.
        """
        try:
            raw = body["raw"]
            if raw is not None:
                raw = restored(raw)
                raw = RawMessage(**{**raw, "headers": tuple((name, value) for name, value in raw["headers"])})
            known = {
                **body,
                "attempts": tuple(Attempt(**attempt) for attempt in body["attempts"]),
                "fields": tuple(body["fields"]),
                "tuples": tuple(tuple(map(restored, values)) for values in body["tuples"]),
                "raw": raw,
            }
            return cls(**known)
        except (KeyError, TypeError) as error:
            raise ValueError(f"this JSON object is no dead letter ({type(error).__name__}: {error})") from error


LETTER_NAMES = (
    *("id", "topology", "version", "component", "task", "attempts", "attempts_left_out", "source", "position", "end"),
    *("message_id", "stream", "note"),
)
"""What a field of a stream of dead letters may be named after, besides the spout's own fields."""
LAST_NAMES = ("cause", "reason", "traceback", "root")
"""The same, of the last attempt."""


def story_of_letter(letter: DeadLetter) -> dict[str, Any]:
    """All of a letter but its record, as a JSON object: the field ``story`` of a stream of dead letters."""
    body = letter.to_json()
    return {name: body[name] for name in LETTER_NAMES} | {name: getattr(letter.last, name) for name in LAST_NAMES}


def row_of_letter(letter: DeadLetter, values: Mapping[str, Any], fields: Sequence[str]) -> list[Any]:
    """The values of one tuple of a stream of dead letters, by the names of its fields.

    Args:
        letter: what is told.
        values: the spout's own, by field; empty where the message could not be read.
        fields: the stream's: the spout's, ``story``, or names of ``LETTER_NAMES`` and ``LAST_NAMES``.
    """
    story = story_of_letter(letter)
    return [
        values[name] if name in values else dict(story) if name == STORY_FIELD else story.get(name) for name in fields
    ]


@dataclass(frozen=True)
class Printed:
    """A value that could not be kept: how it printed."""

    text: str


def plain(value: Any) -> Any:
    """A value as JSON has it; what JSON has no form for is an object with one key that begins with ``$``.

    It never raises: what raises when it is looked at, and what is nested too deep, is kept as it prints.

    >>> plain([b"ab", {"n": 1}, (1, 2)])
    [{'$bytes': 'YWI='}, {'n': 1}, [1, 2]]
    >>> restored(plain({"at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}))
    {'at': datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)}
    >>> restored(plain({1, 2}))
    Printed(text='{1, 2}')
    """
    return _plain(value, 0)


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, Printed):
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
    """The form of a value; None if it has none."""
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
"""Python prints no whole number with many more digits."""
_RESTORE: Mapping[str, Callable[[Any], Any]] = {
    "$bytes": base64.b64decode,
    "$datetime": dt.datetime.fromisoformat,
    "$float": float,
    "$int": lambda text: int(text, 16),
    "$printed": Printed,
    "$object": lambda items: {key: restored(item) for key, item in items},
}


def restored(value: Any) -> Any:
    """The inverse of ``plain``, but that tuples come back as lists."""
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
    """Where dead letters go: an object of one's own as ``dead_letters=``. It is pickled with the topology.

    An executor has a copy for each task of the spout that has letters to write, and keeps it open. After an exception
    the copy is closed and another one is opened for the next try.
    """

    def open(self, context: TopologyContext) -> None:
        """Called once before the first ``write`` of a copy; ``context`` is the spout task's."""

    def write(self, letters: Sequence[DeadLetter]) -> None:
        """Make the letters durable: when it returns they are.

        The same letters may come again, in this process or in another one, each with its id. An exception has all of
        them tried again later; the messages count as unfinished until then.
        """

    def close(self) -> None:
        """Called when the copy is not used any more; not after a crash."""


LetterFunction: TypeAlias = Callable[[DeadLetter], None]
DeadLetters: TypeAlias = str | LetterFunction | DeadLetterSink
"""What ``dead_letters=`` may be: ``checkpoint:``, ``file:PATH``, ``stream:NAME``, a name that the spout knows (a
topic), a function, a sink, or ``log:`` for no letters at all."""


@dataclass
class FunctionSink:
    """A function as a sink."""

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
    """Whether a value has the shape of ``DeadLetters``; what the string means is asked later."""
    if isinstance(value, str):
        return bool(value) and value not in (FILE, STREAM)
    return is_sink(value) or (callable(value) and not isinstance(value, type))


def is_sink(value: object) -> bool:
    """Whether a value has the methods of a ``DeadLetterSink``."""
    return isinstance(value, DeadLetterSink) and not isinstance(value, type)


def stream_of(dead_letters: object) -> str | None:
    """The name of the stream that takes dead letters; None if none does.

    >>> stream_of("stream:dead"), stream_of("file:dead.jsonl")
    ('dead', None)
    """
    return dead_letters[len(STREAM) :] if isinstance(dead_letters, str) and dead_letters.startswith(STREAM) else None
