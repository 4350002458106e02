"""What one micro-batch is to do: the spark_offset.

Which question it answers: what must be known to run a micro-batch again exactly as it was?
Rule 1: a plan holds ranges, never records. Records of a ``Spout`` ride beside it and die with their driver.
Rule 2: a plan reserves sequences before anything is read: ``sequence = base + (position - start)``, so gaps and
unknown record counts cost nothing, and no sequence is used twice.
Rule 3: a plan of a dead life keeps its ranges but loses its ``Spout`` records, and what was to be read once:
``alive_entries`` says which remain.

Read before: ``ids``, ``components``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparkbolt.core.base.files import Files
from sparkbolt.core.base.ids import tree_key
from sparkbolt.errors import CheckpointError

PLAN_FORMAT = 1
ASKED_FOR_MAX = 100
"""About how many of the trees that time out with a micro-batch their holders are asked."""


def own_source(index: int) -> str:
    """The source of a bolt's task that starts trees, by its index: what it keeps.

    A position in it is the sequence of the value's first attempt.
    """
    return f"kept-{index}"


@dataclass(frozen=True)
class Entry:
    """One piece of a micro-batch, read by one spout task; its records' sequences start at ``base``.

    Four kinds: a range of a ``PartitionedSpout`` (``source`` set), records of it to be read again (``positions``
    set too: the i-th has sequence ``base + i``), records of a ``Spout`` (``source`` None: sequences ``base`` to
    ``base + end - 1``, ``start`` is 0), all of the same attempt, and messages of either kind that are given up
    (``letters`` set too): they are read once more, for their dead letters.
    """

    task: int
    base: int
    source: str | None
    start: int
    end: int
    attempt: int = 1
    """Of a range: how often reading was tried from its start on; its records are given for the first time."""
    positions: tuple[int, ...] | None = None
    once: bool = False
    """Whether no other life may read it: its spout gives each record at most once."""
    letters: tuple[str, ...] | None = field(default=None, repr=False)
    """What is known of each message that is given up (``ExhaustedMessage``, dumped); ``attempt`` is then that at the
    letter."""

    @property
    def reserved(self) -> int:
        """How many sequences the entry reserves."""
        return len(self.positions) if self.positions is not None else self.end - self.start

    @property
    def lasting(self) -> bool:
        """Whether it may be read in any life: neither a ``Spout``'s records nor what is read ``once``."""
        return self.source is not None and not self.once

    @property
    def first_key(self) -> int:
        """The tree key of the first reserved sequence."""
        return tree_key(self.task, self.base)

    def position_of(self, sequence: int) -> int:
        """The position of the record that has this sequence."""
        offset = sequence - self.base
        return self.positions[offset] if self.positions is not None else self.start + offset

    def to_json(self) -> list[Any]:
        """The entry as a list, without what has its default."""
        values = [self.task, self.base, self.source, self.start, self.end, self.attempt, self.positions]
        more = [self.once, self.letters] if self.letters is not None else [True] if self.once else []
        return [*values, *more]

    @classmethod
    def from_json(cls, value: list[Any]) -> Entry:
        """The inverse of ``to_json``."""
        positions = tuple(value[6]) if value[6] is not None else None
        task, base, source, start, end, attempt = value[:6]
        once = len(value) > 7 and value[7]
        letters = tuple(value[8]) if len(value) > 8 else None
        return cls(task, base, source, start, end, attempt, positions, once, letters)


