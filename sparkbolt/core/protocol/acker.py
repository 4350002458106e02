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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.core.base.ids import (
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
)
from sparkbolt.core.model.metrics import ComponentMetrics
from sparkbolt.core.model.reports import ErrorReport, Fail
from sparkbolt.core.model.story import Hop

BLOCK_BITS = 18
"""Trees whose keys differ only in these low bits are judged by the same acker task."""
NO_HOLDER = 0
"""The holder of a tree of which nobody said that they hold it; task numbers start at 1."""

_TASK_SHIFT = constant(SEQUENCE_BITS - 1)
_BLOCK_SHIFT = constant(BLOCK_BITS)
_NO_TASKS: I32 = np.empty(0, dtype=np.int32)


def _no_tasks() -> I32:
    return _NO_TASKS


@dataclass
class Partials:
    """What tasks say of trees in one micro-batch; arrays of one pair have equal lengths, in any order."""

    init_keys: U64 = field(default_factory=empty_u64)
    init_xors: U64 = field(default_factory=empty_u64)
    """Of spout tasks: the XOR of the init edges, with whatever was fused behind the spout already in it."""
    ack_keys: U64 = field(default_factory=empty_u64)
    ack_xors: U64 = field(default_factory=empty_u64)
    held_keys: U64 = field(default_factory=empty_u64)
    held_by: I32 = field(default_factory=_no_tasks)
    """The number of a task that got a tuple of the tree in this micro-batch and neither acked nor failed
    it."""
    fails: list[Fail] = field(default_factory=list)
    touched_keys: U64 = field(default_factory=empty_u64)
    """Trees that get a full timeout again (``reset_timeout``)."""

    @property
    def empty(self) -> bool:
        """Whether nothing is said at all."""
        some = len(self.ack_keys) or len(self.init_keys) or len(self.held_keys) or len(self.touched_keys)
        return not (some or self.fails)


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
    open_holders: I32 = field(default_factory=_no_tasks)
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
    reports: list[ErrorReport] = field(default_factory=list)
    partials: int = 0
    """How many (key, xor) pairs the acker combined: where the next one runs is decided by it."""
    hops: list[Hop] = field(default_factory=list)
    """Of failed trees, of those that are given again, and of those that ``trace`` chose."""
    message_ids: dict[int, str] = field(default_factory=dict)
    """How the ids print that a ``Spout`` gave to trees of which something is told, by key."""
    timers: dict[int, Any] = field(default_factory=dict)
    """By the numbers of hosted tasks that ran: when each is to be told the time next (``runtime.Timer``, or None)."""
    healths: dict[str, Any] = field(default_factory=dict)
    """Of each bolt that got tuples what became of them (``outages.Health``)."""
    letters: list[bytes] = field(default_factory=list)
    """Dead letters for the checkpoint, sorted: lines of JSON, which nobody looks into on their way."""
    reads: list[tuple[str, Any, int]] = field(default_factory=list)
    """(spout, what was read of one of its ranges (``Range``), bytes), sorted; of spouts that measure what they read."""


