"""Changes: detects values that were changed after they had been emitted.

The pickle of a value is compared when it is emitted and when it is sent, or when a fused bolt receives it and when that
bolt has finished. The component that changed the value is named.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from sparkbolt.api.tuples import Origin
from sparkbolt.base.exceptions import pass_on, printed
from sparkbolt.sim.canonical import stable_bytes
from sparkbolt.worker.emissions import Output, RowBuffer, Rows
from sparkbolt.worker.results import Work

CHANGEABLE = (list, dict, set, bytearray, deque, tuple, np.ndarray)
"""Types whose values are watched; a tuple because of its elements."""


@dataclass(frozen=True)
class ValueChange:
    """A value that was changed."""

    component: str
    """The component that changed it."""
    was_given: bool
    """Whether the bolt received the value; if False, the bolt emitted it."""
    example: str


@dataclass(frozen=True)
class _Note:
    """A value with its pickle and text at an earlier time."""

    value: Any
    data: bytes
    text: str

    @property
    def is_changed(self) -> bool:
        return _bytes_of(self.value) != self.data


class Changes:
    """Watches values on their way, and detects which task changes them."""

    def __init__(self) -> None:
        """Start with no values."""
        self.found: list[ValueChange] = []
        """The changes since ``begin``."""
        self._emitted: dict[int, list[tuple[int, _Note]]] = {}
        """Emitted values by the id of their stream's buffer: (place in the buffer, value)."""
        self._given: dict[int, tuple[Origin, list[_Note]]] = {}
        """By number of each fused task at work: the origin of the values that it received, and the values."""

    def begin(self) -> list[ValueChange]:
        """Start a new attempt; return the list that will hold its changes."""
        self.found = []
        self._emitted.clear()
        self._given.clear()
        return self.found

    def watch(self, output: Output) -> None:
        """Watch everything that a task emits from now on."""
        for out in output.streams.values():
            out.rows.extend = partial(self._extend, out.rows, out.rows.extend)

    def _extend(self, out: RowBuffer, extend: Callable[[Sequence[Any]], None], values: Sequence[Any]) -> None:
        notes = self._emitted.setdefault(id(out), [])
        notes += _notes(values, len(out.values))
        extend(values)

    def giving(self, task: int, rows: Rows) -> None:
        """Watch the rows that a fused bolt receives, until it has worked on them."""
        columns = [column for column in rows.columns if not isinstance(column, pa.Array)]
        self._given[task] = rows.origin, [note for column in columns for _, note in _notes(column)]

    def sending(self, work: Work) -> None:
        """Find the values that a task has changed, when it has finished and its output is about to be sent."""
        who, output = f"{work.component}[{work.index}]", work.output
        origin, notes = self._given.pop(work.task, (work.rows.origin, []))
        for note in notes:
            if note.is_changed:
                giver = f"{origin.component}[{origin.task}]"
                text = f"{who} was given {note.text} by {giver}, and made {_text(note.value)} of it"
                self.found.append(ValueChange(work.component, True, text))
        for out in output.streams.values() if output is not None else ():
            emitted = out.rows.values
            for place, note in self._emitted.pop(id(out.rows), ()):
                is_there = place < len(emitted) and emitted[place] is note.value  # an emit may have been undone
                if is_there and note.is_changed:
                    field = f"field {out.routes.fields[place % out.width]!r} on stream {out.routes.name!r}"
                    text = f"{who} emitted {note.text} as {field}, which was {_text(note.value)} when it was sent"
                    self.found.append(ValueChange(work.component, False, text))


def _notes(values: Sequence[Any], start: int = 0) -> list[tuple[int, _Note]]:
    """Return (place, note) of all values that can be changed and pickled."""
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
