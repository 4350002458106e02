"""Sources: finite sources of a simulation's messages.

A spout of the user reads as it is, up to a number of messages. A fed ``PartitionedSpout`` is replaced by one that can
read again, a fed ``Spout`` by one that reads from a queue, which outlives the driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparkbolt.api.components import PartitionedSpout, Spout, TopologyContext
from sparkbolt.api.config import did_you_mean
from sparkbolt.api.interfaces import SpoutCollector
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.api.reports import SourceView
from sparkbolt.errors import EnoughRead, UnknownNameError

SURVEY_ROUNDS_MAX = 1000
Survey = dict[str, tuple[int, int, tuple[int, ...]]]
"""By source: the index of the task that reads it, the end of its messages, and their positions."""


def values_row(component: str, fields: Sequence[str], values: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
    """Return a tuple's values in the order of the fields; fields that are not given are None.

    Raises:
        KeyError: There is no such field.
        ValueError: The number of values is wrong.
    """
    if isinstance(values, Mapping):
        for name in values:
            if name not in fields:
                there = ", ".join(map(repr, fields)) or "none"
                raise UnknownNameError(
                    f"{component!r} declares no field {name!r}; there is {there}{did_you_mean(name, fields)}"
                )
        return [values.get(field) for field in fields]
    if isinstance(values, str | bytes) or len(values) != len(fields):
        raise ValueError(f"{component!r} was fed {values!r}, expected {len(fields)} value(s) for {tuple(fields)}")
    return list(values)


def survey(spout: PartitionedSpout, context: TopologyContext, messages_max: int) -> tuple[Survey, bool]:
    """Read the first messages of a spout.

    Args:
        spout: A separate copy, which is opened, read and closed.
        context: The context of its first task.
        messages_max: About how many messages are read.

    Returns:
        The messages that were found, and whether the source has no more.
    """
    spout.open(context)
    spout.prepare(context)
    messages: Survey = {}
    progress: dict[str, int] = {}
    total = 0
    try:
        for _ in range(SURVEY_ROUNDS_MAX):
            if spout.finished(progress):
                return messages, True
            ranges = spout.next_ranges(progress, spout.first_budget)
            if not ranges or total >= messages_max:
                return messages, not ranges
            share = max(1, (messages_max - total) // len(ranges))
            for range_ in ranges:
                positions, end = _read(spout, range_, share)
                before = messages.get(range_.source, (range_.task, 0, ()))[2]
                messages[range_.source] = (range_.task, end, (*before, *positions))
                progress[range_.source] = end
                total += len(positions)
                if end < range_.end:
                    total = max(total, messages_max)
        return messages, False
    finally:
        spout.cleanup()
        spout.close()


def _read(spout: PartitionedSpout, range_: Range, share: int) -> tuple[list[int], int]:
    """Return the positions of up to ``share`` messages, and the position of the next one."""
    positions: list[int] = []
    for chunk in _chunks(spout, range_):
        for position in [chunk.position] if isinstance(chunk, BadRecord) else list(chunk[0]):
            if positions and position == positions[-1]:
                continue
            if len(positions) == share:
                return positions, int(position)
            positions.append(int(position))
    return positions, range_.end


def _chunks(spout: PartitionedSpout, range_: Range) -> Iterator[Any]:
    """Yield the records of the whole range, in as many reads as the spout needs."""
    while True:
        try:
            yield from spout.read_columns(range_)
            return
        except EnoughRead as enough:
            range_ = replace(range_, start=enough.position)


class BoundedSpout(PartitionedSpout):
    """Wraps a spout of the user and ends where a survey ended; reads and plans are the user's own."""

    def __init__(self, inner: PartitionedSpout, found: Survey) -> None:
        self.inner = inner
        self.outputs = inner.outputs
        self.first_budget = inner.first_budget
        self.tracked, self.once, self.max_uncommitted = inner.tracked, inner.once, inner.max_uncommitted
        self.ends = {source: (task, end) for source, (task, end, _) in found.items()}

    def open(self, context: TopologyContext) -> None:
        """Open the user's spout."""
        self.inner.open(context)

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        """Return the user's ranges up to the ends; a rest that the user's spout no longer offers is planned here."""
        clipped = []
        for range_ in self.inner.next_ranges(progress, budget):
            end = min(range_.end, self.ends.get(range_.source, (0, 0))[1])
            if end > range_.start:
                clipped.append(Range(range_.task, range_.source, range_.start, end))
        if clipped:
            return clipped
        left = [(source, place) for source, place in self.ends.items() if progress.get(source, 0) < place[1]]
        return [Range(task, source, progress.get(source, 0), end) for source, (task, end) in left[:1]]

    def finished(self, progress: Mapping[str, int]) -> bool:
        """Whether all sources are planned to their ends."""
        return all(progress.get(source, 0) >= end for source, (_, end) in self.ends.items())

    def unread(self, progress: Mapping[str, int]) -> Mapping[str, bool] | None:
        """The sources that are not planned to their ends, if the user's spout lists any."""
        if self.inner.unread(progress) is None:
            return None
        return {source: True for source, (_, end) in self.ends.items() if progress.get(source, 0) < end}

    def on_committed(self, progress: Mapping[str, int]) -> None:
        """Call the user's spout."""
        self.inner.on_committed(progress)

    def on_sources_changed(self, sources: Mapping[str, SourceView]) -> None:
        """Call the user's spout."""
        self.inner.on_sources_changed(sources)

    def close(self) -> None:
        """Close the user's spout."""
        self.inner.close()

    def prepare(self, context: TopologyContext) -> None:
        """Prepare the user's spout."""
        self.inner.prepare(context)

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        """Read from the user's spout."""
        return self.inner.read(range_)

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        """Read from the user's spout."""
        return self.inner.read_columns(range_)

    def read_bytes(self) -> int | None:
        """Call the user's spout."""
        return self.inner.read_bytes()

    def on_read(self, reads: Sequence[tuple[Range, int]]) -> None:
        """Call the user's spout."""
        self.inner.on_read(reads)

    def cleanup(self) -> None:
        """Clean up the user's spout."""
        self.inner.cleanup()


