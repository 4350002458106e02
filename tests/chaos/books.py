"""The books of a campaign: what was fed, what must have come of it, and what is wrong.

Rule: everything here is computed from what the campaign fed and what it reads in files; nothing is taken from the
topology's own word but the numbers that are checked.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from tests.windows.books import rows_of

WORDS = 120
WORDS_A_LINE = 5


@dataclass(frozen=True)
class Seen:
    """The counters of one promotion."""

    micro_batch_id: int = -1
    emitted: int = 0
    acked: int = 0
    failed: int = 0
    open: int = 0


class DiamondBooks:
    """Lines that were fed to the diamond, and the checks of what became of them: words and joined lines."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.lines = 0
        self.last = Seen()
        self.words: Counter[str] = Counter()
        self._chance = random.Random(seed)
        for folder in ("text", "counts", "joined"):
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
            with (self.directory / "text" / name).open("a") as file:
                file.writelines(f"{line}\n" for line in text)

    def see(self, seen: Seen) -> list[str]:
        """Note the counters of a promotion; what is wrong with them."""
        last, self.last = self.last, seen
        wrong = [
            f"{name} went back from {getattr(last, name)} to {getattr(seen, name)}"
            for name in ("emitted", "acked", "failed")
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

    @property
    def done(self) -> str:
        """Words that were counted."""
        exact = "exactly" if self.last.failed == 0 else "at least once"
        return f"{self.words.total():,} words counted and all lines joined {exact}"

    def check(self) -> list[str]:
        """What is wrong in the files once everything is settled.

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
