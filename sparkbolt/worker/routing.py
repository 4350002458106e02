"""Routing: from the rows that a task emitted to the frames, or the rows, that each consuming task gets.

Rule 1: a row that cannot be sent is returned as a ``Refusal``: no grouping can choose its task, or a value cannot be
pickled, cannot be read back, or is too large. The caller decides the outcome of its trees.
Rule 2: frames of one task on one stream are numbered in the order in which they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.api.components import ColumnBolt
from sparkbolt.api.groupings import (
    Delivery,
    DirectGrouping,
    Emitted,
    FieldsGrouping,
    Grouping,
    GroupingContext,
    prepared,
)
from sparkbolt.api.topology import Topology
from sparkbolt.api.tuples import Origin
from sparkbolt.base.exceptions import pass_on
from sparkbolt.base.hashing import UnroutableError
from sparkbolt.base.ids import U64, edge_salt
from sparkbolt.errors import EmitError, check
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.edges import Anchoring, Parents, anchored, pairs_of_rows
from sparkbolt.wire.frames import (
    Column,
    Frame,
    FrameKind,
    Moment,
    Path,
    column_of,
    encode,
    part,
    take,
    unpicklable,
    wrap,
)
from sparkbolt.wire.looped_frames import LoopedFrame

SLOTS_PER_SUBSCRIPTION = 1 << 10
Row: TypeAlias = tuple[int, bytes]
"""(dest, frame): a row of Spark, as it moves between stages."""


@dataclass(frozen=True)
class Route:
    """One subscription to a stream."""

    subscription: int
    """The number of the subscription in the whole topology: part of the delivery slot of every edge."""
    consumer: str
    targets: tuple[int, ...]
    grouping: Grouping
    fused: bool
    feedback: bool = False
    """Whether the rows go to the driver, which delivers them in the next micro-batch."""


@dataclass(frozen=True)
class StreamRoutes:
    """A stream of one component, and its consumers."""

    component: str
    name: str
    index: int
    fields: tuple[str, ...]
    direct: bool
    routes: tuple[Route, ...]
    keys: frozenset[str]
    """Fields that are sent as Arrow dictionaries, because a consumer is grouped by them or requires dictionaries."""


@dataclass
class EmittedRows:
    """Rows that one task emitted on one stream."""

    stream: StreamRoutes
    columns: Sequence[Column]
    count: int
    first: int
    """How many rows the task had emitted on the stream before these, in this micro-batch."""
    parents: Parents | None
    attempts: npt.NDArray[np.uint8] | None = None
    """uint8[rows]; see ``Frame.attempts``."""
    direct_to: npt.NDArray[np.int64] | None = None
    """int64[rows]: the number of the task that each row is for, on a direct stream."""
    path: Path = ()
    """See ``Frame.path``."""


@dataclass
class RoutedRows:
    """Rows on their way to one task."""

    route: Route
    target: int
    columns: list[Column]
    count: int
    anchoring: Anchoring | None
    attempts: npt.NDArray[np.uint8] | None


def routes_of(topology: Topology, component: str, fused: frozenset[str], sender: int) -> tuple[StreamRoutes, ...]:
    """The streams of a component with their consumers, as one of its tasks sends to them.

    Args:
        topology: the topology.
        component: the component that emits.
        fused: the names of the bolts that run fused.
        sender: the number of the emitting task; a user's grouping is prepared for it.
    """
    found = []
    for stream in topology.components[component].streams:
        routes = []
        keys: set[str] = set()
        for spec, number, grouping in topology.consumers(component, stream.name):
            targets = topology.tasks(spec.id)
            context = GroupingContext(topology.name, component, spec.id, sender, topology.config)
            own = prepared(grouping, context, stream.name, targets)
            feedback = number in topology.feedback_subscriptions
            routes.append(Route(number, spec.id, targets, own, spec.id in fused, feedback))
            keys.update(grouping.fields if isinstance(grouping, FieldsGrouping) else ())
            keys.update(spec.component.dictionaries if isinstance(spec.component, ColumnBolt) else ())
        index = topology.stream_index(component, stream.name)
        found.append(
            StreamRoutes(component, stream.name, index, stream.fields, stream.direct, tuple(routes), frozenset(keys))
        )
    return tuple(found)


def route(block: EmittedRows, sender: int, micro_batch_id: int) -> tuple[list[RoutedRows], U64 | None]:
    """Find the rows of a block for each task that gets any, and the addition to the account of each parent pair.

    Args:
        block: the rows.
        sender: the number of the task that emitted them.
        micro_batch_id: the micro-batch in which they were emitted.

    Returns:
        The routed rows, in the order of subscriptions; and the additions to the accounts, uint64[parent pairs], None
        where nothing is tracked.

    Raises:
        UnroutableError: a grouping cannot choose the tasks of a row.
    """
    parents = block.parents
    account = np.zeros(len(parents.pair_roots), dtype=np.uint64) if parents is not None else None
    columns: list[Column] = list(block.columns)
    if any(not route.fused for route in block.stream.routes):
        keys = block.stream.keys
        columns = [column_of(column, name in keys) for name, column in zip(block.stream.fields, columns, strict=True)]
    emitted = Emitted(sender, micro_batch_id, block.first, block.count, block.stream.fields, columns)
    chosen = [(route_, _deliveries(route_, emitted, block, sender)) for route_ in block.stream.routes]
    routed = [
        _routed(route_, delivery, columns, block, micro_batch_id, account)
        for route_, deliveries in chosen
        for delivery in deliveries
    ]
    return routed, account


def without(block: EmittedRows, row: int) -> EmittedRows:
    """The block without one row."""
    return with_rows(block, np.delete(np.arange(block.count), row))


def with_rows(block: EmittedRows, rows: npt.NDArray[np.intp]) -> EmittedRows:
    """The block with these rows alone: intp[rows], ascending."""
    parents = block.parents
    if parents is not None:
        if parents.offsets is None:
            parents = Parents(parents.roots[rows], parents.edges[rows], parents.row_ordinals[rows])
        else:
            pairs, offsets = pairs_of_rows(parents.offsets, rows)
            parents = Parents(parents.roots[pairs], parents.edges[pairs], parents.row_ordinals[pairs], offsets)
    return EmittedRows(
        block.stream,
        [take(column, rows) for column in block.columns],
        len(rows),
        block.first,
        parents,
        block.attempts[rows] if block.attempts is not None else None,
        block.direct_to[rows] if block.direct_to is not None else None,
        block.path,
    )


def roots_of_row(block: EmittedRows, row: int) -> list[int]:
    """The roots that a row of a block is anchored to."""
    parents = block.parents
    if parents is None:
        return []
    if parents.offsets is None:
        return [int(parents.roots[row])]
    return [int(root) for root in parents.roots[parents.offsets[row] : parents.offsets[row + 1]]]


def _deliveries(route_: Route, emitted: Emitted, block: EmittedRows, sender: int) -> list[Delivery]:
    if route_.fused:
        return [Delivery(0, sender % len(route_.targets), None)]
    if not isinstance(route_.grouping, DirectGrouping):
        deliveries = route_.grouping.deliveries(emitted, route_.targets)
        places = {(delivery.slot, delivery.target) for delivery in deliveries}
        check(len(places) == len(deliveries), f"{route_.grouping!r} delivers twice to the same slot and target")
        return deliveries
    if block.direct_to is None:
        raise EmitError(f"stream {block.stream.name!r} of {block.stream.component!r} is direct: use emit_direct")
    found = ((index, np.flatnonzero(block.direct_to == task)) for index, task in enumerate(route_.targets))
    return [Delivery(0, index, rows) for index, rows in found if len(rows)]


def _routed(
    route_: Route,
    delivery: Delivery,
    columns: Sequence[Column],
    block: EmittedRows,
    micro_batch_id: int,
    account: U64 | None,
) -> RoutedRows:
    rows = delivery.rows
    target = route_.targets[delivery.target]
    anchoring = None
    if block.parents is not None and account is not None:
        slot = route_.subscription * SLOTS_PER_SUBSCRIPTION + delivery.slot
        anchoring = anchored(block.parents, rows, edge_salt(micro_batch_id, 0, slot, target), account)
    taken = list(columns) if rows is None else [take(column, rows) for column in columns]
    attempts = block.attempts if rows is None or block.attempts is None else block.attempts[rows]
    count = block.count if rows is None else len(rows)
    return RoutedRows(route_, target, taken, count, anchoring, attempts)


class Refusal(NamedTuple):
    """A row that cannot be sent."""

    task: int
    """The number of the task that emitted it."""
    roots: Sequence[int]
    """The roots of the trees that it belongs to."""
    reason: str
    path: Path
    """See ``Frame.path``."""


@dataclass
class Sent:
    """A block of rows that one task emitted, and their destinations."""

    whole: EmittedRows
    block: EmittedRows
    """The block without the rows that were refused."""
    routed: list[RoutedRows] = field(default_factory=list)
    """In the order of subscriptions."""
    account: U64 | None = None
    """uint64[parent pairs]: the additions to the accounts of the block's parents; None: nothing is tracked."""
    refused: list[Refusal] = field(default_factory=list)


