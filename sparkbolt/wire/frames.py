"""Frames: columnar packets of tuples from one task to one task on one stream.

Rule 1: a frame carries (sender, stream, piece, sequence), and ``order`` sorts by it. So the order in which frames
arrive has no effect.
Rule 2: decoded values equal the encoded ones, with the same types. A column is stored as Arrow only if all its values
are of one plain type (or None); any other column is pickled on its own.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import groupby, islice
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparkbolt.base.arrow_buffers import all_to_buffers, from_buffers
from sparkbolt.base.arrow_values import field_of, inferred_array
from sparkbolt.base.exceptions import line_of, pass_on
from sparkbolt.base.ids import edges_of, mix64_array, unmix64_array
from sparkbolt.base.intervals import Interval
from sparkbolt.base.native import kernels
from sparkbolt.base.packing import KEY_ARRAYS, keys_to_pack, narrow, pack, packed_keys, unpack
from sparkbolt.base.salvage import salvage
from sparkbolt.base.text_arrays import dictionary_of, strings_of
from sparkbolt.errors import EmitError, check
from sparkbolt.wire.edges import Anchoring, EdgeOrigins, joined_anchorings
from sparkbolt.wire.plan import Entry
from sparkbolt.wire.stream_sources import SourceRanges, StreamSources

Column: TypeAlias = pa.Array | Sequence[Any]
"""The values of one field: an Arrow array, or a Python sequence whose types are kept exactly."""
Path: TypeAlias = tuple[tuple[int, int], ...]
"""(task number, stream index) of each sender on the way."""


class FrameKind(IntEnum):
    """The kind of content of a row: the first byte of its head.

    No number may change, because the workers of a topology read each other's rows.
    """

    DATA = 1
    """Tuples (``Frame``)."""
    CLOCK = 2
    """The time and other notices for one task (``Clock``)."""
    PARTIALS = 3
    """Reports of tasks about trees, for the acker."""
    FEEDBACK = 4
    """Metrics, reports and hops, for the driver."""
    VERDICTS = 5
    """Verdicts of the acker on trees, for the driver."""
    READS = 6
    """How much was read of each range, for the driver."""
    LETTERS = 7
    """Dead letters that were written, for the driver."""
    NAMES = 8
    """The users' own ids of messages, for the driver."""
    ROWS = 9
    """Rows of a committer, for the driver."""
    LOOPING = 10
    """Tuples for a feedback subscription (``LoopedFrame``), for the driver."""
    LOOPED = 11
    """The same tuples in the next micro-batch, on their way from the driver to their task (``looped``)."""


_HEAD = struct.Struct("<BxxxIqq")
_NONE_TYPE = type(None)
_FEW_VALUES = 64
JOINED_ROWS_MAX = 4096
"""Frames are joined up to this number of rows; then the cost of a frame is small beside that of its rows."""
JOINED_BYTES_MAX = 1 << 20
"""Frames are joined up to this number of bytes, because joining copies them."""
_ARROW_TYPES: dict[type, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
}


@dataclass(frozen=True)
class Moment:
    """The micro-batch that a row belongs to; every row's head contains it."""

    micro_batch_id: int
    now_ms: int