@dataclass(frozen=True)
class MicroBatchPlan:
    """Everything that a micro-batch needs to be run, and to be run again."""

    micro_batch_id: int
    life: int
    """The run of the driver that made the plan; records of a ``Spout`` exist in that life only."""
    now_ms: int
    """The micro-batch's time, in milliseconds since the epoch; never less than that of an earlier plan."""
    entries: tuple[Entry, ...] = ()
    ticks: tuple[str, ...] = ()
    """Components to whose tasks a tick tuple is due."""
    expired: tuple[int, ...] = ()
    """Keys of open trees that have timed out: failed by this micro-batch's promotion."""
    void: tuple[tuple[int, int], ...] = ()
    """(task number, sequence): trees of the task below the sequence belong to a dead life; nobody waits for them."""
    asked: tuple[int, ...] = ()
    """Numbers of tasks that hold tuples of the first of the expired trees, and are asked which."""
    again: tuple[Entry, ...] = ()
    """What tasks of bolts that start trees are to give again, of what they keep: entries with ``positions``."""
    outbox_acks: tuple[tuple[int, int, int], ...] = ()
    """(task number, first, last): positions that a task which starts trees need not keep any more."""
    clocks: tuple[int, ...] = ()
    """Tasks that are told the time, besides those that get anything."""

    @property
    def reserving(self) -> tuple[Entry, ...]:
        """All entries that reserve sequences: those that are read, and those that tasks give again."""
        return (*self.entries, *self.again)

    def alive_entries(self, life: int) -> tuple[Entry, ...]:
        """The entries that may be read in ``life``."""
        return tuple(entry for entry in self.entries if entry.lasting or life == self.life)

    def to_json(self) -> dict[str, Any]:
        """The plan as a JSON object, small where little is planned."""
        body: dict[str, Any] = {"v": PLAN_FORMAT, "n": self.micro_batch_id, "life": self.life, "now": self.now_ms}
        if self.entries:
            body["entries"] = [entry.to_json() for entry in self.entries]
        if self.ticks:
            body["ticks"] = list(self.ticks)
        if self.clocks:
            body["clocks"] = list(self.clocks)
        if self.expired:
            body["expired"] = list(self.expired)
        if self.void:
            body["void"] = [list(pair) for pair in self.void]
        if self.asked:
            body["asked"] = list(self.asked)
        if self.again:
            body["again"] = [entry.to_json() for entry in self.again]
        if self.outbox_acks:
            body["settled"] = [list(span) for span in self.outbox_acks]
        return body

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> MicroBatchPlan:
        """The inverse of ``to_json``.

        Raises:
            CheckpointError: the object is no plan, or one of another version.
        """
        if body.get("v") != PLAN_FORMAT:
            raise CheckpointError(
                f"a plan in the checkpoint has format {body.get('v')!r}, expected {PLAN_FORMAT}: it was "
                "written by another version of sparkbolt, or the offset log is damaged"
            )
        return cls(
            micro_batch_id=body["n"],
            life=body["life"],
            now_ms=body["now"],
            entries=tuple(Entry.from_json(entry) for entry in body.get("entries", ())),
            ticks=tuple(body.get("ticks", ())),
            clocks=tuple(body.get("clocks", ())),
            expired=tuple(body.get("expired", ())),
            void=tuple((task, sequence) for task, sequence in body.get("void", ())),
            asked=tuple(body.get("asked", ())),
            again=tuple(Entry.from_json(entry) for entry in body.get("again", ())),
            outbox_acks=tuple((task, first, last) for task, first, last in body.get("settled", ())),
        )

    def dumps(self) -> str:
        """The plan as one line of JSON; equal plans give equal text."""
        return json.dumps(self.to_json(), separators=(",", ":"))


Offset = Mapping[str, Any]
BEFORE_THE_FIRST: Offset = {"v": 0}
"""The constant offset that stands before micro-batch 0.

Earlier versions gave it as the end of a micro-batch 0 that came before any data, so it may stand in a checkpoint as
that; it means the plan that reads nothing.
"""


def plan_of(offset: Offset, files: Files, where: str) -> MicroBatchPlan:
    """The plan that an offset stands for.

    Raises:
        CheckpointError: it stands for none, or the plan's file is missing.
    """
    if offset == BEFORE_THE_FIRST:
        return MicroBatchPlan(micro_batch_id=0, life=0, now_ms=0)
    if "file" in offset:
        data = files.read(f"plans/{offset['file']}")
        if data is None:
            raise CheckpointError(f"{where}: plans/{offset['file']} is missing, though an offset of Spark's names it")
        offset = json.loads(data)
    return MicroBatchPlan.from_json(offset)


class Timer(NamedTuple):
    """When a hosted task has to be told the time."""

    due_ms: int
    """The time of the micro-batch that is to be run for it at the latest."""
    waits: bool = True
    """Whether what it will do then belongs to what has come: a topology is not finished before."""
