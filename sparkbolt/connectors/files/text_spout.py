"""TextSpout: reads the lines of text files. The driver plans byte ranges and never sees a line; executors read them."""

from __future__ import annotations

import codecs
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import pyarrow as pa

from sparkbolt.api.arguments import ENCODING, checked, whole
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.api.reports import SourceView
from sparkbolt.connectors.argument_pickle import PicklesArguments
from sparkbolt.connectors.column_source import ColumnSource
from sparkbolt.connectors.files.file_identity import FileId, path_of
from sparkbolt.connectors.files.file_planner import FilePlanner
from sparkbolt.connectors.files.file_search import open_copy, open_file
from sparkbolt.connectors.files.followed_file import FileLag, FinishedPart
from sparkbolt.connectors.files.lines import LINE_BYTES_LIMIT, LineRules, Lines, lines_of
from sparkbolt.connectors.files.plain_file import PlainFile, escape, unescape
from sparkbolt.connectors.files.unpacked_file import UnpackedFile, open_content
from sparkbolt.errors import ConfigError

log = logging.getLogger(__name__)

_PATHS = pa.dictionary(pa.int32(), pa.string())

Paths: TypeAlias = str | Path | Iterable[str | Path]
OPEN_FILES_MAX = 8
"""Number of compressed files that a worker keeps open between ranges."""
INTERVALS_MAX = 100
"""How many finished intervals behind an unfinished line count for the lag of a file."""


def absolute_patterns(paths: Paths) -> tuple[str, ...]:
    """Return the paths as absolute patterns; ``~`` is the home directory.

    Raises:
        ConfigError: There is no path, or one is empty or not a path.
    """
    given: object = paths  # users may pass anything, whatever the annotation
    if isinstance(given, bytes | bytearray) or not isinstance(given, str | Path | Iterable):
        raise ConfigError(
            f"paths is {paths!r}, of type {type(paths).__name__}: expected a str or a Path (a file, a directory, a "
            "glob), or a list of those"
        )
    several: list[object] = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not several:
        raise ConfigError("paths is empty: expected a file, a directory, a glob, or a list of those")
    for path in several:
        if not isinstance(path, str | Path) or not str(path):
            raise ConfigError(f"paths holds {path!r}: expected the name of a file or directory, or a glob")
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            raise ConfigError(f"paths holds {path!r}, which can be the name of no file") from None
    return tuple(os.path.abspath(os.path.expanduser(str(path))) for path in several)


@checked
def _checked_encoding(encoding: Annotated[str, ENCODING]) -> str:
    name = codecs.lookup(encoding).name
    if name in ("utf-8", "utf-8-sig"):
        return "utf-8"
    if "\n".encode(encoding) != b"\n":
        raise ConfigError(
            f"encoding={encoding!r} does not write a newline as the one byte 10, so lines cannot be found: "
            "convert the files to utf-8"
        )
    return encoding


