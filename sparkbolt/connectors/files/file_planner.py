"""FilePlanner: plans, in the driver, which ranges of which files are read next.

A plan covers at most its budget of bytes and ``RANGES_MAX`` ranges per task. ``SIDE_BY_SIDE`` files are read at a time,
each with the same share of the budget, and two tasks of one plan never read the same compressed file.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol

from sparkbolt.api.ranges import Range
from sparkbolt.connectors.files.file_follower import Follower
from sparkbolt.connectors.files.followed_file import FileLag, FinishedPart
from sparkbolt.connectors.files.plain_file import PlainFile, escape, find_files, tell_passed_over
from sparkbolt.connectors.files.unpacked_file import (
    MAGIC_BYTES,
    UnpackedEnd,
    check_unpackable,
    is_compressed,
    tell_if_no_text,
)
from sparkbolt.errors import ConfigError

RANGES_MAX = 64
"""The most ranges that a task gets in one plan."""
SIDE_BY_SIDE = 16
"""How many files are read at the same time. Windows in event time hold the surplus of the longest one."""
COMPRESSED_SIDE_BY_SIDE = 8
"""How many of these files may be compressed: a reader keeps each of them open (``OPEN_FILES_MAX`` of ``text``)."""
SHARE_ROUNDS = 3
"""How often the rest of short files' budget is shared among the others."""
SPLIT_BYTES_MIN = 1 << 16
"""A file is not split into smaller pieces than this: every range costs some microseconds, whatever its size."""


class FileEnd(Protocol):
    """How far a file can be planned."""

    @property
    def begin(self) -> int:
        """The position at which its first range starts."""

    @property
    def splittable(self) -> bool:
        """Whether several tasks of one plan may read it."""

    def reach(self, start: int, want: int) -> int:
        """Return the end of a range from ``start``: at most ``start + want``, or ``start`` if there is nothing."""

    def reached(self, position: int) -> bool:
        """Whether nothing will ever follow ``position``."""

    def close(self) -> None:
        """Close open files."""


class FixedEnd:
    """A file with the size that it had when the topology started."""

    begin = 0
    splittable = True

    def __init__(self, path: str) -> None:
        """Read the size, and warn if the content seems to be compressed."""
        with closing(PlainFile(path)) as file:
            self._size = file.size
            tell_if_no_text(path, file.read_at(0, MAGIC_BYTES, 0))

    def reach(self, start: int, want: int) -> int:
        """Return the end of a range from ``start``: the wanted position or the file's end."""
        return max(start, min(self._size, start + want))

    def reached(self, position: int) -> bool:
        """Whether the file is planned to its end."""
        return position >= self._size

    def close(self) -> None:
        """Do nothing: no file is open."""


@dataclass(frozen=True)
class _Piece:
    source: str
    start: int
    end: int
    splittable: bool