class FedSpout(PartitionedSpout):
    """Emits the rows that it is fed; row i of a task has position i of its source ``fed-<task>``."""

    def __init__(self, instead_of: PartitionedSpout, rows: Sequence[Sequence[Any]], parallelism: int) -> None:
        self.outputs = instead_of.outputs
        self.tracked, self.once = instead_of.tracked, instead_of.once
        self.max_uncommitted = instead_of.max_uncommitted
        self.shares = [list(rows[task::parallelism]) for task in range(parallelism)]
        self.first_budget = max(1, len(rows))

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        """Plan the next rows of each task."""
        ranges = []
        share = max(1, budget // len(self.shares))
        for task, rows in enumerate(self.shares):
            start = progress.get(f"fed-{task}", 0)
            if start < len(rows):
                ranges.append(Range(task, f"fed-{task}", start, min(len(rows), start + share)))
        return ranges

    def finished(self, progress: Mapping[str, int]) -> bool:
        """Whether every row is planned."""
        return all(progress.get(f"fed-{task}", 0) >= len(rows) for task, rows in enumerate(self.shares))

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        """Yield the rows of the range."""
        rows = self.shares[range_.task]
        return ((position, rows[position]) for position in range(range_.start, range_.end))


class Queue:
    """The server's side of a queue: it outlives every driver, and forgets a message only when it is acked.

    A message that failed too often is given up, as brokers do with a dead letter.
    """

    def __init__(self, messages: Sequence[tuple[str, Sequence[Any]]], attempts_max: int) -> None:
        """Hold the messages, each as (stream, values)."""
        self.messages = list(messages)
        self.attempts_max = attempts_max
        self.failures: dict[int, int] = {}
        self.waiting: deque[int] = deque(range(len(messages)))
        self.connection = 0
        self.given: dict[int, int] = {}
        """Messages by delivery tag of the present connection."""
        self.done: set[int] = set()
        """Messages that were acked or given up."""
        self._tag = 0
        self._broken = False

    def lose_connection(self, *, noticed: bool = True) -> None:
        """Requeue the messages that are not acked; the next connection receives them.

        Args:
            noticed: Whether the next call of the same client fails; False if the client is gone.
        """
        self.waiting.extend(self.given.values())
        self.given.clear()
        self.connection += 1
        self._broken = noticed

    def get(self) -> tuple[tuple[int, int], str, Sequence[Any]] | None:
        """Return the next message as (id of this delivery, stream, values); None if there is none.

        Raises:
            ConnectionError: The connection was lost since the last call; the next call uses a new one.
        """
        if self._broken:
            self._broken = False
            raise ConnectionError("the queue has closed the connection")
        if not self.waiting:
            return None
        message = self.waiting.popleft()
        self._tag += 1
        self.given[self._tag] = message
        return (self.connection, self._tag), *self.messages[message]

    def ack(self, delivery: tuple[int, int]) -> None:
        """Mark the message as done; deliveries of a lost connection are ignored."""
        message = self.given.pop(delivery[1], None) if delivery[0] == self.connection else None
        if message is not None:
            self.done.add(message)

    def reject(self, delivery: tuple[int, int]) -> None:
        """Put the message back into the queue."""
        message = self.given.pop(delivery[1], None) if delivery[0] == self.connection else None
        if message is None:
            return
        self.failures[message] = self.failures.get(message, 0) + 1
        if self.failures[message] < self.attempts_max:
            self.waiting.append(message)
        else:
            self.done.add(message)


class SimulatedQueue(Spout):
    """Emits the messages of its task's queue; the world connects it to the queue."""

    def __init__(self, outputs: Any) -> None:
        self.outputs = outputs
        self.queue: Queue | None = None

    def next_tuple(self, collector: SpoutCollector) -> None:
        """Emit one message, if one is waiting."""
        assert self.queue is not None, "the world connects a queue's spout before it is opened"
        message = self.queue.get()
        if message is not None:
            delivery, stream, values = message
            collector.emit(values, message_id=delivery, stream=stream)

    def ack(self, message_id: Any) -> None:
        """Ack the delivery in the queue."""
        assert self.queue is not None
        self.queue.ack(message_id)

    def fail(self, message_id: Any) -> None:
        """Put the message back into the queue."""
        assert self.queue is not None
        self.queue.reject(message_id)

    @property
    def exhausted(self) -> bool:
        """Whether every message was acked."""
        assert self.queue is not None
        return len(self.queue.done) == len(self.queue.messages)
