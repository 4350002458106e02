"""The driver's half of the file spouts: which ranges of which files come next.

Which question it answers: given how far each file was planned, which bytes does the next micro-batch read,
and which task reads which of them?

Rule 1: a plan covers at most its budget, and at most ``RANGES_MAX`` ranges a task.
Rule 2: a file that is followed is planned up to its last newline, so that a line is planned when it is whole.
Rule 3: a compressed file is never read by two tasks of one plan.

Read before: ``files``.
"""

from __future__ import annotations

import bisect
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparkbolt.core.components import Range
from sparkbolt.errors import ConfigError
from sparkbolt.spouts.files import UnpackedFile, check_unpackable, find_files, is_compressed

log = logging.getLogger(__name__)

RANGES_MAX = 64
"""How many ranges a task gets in one plan, at most."""
SPLIT_BYTES_MIN = 1 << 16
"""A file is not split into smaller pieces than this: a range costs some microseconds however small it is."""
LOOK_SECS = 1.0
"""How often new files are looked for."""
SCAN_BYTES = 1 << 16


class FileEnd(Protocol):
    """How far a file can be planned."""

    def reach(self, start: int, want: int) -> int:
        """Where a range from ``start`` may end: at most ``start + want``; ``start`` if there is nothing."""

    def reached(self, position: int) -> bool:
        """Whether nothing will ever come after ``position``."""


class FixedEnd:
    """A file of the size that it had when the topology started."""

    def __init__(self, path: str) -> None:
        """Take the size."""
        self._size = os.path.getsize(path)

    def reach(self, start: int, want: int) -> int:
        """As far as wanted, or to the end."""
        return max(start, min(self._size, start + want))

    def reached(self, position: int) -> bool:
        """Whether the end was planned."""
        return position >= self._size


class GrowingEnd:
    """A file that grows: planned up to its last newline."""

    def __init__(self, path: str) -> None:
        """Look at nothing yet."""
        self._path = path
        self._whole = 0
        self._searched = 0
        self._warned = False

    def reach(self, start: int, want: int) -> int:
        """As far as wanted, or to the end of the last whole line.

        A file that is gone or became shorter gives nothing.
        """
        if start + want > self._whole:
            self._search(start)
        return max(start, min(self._whole, start + want))

    def reached(self, position: int) -> bool:
        """Never: it may grow."""
        return False

    def _search(self, start: int) -> None:
        """Find the last newline between what was searched already and the end, backwards."""
        try:
            size = os.path.getsize(self._path)
            if size < start:
                self._shorter(start, size)
                return
            if size <= self._searched:
                return
            with open(self._path, "rb", buffering=0) as file:
                floor, ceiling = max(start, self._searched), size
                while ceiling > floor:
                    begin = max(floor, ceiling - SCAN_BYTES)
                    newline = os.pread(file.fileno(), ceiling - begin, begin).rfind(b"\n")
                    if newline >= 0:
                        self._whole = begin + newline + 1
                        break
                    ceiling = begin
            self._searched = size
        except FileNotFoundError:
            self._shorter(start, 0)

    def _shorter(self, start: int, size: int) -> None:
        self._whole = self._searched = 0
        if start and not self._warned:
            self._warned = True
            log.warning(
                "%s now has %d bytes, but was read up to byte %d: it is read on once it is longer than "
                "that, and what is written below that is not; write to a new file instead of emptying one",
                self._path,
                size,
                start,
            )


class UnpackedEnd:
    """A compressed file, unpacked ahead of the plan to know how much there is."""

    def __init__(self, path: str) -> None:
        """Open nothing yet."""
        self._path = path
        self._file: UnpackedFile | None = None
        self._end: int | None = None

    def reach(self, start: int, want: int) -> int:
        """As far as wanted, or to the end; unpacks up to there, keeping nothing."""
        if self._end is None and self._file is None:
            try:
                self._file = UnpackedFile(self._path)
            except FileNotFoundError:
                log.warning("%s is gone: what was not yet planned of it is not read", self._path)
                self._end = 0
        if self._file is not None:
            while self._file.unpacked <= start + want and self._file.advance():
                pass
            if self._file.end is None:
                return start + want
            self._end, self._file = self._file.end, None
        assert self._end is not None
        return max(start, min(self._end, start + want))

    def reached(self, position: int) -> bool:
        """Whether the end is known and was planned."""
        return self._end is not None and position >= self._end

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


