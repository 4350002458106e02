"""Ids are arithmetic: where roots and edges come from.

Which question it answers: which 64-bit number stands for a tree, and which for one delivery of one tuple?

Rule 1: a root is a bijection of (task number, sequence), so a set of roots folds back into ranges.
Rule 2: an edge depends on everything that tells one delivery from another: the anchor's edge, the
micro-batch, the ordinal within that parent, the anchor slot, the delivery slot, the destination. The same
input gives the same ids, so a task that runs again tells the ledger the same thing.
Rule 3: ids spread like random 64-bit numbers, so that only a complete tree XORs to zero.

The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", 2014, with the constants of David Stafford's variant 13). Prior art for XOR tracking: Storm's acker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

U64: TypeAlias = npt.NDArray[np.uint64]

MASK64 = (1 << 64) - 1
SEQUENCE_BITS = 48
MAX_SEQUENCE = (1 << SEQUENCE_BITS) - 1
MAX_TASK_NUMBER = (1 << 16) - 1

AGAIN = 1 << (SEQUENCE_BITS - 1)
"""Sequences from here on are given out by plans to trees that a bolt's task starts again; those below are the task's
own to give. Of a spout's task they are those of dead letters, which are no messages and are counted apart."""

_M1 = 0xBF58476D1CE4E5B9
_M2 = 0x94D049BB133111EB
_M1_INVERSE = pow(_M1, -1, 1 << 64)
_M2_INVERSE = pow(_M2, -1, 1 << 64)
_PHI = 0x9E3779B97F4A7C15
_PIECE = 1 << 14
OBJECT_ORDINAL = 1 << 31
"""Ordinals from here on belong to emissions anchored to a tuple object rather than to a row of a frame."""
_STEPS: U64 = np.arange(_PIECE, dtype=np.uint64) * np.uint64(_PHI)
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
_NO_IDS: U64 = np.empty(0, dtype=np.uint64)


def constant(value: int) -> U64:
    """A number for arithmetic with arrays of ids: as an array of no dimension, with which it costs half as much."""
    array: U64 = np.array(value, dtype=np.uint64)
    array.setflags(write=False)
    return array


_C27, _C30, _C31, _C54, _C60, _C62 = map(constant, (27, 30, 31, 54, 60, 62))
_CM1, _CM2, _CM1_INVERSE, _CM2_INVERSE, _CPHI = map(constant, (_M1, _M2, _M1_INVERSE, _M2_INVERSE, _PHI))


def mix64(x: int) -> int:
    """Spread a 64-bit number; a bijection.

    >>> unmix64(mix64(12345))
    12345
    """
    x &= MASK64
    x = ((x ^ (x >> 30)) * _M1) & MASK64
    x = ((x ^ (x >> 27)) * _M2) & MASK64
    return x ^ (x >> 31)


def unmix64(x: int) -> int:
    """The inverse of ``mix64``."""
    x = x ^ (x >> 31) ^ (x >> 62)
    x = (x * _M2_INVERSE) & MASK64
    x = x ^ (x >> 27) ^ (x >> 54)
    x = (x * _M1_INVERSE) & MASK64
    return x ^ (x >> 30) ^ (x >> 60)


def mix64_array(x: U64) -> U64:
    """``mix64`` of each element; the argument is not changed."""
    y: U64 = x.copy()
    for piece in _pieces(y):
        _mix(piece)
    return y


def unmix64_array(x: U64) -> U64:
    """``unmix64`` of each element; the argument is not changed."""
    y: U64 = x.copy()
    for piece in _pieces(y):
        _unmix(piece)
    return y


def _pieces(x: U64) -> Iterable[U64]:
    """Views of an array, one after the other: what is done to one is done before it leaves the processor's cache.

    In one piece, mixing 100,000 numbers takes three times as long.
    """
    return (x,) if len(x) <= _PIECE else (x[start : start + _PIECE] for start in range(0, len(x), _PIECE))


def _mix(x: U64) -> None:
    """``mix64`` of each element, in place."""
    x ^= x >> _C30
    x *= _CM1
    x ^= x >> _C27
    x *= _CM2
    x ^= x >> _C31


def _unmix(x: U64) -> None:
    """``unmix64`` of each element, in place."""
    y = x >> _C31
    y ^= x >> _C62
    x ^= y
    x *= _CM2_INVERSE
    y = x >> _C27
    y ^= x >> _C54
    x ^= y
    x *= _CM1_INVERSE
    y = x >> _C30
    y ^= x >> _C60
    x ^= y


def tree_key(task_number: int, sequence: int) -> int:
    """Pack a tree's (task number, sequence) into 64 bits: 16 for the task, 48 for the sequence.

    Trees are kept and sorted by key, since keys rise in the order in which a task starts trees; the root, its
    mixed form, is what tuples carry.
    """
    return (task_number << SEQUENCE_BITS) | sequence


def split_key(key: int) -> tuple[int, int]:
    """(task number, sequence) of a tree key."""
    return key >> SEQUENCE_BITS, key & MAX_SEQUENCE


def edge_salt(micro_batch_id: int, anchor_slot: int, delivery_slot: int, destination: int) -> int:
    """What an edge depends on besides its parent's edge and the ordinal, as one 64-bit number."""
    x = mix64(micro_batch_id + _PHI)
    x = mix64(x ^ ((anchor_slot << 40) | (delivery_slot << 20)))
    return mix64(x + destination * _PHI)


