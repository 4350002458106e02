"""The acker: partials in, verdicts out.

Which question it answers: given what a micro-batch's tasks say of their trees, which trees are complete?

Rule 1: a root with init in this micro-batch and XOR zero, that nobody failed, is complete; runs of complete
roots that are neighbours among the micro-batch's inits travel as one range.
Rule 2: a failed root travels alone, with its cause; a fail wins over a zero.
Rule 3: any other root with a non-zero XOR travels as (key, xor, holder); a zero without init changes nothing
and is dropped.

Prior art: Storm's ``Acker`` (``org.apache.storm.daemon.Acker``), which sees one message at a time.
Read before: ``ids``, ``story``.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.core import packing
from sparkbolt.core.ids import SEQUENCE_BITS, U64, mix64, mix64_array, run_starts, xor_by_key
from sparkbolt.core.metrics import ComponentMetrics
from sparkbolt.core.story import Hop
from sparkbolt.errors import check

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

Buffer: TypeAlias = bytes | bytearray | memoryview

BLOCK_BITS = 18
"""Trees whose keys differ only in these low bits are judged by the same acker task."""
NO_HOLDER = 0
"""The holder of a tree of which nobody said that they hold it; task numbers start at 1."""


def empty_u64() -> U64:
    """An empty array of ids."""
    return np.empty(0, dtype=np.uint64)


@dataclass(frozen=True)
class Fail:
    """Somebody failed a tuple of a tree."""

    key: int
    component: str
    task: int
    """The task's index within the component."""
    cause: str
    """``exception``, ``fail`` (said by the bolt), ``timeout``, ``killed``, ``unreadable``, ``emit``, ``read`` (its
    range broke off here, and the tree stands for all positions behind its own, too), ``cut`` (it broke off behind
    this record, which may not be whole), ``away`` and ``interrupted`` (as ``read`` and ``cut``, since its source is
    away) or ``misplaced`` (the record came behind later ones)."""
    reason: str
    """One line: the exception's type and text, or what the bolt said."""
    micro_batch_id: int
    traceback: str | None = None


@dataclass(frozen=True)
class Report:
    """An error that a component reported, or that failed one of its tuples; for logs, never for verdicts."""

    component: str
    task: int
    text: str
    traceback: str | None = None


@dataclass
class Partials:
    """What tasks say of trees in one micro-batch; arrays of one pair have equal lengths, in any order."""

    init_keys: U64 = field(default_factory=empty_u64)
    init_xors: U64 = field(default_factory=empty_u64)
    """Of spout tasks: the XOR of the init edges, with whatever was fused behind the spout already in it."""
    ack_keys: U64 = field(default_factory=empty_u64)
    ack_xors: U64 = field(default_factory=empty_u64)
    held_keys: U64 = field(default_factory=empty_u64)
    held_by: I32 = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    """The number of a task that got a tuple of the tree in this micro-batch and neither acked nor failed
    it."""
    fails: list[Fail] = field(default_factory=list)
    touched_keys: U64 = field(default_factory=empty_u64)
    """Trees that get a full timeout again (``reset_timeout``)."""

    @property
    def empty(self) -> bool:
        """Whether nothing is said at all."""
        sizes = (
            len(self.init_keys),
            len(self.ack_keys),
            len(self.held_keys),
            len(self.fails),
            len(self.touched_keys),
        )
        return not any(sizes)


@dataclass
class Verdicts:
    """What the ledger is told of one micro-batch."""

    done_first: U64 = field(default_factory=empty_u64)
    done_last: U64 = field(default_factory=empty_u64)
    """Ranges of complete trees, first and last key, both inclusive: every init of this micro-batch between is
    complete."""
    done_counts: I64 = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    failed: list[Fail] = field(default_factory=list)
    """At most one for each key."""
    open_keys: U64 = field(default_factory=empty_u64)
    open_xors: U64 = field(default_factory=empty_u64)
    open_holders: I32 = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    open_new: npt.NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    """Whether the tree was started in this micro-batch."""
    init_failed: U64 = field(default_factory=empty_u64)
    """Which of the failed keys were started in this micro-batch."""
    touched: U64 = field(default_factory=empty_u64)
    """Trees that get a full timeout again."""


@dataclass
class Feedback:
    """All that comes back to the driver from one micro-batch."""

    verdicts: Verdicts = field(default_factory=Verdicts)
    metrics: dict[str, ComponentMetrics] = field(default_factory=dict)
    reports: list[Report] = field(default_factory=list)
    partials: int = 0
    """How many (key, xor) pairs the acker combined: where the next one runs is decided by it."""
    hops: list[Hop] = field(default_factory=list)
    """Of failed trees, of those that are given again, and of those that ``trace`` chose."""
    message_ids: dict[int, str] = field(default_factory=dict)
    """How the ids print that a ``Spout`` gave to trees of which something is told, by key."""
    wakes: dict[int, Any] = field(default_factory=dict)
    """By the numbers of hosted tasks that ran: when each is to be told the time next (``hosted.Wake``, or None)."""


