"""Ids: computes roots and edges, and folds them by key.

Rule 1: a root is a bijection of (task number, sequence), so a set of roots can be turned back into ranges of sequences.
Rule 2: an edge depends on everything that distinguishes one delivery from another: the anchor's edge, the
micro-batch, the ordinal within that parent, the anchor slot, the delivery slot, the destination. The same
input gives the same ids, so a task that runs again reports the same ids to the ledger.
Rule 3: ids are spread like random 64-bit numbers, so only a complete tree XORs to zero (but for a chance of 2**-64).

The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", 2014, with the constants of David Stafford's variant 13). Prior art for XOR tracking: Storm's acker.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.base.native import kernels

U64: TypeAlias = npt.NDArray[np.uint64]

MASK64 = (1 << 64) - 1
SEQUENCE_BITS = 48
MAX_SEQUENCE = (1 << SEQUENCE_BITS) - 1
MAX_TASK_NUMBER = (1 << 16) - 1

AGAIN = 1 << (SEQUENCE_BITS - 1)
"""First sequence of the third quarter. A task that starts trees itself, of a bolt or an inlet, assigns the sequences
below it to first attempts; plans assign the third quarter to later ones."""

LETTERS = AGAIN | (1 << (SEQUENCE_BITS - 2))
"""First sequence of the upper quarter. In every task it belongs to dead letters, which are not messages and are counted
separately."""

_M1 = 0xBF58476D1CE4E5B9
_M2 = 0x94D049BB133111EB
_M1_INVERSE = pow(_M1, -1, 1 << 64)
_M2_INVERSE = pow(_M2, -1, 1 << 64)
_PHI = 0x9E3779B97F4A7C15
_PIECE = 1 << 14
OBJECT_ORDINAL = 1 << 31
"""First ordinal of emissions that are anchored to a tuple object instead of to a row of a frame."""
_STEPS: U64 = np.arange(_PIECE, dtype=np.uint64) * np.uint64(_PHI)
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
_NO_IDS: U64 = np.empty(0, dtype=np.uint64)


def constant(value: int) -> U64:
    """Return a number as an array of no dimensions: arithmetic of arrays of ids with it takes half the time."""
    array: U64 = np.array(value, dtype=np.uint64)
    array.setflags(write=False)
    return array


_C27, _C30, _C31, _C54, _C60, _C62 = map(constant, (27, 30, 31, 54, 60, 62))
_CM1, _CM2, _CM1_INVERSE, _CM2_INVERSE, _CPHI = map(constant, (_M1, _M2, _M1_INVERSE, _M2_INVERSE, _PHI))


def mix64(x: int) -> int:
    """Mix the bits of a 64-bit number; a bijection.

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
    """Return views of consecutive pieces of an array, each small enough to stay in the processor's cache.

    Mixing 100,000 numbers in one piece takes three times as long.
    """
    return (x,) if len(x) <= _PIECE else (x[start : start + _PIECE] for start in range(0, len(x), _PIECE))


def _mix(x: U64) -> None:
    """``mix64`` of each element, in place."""
    native = kernels()
    if native is not None:
        native.mix(x)
        return
    x ^= x >> _C30
    x *= _CM1
    x ^= x >> _C27
    x *= _CM2
    x ^= x >> _C31


def _unmix(x: U64) -> None:
    """``unmix64`` of each element, in place."""
    native = kernels()
    if native is not None:
        native.unmix(x)
        return
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

    Trees are stored and sorted by key, because keys ascend in the order in which a task starts trees. Tuples carry the
    root, which is ``mix64`` of the key.
    """
    return (task_number << SEQUENCE_BITS) | sequence


def split_key(key: int) -> tuple[int, int]:
    """Return (task number, sequence) of a tree key."""
    return key >> SEQUENCE_BITS, key & MAX_SEQUENCE


def edge_salt(micro_batch_id: int, anchor_slot: int, delivery_slot: int, destination: int) -> int:
    """Combine everything that an edge depends on, except its parent's edge and the ordinal, into one 64-bit number."""
    x = mix64(micro_batch_id + _PHI)
    x = mix64(x ^ ((anchor_slot << 40) | (delivery_slot << 20)))
    return mix64(x + destination * _PHI)