@dataclass(frozen=True)
class _Piece:
    source: str
    start: int
    end: int
    splittable: bool


class FilePlanner:
    """Plans ranges over the files of some patterns."""

    def __init__(self, patterns: Sequence[str], *, follow: bool, parallelism: int, clock: Callable[[], float]) -> None:
        """Find the files; ``clock`` gives seconds and never goes back.

        Raises:
            ConfigError: a pattern names no file (unless ``follow``), or a file cannot be read.
        """
        self._patterns = list(patterns)
        self._follow = follow
        self._parallelism = parallelism
        self._clock = clock
        self._ends: dict[str, FileEnd] = {}
        self._sources: list[str] = []
        self._last = ""
        missing = self._look()
        if missing and not follow:
            raise ConfigError(
                f"no file is named by {', '.join(map(repr, missing))}: expected a file, a directory or "
                "a glob such as 'books/*.txt'; is it relative to another working directory? "
                "(follow=True waits for files to come)"
            )

    def _look(self) -> list[str]:
        found, missing = find_files(self._patterns)
        self._next_look = self._clock() + LOOK_SECS
        for path in found:
            if path in self._ends:
                continue
            if not os.access(path, os.R_OK):
                raise ConfigError(f"{path!r} cannot be read by this user: mend its permissions or leave it out")
            if is_compressed(path):
                check_unpackable(path)
                self._ends[path] = UnpackedEnd(path)
            else:
                self._ends[path] = GrowingEnd(path) if self._follow else FixedEnd(path)
        self._sources = sorted(self._ends)
        return missing

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> list[Range]:
        """The next ranges, spread over the tasks by their bytes."""
        if self._follow and self._clock() >= self._next_look:
            self._look()
        return spread(self._pieces(progress, budget), self._parallelism)

    def _pieces(self, progress: Mapping[str, int], budget: int) -> list[_Piece]:
        """What is there to read, up to the budget; followed files take turns in being the first."""
        sources = self._sources
        if self._follow:
            first = bisect.bisect_right(sources, self._last)
            sources = sources[first:] + sources[:first]
        share = -(-budget // self._parallelism)
        pieces: list[_Piece] = []
        for source in sources:
            if budget <= 0 or len(pieces) >= RANGES_MAX * self._parallelism:
                break
            start, end = progress.get(source, 0), self._ends[source]
            if end.reached(start):
                continue
            splittable = not isinstance(end, UnpackedEnd)
            stop = end.reach(start, budget if splittable else min(budget, share))
            if stop > start:
                pieces.append(_Piece(source, start, stop, splittable))
                budget -= stop - start
                self._last = source
        return pieces

    def finished(self, progress: Mapping[str, int]) -> bool:
        """Whether the end of every file was planned; never while files are followed."""
        if self._follow:
            return False
        return all(end.reached(progress.get(source, 0)) for source, end in self._ends.items())

    def close(self) -> None:
        """Close what is open."""
        for end in self._ends.values():
            if isinstance(end, UnpackedEnd):
                end.close()


def spread(pieces: Sequence[_Piece], parallelism: int) -> list[Range]:
    """Give each task about the same number of bytes, in order: large pieces are split, small ones grouped."""
    total = sum(piece.end - piece.start for piece in pieces)
    target = max(-(-total // parallelism), SPLIT_BYTES_MIN)
    ranges: list[Range] = []
    task = filled = count = 0
    for piece in pieces:
        start = piece.start
        while start < piece.end:
            if (filled >= target or count >= RANGES_MAX) and task < parallelism - 1:
                task, filled, count = task + 1, 0, 0
            elif count >= RANGES_MAX:
                return ranges
            whole = not piece.splittable or task == parallelism - 1
            stop = piece.end if whole else min(piece.end, start + target - filled)
            ranges.append(Range(task, piece.source, start, stop))
            filled += stop - start
            count += 1
            start = stop
    return ranges
