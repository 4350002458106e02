"""The books of a campaign on Kafka: what was processed, against what the group's offsets say.

Rule: everything is computed from files of the bolt and from what the broker answers; nothing is taken from the
topology's own word. Whoever compares asks the broker first and looks at the files then, so that what is committed must
be in the files already.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparkbolt.api.dead_letters import DeadLetter
from tests.chaos.kafka import KAFKA_PARTITIONS, MAX_RETRIES, SUFFIX, TOPIC

SHOWN_MAX = 5


@dataclass(frozen=True)
class Offset:
    """What the group holds of a kafka_partition: an offset, and finished intervals beyond it."""

    offset: int = 0
    finished: Sequence[tuple[int, int]] = ()

    def covers(self, offsets: np.ndarray) -> np.ndarray:
        """Which of the offsets are finished, if this is true."""
        covered = offsets < self.offset
        for first, end in self.finished:
            covered |= (offsets >= first) & (offsets < end)
        return covered


Offsets = Mapping[int, Offset]
"""By kafka_partition; one that is not there has nothing committed."""


def covered(numbers: np.ndarray, offsets: Offsets) -> np.ndarray:
    """Which of the messages are finished, by what the group holds."""
    found = np.zeros(len(numbers), bool)
    for part in range(KAFKA_PARTITIONS):
        own = numbers % KAFKA_PARTITIONS == part
        found[own] = offsets.get(part, Offset()).covers(numbers[own] // KAFKA_PARTITIONS)
    return found


def shown(numbers: Iterable[int]) -> str:
    """The first few messages, by kafka_partition and offset."""
    some = [f"{number % KAFKA_PARTITIONS}@{number // KAFKA_PARTITIONS}" for number in sorted(numbers)]
    return ", ".join(some[:SHOWN_MAX]) + (f" and {len(some) - SHOWN_MAX} more" if len(some) > SHOWN_MAX else "")


class KafkaBooks:
    """Messages by number, and how often each was processed."""

    def __init__(self, directory: Path, messages: int, poison: Iterable[int]) -> None:
        self.directory = directory
        self.poison = frozenset(poison)
        self.messages = messages
        self.counts = np.zeros(messages, np.int64)
        """How often each message is in the files of ``out``."""
        self.last: Offsets = {}
        self.checks = 0
        self._letters: frozenset[int] = frozenset()
        self._files: dict[str, tuple[tuple[int, int], np.ndarray]] = {}
        self._floors: dict[int, Offsets] = {}
        self._clean: set[int] = set()
        (directory / "given").mkdir(parents=True, exist_ok=True)

    # While it runs.

    def look(self) -> None:
        """Take in what the files of the bolt hold now; one that was replaced counts as it is."""
        for folder in self.directory.glob("out-*"):
            for entry in os.scandir(folder):
                if not entry.name.startswith("part-"):
                    continue
                about = entry.stat()
                stamp = (about.st_ino, about.st_mtime_ns)
                known = self._files.get(entry.path)
                if known is None or known[0] != stamp:
                    numbers = np.fromfile(entry.path, np.int64)
                    if known is not None:
                        np.subtract.at(self.counts, known[1], 1)
                    np.add.at(self.counts, numbers, 1)
                    self._files[entry.path] = stamp, numbers

    @property
    def processed(self) -> int:
        """How many messages are processed at least once."""
        return int(np.count_nonzero(self.counts))

    def passed(self, offsets: Offsets, letters: Iterable[DeadLetter] = ()) -> set[int]:
        """Messages that are finished by what the group holds, and are neither processed nor dead letters."""
        self._letters |= {number_of(letter) for letter in letters}
        numbers = np.flatnonzero(self.counts == 0)
        return set(numbers[covered(numbers, offsets)].tolist()) - self._letters

    def committed(self, offsets: Offsets, letters: Iterable[DeadLetter] = ()) -> list[str]:
        """What is wrong with offsets that the broker told before the last look."""
        self.checks += 1
        early = self.passed(offsets, letters)
        wrong = [f"the committed offsets pass messages that are not finished: {shown(early)}"] if early else []
        for part, before in self.last.items():
            now = offsets.get(part, Offset())
            if now.offset < before.offset:
                wrong.append(f"the committed offset of {TOPIC}/{part} went back from {before.offset} to {now.offset}")
        self.last = dict(offsets)
        return wrong

    def begins(self, life: int, offsets: Offsets, *, clean: bool = False) -> None:
        """A driver is started when the group holds this; ``clean``: the one before was stopped, not killed."""
        self._floors[life] = dict(offsets)
        if clean:
            self._clean.add(life)

    # In the end.

    def given(self, life: int) -> np.ndarray:
        """All messages that were given in a life, in any micro-batch, each as often as it was."""
        found = [np.fromfile(path, np.int64) for path in (self.directory / "given").glob(f"{life:03d}-*{SUFFIX}")]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def repeats(self) -> tuple[int, list[str]]:
        """How many messages were given again though they had succeeded, and what is wrong with that.

        What a kill interrupts may be given again as far as it was not committed; what was stopped, not at all.
        """
        before = np.zeros(self.messages, np.int64)
        wrong: list[str] = []
        for life, floor in sorted(self._floors.items()):
            now = np.bincount(self.given(life), minlength=self.messages)
            numbers = np.flatnonzero(now)
            again = numbers[covered(numbers, floor)]
            if len(again):
                wrong.append(f"driver {life} was given what was committed before it: {shown(again.tolist())}")
            twice = numbers[before[numbers] > 0]
            if life in self._clean and len(twice):
                wrong.append(f"driver {life} repeats after a clean stop: {shown(twice.tolist())}")
            before += now
        return int(np.sum(np.maximum(before - 1, 0))), wrong

    def check(self, offsets: Offsets, ends: Mapping[int, int], letters: Sequence[DeadLetter]) -> list[str]:
        """What is wrong when everything is done."""
        wrong = self.committed(offsets, letters)
        lost = set(np.flatnonzero(self.counts == 0).tolist()) - self.poison
        if lost:
            wrong.append(f"{len(lost)} messages were never processed: {shown(lost)}")
        for part, end in sorted(ends.items()):
            if (at := offsets.get(part, Offset()).offset) != end:
                wrong.append(f"the group's offset of {TOPIC}/{part} is {at}, and the end {end}")
        if sum(ends.values()) != self.messages:
            wrong.append(f"the topic holds {sum(ends.values())} messages, and {self.messages} were produced")
        dead = [number_of(letter) for letter in letters]
        if sorted(dead) != sorted(self.poison):
            wrong.append(f"dead letters are {shown(dead)}, and poison is {shown(self.poison)}")
        return wrong + [text for letter in letters if (text := wrong_story(letter)) is not None]


def number_of(letter: DeadLetter) -> int:
    """The message of a letter."""
    _, _, part = (letter.source or "").rpartition("/")
    return (letter.position or 0) * KAFKA_PARTITIONS + int(part)


def wrong_story(letter: DeadLetter) -> str | None:
    """What is wrong with the story of a poison message, if anything."""
    last = letter.attempts[-1]
    value = letter.raw.value if letter.raw else None
    told = (last.number, last.cause, last.component, len(letter.attempts) + letter.attempts_left_out, value)
    true = (MAX_RETRIES + 1, "exception", "work", MAX_RETRIES + 1, f"poison {number_of(letter)}".encode())
    if told != true or "ValueError" not in (last.traceback or ""):
        return f"the dead letter of {shown([number_of(letter)])} says {told}, and {true} is true"
    return None
