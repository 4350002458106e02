"""The tuple batch: the rows that one task works on, and what it emits on its streams meanwhile.

Rule: an emission succeeds as a whole or not at all: it is checked here, before anything is appended.
"""

from __future__ import annotations

import itertools
import operator
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.api.pickling import CannotKeepError, Pickling
from sparkbolt.api.story import short
from sparkbolt.api.tuples import DEFAULT_STREAM, TRACED, AnchorPairs, Origin, Tuple
from sparkbolt.base.ids import U64, ordinals_within
from sparkbolt.base.text_arrays import text_from
from sparkbolt.errors import EmitError, check
from sparkbolt.wire.edges import Anchoring, Parents, slotted
from sparkbolt.wire.frames import Column, Path, column_of, part, python_values, spread
from sparkbolt.worker.routing import EmittedRows, StreamRoutes


class Rows:
    """The rows of one frame, or of a fused producer; implements the ``Chunk`` protocol of ``tuples``."""

    def __init__(
        self,
        origin: Origin,
        count: int,
        columns: Sequence[Column],
        anchoring: Anchoring | None,
        attempts: npt.NDArray[np.uint8] | None,
        path: Path = (),
    ) -> None:
        """Store the parts of a frame.

        Args:
            origin: the component, task and stream that the rows come from.
            count: how many rows there are.
            columns: one column for each field.
            anchoring: the trees of the rows; None: nothing is tracked.
            attempts: uint8[count]; None: every row is an untraced first attempt.
            path: see ``Frame.path``.
        """
        self.origin = origin
        self.count = count
        self.columns = columns
        self.anchoring = anchoring
        self.attempts = attempts
        self.path = path

    def values(self) -> Iterator[tuple[Any, ...]]:
        """The rows as tuples of Python values."""
        if not self.columns:
            return iter([()] * self.count)
        return zip(*map(python_values, self.columns), strict=True)

    def part(self, start: int, stop: int) -> Rows:
        """Rows ``start`` to ``stop`` (exclusive); returns this object itself if that is all of them."""
        if (start, stop) == (0, self.count):
            return self
        columns = [part(column, start, stop) for column in self.columns]
        anchoring = self.anchoring.take(np.arange(start, stop)) if self.anchoring is not None else None
        attempts = self.attempts[start:stop] if self.attempts is not None else None
        return Rows(self.origin, stop - start, columns, anchoring, attempts, self.path)

    def with_retries_apart(self) -> Iterator[Rows]:
        """The rows in parts, in their order: those of first attempts together, and each message that comes again alone.

        Rows that belong to more than one tree are each a part.
        """
        again = None if self.attempts is None else (self.attempts & ~np.uint8(TRACED)) > 1
        if again is None or not again.any():
            yield self
            return
        begins = np.ones(self.count, dtype=bool)
        begins[1:] = again[1:] | again[:-1]
        if self.anchoring is not None and self.anchoring.offsets is None:
            begins[1:] &= self.anchoring.roots[1:] != self.anchoring.roots[:-1]
        starts = [*np.flatnonzero(begins).tolist(), self.count]
        for start, stop in itertools.pairwise(starts):
            yield self.part(start, stop)

    def unkeepable(self) -> str | None:
        """Why a value of the rows cannot be kept in state; None if all can."""
        for name, column in zip(self.origin.fields, self.columns, strict=True):
            if not isinstance(column, pa.Array):
                try:
                    Pickling({}).proved(list(column))
                except CannotKeepError as error:
                    return f"field {name!r}: {error}"
        return None

    def lists(self) -> tuple[list[Any], ...]:
        """The columns as lists of Python values."""
        columns = [python_values(column) for column in self.columns]
        check({len(column) for column in columns} <= {self.count}, f"{self.count} rows have columns of other lengths")
        return tuple(column if type(column) is list else list(column) for column in columns)

    def single(self) -> Sequence[Any]:
        """The Python values of the only column."""
        return python_values(self.columns[0])

    def anchors_of(self, row: int) -> AnchorPairs:
        """The (root, edge) pairs of a row."""
        anchoring = self.anchoring
        if anchoring is None:
            return ()
        if anchoring.offsets is None:
            return ((int(anchoring.roots[row]), int(anchoring.edges[row])),)
        pairs = range(int(anchoring.offsets[row]), int(anchoring.offsets[row + 1]))
        return tuple((int(anchoring.roots[i]), int(anchoring.edges[i])) for i in pairs)

    def attempt_of(self, row: int) -> int:
        """The attempt of a row, from 1; with ``TRACED`` if it is traced."""
        return 1 if self.attempts is None else int(self.attempts[row])

    def pairs_where(self, chosen: npt.NDArray[np.bool_]) -> tuple[U64, U64]:
        """The roots and edges of the chosen rows, each uint64[pairs]; empty if nothing is tracked.

        Args:
            chosen: bool[rows].
        """
        anchoring = self.anchoring
        if anchoring is None:
            nothing = np.empty(0, dtype=np.uint64)
            return nothing, nothing
        if anchoring.offsets is not None:
            chosen = np.repeat(chosen, np.diff(anchoring.offsets))
        return anchoring.roots[chosen], anchoring.edges[chosen]


