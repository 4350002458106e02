r"""Lines: splits a byte range into lines, as Arrow columns.

Rule 1: a range ``[start, end)`` owns the lines that start in it; a line starts at 0 and after each ``\n``. So however a
file is split into ranges, each line is read exactly once.
Rule 2: ``\n`` ends a line, and a ``\r`` before it (or before the end of the file) is not part of it.
Rule 3: memory is bounded by ``BLOCK_BYTES`` and the longest allowed line. A longer line becomes a ``BadRecord`` and is
skipped.
Rule 4: NUL bytes at the start of a line are not part of it, and neither is a byte order mark at offset 0. A file gets
such NUL bytes when it is truncated while a program keeps writing at its old offset.
Rule 5: the last line of a damaged source is a ``BadRecord``, also if the damage follows a newline.

The columns are Arrow and not ``block.decode().split("\n")``: for lines of 44 bytes, including reading, the Arrow column
costs 45 ns per line (110 ns with its ``to_pylist``); the Python list costs 60 ns (90 ns with its conversion to Arrow).
The Arrow column goes into a frame unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkbolt.api.ranges import BadRecord, Range

BLOCK_BYTES = 1 << 20
"""How many bytes are read, decoded and split at once."""
SCAN_BYTES = 1 << 16
"""How many bytes are read at once when only the next newline is needed."""
LINE_BYTES_LIMIT = 1 << 29
"""The largest ``line_bytes_max``: Arrow's string offsets have 32 bits, and a replaced byte becomes three bytes."""

_NULS = re.compile(rb"^\0+", re.MULTILINE)

I64 = npt.NDArray[np.int64]
Lines: TypeAlias = tuple[I64, Any]
"""Offsets at which lines start (``int64[lines]``), and the lines (``pa.StringArray``, same length)."""


class ByteSource(Protocol):
    """Bytes that are read by offset: a file, or the unpacked content of a compressed file."""

    @property
    def damage(self) -> str | None:
        """The error at the end, once the end was reached; None if there is none."""

    def read_at(self, offset: int, size: int, keep: int) -> bytes:
        """Return at most ``size`` bytes from ``offset``; empty only at the end.

        The caller may ask again for bytes from ``keep`` on; a source that cannot go back must hold them.
        """


@dataclass(frozen=True)
class LineRules:
    """How bytes become lines."""

    encoding: str = "utf-8"
    line_bytes_max: int = 16 << 20
    """Longest line in bytes, without its newline."""
    open_end: bool = True
    """Whether bytes after the last newline count as a line."""


def lines_of(source: ByteSource, range_: Range, rules: LineRules) -> Iterator[Lines | BadRecord]:
    """Yield the lines that start within ``range_``, in order, one block at a time."""
    for item in _blocks(source, range_.start, range_.end, rules):
        if isinstance(item, BadRecord):
            yield item
        else:
            yield from split_block(*item, rules)


def _too_long(position: int, rules: LineRules) -> BadRecord:
    return BadRecord(position, f"the line at byte {position} is longer than line_bytes_max={rules.line_bytes_max}")


def _damaged(position: int, damage: str) -> BadRecord:
    return BadRecord(position, f"from the line at byte {position} on the compressed file is damaged: {damage}")


def _first_line_start(source: ByteSource, start: int, end: int) -> int:
    """Return the offset at which the first line of the range starts; ``end`` if none does."""
    if start == 0:
        return 0
    position = start - 1
    while position < end - 1:
        data = source.read_at(position, min(SCAN_BYTES, end - 1 - position), end - 1)
        if not data:
            return end
        newline = data.find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(data)
    return end


def _blocks(source: ByteSource, start: int, end: int, rules: LineRules) -> Iterator[tuple[int, bytes] | BadRecord]:
    """Yield (offset, bytes): whole lines that start in the range, each with its newline (the last line gets one)."""
    mark = _mark(rules.encoding)
    position = _first_line_start(source, start, end)
    while position < end:
        data = source.read_at(position, min(BLOCK_BYTES, end - position), end - 1)
        if not data:
            if source.damage is not None:
                yield _damaged(position, source.damage)
            return
        cut = data.rfind(b"\n") + 1
        if cut == len(data) or (cut and position + len(data) < end):
            yield position, data[:cut]
            position += cut
            continue
        begun = len(data[cut:].lstrip(b"\0"))
        if position + cut == 0 and source.read_at(0, len(mark), end - 1) == mark:
            begun -= len(mark)
        rest, after, is_last = _rest_of_line(source, position + len(data), begun, end, rules)
        if rest is not None and not is_last:
            yield position, data + rest
        elif rest is not None and source.damage is None and _is_line(position + cut, data[cut:] + rest, rules):
            yield position, data + rest + b"\n"
        elif cut:
            yield position, data[:cut]
        if is_last and source.damage is not None:
            yield _damaged(position + cut, source.damage)
            return
        if rest is None:
            yield _too_long(position + cut, rules)
        position = after