@dataclass
class Frame:
    """Rows of one stream, from one task to one task."""

    sender: int
    """The number of the task that emitted them."""
    stream: int
    """The index of the stream in ``Topology.streams()``."""
    piece: int
    """The piece of the source's work that made it; pieces may run in different processes at the same time."""
    sequence: int
    rows: int
    columns: list[Column]
    anchoring: Anchoring | None = None
    """The trees of the rows; None: nothing in the frame is tracked."""
    attempts: npt.NDArray[np.uint8] | None = None
    """uint8[rows]; None: every row belongs to a first attempt, and none is traced."""
    path: Path = ()
    """The senders of the tuples within this micro-batch, the sender of the frame last.

    Each sender emitted its tuples for tuples of the sender before it. The path begins at the spout, or at a task that
    emitted the tuples for tuples that it had held.
    """
    unreadable: dict[int, tuple[int, str]] = field(default_factory=dict)
    """In a decoded frame: row to (column, reason) for a value that cannot be read."""

    def take(self, rows: npt.NDArray[np.intp]) -> Frame:
        """The frame with only the given rows: intp[rows]."""
        anchoring = self.anchoring.take(rows) if self.anchoring is not None else None
        attempts = self.attempts[rows] if self.attempts is not None else None
        columns = [take(column, rows) for column in self.columns]
        new = enumerate(rows.tolist()) if self.unreadable else ()
        unreadable = {place: self.unreadable[row] for place, row in new if row in self.unreadable}
        own = self.sender, self.stream, self.piece, self.sequence
        return Frame(*own, len(rows), columns, anchoring, attempts, self.path, unreadable)

    def roots_of(self, row: int) -> list[int]:
        """The roots of the trees that a row belongs to."""
        if self.anchoring is None:
            return []
        if self.anchoring.offsets is None:
            return [int(self.anchoring.roots[row])]
        pairs = slice(self.anchoring.offsets[row], self.anchoring.offsets[row + 1])
        return [int(root) for root in self.anchoring.roots[pairs]]

    @property
    def order(self) -> tuple[int, int, int, int]:
        """The sort key of the frame: user code sees frames in this order."""
        return self.sender, self.stream, self.piece, self.sequence


@dataclass(frozen=True)
class Clock:
    """The time and other notices for one task: at most one clock per micro-batch, only for tasks that need one."""

    tick: bool = False
    """Whether a tick tuple is due."""
    void: tuple[tuple[int, int], ...] = ()
    """As in ``MicroBatchPlan.void``: the trees that the task must forget."""
    wanted: tuple[int, ...] = ()
    """Roots of trees that time out now: the task reports which of their tuples it holds."""
    outbox_acks: tuple[Interval, ...] = ()
    """Positions of values in the task's outbox that the task may drop."""
    again: tuple[Entry, ...] = ()
    """The values of its outbox that the task must emit again."""
    streams: tuple[StreamSources, ...] = ()
    """The input streams of the task whose watermark depends on sources."""
    ranges: SourceRanges | None = None
    """Which trees belong to which of these sources; None without ``streams``."""


@dataclass
class Inbox:
    """The rows and the clock that one task receives in one micro-batch."""

    frames: list[Frame] = field(default_factory=list)
    clock: Clock | None = None

    def in_order(self) -> list[Frame]:
        """The frames in the order in which user code sees them; small ones that are alike are one (``joined``)."""
        return joined(sorted(self.frames, key=lambda frame: frame.order))


def joined(frames: Sequence[Frame]) -> list[Frame]:
    """The frames, where neighbours that are alike and small are one frame.

    A task works on each frame separately, and sends its emissions for it separately. A sender that reads its source
    chunk by chunk sends one frame for each chunk to each of its consumers; if there are many consumers, each frame has
    few rows.
    """
    if len(frames) < 2:
        return list(frames)
    found: list[Frame] = []
    for _, alike in groupby(frames, key=_likeness):
        some: list[Frame] = []
        rows = size = 0
        for frame in alike:
            nbytes = sum(column.nbytes for column in frame.columns if isinstance(column, pa.Array))
            if rows + frame.rows > JOINED_ROWS_MAX or size + nbytes > JOINED_BYTES_MAX:
                found += _one(some)
                some, rows, size = [], 0, 0
            some.append(frame)
            rows += frame.rows
            size += nbytes
        found += _one(some)
    return found


def _likeness(frame: Frame) -> Any:
    """The common key of frames that can be joined; the frame itself if it cannot be joined with another.

    Columns that are not Arrow arrays are not joined: values of two frames may not fit into one column.
    """
    types = tuple(column.type for column in frame.columns if isinstance(column, pa.Array))
    if len(types) < len(frame.columns):
        return id(frame)
    return frame.sender, frame.stream, frame.path, types, frame.anchoring is None, frame.attempts is None