def emitted_rows_of(out: StreamOut, rows: Rows, tracked: bool) -> Iterator[EmittedRows]:
    """Yield what a task emitted on one stream while it worked on ``rows``, as blocks of emitted rows."""
    ordinal_base = 0
    if out.emitter is not None and out.emitter.count:
        check(not out.values and not out.parents, f"{out.routes.name!r} has emissions beside those of its emitter")
        columns, parents = _of_emitter(out.emitter, rows.count)
        if len(parents):
            yield _block(out, rows, columns, parents, None, tracked, 0)
        return
    if out.ends is not None:
        ends = np.array([0, *out.ends], dtype=np.int64)
        per_row = (ends[1:] - ends[:-1]) // out.width
        if len(out.values) > ends[-1]:  # a user's thread emitted after the last row had ended
            del out.values[int(ends[-1]) :]
        parents = np.arange(rows.count, dtype=np.int64).repeat(per_row)
    else:
        parents = np.array(out.parents, dtype=np.int64)
    if len(parents):
        direct_to = np.array(out.direct_to, dtype=np.int64) if out.direct_to else None
        columns = [out.values[field :: out.width] for field in range(out.width)]
        order = None
        if not out.extras and bool(np.any(parents[1:] < parents[:-1])):  # coroutines finish in any order
            order = np.argsort(parents, kind="stable")
            parents = parents[order]
            columns = [[column[i] for i in order.tolist()] for column in columns]
            direct_to = direct_to[order] if direct_to is not None else None
        yield _block(out, rows, columns, parents, direct_to, tracked, ordinal_base)
        ordinal_base += len(parents)
    for columns_, parents in out.columns:
        if bool(np.any(parents[1:] < parents[:-1])):
            order = np.argsort(parents, kind="stable")
            parents = parents[order]
            columns_ = [_reordered(column, order) for column in columns_]
        yield _block(out, rows, columns_, parents, None, tracked, ordinal_base)
        ordinal_base += len(parents)


def _of_emitter(emitter: Any, rows: int) -> tuple[list[Column], npt.NDArray[np.int64]]:
    """The columns that a task emitted through compiled code, and the row that each emission is anchored to."""
    taken, ends = emitter.taken()
    until = np.frombuffer(ends, dtype=np.int64)
    per_row = until.copy()
    per_row[1:] -= until[:-1]
    columns = [column if isinstance(column, list) else _coded(*column) for column in taken]
    return columns, np.arange(rows, dtype=np.int64).repeat(per_row)


def _coded(codes: bytes, distinct: list[str], text: tuple[bytes, bytes] | None) -> Column:
    """What ``column_of`` makes of strings for a field that is sent as a dictionary.

    Args:
        codes: int32[rows], the number of each row's string.
        distinct: the strings.
        text: of the same strings, int32[strings + 1], where each begins and ends, and their UTF-8; None: not known.
    """
    numbers = np.frombuffer(codes, dtype=np.int32)
    array = column_of(distinct) if text is None else text_from(*text)
    if not isinstance(array, pa.Array):  # a lone surrogate, or more than 2 GiB of text
        return spread(distinct, numbers)
    return pa.DictionaryArray.from_arrays(numbers, array, safe=False)


def _reordered(column: Any, order: npt.NDArray[np.intp]) -> Any:
    return column.take(order) if hasattr(column, "take") else [column[i] for i in order.tolist()]


