"""Routing: from the rows that a task emitted to the rows that each consuming task gets.

Rule: routing only decides, and returns its decision; ``stage`` delivers the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
from sparkbolt.base.ids import U64, edge_salt
from sparkbolt.errors import EmitError, check
from sparkbolt.wire.edges import Anchoring, Parents, anchored, pairs_of_rows
from sparkbolt.wire.frames import Column, Path, column_of, take

SLOTS_PER_SUBSCRIPTION = 1 << 10


@dataclass(frozen=True)
class Route:
    """One subscription to a stream."""

    subscription: int
    """The number of the subscription in the whole topology: part of the delivery slot of every edge."""
    consumer: str
    targets: tuple[int, ...]
    grouping: Grouping
    fused: bool


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
    """Fields that are sent as Arrow dictionaries, since a consumer is grouped by them or asks for dictionaries."""


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
            routes.append(Route(number, spec.id, targets, own, spec.id in fused))
            keys.update(grouping.fields if isinstance(grouping, FieldsGrouping) else ())
            keys.update(spec.component.dictionaries if isinstance(spec.component, ColumnBolt) else ())
        index = topology.stream_index(component, stream.name)
        found.append(
            StreamRoutes(component, stream.name, index, stream.fields, stream.direct, tuple(routes), frozenset(keys))
        )
    return tuple(found)


def route(block: EmittedRows, sender: int, micro_batch_id: int) -> tuple[list[RoutedRows], U64 | None]:
    """Find the rows of a block for each task that gets any, and what is added to the account of each parent pair.

    Args:
        block: the rows.
        sender: the number of the task that emitted them.
        micro_batch_id: the micro-batch in which they were emitted.

    Returns:
        The routed rows, in the order of subscriptions; and what is added to the accounts, uint64[parent pairs], None
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
