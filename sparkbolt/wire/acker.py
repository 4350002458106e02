"""The acker: turns partials into verdicts.

A stage adds up the reports of its tasks (``Accounts``) and splits them by acker task (``shards_of``). An acker task
judges its part (``judge_rows``). The driver combines the frames that reach the end of the lane (``gather``).

Rule 1: a root is complete if it has an init in this micro-batch, its XOR is zero, and no task failed it. Complete roots
that are neighbours among the inits of the micro-batch travel as one range.
Rule 2: a failed root travels alone, with its cause. A fail has priority over a zero XOR.
Rule 3: any other root with a non-zero XOR travels as (key, xor, holder); a zero without init changes nothing
and is dropped.
Rule 4: the same rows give the same feedback, whether executors or the driver judge the partials.
Rule 5: encoded keys travel as differences, because they rise slowly. XOR values travel unchanged, because they do not
compress.

Prior art: Storm's ``Acker`` (``org.apache.storm.daemon.Acker``), which sees one message at a time.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.api.causes import Cause
from sparkbolt.api.reports import Fail
from sparkbolt.api.story import merged
from sparkbolt.base import packing
from sparkbolt.base.ids import (
    I32,
    I64,
    SEQUENCE_BITS,
    U64,
    constant,
    empty_u64,
    mix64,
    mix64_array,
    rise,
    run_starts,
    xor_by_key,
    xor_by_root,
)
from sparkbolt.base.packing import Buffer
from sparkbolt.errors import InvariantError, check
from sparkbolt.observe.measurements import add_totals
from sparkbolt.wire.edges import Anchoring
from sparkbolt.wire.frames import (
    FrameKind,
    Moment,
    decode_control,
    kind_of,
    moment_of,
    unwrap,
    wrap,
)
from sparkbolt.wire.looped_frames import NOTHING_FED_BACK, FedBack, LoopedFrame
from sparkbolt.wire.verdicts import NO_HOLDER, NO_TASKS, Feedback, KeptRows, Partials, Verdicts

BLOCK_BITS = 18
"""Trees whose keys differ only in these low bits are judged by the same acker task."""

_TASK_SHIFT = constant(SEQUENCE_BITS - 2)
_BLOCK_SHIFT = constant(BLOCK_BITS)


def locate(sorted_keys: U64, wanted: U64) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Find each wanted key in ascending keys.

    Args:
        sorted_keys: uint64[keys], ascending.
        wanted: uint64[wanted].

    Returns:
        (slots, found): intp[wanted] and bool[wanted]. A slot is valid only where ``found`` is true.
    """
    if len(sorted_keys) == 0 or len(wanted) == 0:
        return np.zeros(len(wanted), dtype=np.intp), np.zeros(len(wanted), dtype=bool)
    if len(sorted_keys) == len(wanted) and int(np.count_nonzero(sorted_keys == wanted)) == len(wanted):
        return np.arange(len(wanted)), np.ones(len(wanted), dtype=bool)
    slots = np.searchsorted(sorted_keys, wanted)
    return slots, sorted_keys[np.minimum(slots, len(sorted_keys) - 1)] == wanted


def combine(parts: Sequence[Partials]) -> Partials:
    """Combine many partials into one: by key, the XOR of the inits, the XOR of the acks, one fail and one holder.

    Each key array of the result is strictly ascending. The acks of a key that has an init are added to it, so its XOR
    says whether the tree is complete. Other acks whose XOR is zero are dropped; an init is never dropped. Of several
    fails or holders of a key the smallest stays. So the result depends neither on the order of the parts nor on how
    they were combined before: each level may combine.
    """
    init_keys, init_xors = _xored([(p.init_keys, p.init_xors) for p in parts if len(p.init_keys)])
    ack_keys, ack_xors = _xored([(p.ack_keys, p.ack_xors) for p in parts if len(p.ack_keys)])
    slots, began = locate(init_keys, ack_keys)
    if began.any():
        init_xors = init_xors.copy()
        init_xors[slots[began]] ^= ack_xors[began]
    kept = (ack_xors != 0) & ~began
    if not kept.all():
        ack_keys, ack_xors = ack_keys[kept], ack_xors[kept]
    holding = [p for p in parts if len(p.held_keys)]
    held_keys = _join([p.held_keys for p in holding])
    held_by: I32 = np.concatenate([p.held_by for p in holding]) if holding else NO_TASKS
    if not rise(held_keys):
        order = np.lexsort((held_by, held_keys))
        held_keys, held_by = held_keys[order], held_by[order]
        starts = run_starts(held_keys)
        held_keys, held_by = held_keys[starts], held_by[starts]
    fails = one_fail_each([fail for part in parts for fail in part.fails])
    touched = _join([p.touched_keys for p in parts if len(p.touched_keys)])
    touched = touched if rise(touched) else np.unique(touched)
    return Partials(init_keys, init_xors, ack_keys, ack_xors, held_keys, held_by, fails, touched)


