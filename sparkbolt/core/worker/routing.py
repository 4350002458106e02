"""Routing: from rows that a task emitted to frames with edges.

Which question it answers: who gets which row, and by which edge of which tree?
Rule 1: only here are edges made. What is added to a new tuple is added to its parent's account in the same step, so
that both halves of every edge reach the acker or neither does.
Rule 2: a parent's account is its root's: the edges of what a tuple gave birth to are reported in the micro-batch in
which they were born, its own edge when it is acked.

Read before: ``ids``, ``groupings``, ``frames``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.core.base.ids import U64, edge_salt, edges_of, ordinals_within, rise, run_starts, xor_of_runs
from sparkbolt.core.model.components import ColumnBolt
from sparkbolt.core.model.groupings import (
    Delivery,
    DirectGrouping,
    Emitted,
    FieldsGrouping,
    Grouping,
    GroupingContext,
    prepared,
)
from sparkbolt.core.model.topology import Topology
from sparkbolt.core.protocol.edges import Anchoring, EdgeOrigins, pairs_of_rows
from sparkbolt.core.protocol.frames import Column, Path, column_of, take
from sparkbolt.errors import EmitError, check

SLOTS_PER_SUBSCRIPTION = 1 << 10


@dataclass(frozen=True)
class Route:
    """One subscription to a stream."""

    subscription: int
    """Its number in the whole topology: part of the delivery slot of every edge."""
    consumer: str
    targets: tuple[int, ...]
    grouping: Grouping
    fused: bool


@dataclass(frozen=True)
class StreamRoutes:
    """A stream of one component, and who listens to it."""

    component: str
    name: str
    index: int
    fields: tuple[str, ...]
    direct: bool
    routes: tuple[Route, ...]
    keys: frozenset[str]
    """Fields that some consumer is grouped by, or wants so: they travel as dictionaries."""


@dataclass
class Parents:
    """What emitted rows are anchored to, as pairs.

    Row r has pair r alone; or those that ``offsets`` say, as in ``Anchoring``; or ``of[r]``, as others may, too.
    """

    pair_roots: U64
    pair_edges: U64
    """The anchors' own edges, already told apart by anchor slot."""
    ordinals: npt.NDArray[Any] | int
    """They count the emissions of one anchor; unsigned. One for each row, or each pair where there are ``offsets``.
    Or that of the first row of each anchor: then they count on, among the anchor's rows that go to one task."""
    offsets: npt.NDArray[np.int64] | None = None
    of: npt.NDArray[np.int64] | None = None
    """Equal ones are neighbours where ``ordinals`` count on."""
    root_salt: int | None = None
    """As of ``Anchoring``, of the pairs."""

    @property
    def roots(self) -> U64:
        """The root of each row, or pair of a row where there are ``offsets``."""
        return self.pair_roots if self.of is None else self.pair_roots[self.of]

    @property
    def edges(self) -> U64:
        """The anchor's edge, likewise."""
        return self.pair_edges if self.of is None else self.pair_edges[self.of]

    @property
    def row_ordinals(self) -> npt.NDArray[Any]:
        """The ordinal of each row, or pair of a row where there are ``offsets``, as an array."""
        if not isinstance(self.ordinals, int):
            return self.ordinals
        if self.of is None:
            return np.full(len(self.pair_roots), self.ordinals, dtype=np.uint64)
        return ordinals_within(self.of) + np.uint64(self.ordinals)