def _rest_of_line(
    source: ByteSource, position: int, length: int, end: int, rules: LineRules
) -> tuple[bytes | None, int, bool]:
    """Read to the end of a line whose first ``length`` bytes are already read.

    Returns:
        A triple. First the missing bytes with the newline (without one at the end of the source), or None if the line
        is too long. Second the offset at which the next line starts, or any position at or after ``end`` if that is
        outside the range. Third whether the source ends before a newline.
    """
    parts: list[bytes] = []
    is_last = False
    while length <= rules.line_bytes_max or position < end:
        data = source.read_at(position, SCAN_BYTES, end - 1)
        newline = data.find(b"\n")
        piece = data[: newline + 1] if newline >= 0 else data
        position += len(piece)
        if not length:
            piece = piece.lstrip(b"\0")
        length += len(piece) - (newline >= 0)
        if length <= rules.line_bytes_max:
            parts.append(piece)
        else:
            parts.clear()
        is_last = not data
        if newline >= 0 or is_last:
            break
    return (b"".join(parts) if length <= rules.line_bytes_max else None), position, is_last


@cache
def _mark(encoding: str) -> bytes:
    """Return the byte order mark of an encoding; empty if it has none."""
    try:
        return "\ufeff".encode(encoding)
    except UnicodeEncodeError:
        return b""


def _text(offset: int, block: bytes, rules: LineRules) -> bytes:
    """Return lines, the first of which starts at ``offset``, without NUL bytes and the byte order mark (rule 4)."""
    mark = _mark(rules.encoding)
    if offset == 0 and mark and block.startswith(mark):
        block = block[len(mark) :]
    return _NULS.sub(b"", block) if b"\0" in block else block


def _is_line(offset: int, rest: bytes, rules: LineRules) -> bool:
    """Whether the bytes behind the last newline count as a line."""
    return rules.open_end and bool(_text(offset, rest, rules))


def split_block(offset: int, block: bytes, rules: LineRules) -> Iterator[Lines | BadRecord]:
    r"""Split whole lines (each with its newline) that start at ``offset`` of their file.

    >>> positions, lines = next(split_block(10, b"to be\r\nor not\n", LineRules()))
    >>> positions.tolist(), lines.to_pylist()
    ([10, 17], ['to be', 'or not'])
    """
    newlines = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 10)
    starts = np.empty(len(newlines), dtype=np.int64)
    starts[0] = 0
    np.add(newlines[:-1], 1, out=starts[1:])
    text = _text(offset, block, rules)
    ends = newlines if text is block else np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == 10)
    if len(text) > rules.line_bytes_max:
        long = np.flatnonzero(np.diff(ends, prepend=-1) - 1 > rules.line_bytes_max)
        if len(long):
            yield from _around_long_lines(offset, block, starts[long], newlines[long] + 1, rules)
            return
    yield starts + offset, _column(text, ends, rules)


def _around_long_lines(
    offset: int, block: bytes, begins: I64, ends: I64, rules: LineRules
) -> Iterator[Lines | BadRecord]:
    done = 0
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        if begin > done:
            yield from split_block(offset + done, block[done:begin], rules)
        yield _too_long(offset + begin, rules)
        done = end
    if done < len(block):
        yield from split_block(offset + done, block[done:], rules)


def _column(block: bytes, newlines: npt.NDArray[np.intp], rules: LineRules) -> Any:
    """Return the lines of ``block`` as one Arrow array: its bytes without newlines, and an offset per line."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
        newlines = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 10)
    if rules.encoding != "utf-8":
        return pa.array([line.decode(rules.encoding, "replace") for line in block[:-1].split(b"\n")], pa.string())
    if not block.isascii():
        try:
            block.decode()
        except UnicodeDecodeError:
            block = block.decode(errors="replace").encode()
            newlines = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == 10)
    offsets = np.zeros(len(newlines) + 1, dtype=np.int32)
    offsets[1:] = newlines - np.arange(len(newlines))
    return pa.StringArray.from_buffers(len(newlines), pa.py_buffer(offsets), pa.py_buffer(block.replace(b"\n", b"")))