def _one(frames: list[Frame]) -> list[Frame]:
    """The rows of frames that are alike, one frame after the other, as one frame."""
    if len(frames) < 2:
        return frames
    try:
        columns = [joined_columns(parts) for parts in zip(*(frame.columns for frame in frames), strict=True)]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # dictionaries that do not fit into one
        return frames
    anchorings = [frame.anchoring for frame in frames if frame.anchoring is not None]
    attempts = [frame.attempts for frame in frames if frame.attempts is not None]
    return [
        replace(
            frames[0],
            rows=sum(frame.rows for frame in frames),
            columns=columns,
            anchoring=joined_anchorings(anchorings) if anchorings else None,
            attempts=np.concatenate(attempts) if attempts else None,
        )
    ]


def column_of(values: Sequence[Any], dictionary: bool = False) -> Column:
    """The column as Arrow if all values are of one plain type or None; otherwise the values themselves.

    Args:
        values: the values of one field.
        dictionary: encode strings as a dictionary, which makes routing by the field and reading cheaper.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return dictionary_of(values) if dictionary and pa.types.is_string(values.type) else values
    types = set(map(type, values))
    types.discard(_NONE_TYPE)
    if len(types) != 1:
        return values
    plain = types.pop()
    arrow_type = _ARROW_TYPES.get(plain)
    if arrow_type is None:
        return values
    try:
        array = pa.array(values, type=arrow_type)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return values  # an int beyond 64 bits, a lone surrogate
    if isinstance(array, pa.ChunkedArray):
        return values  # more than 2 GiB of text
    return dictionary_of(array) if dictionary and plain is str else array


def python_values(column: Column) -> Sequence[Any]:
    """The column as Python values; equal strings of a dictionary array become one object."""
    if isinstance(column, pa.DictionaryArray):
        if column.null_count:
            nulls: list[Any] = column.to_pylist()
            return nulls
        return spread(strings_of(column.dictionary), column.indices.to_numpy())
    if isinstance(column, pa.Array):
        if pa.types.is_int64(column.type) and not column.null_count:
            numbers: list[Any] = column.to_numpy().tolist()
            return numbers
        return strings_of(column)
    return column


def sound_column(column: Column) -> tuple[Column, str | None]:
    """A column of user code as the engine can carry it, and why some of its values cannot be read, or None.

    NumPy's numbers come in the byte order of this machine. A dictionary with a value that cannot be read is decoded,
    because no row may have it.
    """
    if isinstance(column, np.ndarray):
        return column.astype(column.dtype.newbyteorder("="), copy=False), None
    reason = _no_python_value(column) if isinstance(column, pa.Array) else None
    if reason is not None and isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
        reason = _no_python_value(column)
    return column, reason


def _no_python_value(array: pa.Array) -> str | None:
    """Why Python cannot hold a value of an Arrow array, or the value is damaged; None if each can be read.

    Only the least and the greatest of times are read: the others lie between them.
    """
    kind = array.type
    if isinstance(array, pa.DictionaryArray):
        return _no_python_value(array.dictionary)
    try:
        if (pa.types.is_primitive(kind) and not pa.types.is_temporal(kind)) or _is_bytes(kind):
            return None
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            array.validate(full=True)
        elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
            numbers = array.view(pa.int64() if kind.bit_width == 64 else pa.int32())  # min_max knows no durations
            for end in pc.min_max(numbers).values():
                end.cast(kind).as_py()
        else:
            array.to_pylist()
    except Exception as error:  # noqa: BLE001  the type may be an extension of user code
        return line_of(error)
    return None


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def spread(distinct: list[Any], codes: npt.NDArray[Any]) -> list[Any]:
    """For each code, the value with that number.

    Args:
        distinct: the values.
        codes: integers[rows], their numbers.

    >>> spread(["be", "or"], np.array([0, 1, 0], dtype=np.int32))
    ['be', 'or', 'be']
    """
    native = kernels()
    values: list[Any]
    if native is not None and codes.dtype in (np.int32, np.uint16) and codes.flags.c_contiguous:
        values = native.spread(distinct, codes)
    else:
        known = np.empty(len(distinct), dtype=object)
        known[:] = distinct
        values = known[codes].tolist()
    return values


def arrow_of(name: str, column: Column, otherwise: str, dictionary: bool = False, kind: Any = None) -> pa.Array:
    """A column as an Arrow array with all of its values, for user code.

    Args:
        name: the field, for the error.
        column: its values.
        otherwise: advice for the user if the conversion is impossible, for the error.
        dictionary: return a ``pa.DictionaryArray``; otherwise an array of any other type.
        kind: the type of the array, a ``pa.DataType``; None: it follows the values.

    Raises:
        EmitError: no Arrow type holds all values, or they cannot be a dictionary array.
        TypeError: a value does not fit ``kind``.

    >>> arrow_of("n", [1, 2], "use a bolt that takes tuples").to_pylist()
    [1, 2]
    """
    if kind is not None:
        return field_of(name, column, kind)
    column = column_of(column)
    if isinstance(column, pa.DictionaryArray):
        return column if dictionary else column.dictionary_decode()
    try:
        array = column if isinstance(column, pa.Array) else inferred_array(column)
        return dictionary_of(array) if dictionary else array
    except (pa.ArrowInvalid, TypeError, pa.ArrowNotImplementedError) as error:
        raise EmitError(f"field {name!r} cannot be an Arrow column ({error}): {otherwise}") from error


def take(column: Column, rows: npt.NDArray[np.intp]) -> Column:
    """Some rows of a column: intp[rows], in any order.

    A dictionary keeps only the values that these rows use, unless it is too small for a gain.
    """
    if isinstance(column, pa.DictionaryArray):
        indices, missing = column.indices, None
        if column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False).take(rows)
            indices = indices.fill_null(0)
        codes = indices.to_numpy(zero_copy_only=False).take(rows)
        present = codes if missing is None else codes[~missing]
        distinct = column.dictionary
        if len(distinct) <= min(_FEW_VALUES, len(present)):
            return pa.DictionaryArray.from_arrays(codes.astype(np.uint16), distinct, missing, safe=False)
        used = np.zeros(len(distinct), dtype=bool)
        used[present] = True
        renumbered = (np.cumsum(used) - 1).astype(np.uint16 if np.count_nonzero(used) <= 1 << 16 else np.int32)
        distinct = distinct.filter(pa.array(used))
        return pa.DictionaryArray.from_arrays(renumbered.take(codes), distinct, missing, safe=False)
    if isinstance(column, pa.Array):
        return column.take(pa.array(rows))
    return [column[row] for row in rows.tolist()]


def joined_columns(parts: Sequence[Column]) -> Column:
    """The columns concatenated: all are Arrow arrays of one type, or none is an Arrow array.

    Raises:
        pa.ArrowInvalid: dictionaries have more values together than their codes can tell apart.
        pa.ArrowNotImplementedError: their values are of a kind that Arrow does not combine.
    """
    if isinstance(parts[0], pa.Array):
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    return [value for one in parts for value in one]


def part(column: Column, start: int, stop: int) -> Column:
    """Consecutive rows of a column."""
    return column.slice(start, stop - start) if isinstance(column, pa.Array) else column[start:stop]


def unpicklable(column: Column, row: int) -> str | None:
    """Why a value cannot be pickled; None if it can."""
    if isinstance(column, pa.Array):
        return None
    try:
        pickle.dumps(column[row], protocol=5)
    except BaseException as error:  # noqa: BLE001  pickling calls user code, which may raise anything
        return f"{type(column[row]).__name__}: {line_of(error)}"
    return None


def encode(frame: Frame, moment: Moment) -> bytes:
    """The frame as bytes.

    A fixed head, a pickled header, ids as packed arrays, the columns that have an encoding as Arrow buffers, then an
    Arrow stream with the other Arrow columns. Python columns are pickled into the header.
    """
    shapes, buffers = all_to_buffers(frame.columns)
    rest = [(index, column) for index, column in enumerate(frame.columns) if index not in shapes]
    arrow = [column for _, column in rest if isinstance(column, pa.Array)]
    plain = {i: pickle.dumps(list(column), protocol=5) for i, column in rest if not isinstance(column, pa.Array)}
    form, arrays = _packed(frame.anchoring) if frame.anchoring is not None else ((_UNTRACKED, None, None, 0), [])
    ident = frame.sender, frame.stream, frame.piece, frame.sequence, frame.rows, frame.path
    header = pickle.dumps((ident, plain, form, frame.attempts, shapes), protocol=5)
    header += bytes(-len(header) % 8)
    head = _HEAD.pack(FrameKind.DATA, len(header), moment.micro_batch_id, moment.now_ms)
    pieces: list[Any] = [head, header, *pack(arrays), *buffers]
    if arrow:
        sink = pa.BufferOutputStream()
        batch = pa.RecordBatch.from_arrays(arrow, [str(i) for i in range(len(arrow))])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        pieces.append(sink.getvalue())
    return b"".join(pieces)


_UNTRACKED, _PAIRS, _DERIVED = 0, 1, 2
"""The encoding of the trees in a frame: none, roots and edges, or the origins of the edges."""
_Form: TypeAlias = tuple[int, int | None, int | None, int]
"""(one of these encodings, root salt, first ordinal, salt): the parts of ``Anchoring`` and ``EdgeOrigins`` that are not
arrays."""


def _packed(anchoring: Anchoring) -> tuple[_Form, list[npt.NDArray[Any]]]:
    """Encode the trees of a frame.

    The children of one tuple are neighbours: their root and their parent's edge are stored once, with the number of
    children. Edges that can be derived from their roots alone are left out, and so are ordinals that continue from the
    first one. Roots are stored as the keys from which they were mixed: keys rise slowly, while roots look random.
    """
    edge_origins = anchoring.edge_origins
    if edge_origins is not None and 2 * len(edge_origins.starts) <= edge_origins.count:
        arrays = [*keys_to_pack(unmix64_array(edge_origins.roots)), narrow(edge_origins.lengths)]
        if edge_origins.root_salt is None:
            arrays.append(edge_origins.parents)
        first = edge_origins.ordinals if isinstance(edge_origins.ordinals, int) else None
        if not isinstance(edge_origins.ordinals, int):
            arrays.append(narrow(edge_origins.ordinals))
        return (_DERIVED, edge_origins.root_salt, first, edge_origins.salt), arrays
    arrays = keys_to_pack(unmix64_array(anchoring.roots))
    if anchoring.root_salt is None:
        arrays.append(anchoring.edges)
    if anchoring.offsets is not None:
        arrays.append(narrow(anchoring.offsets))
    return (_PAIRS, anchoring.root_salt, None, 0), arrays


def _unpacked(form: _Form, arrays: Sequence[npt.NDArray[Any]]) -> Anchoring | None:
    """The inverse of ``_packed``."""
    kind, root_salt, first, salt = form
    if kind == _UNTRACKED:
        return None
    packed = iter(arrays)
    roots = mix64_array(packed_keys(*islice(packed, KEY_ARRAYS)))
    if kind == _DERIVED:
        lengths = next(packed).astype(np.intp)
        starts = np.add.accumulate(lengths) - lengths
        parents = next(packed) if root_salt is None else edges_of(roots, 0, root_salt)
        ordinals = next(packed) if first is None else first
        edge_origins = EdgeOrigins(roots, parents, starts, int(lengths.sum()), ordinals, salt, root_salt)
        return Anchoring(None, edge_origins.edges(), None, edge_origins)
    edges = next(packed) if root_salt is None else edges_of(roots, 0, root_salt)
    offsets = next(packed, None)
    return Anchoring(roots, edges, None if offsets is None else offsets.astype(np.int64), root_salt=root_salt)


def kind_of(data: bytes | memoryview | pa.Buffer) -> int:
    """The number of the row's ``FrameKind``, not the enum member, which costs time; it may be no valid kind."""
    return memoryview(data)[0]


