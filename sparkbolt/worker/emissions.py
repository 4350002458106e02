"""Emissions: the rows that one task works on, and its emissions on each stream for these rows.

An emission succeeds as a whole or not at all: it is checked here, before anything is appended.
"""

from __future__ import annotations

import itertools
import operator
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.api.named_fields import reader_of
from sparkbolt.api.pickling import CannotKeepError, Pickling
from sparkbolt.api.story import short
from sparkbolt.api.tuples import DEFAULT_STREAM, TRACED, AnchorPairs, Origin, Tuple
from sparkbolt.base.ids import U64, ordinals_within
from sparkbolt.base.text_arrays import text_from
from sparkbolt.errors import EmitError, check
from sparkbolt.wire.edges import Anchoring, Parents, slotted
from sparkbolt.wire.frames import Column, Path, column_of, part, python_values, spread
from sparkbolt.worker.returned_values import misfit
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
        """The rows in parts, in their order: those of first attempts together, and each retried message alone.

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


NOWHERE = Origin("", -1, "", ())
"""The origin of rows that no component sent: of a ``flush``, and of a step of a bolt runtime."""
NO_ROWS = Rows(NOWHERE, 0, [], None, None)


def _coded(codes: bytes, distinct: list[str], text: tuple[bytes, bytes] | None) -> Column:
    """The result of ``column_of`` for strings of a field that is sent as a dictionary.

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


def _mixed_parents(
    parents: npt.NDArray[np.int64], rows: Rows, anchors: Sequence[Anchors], ordinal_base: int
) -> Parents:
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
    counts[extra_of] = [len(anchors[-2 - parents[i]].pairs) for i in extra_of]
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
        for root, edge, ordinal, slot in anchors[-2 - int(parents[i])].pairs:
            roots[place], ordinals[place] = root, ordinal
            edges[place] = slotted(edge, slot)
            place += 1
    return Parents(roots, edges, ordinals, offsets)