def locate(sorted_keys: U64, wanted: U64) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Where each wanted key is in rising keys, and whether it is there; an index counts only where it is."""
    if len(sorted_keys) == 0:
        return np.zeros(len(wanted), dtype=np.intp), np.zeros(len(wanted), dtype=bool)
    if len(sorted_keys) == len(wanted) and bool(np.array_equal(sorted_keys, wanted)):
        return np.arange(len(wanted)), np.ones(len(wanted), dtype=bool)
    slots = np.searchsorted(sorted_keys, wanted)
    return slots, sorted_keys[np.minimum(slots, len(sorted_keys) - 1)] == wanted


def combine(parts: Sequence[Partials]) -> Partials:
    """One partial of many: by key, the XOR of the inits, the XOR of the acks, one fail and one holder.

    Keys of the result are strictly rising in each pair of arrays. Acks that cancelled each other are left
    out, an init never is. Which fail and which holder stay (the smallest) does not depend on the order of the
    parts. Combining again what was combined changes nothing, so that it may be done at each level.
    """
    init_keys, init_xors = xor_by_key(_join([p.init_keys for p in parts]), _join([p.init_xors for p in parts]))
    ack_keys, ack_xors = xor_by_key(_join([p.ack_keys for p in parts]), _join([p.ack_xors for p in parts]))
    if not ack_xors.all():
        kept = ack_xors != 0
        ack_keys, ack_xors = ack_keys[kept], ack_xors[kept]
    held_keys = _join([p.held_keys for p in parts])
    held_by: I32 = np.concatenate([p.held_by for p in parts]) if parts else np.empty(0, dtype=np.int32)
    if not bool(np.all(held_keys[1:] > held_keys[:-1])):
        order = np.lexsort((held_by, held_keys))
        held_keys, held_by = held_keys[order], held_by[order]
        starts = run_starts(held_keys)
        held_keys, held_by = held_keys[starts], held_by[starts]
    fails = _one_fail_each(fail for part in parts for fail in part.fails)
    touched = _join([p.touched_keys for p in parts])
    touched = np.unique(touched) if len(touched) else touched
    return Partials(init_keys, init_xors, ack_keys, ack_xors, held_keys, held_by, fails, touched)


def shard_of(keys: U64, shards: int) -> npt.NDArray[np.int64]:
    """Which acker task (0 to ``shards - 1``) judges each tree: by the hash of ``key >> BLOCK_BITS``.

    All that is said of one tree meets in one shard. The hash is of the block and not of the root, since
    neighbours must stay together: scattered over shards, completed trees would not fold into ranges and would
    have to travel as single keys.

    >>> len(set(shard_of(np.arange(1000, dtype=np.uint64), 4).tolist()))
    1
    """
    return (mix64_array(keys >> np.uint64(BLOCK_BITS)) % np.uint64(shards)).astype(np.int64)


def only_shard(partials: Partials, shards: int) -> int | None:
    """The shard that all of these combined partials belong to, if one block holds them all; else None."""
    if shards == 1:
        return 0
    rising = (partials.init_keys, partials.ack_keys, partials.held_keys, partials.touched_keys)
    keys = [key for array in rising if len(array) for key in (int(array[0]), int(array[-1]))]
    keys += [fail.key for fail in partials.fails]
    blocks = {key >> BLOCK_BITS for key in keys}
    if len(blocks) > 1:
        return None
    return mix64(blocks.pop()) % shards if blocks else 0


def judge(parts: Sequence[Partials]) -> Verdicts:
    """The verdicts of all that one micro-batch says of the trees of one shard, by the three rules above.

    A range never crosses a block of ``shard_of``, because the inits of the next block may be in another
    shard; ``merge`` joins the ranges. All arrays of the result rise by key.
    """
    whole = combine(parts)
    totals = whole.init_xors.copy()
    slots, hit = locate(whole.ack_keys, whole.init_keys)
    totals[hit] ^= whole.ack_xors[slots[hit]]
    rest = np.ones(len(whole.ack_keys), dtype=bool)
    rest[slots[hit]] = False

    failed_keys = np.array([fail.key for fail in whole.fails], dtype=np.uint64)
    open_new = totals != 0
    complete = ~open_new
    slots, init_failed = locate(whole.init_keys, failed_keys)
    complete[slots[init_failed]] = False
    open_new[slots[init_failed]] = False
    slots, hit = locate(whole.ack_keys, failed_keys)
    rest[slots[hit]] = False

    keys = np.concatenate((whole.init_keys[open_new], whole.ack_keys[rest]))
    xors = np.concatenate((totals[open_new], whole.ack_xors[rest]))
    new = np.arange(len(keys)) < np.count_nonzero(open_new)
    order = np.argsort(keys, kind="stable")
    keys, xors, new = keys[order], xors[order], new[order]
    holders = np.full(len(keys), NO_HOLDER, dtype=np.int32)
    slots, hit = locate(whole.held_keys, keys)
    holders[hit] = whole.held_by[slots[hit]]
    first, last, counts = _ranges(whole.init_keys, complete)
    return Verdicts(
        first,
        last,
        counts,
        whole.fails,
        keys,
        xors,
        holders,
        new,
        failed_keys[init_failed],
        whole.touched_keys,
    )


def merge(verdicts: Sequence[Verdicts]) -> Verdicts:
    """The verdicts of all shards as one; call it also for one shard, since it joins neighbouring ranges.

    Two ranges of one task are joined if no tree that was started in this micro-batch lies between them, and if both
    are of trees that were started for the first time, or both of trees that were started again.
    """
    keys = _join([v.open_keys for v in verdicts])
    order = np.argsort(keys, kind="stable")
    new = _join([v.open_new for v in verdicts]).astype(np.bool_)[order]
    holders = _join([v.open_holders for v in verdicts]).astype(np.int32)[order]
    keys, xors = keys[order], _join([v.open_xors for v in verdicts])[order]
    init_failed = np.sort(_join([v.init_failed for v in verdicts]))

    first = _join([v.done_first for v in verdicts])
    order = np.argsort(first, kind="stable")
    first, last = first[order], _join([v.done_last for v in verdicts])[order]
    counts = _join([v.done_counts for v in verdicts]).astype(np.int64)[order]
    if len(first):
        between = np.sort(np.concatenate((keys[new], init_failed)))
        task = first >> np.uint64(SEQUENCE_BITS - 1)
        apart = np.ones(len(first), dtype=bool)
        blocked = np.searchsorted(between, first[1:]) != np.searchsorted(between, last[:-1])
        np.logical_or(task[1:] != task[:-1], blocked, out=apart[1:])
        starts = np.flatnonzero(apart)
        first, last = first[starts], last[np.append(starts[1:], len(last)) - 1]
        counts = np.add.reduceat(counts, starts)
    failed = _one_fail_each(fail for v in verdicts for fail in v.failed)
    touched = _join([v.touched for v in verdicts])
    touched = np.unique(touched) if len(touched) else touched
    return Verdicts(first, last, counts, failed, keys, xors, holders, new, init_failed, touched)


def join_sections(sections: Sequence[Buffer]) -> bytes:
    """Byte strings as one, each behind its length.

    >>> split_sections(join_sections([b"a", b""]))
    [b'a', b'']
    """
    return b"".join(piece for section in sections for piece in (struct.pack("<Q", len(section)), section))


def split_sections(data: Buffer) -> list[bytes]:
    """The inverse of ``join_sections``."""
    view, sections, at = memoryview(data), [], 0
    while at < len(view):
        (length,) = struct.unpack_from("<Q", view, at)
        at += 8
        check(at + length <= len(view), f"a section of {length} bytes is cut off after {len(view) - at}")
        sections.append(bytes(view[at : at + length]))
        at += length
    return sections


_NO_KEYS = zlib.compress(b"", 1)


def pack_keys(keys: U64) -> bytes:
    """Integers of 64 bits in few bytes: differences of neighbours, byte by byte of equal weight, zlib.

    Any values are kept exactly; those that rise slowly become small.
    """
    if len(keys) == 0:
        return _NO_KEYS
    steps = np.array(keys, dtype="<u8")
    steps[1:] -= keys[:-1]
    return zlib.compress(steps.view(np.uint8).reshape(-1, 8).T.tobytes(), 1)


def unpack_keys(data: Buffer) -> U64:
    """The inverse of ``pack_keys``."""
    planes = np.frombuffer(zlib.decompress(data), dtype=np.uint8).reshape(8, -1)
    steps = np.ascontiguousarray(planes.T).view("<u8").reshape(-1).astype(np.uint64)
    return np.cumsum(steps, dtype=np.uint64)


_VERDICTS_MAGIC = b"SBV1"


def encode_verdicts(verdicts: Verdicts) -> bytes:
    """Verdicts as bytes: keys packed, XOR values raw since they do not shrink, fails as JSON."""
    bounds = np.column_stack((verdicts.done_first, verdicts.done_last)).reshape(-1)
    return join_sections(
        [
            _VERDICTS_MAGIC,
            pack_keys(bounds),
            pack_keys(verdicts.done_counts.astype(np.uint64)),
            pack_keys(verdicts.open_keys),
            verdicts.open_xors.astype("<u8", copy=False).tobytes(),
            zlib.compress(verdicts.open_holders.astype("<i4", copy=False).tobytes(), 1),
            np.packbits(verdicts.open_new).tobytes(),
            pack_keys(verdicts.init_failed),
            pack_keys(verdicts.touched),
            _dump_fails(verdicts.failed),
        ]
    )


def decode_verdicts(data: Buffer) -> Verdicts:
    """The inverse of ``encode_verdicts``.

    Raises:
        InvariantError: the bytes are no verdicts.
    """
    sections = split_sections(data)
    check(len(sections) == 10 and sections[0] == _VERDICTS_MAGIC, "these bytes are not encoded verdicts")
    _, bounds, counts, keys, xors, holders, new, init_failed, touched, fails = sections
    ends = unpack_keys(bounds).reshape(-1, 2)
    open_keys = unpack_keys(keys)
    bits = np.unpackbits(np.frombuffer(new, dtype=np.uint8), count=len(open_keys))
    return Verdicts(
        done_first=np.ascontiguousarray(ends[:, 0]),
        done_last=np.ascontiguousarray(ends[:, 1]),
        done_counts=unpack_keys(counts).astype(np.int64),
        failed=_load_fails(fails),
        open_keys=open_keys,
        open_xors=np.frombuffer(xors, dtype="<u8").astype(np.uint64),
        open_holders=np.frombuffer(zlib.decompress(holders), dtype="<i4").astype(np.int32),
        open_new=bits.astype(np.bool_),
        init_failed=unpack_keys(init_failed),
        touched=unpack_keys(touched),
    )


_PARTIALS_MAGIC = b"SBP2\0\0\0\0"


def encode_partials(partials: Partials) -> bytes:
    """Partials as bytes: keys as steps, XOR values as they are, fails as JSON."""
    p = partials
    arrays = [*packing.keys_to_pack(p.init_keys), p.init_xors, *packing.keys_to_pack(p.ack_keys), p.ack_xors]
    arrays += [*packing.keys_to_pack(p.held_keys), p.held_by, *packing.keys_to_pack(p.touched_keys)]
    return b"".join([_PARTIALS_MAGIC, *packing.pack(arrays), _dump_fails(p.fails)])


def decode_partials(data: Buffer) -> Partials:
    """The inverse of ``encode_partials``; XOR values look into ``data`` and must not be written to.

    Raises:
        InvariantError: the bytes are no partials.
    """
    view = memoryview(data)
    check(bytes(view[:8]) == _PARTIALS_MAGIC, "these bytes are not encoded partials")
    arrays, end = packing.unpack(view, 8)
    check(len(arrays) == 11, f"encoded partials have {len(arrays)} arrays, expected 11")
    init_keys, ack_keys, held_keys, touched_keys = (
        packing.packed_keys(arrays[at], arrays[at + 1]) for at in (0, 3, 6, 9)
    )
    fails = _load_fails(bytes(view[end:]))
    return Partials(init_keys, arrays[2], ack_keys, arrays[5], held_keys, arrays[8], fails, touched_keys)


def _join(columns: Sequence[npt.NDArray[np.generic]]) -> U64:
    """The columns behind one another, as 64-bit numbers."""
    if not columns:
        return empty_u64()
    if len(columns) == 1:
        return columns[0].astype(np.uint64, copy=False)
    return np.concatenate([column.astype(np.uint64, copy=False) for column in columns])


def _one_fail_each(fails: Iterable[Fail]) -> list[Fail]:
    """The fails in the order of their keys, of each key the smallest."""
    kept: dict[int, Fail] = {}

    def order(fail: Fail) -> tuple[int, str, int, str, str, str]:
        return fail.key, fail.component, fail.task, fail.cause, fail.reason, fail.traceback or ""

    for fail in sorted(fails, key=order):
        kept.setdefault(fail.key, fail)
    return list(kept.values())


def _ranges(keys: U64, complete: npt.NDArray[np.bool_]) -> tuple[U64, U64, I64]:
    """(first, last, count) of the maximal runs of complete keys within one block."""
    blocks = keys >> np.uint64(BLOCK_BITS)
    joined = complete[1:] & complete[:-1] & (blocks[1:] == blocks[:-1])
    starts, ends = complete.copy(), complete.copy()
    starts[1:] &= ~joined
    ends[:-1] &= ~joined
    at, to = np.flatnonzero(starts), np.flatnonzero(ends)
    return keys[at], keys[to], (to - at + 1).astype(np.int64)


def _dump_fails(fails: Sequence[Fail]) -> bytes:
    rows = [(f.key, f.component, f.task, f.cause, f.reason, f.micro_batch_id, f.traceback) for f in fails]
    return json.dumps(rows, separators=(",", ":")).encode() if rows else b""


def _load_fails(data: bytes) -> list[Fail]:
    return [Fail(*values) for values in json.loads(data)] if data else []