def _xored(pairs: Sequence[tuple[U64, U64]]) -> tuple[U64, U64]:
    """``xor_by_key`` of all pairs of arrays together."""
    return xor_by_key(_join([keys for keys, _ in pairs]), _join([xors for _, xors in pairs]))


def shard_of(keys: U64, shards: int) -> npt.NDArray[np.int64]:
    """Which acker task (0 to ``shards - 1``) judges each tree: by the hash of ``key >> BLOCK_BITS``.

    All reports about one tree reach the same shard. The hash is of the block and not of the root, because neighbours
    must stay together: if they were scattered over shards, completed trees would not form ranges and would travel as
    single keys.

    Args:
        keys: uint64[keys].
        shards: the number of acker tasks.

    Returns:
        int64[keys], the shard of each key.

    >>> len(set(shard_of(np.arange(1000, dtype=np.uint64), 4).tolist()))
    1
    """
    return (mix64_array(keys >> _BLOCK_SHIFT) % np.uint64(shards)).astype(np.int64)


def only_shard(partials: Partials, shards: int) -> int | None:
    """The shard of these combined partials if all their keys are in one block; otherwise None."""
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
    """The verdicts on one shard's trees from all partials of one micro-batch, by rules 1 to 3.

    A range never crosses a block of ``shard_of``, because the inits of the next block may be in another shard;
    ``merge`` joins the ranges. All arrays of the result are ascending by key.
    """
    whole = combine(parts)
    rest = np.ones(len(whole.ack_keys), dtype=bool)
    open_new = whole.init_xors != 0
    complete = ~open_new
    init_failed = empty_u64()
    if whole.fails:
        failed_keys = np.array([fail.key for fail in whole.fails], dtype=np.uint64)
        slots, hit = locate(whole.init_keys, failed_keys)
        complete[slots[hit]] = False
        open_new[slots[hit]] = False
        init_failed = failed_keys[hit]
        slots, hit = locate(whole.ack_keys, failed_keys)
        rest[slots[hit]] = False
    first, last, counts = _ranges(whole.init_keys, complete)
    verdicts = Verdicts(first, last, counts, whole.fails, init_failed=init_failed, touched=whole.touched_keys)
    _note_open(verdicts, whole, open_new, rest)
    return verdicts


def _note_open(
    verdicts: Verdicts, whole: Partials, open_new: npt.NDArray[np.bool_], rest: npt.NDArray[np.bool_]
) -> None:
    """Add the trees that stay open to ``verdicts``.

    Args:
        verdicts: receives the open trees.
        whole: the combined partials.
        open_new: bool[inits], the inits whose trees stay open.
        rest: bool[acks], the acks of older trees, which stay open.
    """
    began = int(np.count_nonzero(open_new))
    if not began and not rest.any():
        return
    keys = np.concatenate((whole.init_keys[open_new], whole.ack_keys[rest]))
    order = np.argsort(keys, kind="stable")
    verdicts.open_keys = keys = keys[order]
    verdicts.open_xors = np.concatenate((whole.init_xors[open_new], whole.ack_xors[rest]))[order]
    verdicts.open_new = order < began
    verdicts.open_holders = holders = np.full(len(keys), NO_HOLDER, dtype=np.int32)
    slots, hit = locate(whole.held_keys, keys)
    holders[hit] = whole.held_by[slots[hit]]


def merge(verdicts: Sequence[Verdicts]) -> Verdicts:
    """Merge the verdicts of all shards; call it also for one shard, because it joins neighbouring ranges.

    Two ranges of one task are joined if no tree that began in this micro-batch lies between them, and if both contain
    first attempts, or retries, or dead letters.
    """
    whole = verdicts[0] if len(verdicts) == 1 else _all_shards(verdicts)
    first, last, counts = whole.done_first, whole.done_last, whole.done_counts
    if len(first) < 2:
        return whole
    between = np.sort(np.concatenate((whole.open_keys[whole.open_new], whole.init_failed)))
    task = first >> _TASK_SHIFT
    apart = np.ones(len(first), dtype=bool)
    blocked = np.searchsorted(between, first[1:]) != np.searchsorted(between, last[:-1])
    np.logical_or(task[1:] != task[:-1], blocked, out=apart[1:])
    starts = np.flatnonzero(apart)
    return replace(
        whole,
        done_first=first[starts],
        done_last=last[np.append(starts[1:], len(last)) - 1],
        done_counts=np.add.reduceat(counts, starts),
    )