def _block(
    out: StreamOut,
    rows: Rows,
    columns: Sequence[Any],
    parents: npt.NDArray[np.int64],
    direct_to: npt.NDArray[np.int64] | None,
    tracked: bool,
    ordinal_base: int,
) -> EmittedRows:
    anchored = _parents(out, rows, parents, ordinal_base) if tracked else None
    attempts = _attempts(out, rows, parents)
    return EmittedRows(out.routes, columns, len(parents), out.first + ordinal_base, anchored, attempts, direct_to)


def _attempts(out: StreamOut, rows: Rows, parents: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8] | None:
    if rows.attempts is None and max(out.extra_attempts, default=1) == 1:
        return None
    attempts = np.ones(len(parents), dtype=np.uint8)
    if rows.attempts is not None:
        attempts[parents >= 0] = rows.attempts[parents[parents >= 0]]
    if out.extras:
        attempts[parents < -1] = np.array(out.extra_attempts, dtype=np.uint8)[-2 - parents[parents < -1]]
    return attempts


def _parents(out: StreamOut, rows: Rows, parents: npt.NDArray[np.int64], ordinal_base: int) -> Parents | None:
    """The pairs that emissions are anchored to; None if no emission is anchored to a tracked tuple.

    ``parents`` is int64[emissions]; see ``StreamOut.parents``.
    """
    anchoring = rows.anchoring
    if anchoring is not None and anchoring.offsets is None and not out.extras and parents[0] >= 0:  # ascending
        return Parents(anchoring.roots, anchoring.edges, ordinal_base, None, parents, anchoring.root_salt)
    if anchoring is None and not out.extras:
        return None
    return _mixed_parents(out, rows, parents, ordinal_base)