def edges_of(parent_edges: U64, ordinals: npt.NDArray[np.unsignedinteger] | int, salt: int) -> U64:
    """Return the edges of deliveries: ``mix64((parent ^ salt) + ordinal * phi)``, element by element.

    Mixing once is enough, because a parent's edge is itself a mixed number.

    Args:
        parent_edges: uint64[deliveries].
        ordinals: unsigned integers[deliveries] of any width, or one number for all.
        salt: a result of ``edge_salt``.

    Returns:
        uint64[deliveries].
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
    """``edges_of`` for runs of deliveries with the same parent, whose ordinals count up from ``first`` in each run.

    It is faster, because a parent's part is computed once for each run.

    Args:
        parent_edges: uintp[runs], the parent's edge of each run.
        starts: intp[runs], ascending, the index of each run's first delivery; the first is 0, and no run is empty.
        count: the number of deliveries.
        first: the ordinal of each run's first delivery.
        salt: a result of ``edge_salt``.

    Returns:
        uint64[count].

    >>> edges = edges_of_runs(np.array([5, 6], dtype=np.uint64), np.array([0, 2]), count=3, first=4, salt=99)
    >>> edges.tolist() == [edge_of(5, 4, 99), edge_of(5, 5, 99), edge_of(6, 4, 99)]
    True
    """
    native = kernels()
    if native is not None:
        edges = np.empty(count, dtype=np.uint64)
        native.edges_of_runs(np.ascontiguousarray(parent_edges), starts, first, salt, edges)
        return edges
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
    """Return the index of the first element of each run of equal values; empty for an empty array.

    Args:
        sorted_values: any dtype, [n], equal values next to each other.

    Returns:
        intp[runs], ascending.
    """
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
    """Return the number of elements of each run; ``np.diff`` takes longer.

    Args:
        starts: intp[runs], ascending, the index of each run's first element; the first is 0.
        count: the number of elements in all runs.

    Returns:
        intp[runs].

    >>> run_lengths(np.array([0, 2]), 5).tolist()
    [2, 3]
    """
    lengths = np.empty(len(starts), dtype=np.intp)
    if len(starts):
        np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
        lengths[-1] = count - starts[-1]
    return lengths


def ordinals_within(parents: npt.NDArray[np.integer]) -> npt.NDArray[np.uint32]:
    """Return for each element the number of equal elements before it; equal elements must be neighbours.

    Args:
        parents: integers[n].

    Returns:
        uint32[n].
    """
    starts = run_starts(parents)
    if len(starts) == len(parents):
        return np.zeros(len(parents), dtype=np.uint32)
    ordinals = np.arange(len(parents), dtype=np.uint32)
    ordinals -= starts.astype(np.uint32).repeat(run_lengths(starts, len(parents)))
    return ordinals


def xor_of_runs(xors: U64, starts: npt.NDArray[np.intp]) -> U64:
    """Return the XOR of the elements of each run; the first run begins at 0, and no run is empty.

    ``np.bitwise_xor.reduceat`` gives the same result, but takes three times as long where runs are short.

    Args:
        xors: uint64[n].
        starts: intp[runs], ascending, the index of each run's first element.

    Returns:
        uintp[runs].

    >>> xor_of_runs(np.array([1, 2, 4], dtype=np.uint64), np.array([0, 2])).tolist()
    [3, 4]
    """
    if len(starts) == 0:
        return xors[:0]
    native = kernels()
    if native is not None:
        runs = np.empty(len(starts), dtype=np.uint64)
        native.xor_of_runs(np.ascontiguousarray(xors), starts, runs)
        return runs
    running = np.bitwise_xor.accumulate(xors)
    ends = np.empty(len(starts), dtype=np.intp)
    np.subtract(starts[1:], 1, out=ends[:-1])
    ends[-1] = len(xors) - 1
    runs = running.take(ends)
    runs[1:] ^= runs[:-1].copy()
    return runs


def xor_by_key(keys: U64, xors: U64) -> tuple[U64, U64]:
    """Combine (key, xor) pairs: each key once, with the XOR of all its values.

    The sort is the stable one, which merges runs, because the input mostly consists of a few sorted runs.

    Args:
        keys: uint64[pairs], in any order.
        xors: uint64[pairs].

    Returns:
        Keys: uint64[keys], ascending, each once. XORs: uint64[keys].
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
    """Combine (root, xor) pairs and turn roots into keys; the result is that of ``xor_by_key``.

    Neighbours with the same root are combined first, because the tuples of one tree mostly arrive next to each other
    and turning a root into a key costs time.

    Args:
        roots: uint64[pairs], in any order.
        xors: uint64[pairs].
    """
    starts = run_starts(roots)
    if len(starts) < len(roots):
        roots, xors = roots[starts], xor_of_runs(xors, starts)
    return xor_by_key(unmix64_array(roots), xors)


def empty_u64() -> U64:
    """Return an empty array, uint64[0]; always the same object, which is safe because it has no elements to change."""
    return _NO_IDS
