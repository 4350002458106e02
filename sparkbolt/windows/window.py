"""The window that a windowed bolt gets: nothing is copied or opened before the bolt asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa

from sparkbolt.api.tuples import Tuple
from sparkbolt.windows.content import join_columns
from sparkbolt.windows.firing import Fired
from sparkbolt.windows.tuple_log import WindowLog
from sparkbolt.windows.tuple_segments import Selection
from sparkbolt.wire.frames import arrow_of


class WindowTuples(Sequence[Tuple]):
    """Some tuples of a window, in the order of arrival; use them only while ``execute`` runs.

    Iteration creates the tuples one after the other. They carry no trees: nothing can be anchored to them.
    """

    __slots__ = ("_log", "_selection")

    def __init__(self, log: WindowLog, selection: Selection) -> None:
        self._log = log
        self._selection = selection

    def __len__(self) -> int:
        """How many tuples there are."""
        return self._selection.count

    def __iter__(self) -> Iterator[Tuple]:
        """The tuples, created one after the other."""
        for segment, rows in self._selection.parts():
            yield from self._log.content(segment).tuples(rows)

    @overload
    def __getitem__(self, index: int) -> Tuple: ...

    @overload
    def __getitem__(self, index: slice) -> list[Tuple]: ...

    def __getitem__(self, index: int | slice) -> Tuple | list[Tuple]:
        """The tuple at an index, or a list of the tuples in a slice."""
        if isinstance(index, slice):
            return [self._at(place) for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"a window of {len(self)} tuples has none at {index}")
        return self._at(place)

    def _at(self, place: int) -> Tuple:
        for segment, rows in self._selection.parts():
            count = segment.count if rows is None else len(rows)
            if place < count:
                row = np.array([place], dtype=np.intp) if rows is None else rows[place : place + 1]
                return next(self._log.content(segment).tuples(row))
            place -= count
        raise IndexError(place)

    def column(self, name: str) -> pa.Array:
        """The values of a field, as an Arrow array.

        Raises:
            KeyError: a tuple has no such field.
            EmitError: the values have no common Arrow type.
        """
        parts = self._selection.parts()
        if not parts:
            return pa.nulls(0)
        columns = [self._log.content(segment).column(name, rows) for segment, rows in parts]
        return arrow_of(name, join_columns(columns), "iterate over the window")

    def timestamps(self) -> pa.Array:
        """The time of each tuple in milliseconds since the epoch: int64[tuples].

        It is the event time, or the arrival time for windows on arrival.
        """
        return pa.array(self._log.times(self._selection))


class TupleWindow(Sequence[Tuple]):
    """A window, as ``WindowedBolt.execute`` gets it. Iteration gives its tuples, oldest arrival first."""

    __slots__ = ("_fired", "_log", "_tuples", "end_ms", "key", "start_ms")

    def __init__(self, log: WindowLog, fired: Fired, key: Any = None) -> None:
        self._log = log
        self._fired = fired
        self._tuples = WindowTuples(log, fired.events)
        self.key = key
        """The key of the window; None if windows have no keys."""
        self.start_ms = fired.start_ms
        """Where the window starts, in milliseconds since the epoch: the end minus the length.

        A session starts at the time of its first tuple. None where the length is a count."""
        self.end_ms = fired.end_ms
        """Where the window ends, in milliseconds since the epoch.

        In event time, a window that slides by time ends at a multiple of the slide; with ``closed="left"`` that is the
        first time that is no longer in the window. On arrival, it ends one millisecond before its timer's time. A
        window that slides by a count ends at the time of the tuple that completed it; in event time, at the newest time
        up to that tuple. A session ends ``gap`` after its last tuple."""

    def get(self) -> WindowTuples:
        """All tuples of the window."""
        return self._tuples

    def get_new(self) -> WindowTuples:
        """The tuples that were not in the previous window (of the same key) that was shown."""
        return WindowTuples(self._log, self._fired.new)

    def get_expired(self) -> WindowTuples:
        """The tuples of the previously shown window (of the same key) that are not in this one.

        A running aggregate adds the new tuples and subtracts the expired ones. A tuple that no window has shown is
        never among them. If windows have keys, this call makes the task keep the last window of the key, also after all
        its tuples have expired; only ``key_idle`` ends that.
        """
        self._log.expired_is_read = True
        return WindowTuples(self._log, self._fired.expired)

    def column(self, name: str) -> pa.Array:
        """The values of a field of all tuples, as an Arrow array; raises the errors of ``WindowTuples.column``."""
        return self._tuples.column(name)

    def __len__(self) -> int:
        """How many tuples the window has: at least one."""
        return len(self._tuples)

    def __iter__(self) -> Iterator[Tuple]:
        """The tuples, created one after the other."""
        return iter(self._tuples)

    @overload
    def __getitem__(self, index: int) -> Tuple: ...

    @overload
    def __getitem__(self, index: slice) -> list[Tuple]: ...

    def __getitem__(self, index: int | slice) -> Tuple | list[Tuple]:
        """The same as ``get()[index]``."""
        return self._tuples[index]

    def __repr__(self) -> str:
        """Show its bounds and its size."""
        key = "" if self.key is None else f" key={self.key!r}"
        return f"TupleWindow({self.start_ms}..{self.end_ms}{key}, {len(self)} tuples)"