def _all_shards(verdicts: Sequence[Verdicts]) -> Verdicts:
    """The verdicts of all shards concatenated, sorted by key."""
    keys = _join([v.open_keys for v in verdicts])
    first = _join([v.done_first for v in verdicts])
    by_key, by_first = np.argsort(keys, kind="stable"), np.argsort(first, kind="stable")
    return Verdicts(
        done_first=first[by_first],
        done_last=_join([v.done_last for v in verdicts])[by_first],
        done_counts=_join([v.done_counts for v in verdicts]).astype(np.int64)[by_first],
        failed=one_fail_each([fail for v in verdicts for fail in v.failed]),
        open_keys=keys[by_key],
        open_xors=_join([v.open_xors for v in verdicts])[by_key],
        open_holders=_join([v.open_holders for v in verdicts]).astype(np.int32)[by_key],
        open_new=_join([v.open_new for v in verdicts]).astype(np.bool_)[by_key],
        init_failed=np.sort(_join([v.init_failed for v in verdicts])),
        touched=np.unique(_join([v.touched for v in verdicts])),
    )


def _join(columns: Sequence[npt.NDArray[np.generic]]) -> U64:
    """The columns concatenated, as uint64."""
    if not columns:
        return empty_u64()
    if len(columns) == 1:
        return columns[0].astype(np.uint64, copy=False)
    return np.concatenate([column.astype(np.uint64, copy=False) for column in columns])


def one_fail_each(fails: Sequence[Fail]) -> list[Fail]:
    """The fails sorted by key; for each key only the smallest."""
    if not fails:
        return []
    kept: dict[int, Fail] = {}

    def order(fail: Fail) -> tuple[int, str, int, str, str, str]:
        return fail.key, fail.component, fail.task, fail.cause, fail.reason, fail.traceback or ""

    for fail in sorted(fails, key=order):
        kept.setdefault(fail.key, fail)
    return list(kept.values())


def _ranges(keys: U64, complete: npt.NDArray[np.bool_]) -> tuple[U64, U64, I64]:
    """(first, last, count) of the maximal runs of complete keys within one block: uint64, uint64 and int64[runs]."""
    blocks = keys >> _BLOCK_SHIFT
    joined = complete[1:] & complete[:-1] & (blocks[1:] == blocks[:-1])
    starts, ends = complete.copy(), complete.copy()
    starts[1:] &= ~joined
    ends[:-1] &= ~joined
    at, to = np.flatnonzero(starts), np.flatnonzero(ends)
    return keys[at], keys[to], (to - at + 1).astype(np.int64)


class Accounts:
    """Collects (root, xor) pairs.

    >>> import numpy as np
    >>> accounts, roots = Accounts(), np.array([7], dtype=np.uint64)
    >>> accounts.add(roots, np.array([5], dtype=np.uint64))
    >>> accounts.add(roots, np.array([1], dtype=np.uint64))
    >>> [partials.ack_xors.tolist() for partials in accounts.partials()]
    [[4]]
    """

    def __init__(self) -> None:
        """Begin without pairs."""
        self._known: list[tuple[U64, U64]] = []
        """(keys, xors): uint64[pairs] each, keys ascending."""
        self._last: tuple[U64, U64] | None = None
        """(roots, xors): uint64[pairs] each; the last pairs that were added, not yet in ``_known``."""

    def add(self, roots: U64, xors: U64) -> None:
        """Add XOR values to the accounts of roots.

        A chain of fused bolts reports about the same trees several times in a row. Consecutive calls with the same
        array object of roots are combined first, which is cheap.

        Args:
            roots: uint64[pairs], in any order; must not be changed afterwards.
            xors: uint64[pairs]; must not be changed afterwards.
        """
        if self._last is not None and self._last[0] is roots:
            self._last = roots, self._last[1] ^ xors
        else:
            self._note_last()
            self._last = roots, xors

    def add_all(self, anchoring: Anchoring) -> None:
        """Add the edges of all rows of a block."""
        if anchoring.edge_origins is None:
            self.add(anchoring.roots, anchoring.edges)
        else:
            self._known.append(anchoring.by_tree())

    def partials(self) -> list[Partials]:
        """All accounts, in the order in which they were added."""
        self._note_last()
        return [Partials(ack_keys=keys, ack_xors=xors) for keys, xors in self._known]

    def _note_last(self) -> None:
        if self._last is not None:
            self._known.append(xor_by_root(*self._last))
            self._last = None


