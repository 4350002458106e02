"""Collectors: what user code emits, acks and fails with.

Which question it answers: what does a component say, and what is remembered of it until its rows are done?
Rule 1: user code only appends: values, and the number of the row they are anchored to. Everything else is done
once for all rows (``tasks``, ``routing``).
Rule 2: a tuple is settled once. A second ack, an ack after a fail, changes nothing and is reported once.

Read before: ``tuples``, ``routing``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparkbolt.core.failures import printed
from sparkbolt.core.ids import OBJECT_ORDINAL
from sparkbolt.core.routing import StreamRoutes
from sparkbolt.core.tuples import DEFAULT_STREAM, Tuple
from sparkbolt.errors import EmitError

if TYPE_CHECKING:
    from sparkbolt.core.rows import Rows

UNANCHORED = -1


class StreamOut:
    """What one task emits on one stream while it works on one block of rows."""

    __slots__ = (
        "append_parent",
        "columns",
        "direct_to",
        "ends",
        "extend",
        "extra_attempts",
        "extras",
        "first",
        "heard",
        "parents",
        "routes",
        "unheard",
        "values",
        "width",
    )

    def __init__(self, routes: StreamRoutes, heard: bool) -> None:
        """Buffers for one stream; what is emitted on one that is not ``heard`` is only counted."""
        self.routes = routes
        self.heard = heard
        self.unheard = 0
        self.width = len(routes.fields)
        self.first = 0
        self.values: list[Any] = []
        """Row after row, all in one list: column i is ``values[i::width]``."""
        self.extend: Callable[[Sequence[Any]], None] = self.values.extend
        self.ends: list[int] | None = None
        """Of the default stream of a basic bolt: the length of ``values`` after each row. One append a row costs
        less than one an emission."""
        self.parents = array("q")
        """Otherwise the row that each emission is anchored to; UNANCHORED; or ``-2 - i`` for ``extras[i]``."""
        self.append_parent = self.parents.append
        self.extras: list[list[tuple[int, int, int, int]]] = []
        """(root, edge, ordinal, anchor slot) for each anchor of an emission that is not anchored to one row."""
        self.extra_attempts = array("B")
        self.direct_to = array("q")
        self.columns: list[tuple[Sequence[Any], Any]] = []
        """Whole columns with their parent rows, as a column bolt emits them."""

    def refuse(self, values: Any) -> EmitError:
        """The error for values that do not fit the stream."""
        who = f"{self.routes.component!r} emitted"
        declared = f"stream {self.routes.name!r}, which declares {self.width} field(s) {self.routes.fields}"
        if isinstance(values, str | bytes):
            return EmitError(
                f"{who} the {type(values).__name__} {values!r:.60} on {declared}: did you mean [{values!r:.60}]?"
            )
        try:
            count = len(values)
        except TypeError:
            return EmitError(f"{who} a {type(values).__name__} on {declared}: emit a list of values")
        hint = ": did you emit a str instead of a list?" if self.width == 1 and count > 1 else ""
        return EmitError(f"{who} {count} values on {declared}{hint}")

    @property
    def count(self) -> int:
        """How many rows were emitted."""
        if self.ends is not None and self.width:
            return self.unheard + len(self.values) // self.width
        return len(self.parents) + sum(len(rows) for _, rows in self.columns)

    def clear(self) -> None:
        """Forget what was routed."""
        self.first += self.count
        self.unheard = 0
        self.ends = None
        self.values.clear()
        del self.parents[:]
        del self.direct_to[:]
        self.extras.clear()
        del self.extra_attempts[:]
        self.columns.clear()


class Output:
    """All streams of one task."""

    def __init__(self, component: str, streams: Sequence[StreamRoutes], *, overheard: bool = False) -> None:
        """Buffers for each stream of a component; ``overheard``: somebody hears streams without consumers too."""
        self.component = component
        self.streams = {stream.name: StreamOut(stream, overheard or bool(stream.routes)) for stream in streams}
        self.default = self.streams.get(DEFAULT_STREAM)
        self.errors: list[object] = []
        """What was reported: texts and exceptions, or whatever was taken for one."""

    def of(self, stream: str, direct: bool = False) -> StreamOut:
        """The buffer of a stream.

        Raises:
            EmitError: the stream is not declared, or is direct where it should not be.
        """
        out = self.streams.get(stream)
        if out is None:
            known = ", ".join(map(repr, self.streams)) or "none: set `outputs`"
            raise EmitError(f"{self.component!r} emitted on stream {stream!r}; its declared streams are {known}")
        if out.routes.direct != direct:
            use = "emit_direct" if out.routes.direct else "emit"
            raise EmitError(
                f"stream {stream!r} of {self.component!r} is {'' if out.routes.direct else 'not '}direct: use {use}"
            )
        return out

    def checked(self, values: Any, stream: str, direct: bool = False) -> StreamOut:
        """The buffer of a stream, once the values are known to fit it."""
        out = self.of(stream, direct)
        if isinstance(values, str | bytes) or not hasattr(values, "__len__") or len(values) != out.width:
            raise out.refuse(values)
        return out

    def begin(self) -> None:
        """Start a micro-batch."""
        for out in self.streams.values():
            out.clear()
            out.first = 0
        self.errors.clear()


class BasicCollector:
    """Of ``BasicBolt`` and ``AsyncBolt``: everything is anchored to the input, which is acked for the user."""

    def __init__(self, output: Output, tup: Tuple) -> None:
        """Emit into ``output``, anchored to ``tup``."""
        self._output = output
        self._tup = tup

    def _by_rows(self) -> list[int] | None:
        """Emit on the default stream without noting the row; the caller notes the length after each row instead.

        Returns:
            The list of lengths; None if there is no need to note them.
        """
        out = self._output.default
        if out is None or out.routes.direct or out.width == 0:
            return None
        out.ends = []
        self.emit = _emitter(out, self.emit) if out.heard else _counter(out, self.emit)  # type: ignore[method-assign]
        return out.ends if out.heard else None

    def emit(self, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple anchored to the input.

        Raises:
            EmitError: the stream is not declared, or has another number of fields.
        """
        out = self._output.checked(values, stream)
        out.extend(values)
        if out.ends is None:
            out.append_parent(self._tup._row)

    def emit_direct(self, task: int, values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple to one task, by its number (``context.component_tasks``), on a direct stream."""
        out = self._output.checked(values, stream, direct=True)
        out.extend(values)
        out.append_parent(self._tup._row)
        out.direct_to.append(task)

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""
        self._output.errors.append(error)


def _emitter(out: StreamOut, otherwise: Callable[..., None]) -> Callable[..., None]:
    """``BasicCollector.emit`` for the default stream, with all that it looks at in its closure.

    It is called for every tuple: as a method it costs half as much again.
    """
    extend, width = out.extend, out.width

    def emit(values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        if stream is DEFAULT_STREAM and len(values) == width and values.__class__ is not str:
            extend(values)
        else:
            otherwise(values, stream)

    return emit


def _counter(out: StreamOut, otherwise: Callable[..., None]) -> Callable[..., None]:
    """As ``_emitter``, where nobody hears the stream: values that nobody will see are not kept for a micro-batch."""
    width = out.width

    def emit(values: Sequence[Any], stream: str = DEFAULT_STREAM) -> None:
        if stream is DEFAULT_STREAM and len(values) == width and values.__class__ is not str:
            out.unheard += 1
        else:
            otherwise(values, stream)

    return emit


class BoltCollector:
    """Of ``Bolt``: anchor, ack and fail by hand."""

    __slots__ = ("_late", "_micro_batch_id", "_output", "_rows", "_status", "failures", "touched")

    ACKED = 1
    FAILED = 2

    def __init__(self, output: Output) -> None:
        """Emit into ``output``."""
        self._output = output
        self._rows: Rows | None = None
        self._status = bytearray()
        self._micro_batch_id = -1
        self._late: list[Tuple] = []
        self.failures: list[tuple[Tuple, Any]] = []
        """Tuples that were failed, with the reasons that were given."""
        self.touched: list[Tuple] = []

    def begin(self, rows: Rows, micro_batch_id: int) -> None:
        """Start on a block of rows."""
        self._rows = rows
        self._status = bytearray(rows.count)
        self._micro_batch_id = micro_batch_id

    def end(self) -> tuple[bytearray, list[Tuple]]:
        """The status of each row, and the tuples from earlier that were acked."""
        late, self._late = self._late, []
        self._rows = None
        return self._status, late

    def emit(
        self, values: Sequence[Any], anchors: Tuple | Sequence[Tuple] | None = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit a tuple, anchored to one tuple, to several (also one twice), or to none.

        Raises:
            EmitError: the stream is not declared, or has another number of fields.
        """
        out = self._output.checked(values, stream)
        parent = self._parent(out, anchors)
        out.extend(values)
        out.append_parent(parent)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Sequence[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit a tuple to one task, by its number (``context.component_tasks``), on a direct stream."""
        out = self._output.checked(values, stream, direct=True)
        parent = self._parent(out, anchors)
        out.extend(values)
        out.append_parent(parent)
        out.direct_to.append(task)

    def _parent(self, out: StreamOut, anchors: Tuple | Sequence[Tuple] | None) -> int:
        if anchors is None:
            return UNANCHORED
        several = (anchors,) if isinstance(anchors, Tuple) else anchors
        if len(several) == 1 and several[0]._chunk is self._rows and self._rows is not None:
            return several[0]._row
        pairs: list[tuple[int, int, int, int]] = []
        for slot, anchor in enumerate(several):
            if not isinstance(anchor, Tuple):
                raise EmitError(f"{self._output.component!r}: anchors are tuples, got {anchor!r:.60}")
            ordinal = OBJECT_ORDINAL + anchor.next_ordinal(self._micro_batch_id)
            pairs.extend((root, edge, ordinal, slot) for root, edge in anchor.anchors)
        out.extras.append(pairs)
        out.extra_attempts.append(max((anchor.mark for anchor in several), default=1))
        return -1 - len(out.extras)

    def ack(self, tup: Tuple) -> None:
        """Say that the tuple is done. What was emitted anchored to it keeps its trees open by itself."""
        self._settle(tup, self.ACKED, "acked")

    def fail(self, tup: Tuple, reason: object = "") -> None:
        """Fail all trees of the tuple; ``reason``, a text or the exception, stands in the trees' stories."""
        if self._settle(tup, self.FAILED, "failed"):
            self.failures.append((tup, reason))

    def _settle(self, tup: Tuple, status: int, word: str) -> bool:
        if not isinstance(tup, Tuple):
            raise self._no_tuple(word, tup)
        if tup._chunk is not None and tup._chunk is self._rows:
            before = self._status[tup._row]
            if before == 0:
                self._status[tup._row] = status
                return True
            earlier = "acked" if before == self.ACKED else "failed"
        elif tup._settled is None:
            tup._settled = word
            if status == self.ACKED:
                self._late.append(tup)
            return True
        else:
            earlier = tup._settled
        if word == "failed" and earlier == "acked":
            self._mark_failed(tup)
            return True
        if earlier != word or word == "acked":
            self._output.errors.append(f"{tup!r} was {word} after it had been {earlier}: the second call was ignored")
        return False

    def _mark_failed(self, tup: Tuple) -> None:
        """A fail after an ack fails a tree that is still open, as in Storm; the ack stays."""
        if tup._chunk is None or tup._chunk is not self._rows:
            tup._settled = "failed"

    def reset_timeout(self, tup: Tuple) -> None:
        """Give all trees of the tuple a full ``message_timeout_secs`` again."""
        if not isinstance(tup, Tuple):
            raise self._no_tuple("given more time", tup)
        self.touched.append(tup)

    def _no_tuple(self, word: str, thing: object) -> EmitError:
        return EmitError(
            f"{self._output.component!r}: a tuple that execute was given can be {word}, "
            f"and this is {printed(thing):.60}"
        )

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""
        self._output.errors.append(error)


class ColumnCollector:
    """Of ``ColumnBolt``: whole columns, with the input row that each output row is anchored to."""

    __slots__ = ("_output", "_rows")

    def __init__(self, output: Output) -> None:
        """Emit into ``output``."""
        self._output = output
        self._rows = 0

    def begin(self, rows: int) -> None:
        """Start on a frame of so many rows."""
        self._rows = rows

    def emit(self, columns: Sequence[Any], anchors: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """Emit rows, column by column.

        Args:
            columns: one Arrow array (or sequence) for each field of the stream, all of one length.
            anchors: for each output row the input row that it is anchored to (integers, Arrow or numpy);
                None for no anchors.
            stream: the stream.

        Raises:
            EmitError: the columns do not fit the stream, or an anchor is not a row of the input.
        """
        out = self._output.of(stream)
        if len(columns) != out.width:
            raise out.refuse(columns)
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise EmitError(
                f"{self._output.component!r} emitted columns of different lengths {sorted(lengths)} on {stream!r}"
            )
        count = lengths.pop() if lengths else 0
        if anchors is None:
            parents = np.full(count, UNANCHORED, dtype=np.int64)
        else:
            parents = np.asarray(anchors).astype(np.int64)
            if len(parents) != count or (count and (parents.min() < 0 or parents.max() >= self._rows)):
                raise EmitError(
                    f"{self._output.component!r} emitted {count} rows on {stream!r} with {len(parents)} anchors: "
                    f"expected one for each row, each an input row from 0 to {self._rows - 1}"
                )
        if count:
            out.columns.append((columns, parents))

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""
        self._output.errors.append(error)


class SpoutCollector:
    """Of ``Spout``: emit with or without a message id."""

    __slots__ = ("_output", "records")

    def __init__(self, output: Output) -> None:
        """Gather records; the values are checked against the streams of ``output``."""
        self._output = output
        self.records: list[tuple[str, Sequence[Any], Any, int | None]] = []
        """(stream, values, message id, direct task)."""

    def emit(self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """Emit a tuple; with a message id its tree is tracked, and ``ack`` or ``fail`` is called once with the id."""
        self._output.checked(values, stream)
        self.records.append((stream, values, message_id, None))

    def emit_direct(
        self, task: int, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit a tuple to one task, by its number, on a direct stream."""
        self._output.checked(values, stream, direct=True)
        self.records.append((stream, values, message_id, task))

    def report_error(self, error: BaseException | str) -> None:
        """Report an error that fails nothing."""
        self._output.errors.append(error)
