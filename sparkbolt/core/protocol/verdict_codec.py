"""How partials and verdicts travel.

Which question it answers: how does what tasks say of trees become bytes, and what the acker says of them?
Rule: what comes out is what went in. Keys go as steps, since they rise slowly; XOR values go as they are, since they do
not shrink.

Read before: ``packing``, ``acker``.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from itertools import islice

import numpy as np

from sparkbolt.core.base import packing
from sparkbolt.core.base.ids import U64
from sparkbolt.core.base.packing import Buffer
from sparkbolt.core.model.reports import Fail
from sparkbolt.core.protocol.verdicts import Partials, Verdicts
from sparkbolt.errors import check

_VERDICTS_MAGIC = b"SBV1"


def encode_verdicts(verdicts: Verdicts) -> bytes:
    """Verdicts as bytes: keys packed, XOR values raw since they do not shrink, fails as JSON."""
    bounds = np.empty(2 * len(verdicts.done_first), dtype=np.uint64)
    bounds[::2], bounds[1::2] = verdicts.done_first, verdicts.done_last
    return packing.join_sections(
        [
            _VERDICTS_MAGIC,
            packing.pack_keys(bounds),
            packing.pack_keys(verdicts.done_counts.astype(np.uint64)),
            packing.pack_keys(verdicts.open_keys),
            verdicts.open_xors.astype("<u8", copy=False).tobytes(),
            packing.compress(verdicts.open_holders.astype("<i4", copy=False).tobytes()),
            np.packbits(verdicts.open_new).tobytes(),
            packing.pack_keys(verdicts.init_failed),
            packing.pack_keys(verdicts.touched),
            _dump_fails(verdicts.failed),
        ]
    )


def decode_verdicts(data: Buffer) -> Verdicts:
    """The inverse of ``encode_verdicts``.

    Raises:
        InvariantError: the bytes are no verdicts.
    """
    sections = packing.split_sections(data)
    check(len(sections) == 10 and sections[0] == _VERDICTS_MAGIC, "these bytes are not encoded verdicts")
    _, bounds, counts, keys, xors, holders, new, init_failed, touched, fails = sections
    ends = packing.unpack_keys(bounds).reshape(-1, 2)
    open_keys = packing.unpack_keys(keys)
    bits = np.unpackbits(np.frombuffer(new, dtype=np.uint8), count=len(open_keys))
    return Verdicts(
        done_first=np.ascontiguousarray(ends[:, 0]),
        done_last=np.ascontiguousarray(ends[:, 1]),
        done_counts=packing.unpack_keys(counts).astype(np.int64),
        failed=_load_fails(fails),
        open_keys=open_keys,
        open_xors=np.frombuffer(xors, dtype="<u8").astype(np.uint64),
        open_holders=np.frombuffer(zlib.decompress(holders), dtype="<i4").astype(np.int32),
        open_new=bits.astype(np.bool_),
        init_failed=packing.unpack_keys(init_failed),
        touched=packing.unpack_keys(touched),
    )


_PARTIALS_HEAD = struct.Struct("<4sBxxx")
_PARTIALS_MAGIC = b"SBP4"


def encode_partials(partials: Partials) -> bytes:
    """Partials as bytes: which arrays follow, keys as steps, XOR values as they are, fails as JSON.

    The XOR of an init is zero where nothing was fused behind its spout: such columns are narrowed.
    """
    p = partials
    said, arrays = 0, []
    init_xors = packing.narrow(p.init_xors) if len(p.init_xors) else p.init_xors
    for bit, (keys, others) in enumerate(
        ((p.init_keys, init_xors), (p.ack_keys, p.ack_xors), (p.held_keys, p.held_by), (p.touched_keys, None))
    ):
        if len(keys):
            said |= 1 << bit
            arrays += [*packing.keys_to_pack(keys), *(() if others is None else (others,))]
    return b"".join([_PARTIALS_HEAD.pack(_PARTIALS_MAGIC, said), *packing.pack(arrays), _dump_fails(p.fails)])


def decode_partials(data: Buffer) -> Partials:
    """The inverse of ``encode_partials``; XOR values look into ``data`` and must not be written to.

    Raises:
        InvariantError: the bytes are no partials.
    """
    view = memoryview(data)
    check(bytes(view[:4]) == _PARTIALS_MAGIC and len(view) >= 8, "these bytes are not encoded partials")
    _, said = _PARTIALS_HEAD.unpack_from(view)
    arrays, end = packing.unpack(view, _PARTIALS_HEAD.size)
    expected = (said & 7).bit_count() + packing.KEY_ARRAYS * said.bit_count()
    check(len(arrays) == expected, f"encoded partials have {len(arrays)} arrays, expected {expected}")
    partials, packed = Partials(fails=_load_fails(bytes(view[end:]))), iter(arrays)

    def keys() -> U64:
        return packing.packed_keys(*islice(packed, packing.KEY_ARRAYS))

    if said & 1:
        partials.init_keys, partials.init_xors = keys(), next(packed).astype(np.uint64, copy=False)
    if said & 2:
        partials.ack_keys, partials.ack_xors = keys(), next(packed)
    if said & 4:
        partials.held_keys, partials.held_by = keys(), next(packed)
    if said & 8:
        partials.touched_keys = keys()
    return partials


def _dump_fails(fails: Sequence[Fail]) -> bytes:
    rows = [(f.key, f.component, f.task, f.cause, f.reason, f.micro_batch_id, f.traceback) for f in fails]
    return json.dumps(rows, separators=(",", ":")).encode() if rows else b""


def _load_fails(data: bytes) -> list[Fail]:
    return [Fail(*values) for values in json.loads(data)] if data else []
