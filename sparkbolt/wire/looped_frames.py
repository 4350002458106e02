"""Looped frames: the tuples for feedback subscriptions, on their way from one micro-batch to the next.

A task sends such a frame to the driver instead of to the task that gets it. The driver stores all of one micro-batch in
one file, and a later plan names the file.

Rule 1: the frame is the one that the receiving task decodes, with its edges: the driver never decodes tuples.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b85decode, b85encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from sparkbolt.base.ids import I32, U64, run_starts, unmix64_array
from sparkbolt.base.packing import Buffer, compress, join_sections, pack_keys, split_sections, unpack_keys
from sparkbolt.errors import CheckpointError
from sparkbolt.wire.frames import Frame

_HEAD = struct.Struct("<IIIIIxxxxQ")
_FILE_HEAD = struct.Struct("<4sIQ")
_MAGIC = b"SBF1"
_CODEC = "lz4"


@dataclass(frozen=True, eq=False)
class LoopedFrame:
    """A frame for one task, and what the driver must know about it."""

    target: int
    """The number of the task that gets it."""
    sender: int
    """The number of the task that emitted it."""
    stream: int
    """The number of the stream."""
    rows: int
    loose: int
    """How many of its rows belong to no tree."""
    keys: U64
    """uint64[trees], ascending: the trees that its rows belong to."""
    data: bytes
    """The frame, encoded."""

    @classmethod
    def of(cls, target: int, frame: Frame, data: bytes) -> LoopedFrame:
        """The looped frame of a frame with its encoding."""
        anchoring, loose = frame.anchoring, 0
        if anchoring is None:
            nothing = np.empty(0, dtype=np.uint64)
            return cls(target, frame.sender, frame.stream, frame.rows, frame.rows, nothing, data)
        if anchoring.offsets is not None:
            loose = int(np.count_nonzero(np.diff(anchoring.offsets) == 0))
        keys = np.unique(unmix64_array(anchoring.roots))
        return cls(target, frame.sender, frame.stream, frame.rows, loose, keys, data)

    def dumps(self) -> bytes:
        """The looped frame as bytes.

        >>> one = LoopedFrame(3, 2, 5, 10, 9, np.array([7], dtype=np.uint64), b"frame")
        >>> str(LoopedFrame.loads(one.dumps())) == str(one)
        True
        """
        head = _HEAD.pack(self.target, self.sender, self.stream, self.rows, self.loose, len(self.keys))
        return head + self.keys.astype("<u8", copy=False).tobytes() + self.data

    @classmethod
    def loads(cls, data: Buffer) -> LoopedFrame:
        """The inverse of ``dumps``."""
        view = memoryview(data)
        target, sender, stream, rows, loose, count = _HEAD.unpack_from(view)
        end = _HEAD.size + 8 * count
        keys = np.frombuffer(view[_HEAD.size : end], dtype="<u8").astype(np.uint64)
        return cls(target, sender, stream, rows, loose, keys, bytes(view[end:]))


@dataclass(frozen=True, eq=False)
class FedBack:
    """The trees whose tuples were fed back in one micro-batch."""

    keys: U64
    """uint64[trees], ascending."""
    senders: I32
    """int32[trees]: a task that emitted such a tuple of the tree."""
    rows: int
    """How many tuples were fed back, with those that belong to no tree."""

    @classmethod
    def of(cls, frames: Sequence[LoopedFrame]) -> FedBack:
        """The trees of some looped frames; of several senders of a tree the lowest number stays."""
        keys = np.concatenate([np.empty(0, dtype=np.uint64), *(one.keys for one in frames)])
        senders = np.repeat(np.array([one.sender for one in frames], dtype=np.int32), [len(one.keys) for one in frames])
        order = np.lexsort((senders, keys))
        keys, senders = keys[order], senders[order]
        starts = run_starts(keys)
        return cls(keys[starts], senders[starts], sum(one.rows for one in frames))

    def to_json(self) -> dict[str, Any]:
        """A JSON object, which ``from_json`` reads."""
        return {"rows": self.rows, "trees": trees_to_text(self.keys, self.senders)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> FedBack:
        """The inverse of ``to_json``."""
        return cls(*text_to_trees(body["trees"]), body["rows"])


def trees_to_text(keys: U64, numbers: I32) -> list[str]:
    """Keys of trees and numbers as two texts.

    >>> keys, numbers = np.array([5, 9], dtype=np.uint64), np.array([1, -2, 3], dtype=np.int32)
    >>> [column.tolist() for column in text_to_trees(trees_to_text(keys, numbers))]
    [[5, 9], [1, -2, 3]]
    """
    return [b85encode(data).decode() for data in (pack_keys(keys), compress(numbers.astype("<i4").tobytes()))]


def text_to_trees(texts: Sequence[str]) -> tuple[U64, I32]:
    """The inverse of ``trees_to_text``."""
    keys, numbers = map(b85decode, texts)
    return unpack_keys(keys), np.frombuffer(zlib.decompress(numbers), dtype="<i4").astype(np.int32)


NOTHING_FED_BACK = FedBack.of(())


def dump_frames(frames: Sequence[LoopedFrame]) -> bytes:
    """The file of one micro-batch: a head with a checksum, then all looped frames, compressed."""
    payload = join_sections([one.dumps() for one in frames])
    packed: bytes = pa.compress(payload, codec=_CODEC, asbytes=True)
    return _FILE_HEAD.pack(_MAGIC, zlib.crc32(packed), len(payload)) + packed


def load_frames(data: bytes, name: str) -> list[LoopedFrame]:
    """The inverse of ``dump_frames``.

    Raises:
        CheckpointError: the bytes are damaged; ``name`` is in the message.
    """
    if len(data) < _FILE_HEAD.size or data[:4] != _MAGIC:
        raise CheckpointError(f"{name} is damaged: it does not begin as a file of looped tuples ({len(data)} bytes)")
    _, checksum, size = _FILE_HEAD.unpack_from(data)
    packed = memoryview(data)[_FILE_HEAD.size :]
    if zlib.crc32(packed) != checksum:
        raise CheckpointError(f"{name} is damaged: its checksum is {zlib.crc32(packed):08x}, expected {checksum:08x}")
    payload = pa.decompress(packed, decompressed_size=size, codec=_CODEC, asbytes=True)
    return [LoopedFrame.loads(section) for section in split_sections(payload)]