def moment_of(data: bytes | memoryview | pa.Buffer) -> Moment:
    """The micro-batch that a row belongs to."""
    _, _, micro_batch_id, now_ms = _HEAD.unpack_from(memoryview(data))
    return Moment(micro_batch_id, now_ms)


def decode(data: bytes | memoryview | pa.Buffer) -> Frame:
    """The inverse of ``encode``; arrays share memory with ``data``."""
    view = memoryview(data)
    kind, header_bytes, _, _ = _HEAD.unpack_from(view)
    check(kind == FrameKind.DATA, f"expected a data frame, got kind {kind}")
    place = _HEAD.size
    ident, plain, form, attempts, shapes = pickle.loads(view[place : place + header_bytes])
    sender, stream, piece, sequence, rows, path = ident
    arrays, place = unpack(view, place + header_bytes)
    anchoring = _unpacked(form, arrays)
    apart: dict[int, Column] = {}
    unreadable: dict[int, tuple[int, str]] = {}
    for index, pickled in plain.items():
        try:
            apart[index] = pickle.loads(pickled)
        except BaseException as error:  # noqa: BLE001  unpickling calls user code, which may raise anything
            pass_on(error)
            apart[index], lost = salvage(pickled)
            unreadable.update((row, (index, reason)) for row, reason in lost.items())
    buffer = pa.py_buffer(view)
    for index, shape in shapes.items():
        apart[index], place = from_buffers(shape, buffer, place)
    columns: list[Column] = []
    if place < len(view):
        with pa.ipc.open_stream(buffer.slice(place)) as reader:
            columns = list(reader.read_next_batch().columns)
    for index, column in sorted(apart.items()):
        columns.insert(index, column)
    check(set(map(len, columns)) <= {rows}, f"a frame of {rows} rows has columns of other lengths")
    return Frame(sender, stream, piece, sequence, rows, columns, anchoring, attempts, path, unreadable)