class TextSpout(PicklesArguments, ColumnSource):
    r"""Emits the lines of text files: fields ``line``, ``path`` (str) and ``offset`` (int).

    ``paths`` is a file, a directory, a glob (``books/*.txt``; ``**`` matches any directories), or a list of those. A
    directory means all files below it, except names that begin with ``.`` or ``_``. Each file is a source, named
    by its absolute path (and by more with ``follow``); a position is the byte offset at which a line starts. A path
    that is not valid UTF-8 is shown as a URI (``file:///logs/caf%E9.log``). On a cluster every machine must see the
    files under the same paths. A line ends with ``\n`` or ``\r\n``. Bytes that are not valid in ``encoding`` become
    U+FFFD. A WARNING names a file that begins as text in UTF-16 does. NUL bytes at the start of a line and a byte order
    mark at the start of a file are not part of the line. A line longer than ``line_bytes_max`` bytes fails only its own
    tree.

    Without ``follow`` the list of files and their sizes are read when the topology starts, a last line without a
    newline counts as a line, and the spout ends. The files must not change meanwhile. Up to 16 files are read side by
    side. With ``in_order=True`` each file is read to its end before the next one begins, in the order of their paths:
    for files that follow one another in time, such as one for each day.

    With ``follow=True`` the spout works like ``tail -F``. It reads growing files up to their last newline and looks
    for new files once a second. Every plan asks the system for the size of every file, at about 2 us each. A file is
    identified by its inode, its time of creation and its beginning. So a renamed file is read to its end
    once, under its new name in the same directory or among the patterns; the file that takes its old name is read from
    its start, also if it has the same content. ``path`` stays the path under which a file was found first. A file that
    was emptied is read again from its start. A warning reports how much was not read of a file that was emptied or is
    gone. If a copy of an emptied file, or a compressed copy of one that is gone, lies beside it by then, no line is
    lost or read twice. If a file is gone or was emptied after a range of it was planned and before it is read, the
    range fails as one tree: the spout never reads other content in its place.

    Compressed files (``.gz``, ``.bz2``, ``.xz``, and ``.zst`` with ``zstandard``): ``offset`` counts unpacked bytes.
    One task at a time reads a file, one piece per micro-batch. The cost: the driver unpacks the file too, ahead of the
    plan and without keeping the content, because it cannot find the end otherwise. Each worker process unpacks it
    once and continues where it stopped; a new worker starts from the first byte. Of a damaged or cut file every line
    before the damage is read, and the rest is one bad record. Padding behind the compressed content is ignored. With
    ``follow`` a compressed file is read as it grows; one that is cut counts as damaged once it has not changed for a
    minute.

    >>> TextSpout("books/*.txt").outputs
    ['line', 'path', 'offset']
    """

    _opened = ("_planner", "_unpacked", "_places", "_warned", "_finished", "_lags")

    outputs = ["line", "path", "offset"]
    first_budget = 1024
    position_unit = "bytes"

    @checked
    def __init__(
        self,
        paths: Paths,
        *,
        follow: bool = False,
        in_order: bool = False,
        encoding: str = "utf-8",
        line_bytes_max: Annotated[int, whole(1, LINE_BYTES_LIMIT)] = 16 << 20,
    ) -> None:
        """Check and store the arguments; the files are looked up when the topology starts.

        Raises:
            ConfigError: An argument is invalid.
        """
        self.patterns = absolute_patterns(paths)
        self.follow = follow
        self.in_order = in_order
        if follow and in_order:
            raise ConfigError(
                "follow=True and in_order=True: expected one of the two; files that are followed are read as they grow"
            )
        self.encoding = _checked_encoding(encoding)
        self.line_bytes_max = line_bytes_max
        self._begin()

    def _begin(self) -> None:
        self._planner: FilePlanner | None = None
        self._unpacked: dict[str, UnpackedFile] = {}
        self._places: dict[str, str] = {}
        """The last known path of each followed file, by source."""
        self._warned: set[str] = set()
        self._finished: dict[str, FinishedPart] = {}
        self._lags: dict[str, FileLag] = {}
        """By source; the result of the last call of ``lag``."""

    def open(self, context: TopologyContext) -> None:
        """Find the files.

        Raises:
            ConfigError: A path names no file, and ``follow`` is False.
        """
        self._planner = FilePlanner(
            self.patterns,
            follow=self.follow,
            in_order=self.in_order,
            parallelism=context.parallelism,
            clock=time.monotonic,
        )

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        """Plan the next bytes of the files, side by side; followed files take turns in being the first."""
        assert self._planner is not None, "next_ranges is called after open"
        return self._planner.next_ranges(progress, budget)

    def unread(self, progress: Mapping[str, int]) -> Mapping[str, bool]:
        """List the files that are not planned to their ends, and whether they have something to read now."""
        assert self._planner is not None, "unread is called after open"
        return self._planner.unread(progress)

    def finished(self, progress: Mapping[str, int]) -> bool:
        """Whether every file is planned to its end."""
        assert self._planner is not None, "finished is called after open"
        return self._planner.finished(progress)

    def on_sources_changed(self, sources: Mapping[str, SourceView]) -> None:
        """Note how far the lines of followed files are finished, for the lag."""
        if self.follow:
            for source, view in sources.items():
                ahead = view.done(INTERVALS_MAX) if view.finished < view.planned else ()
                self._finished[source] = FinishedPart(view.finished, ahead)

    def lag(self) -> dict[str, int]:
        """Return by followed file how many bytes of its whole lines are not finished; not for compressed files."""
        if self.follow and self._planner is not None:
            self._lags = self._planner.lags(self._finished, time.time())
        return {source: lag.bytes for source, lag in self._lags.items()}

    def lag_secs(self) -> dict[str, float]:
        """Return by followed file how long ago the oldest of these bytes was written, at least.

        The time of a byte is the file's time of modification when the spout first looked at it. A byte that is older
        than the driver may have been written long before that.
        """
        return {source: lag.secs for source, lag in self._lags.items()}

    def close(self) -> None:
        """Close the files that the driver has open."""
        if self._planner is not None:
            self._planner.close()

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]] | BadRecord]:
        """Yield the lines as Arrow columns (string, dictionary of string, int64), about 1 MiB at a time."""
        path = pa.array([self.path_of(range_)], pa.string())
        for chunk in self.chunks(range_):
            if isinstance(chunk, BadRecord):
                yield chunk
                continue
            positions, lines = chunk
            indices = pa.py_buffer(bytes(4 * len(positions)))  # zeros
            paths = pa.DictionaryArray.from_buffers(_PATHS, len(positions), [None, indices], path)
            yield positions, [lines, paths, pa.array(positions)]

    def path_of(self, range_: Range) -> str:
        """Return the path under which the file of a range was found, as its tuples show it."""
        return path_of(range_.source) if self.follow else escape(range_.source)

    def chunks(self, range_: Range) -> Iterator[Lines | BadRecord]:
        """Yield blocks of lines with their offsets, and a ``BadRecord`` for each line that is too long."""
        id_ = FileId.parse(range_.source) if self.follow else None
        if id_ is not None and id_.is_mark:
            return
        try:
            file = self._take(range_, id_)
        except FileNotFoundError:
            yield self._gone(range_)
            return
        compressed = isinstance(file, UnpackedFile)
        rules = LineRules(self.encoding, self.line_bytes_max, open_end=compressed or not self.follow)
        try:
            if isinstance(file, PlainFile) and file.size < range_.end:
                what = f"was planned up to byte {range_.end} but has {file.size} bytes now"
                if id_ is not None:  # its content may now be anything
                    self._warn(range_.source, f"{what}: it was emptied, and what was planned and not yet read fails")
                    yield BadRecord(range_.start, f"{self.path_of(range_)!r} {what}: it was emptied before it was read")
                    return
                self._warn(range_.source, f"{what}: the rest is lost")
            yield from lines_of(file, range_, rules)
            if isinstance(file, UnpackedFile):
                self._give_back(range_.source, file)
        finally:
            if isinstance(file, PlainFile):
                file.close()

    def _take(self, range_: Range, id_: FileId | None) -> PlainFile | UnpackedFile:
        """Return the file of a range: an open one that can still read the range's start, else a newly opened one."""
        kept = self._unpacked.get(range_.source)
        if kept is not None and kept.oldest <= max(0, range_.start - 1):
            return self._unpacked.pop(range_.source)
        if id_ is None:
            return open_content(unescape(range_.source))
        try:
            place, file = open_file(id_, self._places.get(range_.source), self.patterns)
        except FileNotFoundError:
            copy = open_copy(id_, range_.start, range_.end)
            if copy is None:
                raise
            return copy
        self._places[range_.source] = place
        if isinstance(file, PlainFile) and file.size < range_.end:  # it was emptied
            copy = open_copy(id_, range_.start, range_.end)
            if copy is not None:
                file.close()
                return copy
        return file

    def _give_back(self, source: str, file: UnpackedFile) -> None:
        """Keep the file open for the next range; of two open files of one source keep the one that is further."""
        kept = self._unpacked.pop(source, None)
        if kept is not None:
            file, kept = (file, kept) if file.unpacked >= kept.unpacked else (kept, file)
            kept.close()
        self._unpacked[source] = file
        if len(self._unpacked) > OPEN_FILES_MAX:
            self._unpacked.pop(next(iter(self._unpacked))).close()

    def _gone(self, range_: Range) -> BadRecord:
        self._warn(range_.source, "does not exist any more: what was planned of it and not yet read fails")
        how = "deleted, emptied, compressed or moved to another directory" if self.follow else "deleted or renamed"
        return BadRecord(
            range_.start,
            f"{self.path_of(range_)!r} does not exist here (bytes {range_.start} to {range_.end} were planned): "
            f"was it {how}, or does this machine of the cluster not see it?",
        )

    def _warn(self, path: str, what: str) -> None:
        if path not in self._warned:
            self._warned.add(path)
            log.warning("%s %s", path, what)

    def cleanup(self) -> None:
        """Close the files that the worker has open."""
        for file in self._unpacked.values():
            file.close()
        self._unpacked.clear()