@dataclass
class EmittedRows:
    """Rows that one task emitted on one stream."""

    stream: StreamRoutes
    columns: Sequence[Column]
    count: int
    first: int
    """How many rows the task had emitted on the stream before, in this micro-batch."""
    parents: Parents | None
    attempts: npt.NDArray[np.uint8] | None = None
    direct_to: npt.NDArray[np.int64] | None = None
    """The task number that each row is for, on a direct stream."""
    path: Path = ()
    """As in ``Frame``."""


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
        fused: names of the bolts that run fused.
        sender: the number of the task; a grouping of the user's is prepared for it.
    """
    found = []
    for stream in topology.components[component].streams:
        routes = []
        keys: set[str] = set()
        for spec, number, grouping in topology.consumers(component, stream.name):
            targets = topology.tasks(spec.id)
            context = GroupingContext(topology.name, component, spec.id, sender, topology.config)
            own = prepared(grouping, context, stream.name, targets)
            routes.append(Route(number, spec.id, targets, own, spec.id in fused))
            keys.update(grouping.fields if isinstance(grouping, FieldsGrouping) else ())
            keys.update(spec.component.dictionaries if isinstance(spec.component, ColumnBolt) else ())
        index = topology.stream_index(component, stream.name)
        found.append(
            StreamRoutes(component, stream.name, index, stream.fields, stream.direct, tuple(routes), frozenset(keys))
        )
    return tuple(found)


def route(block: EmittedRows, sender: int, micro_batch_id: int, deliver: Callable[[RoutedRows], None]) -> U64 | None:
    """Send a block to everybody who listens; return what is added to the account of each parent pair.

    Args:
        block: the rows.
        sender: the task that emitted them.
        micro_batch_id: the micro-batch in which it did.
        deliver: called for each task that gets rows.

    Raises:
        UnroutableError: a row cannot be turned into tasks; nothing was sent.
    """
    parents = block.parents
    account = np.zeros(len(parents.pair_roots), dtype=np.uint64) if parents is not None else None
    columns: list[Column] = list(block.columns)
    if any(not route.fused for route in block.stream.routes):
        keys = block.stream.keys
        columns = [column_of(column, name in keys) for name, column in zip(block.stream.fields, columns, strict=True)]
    emitted = Emitted(sender, micro_batch_id, block.first, block.count, block.stream.fields, columns)
    chosen = [(route_, _deliveries(route_, emitted, block, sender)) for route_ in block.stream.routes]
    for route_, deliveries in chosen:
        for delivery in deliveries:
            _send(route_, delivery, columns, block, micro_batch_id, account, deliver)
    return account


def without(block: EmittedRows, row: int) -> EmittedRows:
    """The block less one row."""
    rows = np.delete(np.arange(block.count), row)
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


def _send(
    route_: Route,
    delivery: Delivery,
    columns: Sequence[Column],
    block: EmittedRows,
    micro_batch_id: int,
    account: U64 | None,
    deliver: Callable[[RoutedRows], None],
) -> None:
    rows = delivery.rows
    target = route_.targets[delivery.target]
    anchoring = None
    if block.parents is not None and account is not None:
        slot = route_.subscription * SLOTS_PER_SUBSCRIPTION + delivery.slot
        anchoring = _anchor(block.parents, rows, edge_salt(micro_batch_id, 0, slot, target), account)
    taken = list(columns) if rows is None else [take(column, rows) for column in columns]
    attempts = block.attempts if rows is None or block.attempts is None else block.attempts[rows]
    count = block.count if rows is None else len(rows)
    deliver(RoutedRows(route_, target, taken, count, anchoring, attempts))


def _anchor(parents: Parents, rows: npt.NDArray[np.intp] | None, salt: int, account: U64) -> Anchoring:
    """New edges for some rows, put on the account of their parents too."""
    if parents.of is not None:
        return _derive(parents, parents.of, rows, salt, account)
    roots, anchors, ordinals, offsets = parents.pair_roots, parents.pair_edges, parents.ordinals, parents.offsets
    pairs = rows
    if rows is not None:
        if offsets is not None:
            pairs, offsets = pairs_of_rows(offsets, rows)
        roots, anchors = roots[pairs], anchors[pairs]
        ordinals = ordinals if isinstance(ordinals, int) else ordinals[pairs]
    edges = edges_of(anchors, ordinals, salt)
    if pairs is None:
        account ^= edges
    else:
        account[pairs] ^= edges
    of_roots = parents.pair_edges is parents.pair_roots and isinstance(ordinals, int) and ordinals == 0
    return merge_roots(Anchoring(roots, edges, offsets, root_salt=salt if of_roots else None))


def _derive(
    parents: Parents, of: npt.NDArray[np.int64], rows: npt.NDArray[np.intp] | None, salt: int, account: U64
) -> Anchoring:
    """``_anchor`` where neighbours have their parent in common: most of it is done once a parent."""
    if rows is not None:
        of = of.take(rows)
    starts = run_starts(of)
    runs = of[starts]
    rising = rise(runs)
    ordinals = parents.ordinals if rising else parents.row_ordinals  # a parent of several runs is counted on only once
    if rows is not None and not isinstance(ordinals, int):
        ordinals = ordinals.take(rows)
    roots, anchors = parents.pair_roots[runs], parents.pair_edges[runs]
    edge_origins = EdgeOrigins(roots, anchors, starts, len(of), ordinals, salt, parents.root_salt)
    edges = edge_origins.edges()
    xors = xor_of_runs(edges, starts)
    if rising:
        account[runs] ^= xors
    else:  # a grouping may put rows in any order
        np.bitwise_xor.at(account, runs, xors)
    return Anchoring(None, edges, None, edge_origins)


def merge_roots(anchoring: Anchoring) -> Anchoring:
    """Fold the pairs of a row that name one root twice (a diamond) into one pair by XOR."""
    offsets = anchoring.offsets
    if offsets is None or len(anchoring.roots) == 0:
        return anchoring
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((anchoring.roots, row))
    roots, row = anchoring.roots[order], row[order]
    change = np.ones(len(roots), dtype=bool)
    change[1:] = (roots[1:] != roots[:-1]) | (row[1:] != row[:-1])
    starts = np.flatnonzero(change)
    if len(starts) == len(roots):
        return anchoring
    edges = np.bitwise_xor.reduceat(anchoring.edges[order], starts)
    counts = np.bincount(row[starts], minlength=len(offsets) - 1)
    merged = np.zeros(len(offsets), dtype=np.int64)
    np.cumsum(counts, out=merged[1:])
    return Anchoring(roots[starts], edges, merged)