def encode_control(kind: FrameKind, value: Any, moment: Moment) -> bytes:
    """A frame with a pickled value, such as a clock or feedback; only Sparkbolt's own processes exchange these."""
    return wrap(kind, pickle.dumps(value, protocol=5), moment)


def decode_control(data: bytes | memoryview | pa.Buffer, kind: FrameKind) -> Any:
    """The inverse of ``encode_control``."""
    return pickle.loads(unwrap(data, kind))


def wrap(kind: FrameKind, body: bytes, moment: Moment) -> bytes:
    """A frame with a body of its own format."""
    return _HEAD.pack(kind, 0, moment.micro_batch_id, moment.now_ms) + body


def unwrap(data: bytes | memoryview | pa.Buffer, kind: FrameKind) -> memoryview:
    """The body of a frame made by ``wrap``."""
    found = kind_of(data)
    check(found == kind, f"expected a frame of kind {kind}, got {found}")
    return memoryview(data)[_HEAD.size :]


def collect(rows: Iterable[bytes | memoryview | pa.Buffer]) -> Inbox:
    """Decode the rows that arrived for one task."""
    inbox = Inbox()
    for data in rows:
        kind = kind_of(data)
        if kind == FrameKind.CLOCK:
            inbox.clock = decode_control(data, FrameKind.CLOCK)
        elif kind == FrameKind.LOOPED:
            inbox.frames += _living(unwrap(data, FrameKind.LOOPED))
        else:
            inbox.frames.append(decode(data))
    return inbox


def looped(data: bytes, gone: npt.NDArray[np.uint64], moment: Moment) -> bytes:
    """An encoded frame of an earlier micro-batch as a row of ``moment``, for ``collect``.

    Args:
        data: the frame.
        gone: uint64[roots], trees that are not open any more: rows that belong to no other tree are dropped.
        moment: the micro-batch that delivers it.
    """
    return wrap(FrameKind.LOOPED, len(gone).to_bytes(8, "little") + gone.tobytes() + data, moment)


def _living(body: memoryview) -> list[Frame]:
    """The frame in a ``looped`` row, with the rows that still belong to an open tree or to none; empty without rows."""
    start = 8 + 8 * int.from_bytes(body[:8], "little")
    gone, frame = np.frombuffer(body[8:start], dtype=np.uint64), decode(body[start:])
    if len(gone) and frame.anchoring is not None:
        frame = frame.take(frame.anchoring.rows_outside(gone))
    return [frame] if frame.rows else []
