"""Returned letters: dead letters that an operator gives back to the spout that they came from.

A returned letter is a message of the same log again. Its record, as the letter has it, travels in the plan and is kept
by the ledger until the message is finished, because the source may have lost it, or an operator may have edited it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sparkbolt.api.dead_letters import Attempt, DeadLetter, Printed, plain, restored
from sparkbolt.base.codec import ROW, SPARSE, decode, encode

_RETURNED = "returned-"


def returned_source(index: int) -> str:
    """The name of the source that represents the returned letters of a ``Spout``'s task, by the index of the task.

    A position in this source is the sequence of the message's first attempt.
    """
    return f"{_RETURNED}{index}"


def is_returned_source(source: str | None) -> bool:
    """Whether a source is one of ``returned_source``."""
    return source is not None and source.startswith(_RETURNED) and source[len(_RETURNED) :].isdigit()


@dataclass(frozen=True)
class ReturnedRecord:
    """The record of a returned letter.

    >>> record = ReturnedRecord("default", ("line",), [["a"]], edited=True)
    >>> ReturnedRecord.loads(record.dumps()) == record, record.rows
    (True, [('a',)])
    """

    JSON = SPARSE

    stream: str = "default"
    fields: tuple[str, ...] = ()
    values: list[list[Any]] = field(default_factory=list)
    """A list of values for each tuple, in the form of ``plain``; empty if the letter does not have all of them."""
    edited: bool = False
    """Whether the values replace those of the source."""
    message_id: str | None = None
    """The printed message id, for a ``Spout``."""

    @classmethod
    def of(cls, letter: DeadLetter, *, edited: bool) -> ReturnedRecord:
        """The record of a letter; without values if the letter has only the printed form of some of them."""
        values = [[plain(value) for value in row] for row in letter.tuples]
        whole = not any(_has_printed(value) for row in letter.tuples for value in row)
        return cls(letter.stream, letter.fields, values if whole else [], edited, letter.message_id)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The values of each tuple."""
        return [tuple(map(restored, row)) for row in self.values]

    def fits(self, fields: tuple[str, ...]) -> bool:
        """Whether it has values for exactly these fields."""
        return bool(self.values) and self.fields == fields and all(len(row) == len(fields) for row in self.values)

    def dumps(self) -> str:
        """Return it as JSON, to be sent in a plan."""
        return json.dumps(encode(self), separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> ReturnedRecord:
        """The inverse of ``dumps``."""
        return decode(cls, json.loads(text))


def _has_printed(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_printed, value))
    if isinstance(value, dict):
        return any(map(_has_printed, value.values()))
    return isinstance(value, Printed)


@dataclass(frozen=True)
class ReturnedLetter:
    """A returned letter in a plan: its message waits in its log once the plan is promoted."""

    JSON = ROW

    task: int
    """The number of the task that read it."""
    source: str
    position: int
    record: str
    """``ReturnedRecord``, dumped."""
    attempts: tuple[Attempt, ...]
    """The failed attempts at the message so far, as in ``DeadLetter``."""
    attempts_left_out: int = 0
    end: int | None = None
    """The end of a range of which nothing could be read; None: it is one record."""
