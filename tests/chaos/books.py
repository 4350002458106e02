"""The books of a campaign: what was fed, what must have come of it, and what is wrong.

Rule: everything here is computed from what the campaign fed and what it reads in files; nothing is taken from the
topology's own word but the numbers that are checked.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.topologies import SHAPES, UNIT_MS
from tests.windows.books import Found, check, rows_of
from tests.windows.shapes import Feed

WORDS = 120
WORDS_A_LINE = 5
FIRST_LINES = 50
"""So many tuples are in windows from the start: their timers make micro-batches while no lines come."""


@dataclass(frozen=True)
class Seen:
    """The counters of one promotion."""

    micro_batch_id: int = -1
    emitted: int = 0
    acked: int = 0
    failed: int = 0
    open: int = 0
    windows: int = 0
    late_tuples: int = 0


class Books(ABC):
    """Lines that were fed, and the checks of what became of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.lines = 0
        self.last = Seen()
        (directory / "text").mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def feed(self, count: int) -> None:
        """Append lines to the files that the topology follows."""

    def append(self, name: str, lines: Iterable[str]) -> None:
        """Append lines to one of the files."""
        with (self.directory / "text" / name).open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def see(self, seen: Seen) -> list[str]:
        """Note the counters of a promotion; what is wrong with them."""
        last, self.last = self.last, seen
        wrong = [
            f"{name} went back from {getattr(last, name)} to {getattr(seen, name)}"
            for name in ("emitted", "acked", "failed", "windows")
            if getattr(seen, name) < getattr(last, name)
        ]
        if seen.micro_batch_id <= last.micro_batch_id:
            wrong.append(f"micro-batch {seen.micro_batch_id} is promoted after {last.micro_batch_id}")
        if seen.acked > self.lines:
            wrong.append(f"{seen.acked} lines are acked, but only {self.lines} were fed")
        if seen.emitted != seen.acked + seen.failed + seen.open:
            wrong.append(f"{seen.emitted} emitted are not {seen.acked} acked, {seen.failed} failed, {seen.open} open")
        return wrong

    @property
    def settled(self) -> bool:
        """Whether every line that was fed is acked, and nothing is open."""
        return self.last.acked == self.lines and self.last.open == 0

    def lacking(self) -> list[str]:
        """What is not in the files yet, though everything is settled: it may come with time."""
        return []

    @abstractmethod
    def check(self) -> list[str]:
        """What is wrong in the files once everything is settled."""

    @property
    @abstractmethod
    def done(self) -> str:
        """What was done with the lines that were fed, in words."""


class DiamondBooks(Books):
    """Of the diamond: words and joined lines."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory)
        self.words: Counter[str] = Counter()
        self._chance = random.Random(seed)
        for folder in ("counts", "joined"):
            (directory / folder).mkdir(parents=True, exist_ok=True)

    def feed(self, count: int) -> None:
        """Append lines to the two files that the topology follows."""
        for name in ("a.txt", "b.txt"):
            text = []
            for _ in range(count // 2):
                words = [f"w{self._chance.randrange(WORDS)}" for _ in range(WORDS_A_LINE)]
                text.append(" ".join([f"line{self.lines}", *words]))
                self.words.update(words)
                self.lines += 1
            self.append(name, text)

    @property
    def done(self) -> str:
        """Words that were counted."""
        exact = "exactly" if self.last.failed == 0 else "at least once"
        return f"{self.words.total():,} words counted and all lines joined {exact}"

    def check(self) -> list[str]:
        """See ``Books``.

        Where no tree failed nothing was replayed, and counts and joined lines are exact; else none is too small.
        """
        exact = self.last.failed == 0
        counted: dict[str, Counter[int]] = defaultdict(Counter)
        for row in rows_of(self.directory / "counts"):
            counted[row["word"]][row["count"]] += 1
        joined = Counter((row["key"], row["words"]) for row in rows_of(self.directory / "joined"))
        wrong = [f"word {word!r} was never fed" for word in counted if word not in self.words]
        for word, true in self.words.items():
            rows = counted[word]
            highest = max(rows, default=0)
            if highest < true or (exact and highest != true):
                wrong.append(f"word {word!r} was fed {true} times and counted {highest} times")
            missing = [n for n in range(1, highest + 1) if n not in rows]
            twice = [n for n, times in rows.items() if times > 1]
            wrong += [f"word {word!r}: its counts {missing[:5]} were never written"] if missing else []
            wrong += [f"word {word!r}: its counts {twice[:5]} were written twice"] if twice else []
        for number in range(self.lines):
            times = joined[f"line{number}", WORDS_A_LINE]
            if times == 0 or (exact and times > 1):
                wrong.append(f"line {number} was joined {times} times")
        if sum(joined.values()) > self.lines and exact:
            wrong.append(f"{sum(joined.values())} rows of joined lines for {self.lines} lines")
        return wrong


class WindowBooks(Books):
    """Of the windows: each of them, recomputed from all lines."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__(directory)
        self._feed = Feed(seed, UNIT_MS)
        self._found = Found()
        self.kills: list[int] = []
        """The last promoted micro-batch before each kill of the driver."""
        self.feed(FIRST_LINES)

    def feed(self, count: int) -> None:
        """Append lines to the file that the topology follows."""
        self.append("a.txt", self._feed.lines(count))
        self.lines += count

    def lacking(self) -> list[str]:
        """Windows that must come with time."""
        self._found = check(self.directory, SHAPES.values(), exact=self.last.failed == 0)
        counted = self.last.windows
        missing = [f"{self._found.shown} windows are written, and {counted} counted"] * (counted < self._found.shown)
        return self._found.lacking + missing

    def check(self) -> list[str]:
        """See ``Books``; ``lacking`` has looked at the files."""
        wrong = list(self._found.wrong)
        if self.last.windows > self._found.shown:
            wrong.append(f"{self.last.windows} windows are counted, but {self._found.shown} were shown")
        if self.last.late_tuples:
            wrong.append(f"{self.last.late_tuples} tuples were late, though none was")
        return wrong

    @property
    def done(self) -> str:
        """Windows that were right."""
        return f"{self._found.shown:,} windows right, {self.open_over_a_kill:,} of them open when a driver was killed"

    @property
    def open_over_a_kill(self) -> int:
        """How many windows have lines from before a kill and from after it."""
        stretches = [(w.lines[0].micro_batch, w.lines[-1].micro_batch) for w in self._found.windows]
        return sum(any(first <= kill < last for kill in self.kills) for first, last in stretches)


BOOKS: Mapping[str, Callable[[Path, int], Books]] = {"diamond": DiamondBooks, "windows": WindowBooks}
"""By topology."""
