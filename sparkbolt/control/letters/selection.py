"""Selection: which dead letters an operator means, and their kinds.

Letters are of one kind if the same component failed them with the same cause and the same reason, without the parts of
the reason that differ from message to message: quoted values, numbers, ids, times and addresses. Prior art: how Sentry
groups events.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from sparkbolt.api.dead_letters import DeadLetter, plain

_VARIABLE = re.compile(
    r"(?P<text>'(?:[^'\\\n]|\\.)*'(?!\w)|\"(?:[^\"\\\n]|\\.)*\")"
    r"|(?P<url>\b[a-z][a-z0-9+.-]*://[^\s,;)]+)"
    r"|(?P<path>(?<![\w/])(?:/[\w.@-]+){2,}/?)"
    r"|(?P<id>\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b0x[0-9a-fA-F]+\b"
    r"|\b(?=[a-fA-F]*\d)[0-9a-fA-F]{12,}\b)"
    r"|(?P<n>(?<![A-Za-z_])[-+]?\d[\d,_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)"
    r"|(?P<record>[\[{].*$)",
    re.DOTALL,
)
REASON_CHARACTERS_MAX = 200
"""How many characters of a reason tell kinds apart."""


def pattern_of(reason: str) -> str:
    """A reason without the parts that differ from message to message.

    >>> pattern_of("ValueError: could not convert string to float: 'a lot'")
    'ValueError: could not convert string to float: <text>'
    >>> pattern_of("/data/a.log at byte 78: not JSON (column 3): {broken")
    '<path> at byte <n>: not JSON (column <n>): <record>'
    >>> pattern_of("can't reach db-7.example after 3.5 s, at 0x7f3a")
    "can't reach db-<n>.example after <n> s, at <id>"
    """
    return _VARIABLE.sub(lambda match: f"<{match.lastgroup}>", reason)[:REASON_CHARACTERS_MAX]


def kind_of(letter: DeadLetter) -> str:
    """The id of a letter's kind: 8 hexadecimal digits."""
    last = letter.last
    text = json.dumps([letter.component, last.component, last.cause, pattern_of(last.reason)])
    return hashlib.blake2b(text.encode(), digest_size=4).hexdigest()


@dataclass(frozen=True)
class LetterKind:
    """The dead letters that one component failed for the same reason."""

    kind: str
    """The id of the kind, as ``sparkbolt dlq replay --kind`` takes it."""
    spout: str
    component: str
    """The component that failed them."""
    cause: str
    reason: str
    """The reason; ``<n>``, ``<text>`` and the like stand for values that differ."""
    count: int
    first_ms: int
    """When the first of them was given up, in milliseconds since the epoch."""
    last_ms: int
    example: str
    """The id of the newest of them."""
    example_reason: str

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {**vars(self)}


def kinds_of(letters: Iterable[DeadLetter]) -> list[LetterKind]:
    """The kinds of letters, the most frequent first."""
    found = KindCounter()
    for letter in letters:
        found.add(letter)
    return found.kinds()


class KindCounter:
    """Counts letters by kind, each id once, without keeping the letters."""

    def __init__(self) -> None:
        """Begin without any."""
        self._kinds: dict[str, LetterKind] = {}
        self._ids: set[str] = set()

    def add(self, letter: DeadLetter) -> None:
        """Count a letter."""
        if letter.id in self._ids:
            return
        self._ids.add(letter.id)
        name, last = kind_of(letter), letter.last
        one = self._kinds.get(name)
        if one is None:
            self._kinds[name] = LetterKind(
                kind=name,
                spout=letter.component,
                component=last.component,
                cause=last.cause,
                reason=pattern_of(last.reason),
                count=1,
                first_ms=last.ended_ms,
                last_ms=last.ended_ms,
                example=letter.id,
                example_reason=last.reason,
            )
            return
        newest = last.ended_ms >= one.last_ms
        self._kinds[name] = replace(
            one,
            count=one.count + 1,
            first_ms=min(one.first_ms, last.ended_ms),
            last_ms=max(one.last_ms, last.ended_ms),
            example=letter.id if newest else one.example,
            example_reason=last.reason if newest else one.example_reason,
        )

    def kinds(self) -> list[LetterKind]:
        """The kinds, the most frequent first."""
        return sorted(self._kinds.values(), key=lambda one: (-one.count, one.first_ms, one.kind))


@dataclass(frozen=True)
class LetterFilter:
    """The letters that an operator means; a field that is empty allows all."""

    search: str = ""
    """A part of an id, a message, its record, a cause or a reason."""
    cause: str | None = None
    component: str | None = None
    """The component that failed it."""
    spout: str | None = None
    kind: str | None = None
    """The id of the kind, or its beginning."""

    @property
    def is_empty(self) -> bool:
        """Whether it allows all letters."""
        return self == LetterFilter()

    def allows(self, letter: DeadLetter) -> bool:
        """Whether a letter is meant."""
        last = letter.last
        return (
            self.cause in (None, "", last.cause)
            and self.component in (None, "", last.component)
            and self.spout in (None, "", letter.component)
            and (not self.kind or kind_of(letter).startswith(self.kind))
            and _contains(letter, self.search)
        )


def message_key(letter: DeadLetter) -> tuple[Hashable, ...]:
    """The message of a letter: letters of later attempts at it have the same key."""
    first = letter.attempts[0]
    return letter.component, letter.source, letter.position, letter.message_id, first.root, first.ended_ms


def _contains(letter: DeadLetter, search: str) -> bool:
    if not search:
        return True
    last = letter.last
    wanted = search.lower()
    texts = (letter.id, letter.where, last.cause, last.reason, last.component, last.root)
    return any(wanted in text.lower() for text in texts) or wanted in _record_of(letter).lower()


def _record_of(letter: DeadLetter) -> str:
    """The parts of a letter's record that a search covers: its values, or the original message."""
    if letter.tuples:
        return json.dumps(plain([list(values) for values in letter.tuples]), ensure_ascii=False)
    return letter.raw.value.decode("utf-8", "replace") if letter.raw is not None and letter.raw.value else ""
