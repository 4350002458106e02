"""What the topologies of the contract are made of: spouts that the tests feed, and a bolt that says what it saw.

The topologies are in modules of their own because Spark's workers import them. Bolts tell the tests what they saw with
``note``, a line of JSON in a file that every process can append to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparkbolt import (
    BasicBolt,
    FailedException,
    PartitionedSpout,
    Range,
    Spout,
)


def note(directory: str, name: str, *values: Any) -> None:
    with open(Path(directory, name), "a") as file:
        file.write(json.dumps(values) + "\n")


def notes(directory: str, name: str) -> list[list[Any]]:
    path = Path(directory, name)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def phase(directory: str) -> int:
    """Return the phase of a topology: 0 at first; ``Engine.begin_phase`` begins the next one."""
    return len(list(Path(directory).glob("phase-*")))


class Messages(PartitionedSpout):
    """The numbers from 0 on: in each phase those below its limit, after the last limit all below ``end``."""

    outputs = ["n"]

    def __init__(self, directory: str, end: int, per_micro_batch: int = 1000, limits: Sequence[int] = ()) -> None:
        self.directory = directory
        self.end = end
        self.per_micro_batch = per_micro_batch
        self.limits = limits

    def limit(self) -> int:
        number = phase(self.directory)
        return self.limits[number] if number < len(self.limits) else self.end

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("numbers", 0)
        end = min(self.limit(), start + min(budget, self.per_micro_batch))
        return [Range(0, "numbers", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("numbers", 0) >= self.end

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for position in range(range_.start, range_.end):
            yield position, [position]


class Queue(Spout):
    """Messages with ids 0 to ``count - 1``, each emitted again when it fails; and one without an id. In one phase."""

    outputs = ["n", "attempt"]

    def __init__(self, directory: str, count: int, in_phase: int) -> None:
        self.directory = directory
        self.in_phase = in_phase
        self.waiting = [(n, 1) for n in range(count)]
        self.tries: dict[int, int] = {}
        self.unfinished = set(range(count))
        self.begun = False

    def next_tuple(self, collector: Any) -> None:
        if phase(self.directory) != self.in_phase:
            return
        if not self.begun:
            self.begun = True
            collector.emit([-1, 1])
        if self.waiting:
            n, attempt = self.waiting.pop(0)
            self.tries[n] = attempt
            collector.emit([n, attempt], message_id=n)

    def ack(self, message_id: Any) -> None:
        note(self.directory, "queue", "ack", message_id)
        self.unfinished.discard(message_id)

    def fail(self, message_id: Any) -> None:
        note(self.directory, "queue", "fail", message_id)
        self.waiting.append((message_id, self.tries[message_id] + 1))

    @property
    def exhausted(self) -> bool:
        return self.begun and not self.unfinished


class Sink(BasicBolt):
    """Acks whatever comes, but fails what is told to fail."""

    def execute(self, tup: Any, collector: Any) -> None:
        if tup[0] == "fail":
            raise FailedException("the child failed")


# One message, one deed.

ACTIONS: dict[str, tuple[str, str, str] | None] = {
    "acks": None,
    "raises": ("exception", "deeds", "ValueError: on purpose"),
    "raises FailedException": ("fail", "deeds", "on purpose"),
    "raises ReportedFailedException": ("fail", "deeds", "on purpose"),
    "fails with a reason": ("fail", "deeds", "said so"),
    "emits too many values": ("emit", "deeds", "'deeds' emitted 2 values on stream 'default'"),
    "emits another field": ("emit", "deeds", "'value' is missing; there is no field 'word'"),
    "emits on no stream": ("emit", "deeds", "stream 'nowhere'"),
    "emits what cannot be pickled": ("emit", "deeds", "cannot be sent to another task (function: "),
    "emits what cannot be routed": ("emit", "deeds", "object"),
    "acks twice": None,
    "fails after it acked": ("fail", "deeds", "second thoughts"),
    "acks after it failed": ("fail", "deeds", "said so"),
    "anchors twice to one tuple": None,
    "emits to nobody": None,
    "emits unanchored what fails": None,
    "emits anchored what fails": ("fail", "sink", "the child failed"),
    "emits after it acked what fails": ("fail", "sink", "the child failed"),
    "emits values of all types": None,
    "emits on several streams": None,
    "emits directly": None,
    "emits a thousand": None,
}
"""What the bolt ``actions`` does with message n, and (cause, component, part of the reason) if its tree must fail."""
