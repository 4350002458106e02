"""Peeks: the requests of operators to see tuples of a component while it runs, and the tuples that they see.

The requests travel as text beside the tasks of Spark; the tuples return with the feedback of a stage, and are never
durable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Peek:
    """A request to see tuples that a component emits; of a component without streams, the tuples that it gets.

    >>> peeks_of(text_of([Peek("split"), Peek("split", "odd", "be")]))
    (Peek(component='split', stream=None, match=''), Peek(component='split', stream='odd', match='be'))
    >>> text_of([]), peeks_of("")
    ('', ())
    """

    component: str
    stream: str | None = None
    """Only tuples of this stream; None: of all streams."""
    match: str = ""
    """Only tuples with this text in one of their values."""


@dataclass(frozen=True)
class PeekedTuple:
    """A tuple that an operator sees."""

    peek: Peek
    micro_batch_id: int
    now_ms: int
    """The micro-batch's time, in milliseconds since the epoch."""
    component: str
    task: int
    """The index of the task that emitted it, or that got it."""
    stream: str
    sender: str
    """If the component got it: the task that sent it, such as ``split[1]``; otherwise empty."""
    values: str
    """Its values by field, shortened as in a story."""


def text_of(peeks: Iterable[Peek]) -> str:
    """Requests as text; empty if there are none."""
    listed = [[peek.component, peek.stream, peek.match] for peek in peeks]
    return json.dumps(listed) if listed else ""


def peeks_of(text: str | None) -> tuple[Peek, ...]:
    """The inverse of ``text_of``."""
    return tuple(Peek(*fields) for fields in json.loads(text)) if text else ()