COLUMN_BYTES_GUESS = 64


class Router:
    """Sends the rows of one process's part in one stage; those for fused bolts are only routed."""

    def __init__(self, lane: Lane, moment: Moment, piece: int, origin_of: Callable[[int, int], Origin]) -> None:
        """Begin without any frames.

        Args:
            lane: the lane that runs the topology.
            moment: the micro-batch.
            piece: distinguishes this part of the sources' work from the other parts in the micro-batch.
            origin_of: returns the origin of a task number and a stream index.
        """
        self.rows: list[Row] = []
        """The frames that were written."""
        self._lane = lane
        self._config = lane.topology.config
        self._moment = moment
        self._piece = piece
        self._origin_of = origin_of
        self._sequences: dict[tuple[int, int], int] = {}
        """By (task number, stream index): how many frames were written."""

    def send(self, block: EmittedRows, sender: int) -> Sent:
        """Route a block that task number ``sender`` emitted, and write the frames."""
        sent = Sent(block, block)
        while block.stream.routes:
            try:
                sent.routed, sent.account = route(block, sender, self._moment.micro_batch_id)
                break
            except UnroutableError as error:
                sent.refused.append(Refusal(sender, roots_of_row(block, error.row), str(error), block.path))
                sent.block = block = without(block, error.row)
        for rows in sent.routed:
            if not rows.route.fused:
                sent.refused += self._frames(rows, sender, block.stream.index, block.path)
        return sent

    def _frames(self, routed: RoutedRows, sender: int, stream: int, path: Path) -> list[Refusal]:
        """Write the rows that one task sends to another on one stream; rows that cannot be sent are returned."""
        refusals: list[Refusal] = []
        for start, stop in self._pieces(routed):
            frame = self._frame(routed, sender, stream, start, stop)
            frame.path = path[-1:] if routed.route.feedback else path
            self._write(routed, frame, refusals)
        return refusals

    def _write(self, to: RoutedRows, frame: Frame, refusals: list[Refusal]) -> None:
        """Write a frame as one row of Spark, or as several if its encoded size is too large.

        Args:
            to: says which task gets the frame, and in which micro-batch.
            frame: some of its rows.
            refusals: rows that cannot be sent are appended.
        """
        try:
            data = encode(frame, self._moment)
        except BaseException as error:  # noqa: BLE001  pickling calls user code, which may raise anything
            pass_on(error)
            frame = self._without_unpicklable(frame, refusals)
            data = encode(frame, self._moment)
        config = self._config
        most = min(config.frame_bytes_max, config.tuple_bytes_max)
        if len(data) > min(2 * most, config.tuple_bytes_max) and frame.rows > 1:
            pieces = min(frame.rows, -(-len(data) // most))
            del data
            for rows in np.array_split(np.arange(frame.rows), pieces):
                part_ = frame.take(rows)
                part_.sequence = self._next_sequence(frame.sender, frame.stream)
                self._write(to, part_, refusals)
        elif len(data) > config.tuple_bytes_max and frame.rows:
            text = (
                f"a tuple of {len(data):,} bytes cannot be sent to another task: tuple_bytes_max is "
                f"{config.tuple_bytes_max:,}; send a reference to what is large, such as a path, or raise the limit"
            )
            refusals.append(Refusal(frame.sender, frame.roots_of(0), text, frame.path))
        elif to.route.feedback:
            data = wrap(FrameKind.LOOPING, LoopedFrame.of(to.target, frame, data).dumps(), self._moment)
            self.rows.append((self._lane.feedback_dest, data))
        else:
            self.rows.append((self._lane.dests[to.target], data))

    def _without_unpicklable(self, frame: Frame, refusals: list[Refusal]) -> Frame:
        """The frame without the rows that have an unpicklable value; these are added to ``refusals``."""
        kept = []
        fields = self._origin_of(frame.sender, frame.stream).fields
        for row in range(frame.rows):
            for name, column in zip(fields, frame.columns, strict=True):
                reason = unpicklable(column, row)
                if reason is not None:
                    text = f"field {name!r} holds a value that cannot be sent to another task ({reason})"
                    refusals.append(Refusal(frame.sender, frame.roots_of(row), text, frame.path))
                    break
            else:
                kept.append(row)
        return frame.take(np.array(kept, dtype=np.intp))

    def _frame(self, routed: RoutedRows, sender: int, stream: int, start: int, stop: int) -> Frame:
        sequence = self._next_sequence(sender, stream)
        columns, anchoring, attempts = routed.columns, routed.anchoring, routed.attempts
        if (start, stop) != (0, routed.count):
            rows = np.arange(start, stop)
            columns = [_part(column, rows) for column in columns]
            anchoring = anchoring.take(rows) if anchoring is not None else None
            attempts = attempts[start:stop] if attempts is not None else None
        return Frame(sender, stream, self._piece, sequence, stop - start, columns, anchoring, attempts)

    def _next_sequence(self, sender: int, stream: int) -> int:
        sequence = self._sequences.get((sender, stream), 0)
        self._sequences[sender, stream] = sequence + 1
        return sequence

    def _pieces(self, routed: RoutedRows) -> Iterator[tuple[int, int]]:
        """Split rows, as (start, stop), so that no frame is much larger than ``frame_bytes_max``."""
        most = self._config.frame_bytes_max
        # The first estimate counts the whole buffers of slices: it takes a twentieth of the time of an exact one.
        size = sum([_size(column, routed.count, whole=True) for column in routed.columns]) + 16 * routed.count
        if size > most:
            size = sum([_size(column, routed.count) for column in routed.columns]) + 16 * routed.count
        pieces = max(1, -(-size // most))
        step = max(1, -(-routed.count // pieces))
        for start in range(0, routed.count, step):
            yield start, min(start + step, routed.count)


def _part(column: Column, rows: npt.NDArray[np.intp]) -> Column:
    """Consecutive rows of a column, without values that only others use: one of them may be too large to be sent."""
    if isinstance(column, pa.DictionaryArray):
        return take(column, rows)
    return part(column, int(rows[0]), int(rows[-1]) + 1)


def parted(rows: Sequence[bytes], size_max: int) -> Iterator[list[bytes]]:
    """Split rows into lists of not much more than ``size_max`` bytes, each with one row at least.

    >>> list(parted([b"12", b"3", b"4567", b"8"], 3))
    [[b'12', b'3'], [b'4567'], [b'8']]
    """
    some: list[bytes] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row)
        if size >= size_max:
            yield some
            some, size = [], 0
    if some:
        yield some


def readable(frame: Frame, fields: Sequence[str]) -> tuple[Frame, list[Refusal]]:
    """A received frame without the rows that have an unreadable value, and a refusal for each such row.

    Args:
        frame: the decoded frame; its ``unreadable`` names the rows.
        fields: the fields of its stream.
    """
    refusals = []
    for row, (column, reason) in sorted(frame.unreadable.items()):
        text = (
            f"field {fields[column]!r} holds a value that cannot be sent to another task (it can be pickled, and "
            f"reading it back raises {reason})"
        )
        refusals.append(Refusal(frame.sender, frame.roots_of(row), text, frame.path))
    return frame.take(np.delete(np.arange(frame.rows), list(frame.unreadable))), refusals


def _size(column: Column, count: int, *, whole: bool = False) -> int:
    """About how many bytes a column of ``count`` values takes; ``whole``: with the parts that a slice leaves out."""
    if isinstance(column, pa.Array):
        return int(column.get_total_buffer_size() if whole else column.nbytes)
    texts = [len(value) for value in column if type(value) is str or type(value) is bytes]
    return COLUMN_BYTES_GUESS * count + sum(texts)  # text of 2 GiB or more is a list, since Arrow makes no column of it