def shards_of(partials: Partials, shards: int) -> dict[int, Partials]:
    """The partials for each acker task, ascending by task number; tasks without any are left out."""
    if partials.empty:
        return {}
    only = only_shard(partials, shards)
    if only is not None:
        return {only: partials}
    init, ack, held, touched = (
        shard_of(keys, shards)
        for keys in (partials.init_keys, partials.ack_keys, partials.held_keys, partials.touched_keys)
    )
    fails = shard_of(np.array([fail.key for fail in partials.fails], dtype=np.uint64), shards)
    by_shard: dict[int, Partials] = {}
    counts = np.bincount(np.concatenate((init, ack, held, touched, fails)))
    for shard in np.flatnonzero(counts).tolist():
        by_shard[shard] = Partials(
            init_keys=partials.init_keys[init == shard],
            init_xors=partials.init_xors[init == shard],
            ack_keys=partials.ack_keys[ack == shard],
            ack_xors=partials.ack_xors[ack == shard],
            held_keys=partials.held_keys[held == shard],
            held_by=partials.held_by[held == shard],
            touched_keys=partials.touched_keys[touched == shard],
            fails=[fail for fail, of in zip(partials.fails, fails, strict=True) if of == shard],
        )
    return by_shard


def judge_rows(rows: Iterable[tuple[int, Any]]) -> list[tuple[int, bytes]]:
    """Run an acker task on an executor: judge the partials and pass all other rows through."""
    partials: list[Partials] = []
    out: list[tuple[int, bytes]] = []
    dest, moment = 0, Moment(-1, 0)
    for to, data in rows:
        if kind_of(data) == FrameKind.PARTIALS:
            dest, moment = to, moment_of(data)
            partials.append(decode_partials(unwrap(data, FrameKind.PARTIALS)))
        else:
            out.append((to, data))
    if partials:
        body = count_pairs(partials).to_bytes(8, "little") + encode_verdicts(judge(partials))
        out.append((dest, wrap(FrameKind.VERDICTS, body, moment)))
    return out


def count_pairs(partials: Iterable[Partials]) -> int:
    """How many (key, xor) pairs the partials hold."""
    return sum(len(part.init_keys) + len(part.ack_keys) for part in partials)


def gather(frames: Iterable[Any]) -> Feedback:
    """Combine all frames that a micro-batch returned; judge the partials among them here."""
    partials: list[Partials] = []
    verdicts = []
    feedback = Feedback()
    for data in frames:
        kind = kind_of(data)
        if kind == FrameKind.PARTIALS:
            partials.append(decode_partials(unwrap(data, FrameKind.PARTIALS)))
        elif kind == FrameKind.VERDICTS:
            body = unwrap(data, FrameKind.VERDICTS)
            feedback.partials += int.from_bytes(body[:8], "little")
            verdicts.append(decode_verdicts(body[8:]))
        elif kind == FrameKind.FEEDBACK:
            feedback.add(decode_control(data, FrameKind.FEEDBACK))
        elif kind == FrameKind.READS:
            feedback.reads.append(decode_control(data, FrameKind.READS))
        elif kind == FrameKind.NAMES:
            feedback.message_ids.update(decode_control(data, FrameKind.NAMES))
        elif kind == FrameKind.LETTERS:
            feedback.letters.append(bytes(unwrap(data, FrameKind.LETTERS)))
        elif kind == FrameKind.ROWS:
            feedback.kept.append(KeptRows(*decode_control(data, FrameKind.ROWS)))
        elif kind == FrameKind.LOOPING:
            feedback.looping.append(LoopedFrame.loads(unwrap(data, FrameKind.LOOPING)))
        else:
            raise InvariantError(f"a frame of kind {kind} reached the end of the lane: no level took it")
    if partials:
        feedback.partials += count_pairs(partials)
        verdicts.append(judge(partials))
    add_totals(feedback.metrics, feedback.measured.flows)
    feedback.verdicts = merge(verdicts)
    feedback.hops = merged(feedback.hops)
    feedback.marks.sort()
    feedback.reads.sort()
    feedback.letters.sort()
    feedback.kept.sort(key=lambda kept: kept[:2])
    feedback.looping.sort(key=lambda one: (one.target, one.sender, one.data))
    feedback.fed_back = FedBack.of(feedback.looping) if feedback.looping else NOTHING_FED_BACK
    return feedback


_VERDICTS_MAGIC = b"SBV1"


def encode_verdicts(verdicts: Verdicts) -> bytes:
    """Verdicts as bytes: keys packed, XOR values raw because they do not compress, fails as JSON."""
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
        InvariantError: the bytes are not encoded verdicts.
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
    """Partials as bytes: which arrays follow, keys as differences, XOR values unchanged, fails as JSON.

    The XOR of an init is zero where nothing was fused behind its spout; such columns are narrowed.
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
    """The inverse of ``encode_partials``; XOR values share memory with ``data`` and must not be changed.

    Raises:
        InvariantError: the bytes are not encoded partials.
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
    rows = json.loads(data) if data else []
    return [Fail(key, component, task, Cause.of(cause), *rest) for key, component, task, cause, *rest in rows]
