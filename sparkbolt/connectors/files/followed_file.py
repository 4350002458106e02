"""FollowedFile: reports how a followed file has changed, and how far it can be planned.

A plan ends with a whole line, unless the line is longer than ``SCAN_BYTES``. So no plan needs the start of a line from
an earlier plan, whose file may be gone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from sparkbolt.base.intervals import Interval, clip, size
from sparkbolt.connectors.files.file_identity import HEAD_BYTES, FileId
from sparkbolt.connectors.files.file_search import Inode, is_copy
from sparkbolt.connectors.files.plain_file import PlainFile
from sparkbolt.connectors.files.unpacked_file import UnpackedEnd, UnpackedFile, head_of, is_compressed, open_content
from sparkbolt.connectors.files.write_times import WriteTimes

Progress: TypeAlias = Mapping[str, int]
"""End of the planned part, by source."""

SCAN_BYTES = 1 << 16
MARK_BYTES = 256
"""How many bytes before the last seen position are remembered (the mark); they must be unchanged when more is read."""
SEARCHES_MAX = 60
"""Number of looks in which a missing file is searched for beside its old name; the patterns are always searched."""


class FileChange(Enum):
    """The changes of a file since the last look."""

    NONE = "none"
    MOVED = "moved"
    EMPTIED = "emptied"
    TOUCHED = "touched"
    """It had no whole line, and has changed."""
    COMPLETED = "completed"
    """It was a compressed file that counted as cut, and has grown."""


@dataclass(frozen=True)
class FileSnapshot:
    """A file as it was seen at a path."""

    path: str
    device: int
    inode: int
    birth: int
    size: int
    head: bytes
    """The beginning of its content, up to its last whole line; empty if there is no whole line."""

    @classmethod
    def of(cls, path: str) -> FileSnapshot:
        """Look at the file.

        Raises:
            OSError: It cannot be read.
        """
        with closing(PlainFile(path)) as file:
            found, birth = file.status, file.birth
            head = head_of(path, HEAD_BYTES) if is_compressed(path) else _whole_head(file, found.st_size)
        return cls(path, found.st_dev, found.st_ino, birth, found.st_size, head)


@dataclass(frozen=True)
class FinishedPart:
    """The finished part of a file."""

    position: int
    """Every line that starts below it is finished."""
    ahead: Sequence[Interval] = ()
    """Intervals beyond it in which every line is finished."""


@dataclass(frozen=True)
class FileLag:
    """How much of a file is not finished."""

    bytes: int
    secs: float
    """How long ago the oldest of these bytes was written, at least (``WriteTimes``); 0 if there is none."""


class FollowedFile:
    """One followed file: where it is, and how far it can be planned."""

    def __init__(
        self, id_: FileId, path: str, device: int | None, begin: int = 0, changed_at: float | None = None
    ) -> None:
        """Store the arguments; the file is not opened yet.

        Args:
            id_: The identity of the file.
            path: Its current path.
            device: Its device; None if the file is known only from a checkpoint.
            begin: The position at which its first range starts.
            changed_at: When it was seen to change last; None if it was not seen yet.
        """
        self.id = id_
        self.path = path
        self.target = os.path.realpath(path)
        """The file itself, if the path is a link to it."""
        self.device = device
        self.begin = begin
        self.seen = 0
        """Size in bytes at the last look; 0 if it was never looked at."""
        self.emptied = False
        self.continued = False
        """Whether another file continues it."""
        self.searches = SEARCHES_MAX
        """In how many further looks the file is searched for while it is gone."""
        self.unpacked = UnpackedEnd(path, idle_secs=0.0) if is_compressed(path) and not id_.is_mark else None
        self.changed_at = changed_at
        self._whole = self._searched = 0
        self._times = WriteTimes()
        self._marked, self._mark = 0, b""
        """A position, and the bytes before it."""
        self._as_it_was: tuple[int, ...] | None = None

    @property
    def splittable(self) -> bool:
        """Whether several tasks of one plan may read it."""
        return self.unpacked is None

    @property
    def place(self) -> Inode:
        """Where it is on its device, whatever its names are."""
        return self.device, self.id.inode

    @property
    def names(self) -> tuple[str, ...]:
        """The paths by which copies of it are recognized."""
        return self.path, self.target, self.id.path

    def position(self, progress: Progress) -> int:
        """Return how far the file is planned."""
        return 0 if self.id.is_mark else progress.get(self.id.source, self.begin)

    def reach(self, start: int, want: int) -> int:
        """Return the end of the line in which the wanted end is, or of the last whole line if that comes first."""
        if self.id.is_mark:
            return 1
        if self.unpacked is not None:
            return self.unpacked.reach(start, want)
        stop = start + want
        if not start < stop < self._whole:
            return max(start, min(self._whole, stop))
        try:
            with closing(PlainFile(self.path)) as file:
                return min(self._whole, stop + max(0, file.read_at(stop - 1, SCAN_BYTES, 0).find(b"\n")))
        except OSError:  # the next look finds out why
            return start

    def reached(self, position: int) -> bool:
        """Whether it is a mark, or a compressed file, that is planned to its end; any other file may grow."""
        if self.id.is_mark:
            return position > 0
        return self.unpacked is not None and self.unpacked.reached(position)

    def lag(self, state: FinishedPart | None, now_s: float) -> FileLag | None:
        """Return how much of its whole lines is not finished; None if that is unknown, as for a compressed file.

        Args:
            state: the finished part; None if nothing of the file was ever read.
            now_s: the wall clock.
        """
        if self.unpacked is not None or self.id.is_mark:
            return None
        position = self.begin if state is None else state.position
        bytes_ = max(0, self._whole - position - (size(clip(state.ahead, end=self._whole)) if state is not None else 0))
        written_s = self._times.of(position)
        return FileLag(bytes_, 0.0 if written_s is None or not bytes_ else max(0.0, now_s - written_s))

    def look(self, position: int, now: float) -> FileChange:
        """Check how the file has changed; ``position`` is how far it is planned."""
        try:
            found = os.stat(self.path)
            if not self._is(found):
                return FileChange.MOVED
            as_it_is = found.st_size, found.st_mtime_ns, found.st_ctime_ns
            if as_it_is != self._as_it_was:
                with closing(PlainFile(self.path)) as file:
                    change = self._look_into(file, position)
                if change is not FileChange.NONE:
                    return change
                if self._as_it_was is not None or self.changed_at is None:
                    self.changed_at = now
        except FileNotFoundError:
            return FileChange.MOVED
        is_touched = self.id.is_mark and as_it_is != self._as_it_was
        self._as_it_was, self.device = as_it_is, found.st_dev
        if is_touched:
            return FileChange.TOUCHED
        if self.unpacked is not None:
            if self.unpacked.is_below(position):
                return FileChange.EMPTIED
            self.unpacked.idle_secs = now - (self.changed_at or 0.0)
        return FileChange.NONE

    def _look_into(self, file: PlainFile, position: int) -> FileChange:
        if not self._is(file.status) or not self.id.is_born_with(file):
            return FileChange.MOVED
        size = file.size
        if self.id.is_mark:
            self.seen = size
            return FileChange.NONE
        if self.unpacked is not None:
            if not self.unpacked.has_grown_from(file):
                return FileChange.EMPTIED
            if self.unpacked.is_cut and size > self.unpacked.raw_bytes:
                return FileChange.COMPLETED
            self.unpacked.look_again(size)
            return FileChange.NONE
        if not self._holds_what_was_read(file, position):
            return FileChange.EMPTIED
        self._search(file, position, size)
        self._times.add(self._whole, file.status.st_mtime)
        self.seen = size
        return FileChange.NONE

    def _is(self, found: os.stat_result) -> bool:
        return found.st_ino == self.id.inode and self.device in (None, found.st_dev)

    def _holds_what_was_read(self, file: PlainFile, position: int) -> bool:
        if file.size < max(position, self._searched) or not self._is_content_of(file):
            return False
        # There are NUL bytes in place of lines if the file was emptied and its writer went on at its old offset.
        return bool(self._mark) or position == 0 or file.read_at(position - 1, 1, 0) != b"\0"

    def _is_content_of(self, file: PlainFile | UnpackedFile) -> bool:
        """Whether the file has the beginning and the mark that were seen before."""
        if not self.id.has_head(file.read_at(0, self.id.length, 0)):
            return False
        start = self._marked - len(self._mark)
        return not self._mark or file.read_at(start, len(self._mark), start) == self._mark

    def _search(self, file: PlainFile, position: int, size: int) -> None:
        """Search backwards for the last newline in the part that was not searched before."""
        self._whole = _end_of_lines(file, max(position, self._searched), size) or self._whole
        self._searched = size
        self._marked = max(self._whole, position)
        start = max(0, self._marked - MARK_BYTES)
        self._mark = file.read_at(start, self._marked - start, start)

    def comes_back_as(self, path: str, position: int) -> bool:
        """Whether it is the file that is now at ``path``; if so, this path is stored as its place."""
        try:
            if is_compressed(path) != (self.unpacked is not None) and not self.id.is_mark:
                return False
            with closing(PlainFile(path)) as file:
                found = file.status
                if not self._is(found) or not self.id.is_born_with(file):
                    return False
                if self.unpacked is not None:
                    if not self.id.has_head(head_of(path, self.id.length)) or not self.unpacked.has_grown_from(file):
                        return False
                    self.unpacked.path = path
                elif not self._holds_what_was_read(file, position):
                    return False
        except OSError:
            return False
        self.path, self.target, self.device, self._as_it_was = path, os.path.realpath(path), found.st_dev, None
        return True

    def may_be_continued_by(self, path: str) -> bool:
        """Whether a new file has the name of a copy of this one, which was emptied or is gone."""
        if self.unpacked is not None or not self._mark or self.continued:
            return False
        return (self.emptied or is_compressed(path)) and is_copy(path, self.names)

    def is_continued_by(self, path: str) -> bool:
        """Whether a new file holds the content that was read of this one, judged by its beginning and the mark."""
        try:
            with closing(open_content(path)) as file:
                return self._is_content_of(file)
        except OSError:
            return False

    def close(self) -> None:
        """Close open files."""
        if self.unpacked is not None:
            self.unpacked.close()


def _whole_head(file: PlainFile, size: int) -> bytes:
    head = file.read_at(0, HEAD_BYTES, 0)
    newline = head.rfind(b"\n") + 1
    if newline:
        return head[:newline]
    return head if _end_of_lines(file, len(head), size) else b""


def _end_of_lines(file: PlainFile, floor: int, ceiling: int) -> int:
    """Return the position behind the last newline between two positions; 0 if there is none."""
    while ceiling > floor:
        begin = max(floor, ceiling - SCAN_BYTES)
        newline = file.read_at(begin, ceiling - begin, begin).rfind(b"\n") + 1
        if newline:
            return begin + newline
        ceiling = begin
    return 0
