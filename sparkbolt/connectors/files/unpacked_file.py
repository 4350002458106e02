"""Unpacking: reads compressed files (``.gz``, ``.bz2``, ``.xz``, ``.zst``), including damaged and growing ones.

Rule 1: a compressed file is read forwards only. Its positions are offsets into its unpacked content. An open reader
continues from its position, also after the file has grown; to go back, a reader starts again from the first byte.
Rule 2: the content of a damaged file ends at the same offset for every reader, because all readers unpack in pieces of
the same size. The damage itself is at the position after the last newline.
Rule 3: a complete member is followed by further members, or by padding, which is not content (as for ``zcat``).
"""

from __future__ import annotations

import bz2
import codecs
import importlib
import logging
import lzma
import math
import os
import re
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from sparkbolt.connectors.files.plain_file import PlainFile, birth_of, escape, open_regular
from sparkbolt.errors import ConfigError

log = logging.getLogger(__name__)

RAW_BYTES = 1 << 13
UNPACK_BYTES = 1 << 18
TAIL_BYTES = 256
"""How many of the compressed bytes that were read last are remembered; they must be unchanged when more is read."""
LAST_LINE_SECS = 3.0
"""A growing file must be unchanged for so long until a last line without a newline counts as a line."""
DAMAGE_SECS = 60.0
"""A growing file must be unchanged for so long until it counts as damaged: a copy in progress looks like a cut file."""


class _Member(Protocol):
    """Unpacks one member; ``bz2``, ``lzma`` and ``compression.zstd`` have such a class."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _GzipMember:
    """A member of a ``.gz`` file; its checksum is verified."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        found = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        self.needs_input = not self._inner.unconsumed_tail and len(found) < max_length
        return found


class _ZstandardMember:
    """A frame of a ``.zst`` file, for the library ``zstandard``, which cannot limit the output of one call."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._waiting = b""

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data) + self._waiting

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        waiting = self._waiting + data
        few = max(1, max_length >> 9)  # four bytes can hold a block of 128 KiB
        self._waiting = waiting[few:]
        return bytes(self._inner.decompress(waiting[:few]))


def _zstandard() -> Callable[[], _Member]:
    try:
        found: Callable[[], _Member] = importlib.import_module("compression.zstd").ZstdDecompressor
    except ImportError:  # before Python 3.14
        zstandard: Any = importlib.import_module("zstandard")
        return lambda: _ZstandardMember(zstandard.ZstdDecompressor().decompressobj())
    return found


@dataclass(frozen=True)
class _Format:
    """A format of compressed files."""

    magic: re.Pattern[bytes]
    """How each member begins."""
    magic_bytes: int
    members: Callable[[], Callable[[], _Member]]
    """Returns the function that begins a member; raises ImportError if a library is missing."""


_FORMATS = {
    ".gz": _Format(re.compile(rb"\x1f\x8b"), 2, lambda: _GzipMember),
    ".bz2": _Format(re.compile(rb"BZh"), 3, lambda: bz2.BZ2Decompressor),
    ".xz": _Format(re.compile(rb"\xfd7zXZ\x00"), 6, lambda: lzma.LZMADecompressor),
    ".zst": _Format(re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), 4, _zstandard),
}


_ZIP = re.compile(rb"PK\x03\x04")
MAGIC_BYTES = 6
"""So many bytes show how a file is compressed."""


def is_compressed(path: str) -> bool:
    """Whether the name's extension marks a compressed file: ``.gz``, ``.bz2``, ``.xz`` or ``.zst``."""
    return _extension(path) in _FORMATS