def _starts(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.cumsum(counts) - counts


UNANCHORED = -1


class Anchors(NamedTuple):
    """The anchors of an emission, if that is not one row of those that its task works on."""

    pairs: Sequence[tuple[int, int, int, int]]
    """(root, edge, ordinal, anchor slot) of each anchor."""
    attempt: int
    """See ``Rows.attempts``."""


class RowBuffer:
    """Emissions one by one: their values, and the input row that each is anchored to.

    The compiled kernels have one with the same methods.
    """

    __slots__ = ("_collected", "_counted", "_ends", "_width", "extend", "parents", "values")

    def __init__(self, coded: Sequence[bool], collected: bool) -> None:
        """Begin empty; see ``kernels.RowBuffer``."""
        self._width = len(coded)
        self._collected = collected
        self._counted = 0
        """How many emissions were not kept."""
        self._ends: list[int] | None = None
        self.values: list[Any] = []
        """The values of all emissions, one emission after the other: column i is ``values[i::width]``."""
        self.extend: Callable[[Sequence[Any]], None] = self.values.extend
        self.parents = array("q")
        """The row of each emission, or the other kinds of parent that ``Emissions.push`` accepts."""

    def gated(self, stream: str, otherwise: Callable[..., None]) -> tuple[Callable[..., None], Callable[[bool], None]]:
        """A fast ``emit`` for use between ``begin_rows`` and ``end_rows``, and the gate that opens and closes it.

        ``emit`` is called for every tuple; a method would cost half as much again, so everything that it reads is in a
        closure. The gate costs nothing while it is open. While it is closed, the expected width is -1, which no list
        has, and ``otherwise`` is called.
        """
        extend, width = self.extend, -1

        def emit(values: Sequence[Any], stream: str = stream, anchors: None = None) -> None:
            if (
                (values.__class__ is list or values.__class__ is tuple)
                and len(values) == width
                and stream is DEFAULT_STREAM
                and anchors is None
            ):
                extend(values)
            else:
                otherwise(values, stream, anchors)

        def count(values: Sequence[Any], stream: str = stream, anchors: None = None) -> None:
            if (
                (values.__class__ is list or values.__class__ is tuple)
                and len(values) == width
                and stream is DEFAULT_STREAM
                and anchors is None
            ):
                self._counted += 1
            else:
                otherwise(values, stream, anchors)

        def gate(is_open: bool) -> None:
            nonlocal width
            width = self._width if is_open else -1

        return (emit if self._collected else count), gate

    def begin_rows(self) -> list[int] | None:
        """Leave out the row of each emission from now on, until ``end_rows``.

        Instead the length of ``values`` is appended to the returned list after each row: one append for each row costs
        less than one for each emission. None: emissions are only counted.
        """
        self._ends = [] if self._collected else None
        return self._ends

    def end_rows(self) -> None:
        """Note the row of each emission since ``begin_rows``; there was none before it."""
        ends, self._ends = np.array(self._ends or (), dtype=np.int64), None
        emitted = np.diff(ends, prepend=0) // self._width
        self.parents.frombytes(np.arange(len(ends)).repeat(emitted).tobytes())

    def push(self, values: Sequence[Any], parent: int) -> None:
        """Append values that fit the stream, anchored to a row."""
        if not self._collected:
            self._counted += 1
            return
        self.extend(values)
        if self._ends is None:
            self.parents.append(parent)

    @property
    def count(self) -> int:
        """How many emissions there are."""
        return len(self.parents) + self._counted

    def taken(self) -> tuple[list[Any], bytes | array[int]]:
        """The columns, and the row of each emission."""
        count, width = len(self.parents), self._width
        del self.values[count * width :]  # a user's thread emitted after the last row had ended
        return [self.values[field::width] for field in range(width)], self.parents

    def cut(self, count: int) -> None:
        """Remove all emissions but the first ``count``."""
        self._counted = min(self._counted, count)
        del self.values[count * self._width :]
        del self.parents[count:]

    def clear(self) -> None:
        """Remove all emissions."""
        self._counted = 0
        self.values.clear()
        self.parents = array("q")


class Emissions:
    """The emissions of one task on one stream for one block of rows."""

    __slots__ = (
        *("_anchors", "_chunks", "_direct_to", "_readers"),
        *("collected", "first", "routes", "rows", "targets", "width"),
    )

    def __init__(self, routes: StreamRoutes, collected: bool, native: Any = None) -> None:
        """Begin without any.

        Args:
            routes: the stream and its consumers.
            collected: whether emissions are sent; those of a stream that is not collected are only counted.
            native: the kernels; None: Python gathers the emissions.
        """
        self.routes = routes
        self.collected = collected
        self.width = len(routes.fields)
        self.targets = {target: route.consumer for route in routes.routes for target in route.targets}
        """By number of each consuming task: its component."""
        self.first = 0
        """How many rows the task had emitted on the stream before, in this micro-batch."""
        sent = any(not route.fused for route in routes.routes)
        coded = [sent and field in routes.keys for field in routes.fields]  # then it is sent as a dictionary
        self.rows: Any = (RowBuffer if native is None else native.RowBuffer)(coded, collected)
        self._anchors: list[Anchors] = []
        self._chunks: list[tuple[Sequence[Any], npt.NDArray[np.int64]]] = []
        """Columns that were emitted as columns, and the row of each emission, or UNANCHORED."""
        self._direct_to = array("q")
        self._readers: dict[type, Callable[[Any], Sequence[Any] | None]] = {}
        """By class of what was emitted: gives the values in the order of the fields."""

    def push(self, values: Sequence[Any], parent: int, direct_to: int | None = None) -> None:
        """Add an emission.

        Args:
            values: as ``row`` returned them.
            parent: the row that it is anchored to; UNANCHORED; or what ``anchored`` returned.
            direct_to: the number of the task that it is for, on a direct stream.
        """
        self.rows.push(values, parent)
        if direct_to is not None:
            self._direct_to.append(direct_to)

    def anchored(self, anchors: Anchors) -> int:
        """The number that represents anchors as the parent of an emission."""
        self._anchors.append(anchors)
        return -1 - len(self._anchors)

    def extend(self, columns: Sequence[Any], parents: npt.NDArray[np.int64]) -> None:
        """Add emissions column by column.

        Args:
            columns: one for each field.
            parents: int64[emissions], the row that each is anchored to, or UNANCHORED.
        """
        self._chunks.append((columns, parents))

    def blocks(self, rows: Rows, tracked: bool, task: int) -> list[EmittedRows]:
        """The emissions of task number ``task`` for ``rows``, as blocks of emitted rows."""
        blocks = []
        path = (*(rows.path if not self._anchors else ()), (task, self.routes.index))
        first = self.first
        for columns, parents in self._parts():
            direct_to = np.array(self._direct_to, dtype=np.int64) if self._direct_to else None
            if not self._anchors and bool(np.any(parents[1:] < parents[:-1])):  # coroutines finish in any order
                order = np.argsort(parents, kind="stable")
                parents, columns = parents[order], [_reordered(column, order) for column in columns]
                direct_to = direct_to[order] if direct_to is not None else None
            anchored = self._parents(rows, parents, first - self.first) if tracked else None
            attempts = self._attempts(rows, parents)
            block = EmittedRows(self.routes, columns, len(parents), first, anchored, attempts, direct_to, path)
            blocks.append(block)
            first += len(parents)
        return blocks

    def _parts(self) -> Iterator[tuple[Sequence[Column], npt.NDArray[np.int64]]]:
        if self.rows.count:
            columns, parents = self.rows.taken()
            whole = [column if isinstance(column, list) else _coded(*column) for column in columns]
            yield whole, np.frombuffer(parents, dtype=np.int64)
        yield from self._chunks

    def _attempts(self, rows: Rows, parents: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8] | None:
        if rows.attempts is None and all(anchors.attempt == 1 for anchors in self._anchors):
            return None
        attempts = np.ones(len(parents), dtype=np.uint8)
        if rows.attempts is not None:
            attempts[parents >= 0] = rows.attempts[parents[parents >= 0]]
        if self._anchors:
            several = np.array([anchors.attempt for anchors in self._anchors], dtype=np.uint8)
            attempts[parents < -1] = several[-2 - parents[parents < -1]]
        return attempts

    def _parents(self, rows: Rows, parents: npt.NDArray[np.int64], ordinal_base: int) -> Parents | None:
        """The pairs that emissions are anchored to; None if no emission is anchored to a tracked tuple."""
        anchoring = rows.anchoring
        if anchoring is not None and anchoring.offsets is None and not self._anchors and parents[0] >= 0:  # ascending
            return Parents(anchoring.roots, anchoring.edges, ordinal_base, None, parents, anchoring.root_salt)
        if anchoring is None and not self._anchors:
            return None
        return _mixed_parents(parents, rows, self._anchors, ordinal_base)

    @property
    def count(self) -> int:
        """How many rows were emitted."""
        return int(self.rows.count) + sum(len(parents) for _, parents in self._chunks)

    def mark(self) -> tuple[int, int, int, int]:
        """The number of emissions so far, for ``back_to``."""
        return self.rows.count, len(self._anchors), len(self._direct_to), len(self._chunks)

    def back_to(self, mark: tuple[int, int, int, int]) -> None:
        """Remove the emissions since ``mark``; those of rows only where Python gathers them."""
        rows, anchors, direct_to, chunks = mark
        if rows < self.rows.count:
            self.rows.cut(rows)
        del self._anchors[anchors:]
        del self._direct_to[direct_to:]
        del self._chunks[chunks:]

    def clear(self) -> None:
        """Forget the emissions, which were routed."""
        self.first += self.count
        self.rows.clear()
        self._anchors.clear()
        del self._direct_to[:]
        self._chunks.clear()

    def row(self, values: Any) -> Sequence[Any]:
        """The values of one tuple, as a list or tuple that fits the stream.

        Raises:
            EmitError: the number of the values is wrong, or their names; or they are not values at all.
        """
        kind = values.__class__
        if kind is not list and kind is not tuple:
            read = self._readers.get(kind)
            if read is None:
                fields = self.routes.fields
                read = self._readers[kind] = reader_of(dict if issubclass(kind, Tuple) else kind, fields)
            row = read(values)
            if row is None:
                raise self.refuse(values)
            values = row
        if len(values) != self.width:
            raise self.refuse(values)
        fitting: Sequence[Any] = values
        return fitting

    def refuse(self, values: Any) -> EmitError:
        """The error for values that do not fit the stream."""
        return EmitError(misfit(values, self.routes.component, self.routes.name, self.routes.fields))

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
            native: the kernels (``base.native``) that gather the emissions; None: Python gathers them.
        """
        self.component = component
        self.native = native
        self.streams = {stream.name: Emissions(stream, captured or bool(stream.routes), native) for stream in streams}
        self.default = self.streams.get(DEFAULT_STREAM)
        self.single = self.default is not None and self.default.width == 1
        """Whether a value alone is a tuple of the stream ``default``."""
        self.errors: list[object] = []
        """The arguments of ``report_error``: texts and exceptions, or any other object that user code passed."""

    def of(self, stream: str, direct: bool = False) -> Emissions:
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

    def clear(self) -> None:
        """Forget the emissions, which were sent."""
        for out in self.streams.values():
            out.clear()

    def begin(self) -> None:
        """Begin a micro-batch; all emissions of the one before must have been sent."""
        for name, out in self.streams.items():
            check(not out.count, f"{out.count} tuple(s) that {self.component!r} emitted on {name!r} were never sent")
            out.clear()
            out.first = 0
        self.errors.clear()