def locate(sorted_keys: U64, wanted: U64) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Where each wanted key is in rising keys, and whether it is there; an index counts only where it is."""
    if len(sorted_keys) == 0 or len(wanted) == 0:
        return np.zeros(len(wanted), dtype=np.intp), np.zeros(len(wanted), dtype=bool)
    if len(sorted_keys) == len(wanted) and int(np.count_nonzero(sorted_keys == wanted)) == len(wanted):
        return np.arange(len(wanted)), np.ones(len(wanted), dtype=bool)
    slots = np.searchsorted(sorted_keys, wanted)
    return slots, sorted_keys[np.minimum(slots, len(sorted_keys) - 1)] == wanted


def combine(parts: Sequence[Partials]) -> Partials:
    """One partial of many: by key, the XOR of the inits, the XOR of the acks, one fail and one holder.

    Keys of the result are strictly rising in each pair of arrays. Acks that cancelled each other are left out, an
    init never is. Where there is one ack for each init, as behind a spout, it is added to it. Which fail and which
    holder stay (the smallest) does not depend on the order of the parts. Combining again what was combined changes
    nothing, so that it may be done at each level.
    """
    init_keys, init_xors = _xored([(p.init_keys, p.init_xors) for p in parts if len(p.init_keys)])
    ack_keys, ack_xors = _xored([(p.ack_keys, p.ack_xors) for p in parts if len(p.ack_keys)])
    nonzero = np.count_nonzero(ack_xors)
    if nonzero < len(ack_xors):
        kept = ack_xors != 0
        ack_keys, ack_xors = ack_keys[kept], ack_xors[kept]
    if len(ack_keys) == len(init_keys) and np.array_equal(ack_keys, init_keys):
        init_xors, ack_keys, ack_xors = init_xors ^ ack_xors, empty_u64(), empty_u64()
    holding = [p for p in parts if len(p.held_keys)]
    held_keys = _join([p.held_keys for p in holding])
    held_by: I32 = np.concatenate([p.held_by for p in holding]) if holding else _NO_TASKS
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

    All that is said of one tree meets in one shard. The hash is of the block and not of the root, since
    neighbours must stay together: scattered over shards, completed trees would not fold into ranges and would
    have to travel as single keys.

    >>> len(set(shard_of(np.arange(1000, dtype=np.uint64), 4).tolist()))
    1
    """
    return (mix64_array(keys >> _BLOCK_SHIFT) % np.uint64(shards)).astype(np.int64)


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
    slots = slots[hit]
    totals[hit] ^= whole.ack_xors[slots]
    rest = np.ones(len(whole.ack_keys), dtype=bool)
    rest[slots] = False
    open_new = totals != 0
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
    _note_open(verdicts, whole, totals, open_new, rest)
    return verdicts


def _note_open(
    verdicts: Verdicts, whole: Partials, totals: U64, open_new: npt.NDArray[np.bool_], rest: npt.NDArray[np.bool_]
) -> None:
    """Put in the trees that stay open: those of ``whole``'s inits and of its acks for which the arrays are true."""
    began = int(np.count_nonzero(open_new))
    if not began and not rest.any():
        return
    keys = np.concatenate((whole.init_keys[open_new], whole.ack_keys[rest]))
    order = np.argsort(keys, kind="stable")
    verdicts.open_keys = keys = keys[order]
    verdicts.open_xors = np.concatenate((totals[open_new], whole.ack_xors[rest]))[order]
    verdicts.open_new = order < began
    verdicts.open_holders = holders = np.full(len(keys), NO_HOLDER, dtype=np.int32)
    slots, hit = locate(whole.held_keys, keys)
    holders[hit] = whole.held_by[slots[hit]]


def merge(verdicts: Sequence[Verdicts]) -> Verdicts:
    """The verdicts of all shards as one; call it also for one shard, since it joins neighbouring ranges.

    Two ranges of one task are joined if no tree that was started in this micro-batch lies between them, and if both
    are of trees that were started for the first time, or both of trees that were started again.
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
    """Verdicts behind one another, in the order of their keys."""
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
    """The columns behind one another, as 64-bit numbers."""
    if not columns:
        return empty_u64()
    if len(columns) == 1:
        return columns[0].astype(np.uint64, copy=False)
    return np.concatenate([column.astype(np.uint64, copy=False) for column in columns])


def one_fail_each(fails: Sequence[Fail]) -> list[Fail]:
    """The fails in the order of their keys, of each key the smallest."""
    if not fails:
        return []
    kept: dict[int, Fail] = {}

    def order(fail: Fail) -> tuple[int, str, int, str, str, str]:
        return fail.key, fail.component, fail.task, fail.cause, fail.reason, fail.traceback or ""

    for fail in sorted(fails, key=order):
        kept.setdefault(fail.key, fail)
    return list(kept.values())


def _ranges(keys: U64, complete: npt.NDArray[np.bool_]) -> tuple[U64, U64, I64]:
    """(first, last, count) of the maximal runs of complete keys within one block."""
    blocks = keys >> _BLOCK_SHIFT
    joined = complete[1:] & complete[:-1] & (blocks[1:] == blocks[:-1])
    starts, ends = complete.copy(), complete.copy()
    starts[1:] &= ~joined
    ends[:-1] &= ~joined
    at, to = np.flatnonzero(starts), np.flatnonzero(ends)
    return keys[at], keys[to], (to - at + 1).astype(np.int64)
