"""Changes: values that somebody changed after they had been emitted.

Which question it answers: does a bolt change what it has emitted, or what it was given and others hold, too?
Rule 1: a value is compared with itself, by its pickle: when it is emitted and when it is sent; when a fused bolt gets
it and when that bolt has done its work. Elsewhere a bolt gets copies, which are its own.
Rule 2: whoever changed a value is named, and not those through whom it came or to whom it goes.

Read before: ``canonical``, ``core.worker.emission``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from sparkbolt.core.base.exceptions import pass_on, printed
from sparkbolt.core.model.tuples import Origin
from sparkbolt.core.worker.tuple_batch import Output, Rows, StreamOut
from sparkbolt.sim.canonical import stable_bytes

CHANGEABLE = (list, dict, set, bytearray, deque, tuple, np.ndarray)
"""What is looked at; a tuple for what it holds."""


@dataclass(frozen=True)
class ValueChange:
    """A value that was changed."""

    component: str
    """Who has changed it."""
    was_given: bool
    """Whether it was given to that bolt; else the bolt has emitted it."""
    example: str


@dataclass(frozen=True)
class _Note:
    """A value as it was."""

    value: Any
    data: bytes
    text: str

    @property
    def is_changed(self) -> bool:
        return _bytes_of(self.value) != self.data


class Changes:
    """Sees values on their way, and who changes them."""

    def __init__(self) -> None:
        """See nothing yet."""
        self.found: list[ValueChange] = []
        """What was changed since ``begin``."""
        self._emitted: dict[int, list[tuple[int, _Note]]] = {}
        """By the id of a stream's buffer: (place in it, value)."""
        self._given: list[tuple[Origin, list[_Note]]] = []
        """Of each fused bolt that is at work, the innermost last: who gave the values, and how they were."""

    def begin(self) -> list[ValueChange]:
        """A new attempt; where its changes will be."""
        self.found = []
        self._emitted.clear()
        return self.found

    def watch(self, output: Output) -> None:
        """Look at everything that a task emits from now on."""
        for out in output.streams.values():
            out.extend = partial(self._extend, out, out.extend)

    def _extend(self, out: StreamOut, extend: Callable[[Sequence[Any]], None], values: Sequence[Any]) -> None:
        notes = self._emitted.setdefault(id(out), [])
        notes += _notes(values, len(out.values))
        extend(values)

    @contextmanager
    def giving(self, rows: Rows) -> Iterator[None]:
        """A fused bolt works on these rows meanwhile."""
        columns = [column for column in rows.columns if not isinstance(column, pa.Array)]
        self._given.append((rows.origin, [note for column in columns for _, note in _notes(column)]))
        try:
            yield
        finally:
            self._given.pop()

    def sending(self, output: Output, who: str) -> None:
        """A task has done its work, and what it has emitted is about to be sent: find what it has changed."""
        if self._given:
            origin, notes = self._given[-1]
            for note in notes:
                if note.is_changed:
                    giver = f"{origin.component}[{origin.task}]"
                    text = f"{who} was given {note.text} by {giver}, and made {_text(note.value)} of it"
                    self.found.append(ValueChange(output.component, True, text))
            notes.clear()
        for out in output.streams.values():
            for place, note in self._emitted.pop(id(out), ()):
                is_there = place < len(out.values) and out.values[place] is note.value  # it may have been taken back
                if is_there and note.is_changed:
                    field = f"field {out.routes.fields[place % out.width]!r} on stream {out.routes.name!r}"
                    text = f"{who} emitted {note.text} as {field}, which was {_text(note.value)} when it was sent"
                    self.found.append(ValueChange(output.component, False, text))


def _notes(values: Sequence[Any], start: int = 0) -> list[tuple[int, _Note]]:
    """(place, note) of all that can be changed, and pickled."""
    notes = []
    for place, value in enumerate(values, start):
        if isinstance(value, CHANGEABLE) and (data := _bytes_of(value)) is not None:
            notes.append((place, _Note(value, data, _text(value))))
    return notes


def _bytes_of(value: Any) -> bytes | None:
    try:
        return stable_bytes(value)
    except BaseException as error:  # noqa: BLE001  pickling calls user code, which may raise anything
        pass_on(error)
        return None


def _text(value: Any) -> str:
    return f"{printed(value):.80}"
