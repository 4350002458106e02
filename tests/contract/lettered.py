"""Messages that are given up and become dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from sparkbolt import BadRecord, BasicBolt, DeadLetter, Range, RetryPolicy, Spout, TopologyBuilder
from sparkbolt.types import RawMessage
from tests.contract.parts import Messages, note, notes, phase

NUMBERS = 40
POISON = (5, 6, 31)
NOT_A_NUMBER = 17
AT_ONCE = RetryPolicy(max_retries=1, min_backoff=timedelta(0), max_backoff=timedelta(0))


class Poisoned(Messages):
    """Numbers, one of which cannot be read; each came as text."""

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]] | BadRecord]:
        for position in range(range_.start, range_.end):
            if position == NOT_A_NUMBER:
                yield BadRecord(position, "not a number")
            else:
                yield position, [position]

    def raw(self, range_: Range) -> RawMessage:
        return RawMessage(str(range_.start).encode(), key=b"\xff")


class Jobs(Spout):
    """Messages 0 to 9 in phase 1, which only the engine retries; notes its calls, and what was written by then."""

    outputs = {"default": ["n"], "other": ["n", "why"]}
    retry = AT_ONCE

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.waiting = list(range(10))
        self.unfinished = set(self.waiting)

    def next_tuple(self, collector: Any) -> None:
        if self.waiting and phase(self.directory) == 1:
            n = self.waiting.pop(0)
            if n < 8:
                collector.emit([n], message_id=f"job-{n}")
            else:
                collector.emit([n, "other"], message_id=f"job-{n}", stream="other")

    def ack(self, message_id: str) -> None:
        written = [values for name, values in notes(self.directory, "letters") if name == f"'{message_id}'"]
        note(self.directory, "jobs", "ack", message_id, len(written))
        self.unfinished.discard(int(message_id.removeprefix("job-")))

    def fail(self, message_id: str) -> None:
        note(self.directory, "jobs", "fail", message_id)

    @property
    def exhausted(self) -> bool:
        return not self.unfinished


class Picky(BasicBolt):
    """Raises for what is poison, whoever sends it; notes what it takes."""

    outputs = ["n"]

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] in POISON or tup["n"] == 9:
            raise ValueError(f"no {tup['n']}")
        note(self.directory, "taken", tup.source_component, tup["n"])


class Undertaker(BasicBolt):
    """Gets dead letters as tuples; refuses 6 the first time and 31 each time."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Any, collector: Any) -> None:
        note(self.directory, "buried", tup.attempt, dict(tup))
        if tup["n"] == 31 or (tup["n"] == 6 and tup.attempt == 1):
            raise ValueError(f"no grave for {tup['n']}")


class BrokenOnce:
    """A sink whose first try fails in each process: after the letters were written."""

    tried = False

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, context: Any) -> None:
        self.component = context.component

    def write(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            note(self.directory, "letters", letter.message_id, letter.to_json())
        if not notes(self.directory, "broke"):
            note(self.directory, "broke", len(letters))
            raise OSError("the connection broke after the letters were sent")

    def close(self) -> None:
        """Nothing is open."""


def lettered(builder: TopologyBuilder, directory: str) -> None:
    """Add spouts with each kind of dead letters; from phase 1 on."""
    for name, place in (("filed", f"file:{directory}/dead.jsonl"), ("streamed", "stream:dead")):
        builder.set_spout(name, Poisoned(directory, NUMBERS, limits=[0]), retry=AT_ONCE, dead_letters=place)
    builder.set_spout("jobs", Jobs(directory), dead_letters=BrokenOnce(directory))
    picky = builder.set_bolt("picky", Picky(directory), parallelism=2)
    picky.shuffle_grouping("filed").shuffle_grouping("streamed").shuffle_grouping("jobs")
    picky.shuffle_grouping("jobs", "other")
    builder.set_bolt("undertaker", Undertaker(directory)).shuffle_grouping("streamed", "dead")