def _mixed_parents(out: StreamOut, rows: Rows, parents: npt.NDArray[np.int64], ordinal_base: int) -> Parents:
    """The general case: an emission has no anchor, one row with any number of trees, or a list of tuples."""
    anchoring = rows.anchoring
    counts = np.zeros(len(parents), dtype=np.int64)
    on_row = parents >= 0
    row_offsets = None
    if anchoring is not None:
        row_offsets = anchoring.offsets
        if row_offsets is None:
            row_offsets = np.arange(rows.count + 1, dtype=np.int64)
        counts[on_row] = np.diff(row_offsets)[parents[on_row]]
    extra_of = np.flatnonzero(parents < -1)
    counts[extra_of] = [len(out.extras[-2 - parents[i]]) for i in extra_of]
    offsets = np.zeros(len(parents) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    roots, edges, ordinals = (np.zeros(offsets[-1], dtype=np.uint64) for _ in range(3))
    if anchoring is not None and row_offsets is not None and bool(on_row.any()):
        of_row = parents[on_row]
        places = np.repeat(offsets[:-1][on_row] - _starts(counts[on_row]), counts[on_row]) + np.arange(
            counts[on_row].sum()
        )
        pairs = np.repeat(row_offsets[of_row] - _starts(counts[on_row]), counts[on_row]) + np.arange(len(places))
        order = np.argsort(of_row, kind="stable")
        within = np.empty(len(of_row), dtype=np.uint64)
        within[order] = ordinals_within(of_row[order])
        roots[places], edges[places] = anchoring.roots[pairs], anchoring.edges[pairs]
        ordinals[places] = np.repeat(within + np.uint64(ordinal_base), counts[on_row])
    for i in extra_of.tolist():
        place = int(offsets[i])
        for root, edge, ordinal, slot in out.extras[-2 - int(parents[i])]:
            roots[place], ordinals[place] = root, ordinal
            edges[place] = slotted(edge, slot)
            place += 1
    return Parents(roots, edges, ordinals, offsets)


def _starts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.cumsum(counts) - counts


UNANCHORED = -1
NO_LISTS: Final = (str, bytes, bytearray, memoryview, Mapping, Set)
"""Types that have a length and can be iterated over, but are neither a list of values nor a column."""


class StreamOut:
    """The emissions of one task on one stream while it works on one block of rows."""

    __slots__ = (
        "append_parent",
        "collected",
        "columns",
        "direct_to",
        "emitter",
        "ends",
        "extend",
        "extra_attempts",
        "extras",
        "first",
        "parents",
        "routes",
        "targets",
        "uncollected",
        "values",
        "width",
    )

    def __init__(self, routes: StreamRoutes, collected: bool) -> None:
        """Make the buffers for one stream.

        Args:
            routes: the stream and its consumers.
            collected: whether emissions are kept; those of a stream that is not collected are only counted.
        """
        self.routes = routes
        self.collected = collected
        self.uncollected = 0
        self.width = len(routes.fields)
        self.targets = {target: route.consumer for route in routes.routes for target in route.targets}
        """By number of each consuming task: its component."""
        self.first = 0
        self.values: list[Any] = []
        """The values of all emissions, one emission after the other: column i is ``values[i::width]``."""
        self.extend: Callable[[Sequence[Any]], None] = self.values.extend
        self.ends: list[int] | None = None
        """For the default stream of a basic bolt: the length of ``values`` after each row. One append for each row
        costs less than one for each emission."""
        self.emitter: Any = None
        """For the default stream of a basic bolt, if compiled code runs its loop: the ``Emitter`` that has the
        emissions of its rows instead of ``values`` and ``ends``."""
        self.parents = array("q")
        """If ``ends`` is None: the row that each emission is anchored to; UNANCHORED; or ``-2 - i`` for
        ``extras[i]``."""
        self.append_parent = self.parents.append
        self.extras: list[list[tuple[int, int, int, int]]] = []
        """For each emission that is not anchored to one row: (root, edge, ordinal, anchor slot) of each anchor."""
        self.extra_attempts = array("B")
        self.direct_to = array("q")
        self.columns: list[tuple[Sequence[Any], Any]] = []
        """(columns, parents) as a column bolt emits them; parents: int64[rows], each the input row or UNANCHORED."""

    def coded(self) -> list[bool]:
        """For each field, whether its strings will be sent as a dictionary (``routing``)."""
        sent = any(not route.fused for route in self.routes.routes)
        return [sent and field in self.routes.keys for field in self.routes.fields]

    def row(self, values: Any) -> Sequence[Any]:
        """The values of one tuple, as a list or tuple that fits the stream.

        Raises:
            EmitError: the values are not a list, or their number is wrong.
        """
        if values.__class__ is not list and values.__class__ is not tuple:
            values = self._listed(values)
        if len(values) != self.width:
            raise self.refuse(values)
        row: Sequence[Any] = values
        return row

    def _listed(self, values: Any) -> list[Any]:
        """Another kind of sequence as a list; it may have fewer values than its length, and may raise when read."""
        if isinstance(values, (*NO_LISTS, type)) or not hasattr(values, "__len__"):
            raise self.refuse(values)
        try:
            return list(values)
        except TypeError:  # an array without dimensions has a length that raises
            raise self.refuse(values) from None

    def refuse(self, values: Any) -> EmitError:
        """The error for values that do not fit the stream: it names what was emitted and what was expected."""
        declared = f"stream {self.routes.name!r}, which declares {self.width} field(s) {self.routes.fields}"
        what = None if isinstance(values, list | tuple) else named(values)
        if what is not None:
            return EmitError(f"{self.routes.component!r} emitted {what} on {declared}: {self._mend(values)}")
        hint = (
            ": one value that is itself a list is emitted as [the_list]" if self.width == 1 and len(values) > 1 else ""
        )
        return EmitError(f"{self.routes.component!r} emitted {len(values)} values on {declared}{hint}")

    def _mend(self, values: Any) -> str:
        if isinstance(values, Tuple):
            return "did you mean tup.values?"
        if isinstance(values, Mapping):
            return f"emit its values as a list, in the order of the fields: [{_wanted(values, self.routes.fields)}]"
        if isinstance(values, Set):
            return "a set has no order: emit a list"
        lazy = lazy_advice(values)
        if lazy:
            return lazy
        if isinstance(values, str | bytes) or (self.width == 1 and values is not None):
            return f"did you mean [{short(values)}]?"
        return "emit a list of values"

    def task(self, task: Any) -> int:
        """The number of the task of a direct emission, checked; 0 if the stream has no consumers.

        Raises:
            EmitError: it is not the number of a task, or the task does not subscribe to the stream.
        """
        who = f"{self.routes.component!r} emitted to task {short(task)} on stream {self.routes.name!r}"
        try:
            number = -1 if isinstance(task, bool) else operator.index(task)
        except TypeError:
            number = -1
        if number < 0:
            raise EmitError(f"{who}: expected the number of a task, as context.component_tasks gives them")
        if self.targets and number not in self.targets:
            raise EmitError(
                f"{who}, which does not subscribe to it: expected a task of {sorted(set(self.targets.values()))}, "
                f"which are {sorted(self.targets)}"
            )
        return number if self.targets else 0

    @property
    def count(self) -> int:
        """How many rows were emitted."""
        if self.emitter is not None and self.emitter.count:
            return int(self.emitter.count)
        if self.ends is not None and self.width:
            return self.uncollected + len(self.values) // self.width
        return len(self.parents) + sum(len(rows) for _, rows in self.columns)

    def clear(self) -> None:
        """Drop the emissions, which were routed."""
        self.first += self.count
        if self.emitter is not None:
            self.emitter.clear()
        self.uncollected = 0
        self.ends = None
        self.values.clear()
        del self.parents[:]
        del self.direct_to[:]
        self.extras.clear()
        del self.extra_attempts[:]
        self.columns.clear()


class Output:
    """All streams of one task."""

    def __init__(
        self, component: str, streams: Sequence[StreamRoutes], *, captured: bool = False, native: Any = None
    ) -> None:
        """Make the buffers for each stream.

        Args:
            component: the component that emits.
            streams: its streams.
            captured: whether streams without consumers are collected too.
            native: the kernels (``base.native``) that may run the task's loop; None: Python runs it.
        """
        self.component = component
        self.native = native
        self.streams = {stream.name: StreamOut(stream, captured or bool(stream.routes)) for stream in streams}
        self.default = self.streams.get(DEFAULT_STREAM)
        self.errors: list[object] = []
        """What ``report_error`` got: texts and exceptions, or any other object that user code passed."""

    def of(self, stream: str, direct: bool = False) -> StreamOut:
        """The buffer of a stream.

        Raises:
            EmitError: the stream is not declared, or is direct where it should not be.
        """
        try:
            out = self.streams.get(stream)
        except TypeError:  # a list has no hash
            out = None
        if out is None:
            raise self._no_stream(stream)
        if out.routes.direct != direct:
            use = "emit_direct" if out.routes.direct else "emit"
            raise EmitError(
                f"stream {stream!r} of {self.component!r} is {'' if out.routes.direct else 'not '}direct: use {use}"
            )
        return out

    def _no_stream(self, stream: Any) -> EmitError:
        who = f"{self.component!r} emitted on stream {short(stream)}"
        if not isinstance(stream, str):
            return EmitError(f"{who}, expected its name: the values come first, as in emit([...], stream='errors')")
        known = ", ".join(map(repr, self.streams)) or "none: set `outputs`"
        return EmitError(f"{who}; its declared streams are {known}")

    def refuse_now(self) -> EmitError:
        """The error for an emission while neither ``execute`` nor ``flush`` of the task runs."""
        return EmitError(
            f"{self.component!r} emitted outside of its execute and flush, from a thread or a coroutine that outlived "
            "them: keep the values, and emit them in the next execute or flush"
        )

    def begin(self) -> None:
        """Begin a micro-batch; all emissions of the one before must have been sent."""
        for name, out in self.streams.items():
            check(not out.count, f"{out.count} tuple(s) that {self.component!r} emitted on {name!r} were never sent")
            out.clear()
            out.first = 0
        self.errors.clear()


def named(values: Any) -> str:
    """A name for what was emitted, for error messages: ``the str 'abc'``, ``a Tuple``, ``None``."""
    if values is None:
        return "None"
    if isinstance(values, str | bytes | bool | int | float):
        return f"the {type(values).__name__} {short(values)}"
    name = type(values).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _wanted(values: Mapping[Any, Any], fields: Sequence[str]) -> str:
    return ", ".join(f"row[{field!r}]" for field in fields) or f"{len(values)} values"


def lazy_advice(value: Any) -> str:
    """Advice for a value that does nothing until it is awaited or iterated over; empty for any other value."""
    if hasattr(value, "__await__"):
        return "nothing awaits it here: only an AsyncBolt runs coroutines"
    if hasattr(value, "__aiter__"):
        return "nothing goes through it here: only an AsyncBolt runs asynchronous generators"
    if isinstance(value, Iterator):
        return "emit each list that it gives"
    return ""