def edges_of(parent_edges: U64, ordinals: npt.NDArray[np.unsignedinteger] | int, salt: int) -> U64:
    """Edges of deliveries: ``mix64((parent ^ salt) + ordinal * phi)``, element by element.

    One mixing is enough because a parent's edge is itself a mixed number. Ordinals may be unsigned integers of any
    width, or one for all.
    """
    edges = parent_edges ^ np.uint64(salt)
    for start, piece in enumerate(_pieces(edges)):
        first = start * _PIECE
        if not isinstance(ordinals, int):
            piece += np.multiply(ordinals[first : first + _PIECE], _CPHI, dtype=np.uint64)
        elif ordinals:
            piece += np.uint64(ordinals * _PHI & MASK64)
        _mix(piece)
    return edges


def edges_of_runs(parent_edges: U64, starts: npt.NDArray[np.intp], count: int, first: int, salt: int) -> U64:
    """``edges_of`` where neighbours have a parent in common and ordinals count from ``first`` within each run.

    What differs between the runs is worked out once a run.

    Args:
        parent_edges: that of each run.
        starts: the first element of each run; the first of them is 0, and no run is empty.
        count: how many edges.
        first: the ordinal of each run's first element.
        salt: as of ``edge_salt``.

    >>> edges = edges_of_runs(np.array([5, 6], dtype=np.uint64), np.array([0, 2]), count=3, first=4, salt=99)
    >>> edges.tolist() == [edge_of(5, 4, 99), edge_of(5, 5, 99), edge_of(6, 4, 99)]
    True
    """
    bases = parent_edges ^ np.uint64(salt)
    bases += (np.int64(first) - starts.astype(np.int64)).view(np.uint64) * _CPHI
    edges = bases.repeat(run_lengths(starts, count))
    for start, piece in enumerate(_pieces(edges)):
        piece += _STEPS[: len(piece)]
        if start:
            piece += np.uint64(start * _PIECE * _PHI & MASK64)
        _mix(piece)
    return edges


def edge_of(parent_edge: int, ordinal: int, salt: int) -> int:
    """``edges_of`` for one delivery."""
    return mix64(((parent_edge ^ salt) + ordinal * _PHI) & MASK64)


def run_starts(sorted_values: npt.NDArray[np.generic]) -> npt.NDArray[np.intp]:
    """Index of the first element of each run of equal values; empty for an empty array."""
    if len(sorted_values) == 0:
        return np.empty(0, dtype=np.intp)
    change = np.empty(len(sorted_values), dtype=bool)
    change[0] = True
    np.not_equal(sorted_values[1:], sorted_values[:-1], out=change[1:])
    return change.nonzero()[0]


def rise(keys: npt.NDArray[Any]) -> bool:
    """Whether each key is greater than the one before it.

    >>> rise(np.array([1, 2], dtype=np.uint64)), rise(np.array([2, 2], dtype=np.uint64))
    (True, False)
    """
    return len(keys) < 2 or int(np.count_nonzero(keys[1:] > keys[:-1])) == len(keys) - 1


def run_lengths(starts: npt.NDArray[np.intp], count: int) -> npt.NDArray[np.intp]:
    """How many of ``count`` elements each run has; the first run begins at 0. ``np.diff`` takes longer.

    >>> run_lengths(np.array([0, 2]), 5).tolist()
    [2, 3]
    """
    lengths = np.empty(len(starts), dtype=np.intp)
    if len(starts):
        np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
        lengths[-1] = count - starts[-1]
    return lengths


def ordinals_within(parents: npt.NDArray[np.integer]) -> npt.NDArray[np.uint32]:
    """For each element how many equal ones stand before it; equal elements must be neighbours."""
    starts = run_starts(parents)
    if len(starts) == len(parents):
        return np.zeros(len(parents), dtype=np.uint32)
    ordinals = np.arange(len(parents), dtype=np.uint32)
    ordinals -= starts.astype(np.uint32).repeat(run_lengths(starts, len(parents)))
    return ordinals


def xor_of_runs(xors: U64, starts: npt.NDArray[np.intp]) -> U64:
    """The XOR of each run; the first run begins at 0, and none is empty.

    ``reduceat`` says the same in thrice the time where runs are short.

    >>> xor_of_runs(np.array([1, 2, 4], dtype=np.uint64), np.array([0, 2])).tolist()
    [3, 4]
    """
    if len(starts) == 0:
        return xors[:0]
    running = np.bitwise_xor.accumulate(xors)
    ends = np.empty(len(starts), dtype=np.intp)
    np.subtract(starts[1:], 1, out=ends[:-1])
    ends[-1] = len(xors) - 1
    runs: U64 = running.take(ends)
    runs[1:] ^= runs[:-1].copy()
    return runs


def xor_by_key(keys: U64, xors: U64) -> tuple[U64, U64]:
    """Combine (key, xor) pairs: keys sorted and each once, the XOR of what belonged to each.

    The sort is stable (merging runs), since what comes in is mostly a few sorted runs one after the other.
    """
    if rise(keys):
        return keys, xors
    if not (keys[1:] >= keys[:-1]).all():
        order = np.argsort(keys, kind="stable")
        keys, xors = keys[order], xors[order]
    starts = run_starts(keys)
    if len(starts) == len(keys):
        return keys, xors
    return keys[starts], xor_of_runs(xors, starts)


def xor_by_root(roots: U64, xors: U64) -> tuple[U64, U64]:
    """Combine (root, xor) pairs and turn roots into keys; the result is as of ``xor_by_key``.

    Neighbours of one root are folded first: the words of one line travel together, and unmixing costs.
    """
    starts = run_starts(roots)
    if len(starts) < len(roots):
        roots, xors = roots[starts], xor_of_runs(xors, starts)
    return xor_by_key(unmix64_array(roots), xors)


def empty_u64() -> U64:
    """An empty array of ids, always the same one: there is nothing in it to change."""
    return _NO_IDS
