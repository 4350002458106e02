"""Collectors: they record what user code emits, acks and fails.

A call of user code only appends values and the number of the row that they are anchored to; ``tasks`` and ``routing``
do everything else once for all rows. A tuple is settled once: a second ack, or an ack after a fail, changes nothing and
is reported as an error. A collector belongs to its task's ``execute`` and ``flush``; at any other time it refuses
emissions, because nothing would route them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkbolt.api.named_fields import NO_LISTS
from sparkbolt.api.pickling import never_durable
from sparkbolt.api.story import short
from sparkbolt.api.tuples import DEFAULT_STREAM, Tuple
from sparkbolt.base.exceptions import printed
from sparkbolt.base.ids import OBJECT_ORDINAL
from sparkbolt.errors import EmitError
from sparkbolt.wire.frames import sound_column
from sparkbolt.worker.emissions import UNANCHORED, Anchors, Emissions, Output
from sparkbolt.worker.returned_values import named

if TYPE_CHECKING:
    from sparkbolt.worker.emissions import Rows

_BETWEEN_ROWS: Final = object()
"""Takes the place of the rows of a collector while ``flush`` runs."""
_BY_ITSELF = (
    "a BasicBolt or AsyncBolt anchors what it emits to its input, acks that when execute returns and fails it when "
    "execute raises; to do so by hand, derive from Bolt"
)


@never_durable
class BasicRowCollector:
    """The ``BasicCollector`` of one task, or of one tuple of an ``AsyncBolt``."""

    def __init__(self, output: Output, row: Tuple | int | None = None) -> None:
        """Emit into ``output``, anchored to the row of a tuple; None: nothing may be emitted until ``begin``."""
        self._output = output
        self._row = row
        """The tuple that shows the current row, or UNANCHORED; None while nothing may be emitted."""
        self._gate: Callable[[bool], None] | None = None
        out = output.default
        if row is None and out is not None and out.width and not out.routes.direct:
            self.emit, self._gate = out.rows.gated(DEFAULT_STREAM, self._emit_other)  # type: ignore[method-assign]
            self._emit_row, self._row_of = self.emit, out.row
            if output.native is None:
                self.emit.__self__ = self  # type: ignore[attr-defined]  # as a method has it, for ``never_durable``
            else:
                never_durable(output.native.RowBuffer)

    def begin(self, tup: Tuple) -> Any:
        """Anchor emissions from now on to the row that ``tup`` shows.

        Returns:
            The ``RowBuffer`` of the default stream, if its ``emit`` is used; None if it is not.
        """
        self._row = tup
        if self._gate is None or self._output.default is None:
            return None
        self._gate(True)
        return self._output.default.rows

    def show(self, tup: Tuple) -> None:
        """Use another tuple object for the current row from now on."""
        self._row = tup

    def begin_flush(self) -> None:
        """Emit without anchors from now on."""
        self._row = UNANCHORED

    def end(self) -> None:
        """Refuse emissions from now on."""
        self._row = None
        if self._gate is not None:
            self._gate(False)

    def emit(self, values: Any, stream: str = DEFAULT_STREAM, anchors: None = None) -> None:
        """See ``BasicCollector.emit``."""
        self._refuse_anchors(anchors, stream)
        out = self._output.of(stream)
        out.push(out.row(values), self._parent())

    def _emit_other(self, values: Any, stream: str, anchors: Any) -> None:
        """Emit what is no list or tuple that fits the stream ``default``; the fast ``emit`` calls it."""
        kind = values.__class__
        if anchors is None and stream is DEFAULT_STREAM and kind is not list and kind is not tuple:
            self._emit_row(self._row_of(values))
        else:
            type(self).emit(self, values, stream, anchors)

    def emit_direct(self, task: int, values: Any, stream: str = DEFAULT_STREAM, anchors: None = None) -> None:
        """See ``BasicCollector.emit_direct``."""
        self._refuse_anchors(anchors, stream)
        out = self._output.of(stream, direct=True)
        out.push(out.row(values), self._parent(), out.task(task))

    def _parent(self) -> int:
        row = self._row
        if row is None:
            raise self._output.refuse_now()
        return row if isinstance(row, int) else row._row

    def _refuse_anchors(self, anchors: object, stream: object) -> None:
        """Refuse anchors, given by name or as the second argument, where the collector of a ``Bolt`` takes them."""
        if anchors is not None or isinstance(stream, Tuple):
            raise EmitError(f"{self._output.component!r} emitted with anchors: {_BY_ITSELF}")

    if not TYPE_CHECKING:  # a type checker finds them missing

        def __getattr__(self, name: str) -> Never:
            """Raise AttributeError; for names of the collector of a ``Bolt``, with advice on the alternative."""
            hint = f": {_BY_ITSELF}" if name in ("ack", "fail", "reset_timeout") else ""
            raise AttributeError(f"'BasicCollector' object has no attribute {name!r}{hint}", name=name, obj=self)

    def report_error(self, error: BaseException | str) -> None:
        """See ``BasicCollector.report_error``."""
        self._output.errors.append(error)


@never_durable
class BoltRowCollector:
    """The ``BoltCollector`` of one task."""

    __slots__ = ("_default", "_late", "_micro_batch_id", "_output", "_rows", "_status", "failures", "touched")

    ACKED = 1
    FAILED = 2

    def __init__(self, output: Output) -> None:
        """Emit into ``output``."""
        self._output = output
        out = output.default
        self._default = None if out is None or out.routes.direct else out
        """The stream ``default``, which most emissions are for, if ``emit`` may use it."""
        self._rows: Any = None
        """The ``Rows`` that the bolt works on; ``_BETWEEN_ROWS`` in ``flush``; None while nothing may be emitted."""
        self._status = bytearray()
        self._micro_batch_id = -1
        self._late: list[Tuple] = []
        self.failures: list[tuple[Tuple, Any]] = []
        """Tuples that the bolt has failed, with its reasons."""
        self.touched: list[Tuple] = []

    def begin(self, rows: Rows, micro_batch_id: int) -> None:
        """Begin a block of rows."""
        self._rows = rows
        self._status = bytearray(rows.count)
        self._micro_batch_id = micro_batch_id

    def begin_flush(self) -> None:
        """End the rows: acks, fails and anchors from now on concern tuples that the bolt has kept."""
        self._rows = _BETWEEN_ROWS

    def end(self) -> tuple[bytearray, list[Tuple]]:
        """Refuse emissions from now on.

        Returns:
            The status of each row (0, ``ACKED`` or ``FAILED``), and the tuples of earlier rows that were acked.
        """
        late, self._late = self._late, []
        self._rows = None
        return self._status, late

    def emit(self, values: Any, anchors: Tuple | Sequence[Tuple] | None = None, stream: str = DEFAULT_STREAM) -> None:
        """See ``BoltCollector.emit``."""
        out = self._default if stream is DEFAULT_STREAM and self._default is not None else self._output.of(stream)
        row = out.row(values)
        out.rows.push(row, self._parent(out, anchors))

    def emit_direct(
        self,
        task: int,
        values: Any,
        anchors: Tuple | Sequence[Tuple] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """See ``BoltCollector.emit_direct``."""
        out = self._output.of(stream, direct=True)
        row, to = out.row(values), out.task(task)
        out.push(row, self._parent(out, anchors), to)

    def _parent(self, out: Emissions, anchors: Any) -> int:
        """The anchors of an emission; noted in ``out`` if that is not one row.

        This is the last step of an emission that may raise.
        """
        rows = self._rows
        if rows is None:
            raise self._output.refuse_now()
        if anchors is None:
            return UNANCHORED
        anchor = anchors[0] if anchors.__class__ is list and len(anchors) == 1 else anchors
        if isinstance(anchor, Tuple) and anchor._chunk is rows:
            return anchor._row
        several = (anchors,) if isinstance(anchors, Tuple) else self._listed(anchors)
        pairs: list[tuple[int, int, int, int]] = []
        for slot, anchor in enumerate(several):
            ordinal = OBJECT_ORDINAL + anchor.next_ordinal(self._micro_batch_id)
            pairs.extend((root, edge, ordinal, slot) for root, edge in anchor.anchors)
        return out.anchored(Anchors(pairs, max((anchor.mark for anchor in several), default=1)))

    def _listed(self, anchors: Any) -> Sequence[Tuple]:
        """Several anchors as a sequence; raises EmitError if one is not a tuple."""
        try:
            several = (anchors,) if isinstance(anchors, str | bytes | Mapping) else tuple(anchors)
        except TypeError:
            several = (anchors,)
        wrong = [anchor for anchor in several if not isinstance(anchor, Tuple)]
        if not wrong:
            return several
        known = isinstance(wrong[0], str) and wrong[0] in self._output.streams
        hint = f": did you mean stream={wrong[0]!r}?" if known else ""
        raise EmitError(f"{self._output.component!r}: anchors are tuples, got {short(wrong[0])}{hint}")

    def ack(self, tup: Tuple) -> None:
        """See ``BoltCollector.ack``."""
        self._settle(tup, self.ACKED, "acked")

    def fail(self, tup: Tuple, reason: object = "") -> None:
        """See ``BoltCollector.fail``."""
        if self._settle(tup, self.FAILED, "failed"):
            self.failures.append((tup, reason))

    def _settle(self, tup: Tuple, status: int, word: str) -> bool:
        if not isinstance(tup, Tuple):
            raise self._no_tuple(word, tup)
        chunk = tup._chunk
        if chunk is not None and chunk is self._rows:
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
        """See ``BoltCollector.reset_timeout``."""
        if not isinstance(tup, Tuple):
            raise self._no_tuple("given more time", tup)
        self.touched.append(tup)

    def _no_tuple(self, word: str, thing: object) -> EmitError:
        return EmitError(
            f"{self._output.component!r}: a tuple that execute was given can be {word}, "
            f"and this is {printed(thing):.60}"
        )

    def report_error(self, error: BaseException | str) -> None:
        """See ``BoltCollector.report_error``."""
        self._output.errors.append(error)


@never_durable
class ColumnBlockCollector:
    """The ``ColumnCollector`` of one task."""

    __slots__ = ("_first", "_output", "_rows")

    def __init__(self, output: Output) -> None:
        """Emit into ``output``."""
        self._output = output
        self._first = 0
        self._rows: int | None = None

    def begin(self, rows: int, first: int = 0) -> None:
        """Begin ``rows`` rows of a frame, from row ``first`` on; 0 in ``flush``."""
        self._rows = rows
        self._first = first

    def end(self) -> None:
        """Refuse emissions from now on."""
        self._rows = None

    def emit(self, columns: Sequence[Any], anchors: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """See ``ColumnCollector.emit``."""
        out = self._output.of(stream)
        if self._rows is None:
            raise self._output.refuse_now()
        if isinstance(columns, pa.RecordBatch | pa.Table):
            raise EmitError(
                f"{self._output.component!r} emitted a {type(columns).__name__} on {stream!r}: emit its columns, in "
                f"the order of the fields {out.routes.fields}"
            )
        whole = [self._column(column, stream) for column in out.row(columns)]
        lengths = {len(column) for column in whole}
        if len(lengths) > 1:
            raise EmitError(
                f"{self._output.component!r} emitted columns of different lengths {sorted(lengths)} on {stream!r}"
            )
        count = lengths.pop() if lengths else 0
        parents = self._parents(anchors, count, stream, self._rows)
        if count:
            out.extend(whole, parents)

    def _column(self, column: Any, stream: str) -> Any:
        """A column as an array or a list of fixed length."""
        if isinstance(column, pa.DictionaryArray):
            least, most = pc.min_max(column.indices).values()
            if least.is_valid and not 0 <= least.as_py() <= most.as_py() < len(column.dictionary):
                raise EmitError(
                    f"{self._output.component!r} emitted a dictionary array with numbers from {least} to {most} on "
                    f"{stream!r}, whose dictionary has {len(column.dictionary)} values"
                )
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        column, reason = sound_column(column)
        if reason is not None:
            raise EmitError(
                f"{self._output.component!r} emitted an array of {column.type} on {stream!r} with a value that cannot "
                f"be read ({reason})"
            )
        if isinstance(column, pa.Array):
            return column
        if not isinstance(column, NO_LISTS) and not isinstance(column, type) and hasattr(column, "__len__"):
            try:
                return column if isinstance(column, np.ndarray) and column.ndim == 1 else list(column)
            except TypeError:
                pass
        raise EmitError(
            f"{self._output.component!r} emitted {named(column)} as a column on {stream!r}: a ColumnBolt emits an "
            "array or a list of values for each field"
        )

    def _parents(self, anchors: Any, count: int, stream: str, rows: int) -> Any:
        """The input row of each output row, or UNANCHORED: int64[count]."""
        if anchors is None:
            return np.full(count, UNANCHORED, dtype=np.int64)
        given = np.asarray(anchors)
        whole = given.ndim == 1 and (given.dtype.kind in "iu" or not len(given))
        parents = given.astype(np.int64) if whole else np.empty(0, dtype=np.int64)
        if not whole or len(parents) != count or (count and (parents.min() < 0 or parents.max() >= rows)):
            what = f"{len(parents)} anchors" if whole else f"{short(anchors)} as anchors"
            raise EmitError(
                f"{self._output.component!r} emitted {count} rows on {stream!r} with {what}: "
                f"expected one for each row, each an input row from 0 to {rows - 1}"
                if rows
                else f"{self._output.component!r} emitted {count} rows on {stream!r} with {what} in flush, where there "
                "are no input rows: emit them without"
            )
        return parents + self._first

    def report_error(self, error: BaseException | str) -> None:
        """See ``ColumnCollector.report_error``."""
        self._output.errors.append(error)


ROOM_MAX = 1 << 31


@never_durable
class SpoutRecordCollector:
    """The ``SpoutCollector`` of one task: it collects records."""

    __slots__ = ("_output", "records", "room")

    def __init__(self, output: Output) -> None:
        """Collect records; their values are checked against the streams of ``output``."""
        self._output = output
        self.records: list[tuple[str, list[Any], Any, int | None]] = []
        """(stream, values, message id, direct task)."""
        self.room = ROOM_MAX
        """See ``SpoutCollector.room``."""

    def emit(self, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """See ``SpoutCollector.emit``."""
        row = self._output.of(stream).row(values)
        self.records.append((stream, list(row), message_id, None))

    def emit_direct(self, task: int, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> None:
        """See ``SpoutCollector.emit_direct``."""
        out = self._output.of(stream, direct=True)
        row, to = out.row(values), out.task(task)
        self.records.append((stream, list(row), message_id, to))

    def report_error(self, error: BaseException | str) -> None:
        """See ``SpoutCollector.report_error``."""
        self._output.errors.append(error)