class FilePlanner:
    """Plans ranges of the files that some patterns name."""

    def __init__(
        self,
        patterns: Sequence[str],
        *,
        follow: bool,
        parallelism: int,
        clock: Callable[[], float],
        in_order: bool = False,
    ) -> None:
        """Find the files.

        Args:
            patterns: which files to read.
            follow: whether files may grow and new ones may appear.
            parallelism: the number of tasks.
            clock: returns seconds and never goes back.
            in_order: whether each file is read to its end before the next one begins.

        Raises:
            ConfigError: A pattern names no file (unless ``follow``), or a file cannot be read.
        """
        there = find_files(patterns)
        found = there.files
        if there.missing and not follow:
            for pattern in there.missing:
                if pattern in there.passed_over:
                    raise ConfigError(
                        f"{escape(pattern)} {there.passed_over[pattern]}: expected a file, a directory or a glob"
                    )
            raise ConfigError(
                f"no file is named by {', '.join(map(repr, there.missing))}: expected a file, a directory or "
                "a glob such as 'books/*.txt'; is it relative to another working directory? "
                "(follow=True waits for files to come)"
            )
        for path in found:
            if not os.access(path, os.R_OK):
                raise ConfigError(f"{path!r} cannot be read by this user: mend its permissions or leave it out")
            check_unpackable(path)
        self._parallelism = parallelism
        self._at_once = 1 if in_order else SIDE_BY_SIDE
        self._follower = Follower(patterns, clock) if follow else None
        self._ends: dict[str, FileEnd] = {}
        if not follow:
            tell_passed_over(there)
            self._ends = {escape(path): UnpackedEnd(path) if is_compressed(path) else FixedEnd(path) for path in found}
        self._unread = dict.fromkeys(self._ends)
        """Sources in the order of their paths, without those that were planned to their ends when they were last looked
        at: progress never goes back. If files are followed: the sources at the last look, the next one first."""
        self._last = ""

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> list[Range]:
        """Plan the next ranges, and spread them over the tasks by their bytes."""
        if self._follower is not None:
            self._follower.update(progress)
            self._ends = dict(self._follower.live)
            sources = sorted(self._ends)
            first = bisect.bisect_right(sources, self._last)
            self._unread = dict.fromkeys(sources[first:] + sources[:first])
        pieces = self._pieces(progress, budget)
        return spread([*pieces, *self._marks(progress, pieces)], self._parallelism)

    def lags(self, finished: Mapping[str, FinishedPart], now_s: float) -> dict[str, FileLag]:
        """Return the lag of each followed file, as ``Follower.lags`` does; empty without ``follow``."""
        return self._follower.lags(finished, now_s) if self._follower is not None else {}

    def _marks(self, progress: Mapping[str, int], pieces: Sequence[_Piece]) -> Iterator[_Piece]:
        """Yield a mark for each followed file that has not begun, so that the next driver knows it, too."""
        if self._follower is None:
            return
        begun = {piece.source for piece in pieces}
        for source in self._unread:
            if source not in progress and source not in begun:
                mark = self._follower.live[source].id.mark_source
                if mark not in progress and mark not in begun:
                    yield _Piece(mark, 0, 1, True)

    def _pieces(self, progress: Mapping[str, int], budget: int) -> list[_Piece]:
        """Return what can be read, up to the budget; followed files take turns in being the first."""
        chosen = self._side_by_side(progress)
        pieces = {source: self._nothing_of(source, progress) for source in chosen}
        task_share = -(-budget // self._parallelism)
        for _ in range(SHARE_ROUNDS):
            share = -(-budget // max(1, len(chosen)))
            for source in chosen:
                budget -= self._lengthen(pieces, source, min(share, budget), task_share)
        # The files that follow share what these files leave.
        for source in chain(chosen, self._unread if len(chosen) >= self._at_once else ()):
            if budget <= 0 or len(pieces) >= RANGES_MAX * self._parallelism:
                break
            if source not in pieces and not self._may_begin(source, pieces):
                continue
            pieces.setdefault(source, self._nothing_of(source, progress))
            budget -= self._lengthen(pieces, source, budget, task_share)
        found = [piece for piece in pieces.values() if piece.end > piece.start]
        self._last = found[-1].source if found else self._last
        return found

    def _side_by_side(self, progress: Mapping[str, int]) -> list[str]:
        """Return the files that are read at the same time: the first ones that have something to read."""
        chosen: dict[str, _Piece] = {}
        read = []
        for source in self._unread:
            if len(chosen) >= self._at_once:
                break
            start = self._position(source, progress)
            if self._ends[source].reached(start):
                read.append(source)
            elif self._has_more(source, start) and self._may_begin(source, chosen):
                chosen[source] = self._nothing_of(source, progress)
        for source in read:
            del self._unread[source]
        return list(chosen)

    def _may_begin(self, source: str, others: Mapping[str, _Piece]) -> bool:
        """Whether a file may be read beside others: not too many compressed ones are read on in later plans."""
        if self._ends[source].splittable:
            return True
        read_on = (one for one in others.values() if not one.splittable and not self._ends[one.source].reached(one.end))
        return sum(1 for _ in read_on) < COMPRESSED_SIDE_BY_SIDE

    def _nothing_of(self, source: str, progress: Mapping[str, int]) -> _Piece:
        start = self._position(source, progress)
        return _Piece(source, start, start, self._ends[source].splittable)

    def _lengthen(self, pieces: dict[str, _Piece], source: str, want: int, most: int) -> int:
        """Make the piece of a file up to ``want`` bytes longer, and return by how many.

        A file that only one task can read gets no more than ``most`` bytes in all.
        """
        piece, end = pieces[source], self._ends[source]
        if not piece.splittable:
            want = min(want, piece.start + most - piece.end)
        if want <= 0 or end.reached(piece.end):
            return 0
        stop = max(piece.end, end.reach(piece.end, want))
        pieces[source] = replace(piece, end=stop)
        return stop - piece.end

    def _has_more(self, source: str, start: int) -> bool:
        """Whether a file has something to read behind ``start``, as far as is known without unpacking it."""
        end = self._ends[source]
        return not end.reached(start) and (not end.splittable or end.reach(start, 1) > start)

    def unread(self, progress: Mapping[str, int]) -> dict[str, bool]:
        """Return the files that will still be read, and whether they have something to read now.

        In order, a file that has not begun waits for its turn, and has nothing before that.
        """
        found: dict[str, bool] = {}
        for source in self._unread:
            start = self._position(source, progress)
            if self._ends[source].reached(start):
                continue
            waits = self._at_once == 1 and source not in progress
            found[source] = not waits and (self._follower is None or self._has_more(source, start))
            if waits:
                break
        return found

    def _position(self, source: str, progress: Mapping[str, int]) -> int:
        """Return how far a source is planned."""
        return progress.get(source, self._ends[source].begin)

    def finished(self, progress: Mapping[str, int]) -> bool:
        """Whether every file is planned to its end; always False while files are followed."""
        if self._follower is not None:
            return False
        ends = reversed(self._ends.items())  # the last one is read last, so that one look is enough until then
        return all(end.reached(self._position(source, progress)) for source, end in ends)

    def close(self) -> None:
        """Close open files."""
        for end in self._follower.all() if self._follower is not None else self._ends.values():
            end.close()


def spread(pieces: Sequence[_Piece], parallelism: int) -> list[Range]:
    """Give each task about the same number of bytes, in order: large pieces are split, small ones are grouped."""
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
