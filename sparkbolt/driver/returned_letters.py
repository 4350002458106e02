"""Returned letters: requests to give dead letters back to their spouts, which wait in the checkpoint.

An operator writes a request as a file of the folder ``returned``, whether the topology runs or not. The driver reads
the files when it starts, and when an operator asks it to; a plan carries the letters, and after its promotion their
messages wait in their logs (``Messages``).

Rule 1: a file is removed only after a promoted plan has taken all of its lines, so no driver that dies loses a letter.
Rule 2: the ledger knows the lines that promoted plans have taken, so a line is taken once.
Rule 3: a letter whose message is not finished waits: its message has one position, and one state. If the message was
given back already, the second request for the same letter has no effect.
Rule 4: a letter keeps the ids that its components had; whoever reads it looks up those of today (``letter_today``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparkbolt.api.components import PartitionedSpout, Spout
from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.base.file_access import Files
from sparkbolt.base.ids import split_key, unmix64
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.errors import WrongUseError
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.returned import ReturnedLetter, ReturnedRecord, returned_source

RETURNED_FOLDER = "returned"
RETURNED_PER_PLAN_MAX = 500
CHARACTERS_PER_PLAN_MAX = 1 << 20
WAITING_MAX = 5000
"""No more letters are taken while this many messages wait for a retry: their records are in the driver's memory."""
log = logging.getLogger("sparkbolt")


def request_of(letters: Iterable[tuple[DeadLetter, bool]]) -> bytes:
    """The content of a file that requests to give letters back.

    Args:
        letters: each letter, and whether its values were edited.
    """
    lines = (json.dumps({"letter": letter.to_json(), "edited": edited}) for letter, edited in letters)
    return "".join(f"{line}\n" for line in lines).encode()


@dataclass(frozen=True)
class _Request:
    """One line of a file."""

    file: str
    line: int
    last_root: str
    letter: ReturnedLetter


class ReturnedLetters:
    """The letters that operators have given back and no promoted plan has taken; part of the coordinator."""

    def __init__(self, lane: Lane, ledger: Ledger, generations: Sequence[Generation] = ()) -> None:
        """Begin a life; the first ``look`` reads the files.

        Args:
            lane: the lane of the topology.
            ledger: knows the lines that were taken.
            generations: the checkpoint's, oldest first.
        """
        self._lane, self._ledger = lane, ledger
        self._generations = Generations(generations)
        self._waiting: dict[tuple[str, int], _Request] = {}
        self._files: list[str] = []
        """Files that were not read."""
        self._read: set[str] = set()
        self._damaged: set[str] = set()
        """Files with a line that cannot be given back; they are not removed."""
        self.is_due = True
        """Whether there may be new files; set it to have them read."""

    def look(self, files: Files) -> None:
        """Read the next file with letters, if all letters of the one before are taken."""
        if self.is_due:
            self.is_due = False  # first: an operator may ask again meanwhile
            known = {*self._read, *self._files, *self._damaged}
            self._files += sorted(set(files.names(RETURNED_FOLDER)) - known)
        while self._files and not self._waiting:
            name = self._files.pop(0)
            self._read.add(name)
            taken = self._ledger.messages.returned.get(name, ())
            for line, text in enumerate((files.read(f"{RETURNED_FOLDER}/{name}") or b"").splitlines()):
                request = self._parsed(name, line, text) if line not in taken else None
                if request is not None:
                    self._waiting[name, line] = request

    def _parsed(self, name: str, line: int, text: bytes) -> _Request | None:
        try:
            body: Mapping[str, Any] = json.loads(text)
            letter = letter_today(DeadLetter.from_json(body["letter"]), self._generations)
            return _Request(name, line, letter.last.root, returned_of(self._lane, letter, edited=body["edited"]))
        except (ValueError, KeyError, TypeError, WrongUseError) as error:
            log.error("line %d of %s/%s cannot be given back: %s", line + 1, RETURNED_FOLDER, name, error)
            self._damaged.add(name)
            return None

    @property
    def waits(self) -> bool:
        """Whether letters wait to be taken, as far as is known."""
        return self.is_due or bool(self._waiting or self._files)

    def take(self) -> tuple[tuple[ReturnedLetter, ...], tuple[tuple[str, int], ...]]:
        """The letters and the requests for the next plan; they stay here until ``settle``."""
        letters, lines, size = list[ReturnedLetter](), list[tuple[str, int]](), 0
        chosen = set[tuple[str, str, int]]()
        room = min(RETURNED_PER_PLAN_MAX, WAITING_MAX - self._ledger.retries)
        for place, request in self._waiting.items():
            if len(letters) >= room or size > CHARACTERS_PER_PLAN_MAX:
                break
            letter = request.letter
            key = self._lane.topology.task_owner(letter.task)[0], letter.source, letter.position
            attempts = self._ledger.messages.retries.attempts.get(key)
            if key in chosen:
                lines.append(place)
            elif attempts is None:
                chosen.add(key)
                letters.append(letter)
                lines.append(place)
                size += len(letter.record)
            elif attempts.record is not None and (
                attempts.count == attempts.before or attempts.attempts[-1].root != request.last_root
            ):
                lines.append(place)
        return tuple(letters), tuple(lines)

    def settle(self, lines: Iterable[tuple[str, int]]) -> None:
        """Drop the requests that a promoted plan has taken."""
        for line in lines:
            self._waiting.pop(line, None)

    def done(self) -> Iterator[str]:
        """Yield the names of the files whose letters are all taken; each once."""
        unfinished = {name for name, _ in self._waiting}
        for name in sorted(self._read - unfinished - self._damaged):
            self._read.discard(name)
            yield f"{RETURNED_FOLDER}/{name}"


def letter_today(letter: DeadLetter, generations: Generations) -> DeadLetter:
    """A letter with the ids that its components have in the newest generation."""
    if not any(one.renamed for one in generations):
        return letter
    names = generations.id_today
    attempts = (replace(one, component=names(one.component, one.micro_batch_id)) for one in letter.attempts)
    spout = names(letter.component, letter.last.micro_batch_id)
    return replace(letter, component=spout, attempts=tuple(attempts))


def returned_of(lane: Lane, letter: DeadLetter, *, edited: bool) -> ReturnedLetter:
    """A dead letter as a plan carries it.

    Args:
        lane: the lane of the topology.
        letter: the letter, with its edited values.
        edited: whether they were edited.

    Raises:
        WrongUseError: the topology has no such task, or the letter has no values and no position to read again.
    """
    topology = lane.topology
    spec = topology.components.get(letter.component)
    if spec is None or (spec.id, letter.task) not in topology.numbering.owners.values():
        raise WrongUseError(f"the topology has no task {letter.component}[{letter.task}]")
    record = ReturnedRecord.of(letter, edited=edited)
    source, position = letter.source, letter.position
    if isinstance(spec.component, Spout):
        source, position = returned_source(letter.task), split_key(unmix64(int(letter.attempts[0].root, 16)))[1]
    if source is None or position is None:
        raise WrongUseError("the letter has no position in its source")
    if not record.values and not (isinstance(spec.component, PartitionedSpout) and spec.id not in lane.inlets):
        raise WrongUseError("the letter does not have its values, and its spout cannot read them again")
    numbers = topology.tasks(spec.id)  # if its task is gone, another one reads the message again
    return ReturnedLetter(
        numbers[letter.task % len(numbers)],
        source,
        position,
        record.dumps(),
        letter.attempts,
        letter.attempts_left_out,
        letter.end,
    )