def _extension(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def tell_if_no_text(path: str, head: bytes) -> None:
    """Log a WARNING if a file that is read unchanged begins like a compressed one, or like text in UTF-16."""
    if is_compressed(path):
        return
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        log.warning(
            "%s begins as text in UTF-16 does, but is read as it is, so that its lines are wrong: convert it to utf-8",
            escape(path),
        )
    for extension, magic in (*((name, one.magic) for name, one in _FORMATS.items()), (".zip", _ZIP)):
        if magic.match(head):
            log.warning(
                "%s begins as a compressed file (%s) does, but is read as it is: only files whose names end with %s "
                "are unpacked",
                escape(path),
                extension,
                ", ".join(_FORMATS),
            )


def check_unpackable(path: str) -> None:
    """Refuse a compressed file that no installed library can unpack, before anything is planned.

    Raises:
        ConfigError: It is a ``.zst`` file and there is no library for it.
    """
    if is_compressed(path):
        _members_of(path)


def _members_of(path: str) -> Callable[[], _Member]:
    try:
        return _FORMATS[_extension(path)].members()
    except ImportError:
        raise ConfigError(
            f"{path!r} is compressed with Zstandard, which this Python cannot read: pip install zstandard"
        ) from None


def is_damage(error: Exception) -> bool:
    """Whether the content is damaged; a system error (with an errno) is not damage and may pass."""
    if isinstance(error, OSError):
        return error.errno is None
    return isinstance(error, EOFError | zlib.error | lzma.LZMAError) or type(error).__name__ == "ZstdError"


def _advice(error: Exception) -> str:
    if "too much memory" not in str(error):
        return ""
    return "; it may be whole, but its window is larger than 128 MiB: compress it again with --long=27 or less"


class UnpackedFile:
    """The unpacked content of a compressed file, read forwards."""

    def __init__(self, path: str) -> None:
        """Open the file.

        Raises:
            OSError: It cannot be opened.
            ConfigError: No installed library can unpack it.
        """
        self.end: int | None = None
        """Length of the content in bytes; None until the end was reached, and again when the file has grown."""
        self.damage: str | None = None
        """The error at the end; None if there is none, or the end was not reached."""
        self.is_cut = False
        """Whether the damage is only a missing rest, which may still be written."""
        self.has_garbage = False
        """Whether something other than zeros is behind the last complete member."""
        self.unpacked = 0
        """How many bytes are unpacked so far."""
        self._buffer = b""
        self._is_done = False
        self._new = _members_of(path)
        self._format = _FORMATS[_extension(path)]
        self._file = open(path, "rb", opener=open_regular)  # noqa: SIM115  closed by close
        self._tail = b""
        """The compressed bytes that were read last."""
        self._restart(None)

    def _restart(self, slow_from: int | None) -> None:
        """Begin with the first byte; from ``slow_from`` on, unpack the compressed bytes one at a time."""
        self._file.seek(0)
        self._slow_from = slow_from
        self._fed = 0
        """Where the compressed bytes begin that were unpacked last."""
        self._rest = b""
        """Compressed bytes that were read and not unpacked yet."""
        self._member: _Member | None = None
        self._is_first = True
        self._is_padding = False

    @property
    def oldest(self) -> int:
        """The first offset that can still be read."""
        return self.unpacked - len(self._buffer)

    @property
    def inode(self) -> int:
        """The file's inode number."""
        return os.fstat(self._file.fileno()).st_ino

    @property
    def birth(self) -> int:
        """When the file was created, see ``birth_of``."""
        return birth_of(self._file.fileno())

    @property
    def raw(self) -> tuple[int, bytes]:
        """How many compressed bytes were read, and the last of them."""
        return self._file.tell(), self._tail

    def advance(self) -> bytes:
        """Unpack the next piece; empty at the end and at damage."""
        if self._is_done:
            return b""
        try:
            piece = self._unpack()
            if piece:
                self.end = self.damage = None
            else:
                self.is_cut = self._member is not None or self._is_first
                self.damage = "it ends in the middle: a part is missing" if self.is_cut else None
                self.has_garbage = not self.is_cut and bool(self._rest)
                self.end = self.unpacked
        except Exception as error:
            if not is_damage(error):
                raise
            piece = self._rest_before_damage()
            self.is_cut, self.damage, self._is_done = False, f"{error}{_advice(error)}", True
            self.end = self.unpacked + len(piece)
        self.unpacked += len(piece)
        return piece

    def _unpack(self) -> bytes:
        """Return at most about ``UNPACK_BYTES``; empty if the file, as it is now, holds no more."""
        while self._member is not None or self._begin_member():
            assert self._member is not None
            data = b""
            if self._member.needs_input:
                data = self._take()
                if not data:
                    break
            found = self._member.decompress(data, UNPACK_BYTES)
            if self._member.eof:
                self._rest = self._member.unused_data + self._rest
                self._member = None
            if found:
                return found
        return b""

    def _begin_member(self) -> bool:
        """Begin the next member if there is one."""
        while not self._is_first and not self._is_padding:
            self._rest = self._rest.lstrip(b"\0")
            if len(self._rest) >= self._format.magic_bytes:
                self._is_padding = self._format.magic.match(self._rest) is None
                break
            more = self._read(RAW_BYTES)
            if not more:
                return False
            self._rest += more
        if self._is_padding:
            return False
        self._is_first = False
        self._member = self._new()
        return True

    def _take(self) -> bytes:
        """Return the next compressed bytes."""
        size = RAW_BYTES
        if self._slow_from is not None and self._file.tell() < self._slow_from:
            size = min(size, self._slow_from - self._file.tell())
        self._rest = self._rest or self._read(size)
        self._fed = self._file.tell() - len(self._rest)
        few = 1 if self._slow_from is not None and self._fed >= self._slow_from else size
        data, self._rest = self._rest[:few], self._rest[few:]
        return data

    def _read(self, size: int) -> bytes:
        data = self._file.read(size)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        return data

    def _rest_before_damage(self) -> bytes:
        """Return the content between ``unpacked`` and the damage.

        A decompressor that meets damage does not return the rest of the same call. So the file is unpacked again
        from its start, with the compressed bytes of that call one by one.
        """
        self._restart(self._fed)
        done = 0
        parts = []
        try:
            while piece := self._unpack():
                parts.append(piece[max(0, self.unpacked - done) :])
                done += len(piece)
        except Exception as error:
            if not is_damage(error):
                raise
        return b"".join(parts)

    def read_at(self, offset: int, size: int, keep: int) -> bytes:
        """Return at most ``size`` bytes from ``offset``, which is not below ``oldest``; empty only at the end."""
        lowest = min(offset, keep)
        if lowest > self.oldest:
            self._buffer = self._buffer[lowest - self.oldest :]
        parts = [self._buffer]
        while self.unpacked < offset + size:
            piece = self.advance()
            if not piece:
                break
            first = self.unpacked - len(piece)
            if self.unpacked > lowest:
                parts.append(piece[max(0, lowest - first) :])
        self._buffer = b"".join(parts)
        begin = offset - self.oldest
        return self._buffer[begin : begin + size] if begin >= 0 else b""

    def close(self) -> None:
        """Close the file; buffered bytes can still be read."""
        self._is_done = True
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


def open_content(path: str) -> PlainFile | UnpackedFile:
    """Open a file for its content, which is unpacked if the file is compressed.

    Raises:
        OSError: It cannot be opened.
    """
    return UnpackedFile(path) if is_compressed(path) else PlainFile(path)


def head_of(path: str, size: int) -> bytes:
    """Return the first ``size`` bytes of the unpacked content; fewer if there are not so many before its end or damage.

    Raises:
        OSError: The file cannot be read.
    """
    with closing(UnpackedFile(path)) as file:
        return file.read_at(0, size, 0)


class UnpackedEnd:
    """A compressed file that the driver unpacks ahead of the plan, to find its lines and its end.

    The end of a damaged file is one more than the length of its content, so that a range contains the damage.
    """

    begin = 0
    splittable = False

    def __init__(self, path: str, *, idle_secs: float = math.inf) -> None:
        """Store the arguments; no file is opened yet; ``idle_secs`` says for how long the file has not changed."""
        self.path = path
        self.idle_secs = idle_secs
        self.is_cut = self._is_corrupt = False
        """Whether the end is known and the rest is missing, or cannot be unpacked."""
        self.whole = 0
        """The end of the last whole line that was unpacked."""
        self._raw = 0, b""
        self._last = 0, b""
        """The piece that was unpacked last, and where it begins: a plan of a file that may grow ends with a line."""
        self._file: UnpackedFile | None = None
        self._end: int | None = None

    def reach(self, start: int, want: int) -> int:
        """Return the wanted end, or the end of the part that can be planned; unpacks up to it and keeps nothing."""
        if self._end is None:
            try:
                self._unpack(start + want)
            except FileNotFoundError:
                if self._may_grow:  # the next look finds where it is
                    return start
                log.warning("%s is gone: what was not yet planned of it is not read", escape(self.path))
                self._end = 0
        stop = min(self.whole if self._end is None else self._end, start + want)
        if start < stop < self.whole and self._may_grow:
            stop = self._end_of_line(stop)
        if self._end is not None and stop >= self._end:
            self._last = 0, b""
        return max(start, stop)

    @property
    def _may_grow(self) -> bool:
        return self.idle_secs != math.inf

    def _end_of_line(self, stop: int) -> int:
        """Return the end of the line in which a position is, if it is in the piece that was unpacked last."""
        first, piece = self._last
        newline = piece.find(b"\n", max(0, stop - 1 - first)) + 1
        return first + newline if newline else stop

    def _unpack(self, stop: int) -> None:
        if self._file is None:
            self._file = UnpackedFile(self.path)
            self.whole = 0
        file = self._file
        while min(file.unpacked, self.whole) <= stop and (piece := file.advance()):
            self._last = file.unpacked - len(piece), piece
            if newline := piece.rfind(b"\n") + 1:
                self.whole = self._last[0] + newline
        self._raw = file.raw
        if file.end is None:
            return
        if file.damage is not None:
            needed = DAMAGE_SECS
        else:
            needed = LAST_LINE_SECS if self.whole < file.end else 0.0
        if self.idle_secs >= needed:
            self._finish(file)

    def _finish(self, file: UnpackedFile) -> None:
        assert file.end is not None
        self.is_cut = file.damage is not None and file.is_cut
        self._is_corrupt = file.damage is not None and not file.is_cut
        self._end = file.end + (file.damage is not None)
        if file.damage is not None:
            log.warning(
                "%s is damaged after %d unpacked bytes (%s): the lines before that are read, and the rest is one bad "
                "record",
                escape(self.path),
                file.end,
                file.damage,
            )
        elif file.has_garbage:
            log.warning("%s has other bytes behind its compressed content: they are ignored", escape(self.path))
        self.close()

    @property
    def raw_bytes(self) -> int:
        """How many compressed bytes were read."""
        return self._raw[0]

    def reached(self, position: int) -> bool:
        """Whether the end is known and is planned."""
        return self._end is not None and position >= self._end

    def is_below(self, position: int) -> bool:
        """Whether the end is known and is before a position."""
        return self._end is not None and position > self._end

    def has_grown_from(self, file: PlainFile) -> bool:
        """Whether the compressed bytes of ``file`` begin with those that were unpacked."""
        raw, tail = self._raw
        start = raw - len(tail)
        return file.read_at(start, len(tail), start) == tail

    def look_again(self, size: int) -> None:
        """Take note that the file has changed and has ``size`` compressed bytes now."""
        is_stuck = self._file is not None and self._file.damage is not None and not self._file.is_cut
        if is_stuck or (self._end is not None and size != self._raw[0] and not self._is_corrupt):
            self.close()
            self._end, self.is_cut = None, False

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
