"""Messages that fail, wait and are retried: by policy, from sources that are away, from a ``Spout``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sparkbolt import BadRecord, BasicBolt, Range, RetryPolicy, Spout, TopologyBuilder
from sparkbolt.api.reports import SourceView
from sparkbolt.errors import SourceUnavailable
from tests.contract.parts import Messages, note, notes, phase

LOGGED = 40
TWICE, ALWAYS, UNREADABLE, AWAY = 3, 17, 8, 25
"""Numbers of the log: it fails twice, it always fails, it cannot be read, its source is away when it is to be read."""
AWAY_READS = 2
UNCOMMITTED_MAX, PER_MICRO_BATCH = 25, 10
POLICY = RetryPolicy(max_retries=3, min_backoff=timedelta(milliseconds=300), max_backoff=timedelta(seconds=1), jitter=0)
QUEUED = 18
LOOSE = 10


class Log(Messages):
    """The numbers, with one that cannot be read, and an interruption."""

    retry = POLICY
    max_uncommitted = UNCOMMITTED_MAX

    def __init__(self, directory: str) -> None:
        super().__init__(directory, LOGGED, PER_MICRO_BATCH, limits=[0, 0])

    def on_sources_changed(self, sources: Mapping[str, SourceView]) -> None:
        for view in sources.values():
            note(self.directory, "told", view.planned, view.finished, view.waiting, view.open, view.done(3))

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        for position in range(range_.start, range_.end):
            if position == AWAY and len(notes(self.directory, "away")) < AWAY_READS:
                note(self.directory, "away", position)
                raise SourceUnavailable("nobody answers")
            yield BadRecord(position, "it is no number") if position == UNREADABLE else (position, [position])


class Loose(Messages):
    """Numbers that nobody asks after."""

    tracked = False


class Inbox(Spout):
    """Hands its numbers out once, in phase 3, and counts on its host to retry them."""

    outputs = ["n"]
    retry = POLICY

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.next = 0

    def next_tuple(self, collector: Any) -> None:
        if phase(self.directory) == 3 and self.next < QUEUED:
            collector.emit([self.next], message_id=self.next)
            self.next += 1

    def ack(self, message_id: Any) -> None:
        note(self.directory, "heard", "ack", message_id)

    def fail(self, message_id: Any) -> None:
        note(self.directory, "heard", "fail", message_id)

    @property
    def exhausted(self) -> bool:
        return self.next == QUEUED


class Tries(BasicBolt):
    """Notes each attempt with its time; fails some numbers."""

    transient = ("context",)

    def __init__(self, directory: str, name: str) -> None:
        self.directory = directory
        self.name = name

    def prepare(self, context: Any) -> None:
        self.context = context

    def execute(self, tup: Any, collector: Any) -> None:
        note(self.directory, self.name, tup["n"], tup.attempt, self.context.now_ms)
        if tup["n"] == ALWAYS or (tup["n"] == TWICE and tup.attempt < 3):
            raise ValueError("on purpose")


def retrying(builder: TopologyBuilder, directory: str) -> None:
    """Add spouts of each kind with a bolt that fails some numbers: two from phase 2 on, and an inbox."""
    spouts = {"log": Log(directory), "loose": Loose(directory, LOOSE, limits=[0, 0]), "inbox": Inbox(directory)}
    for name, spout in spouts.items():
        builder.set_spout(name, spout)
        builder.set_bolt(f"tries-{name}", Tries(directory, f"tries-{name}")).global_grouping(name)
