"""Trees: knows which deliveries each tree consists of, and which of them are not acked yet.

Only what is committed counts. Two deliveries with the same edge count as two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sparkbolt.base.ids import (
    MAX_SEQUENCE,
    U64,
    empty_u64,
    mix64,
    mix64_array,
    run_starts,
    split_key,
    tree_key,
    unmix64,
)
from sparkbolt.sim.observer import Sightings, TreeStep


@dataclass
class ExpectedVerdict:
    """The required outcomes of trees in one micro-batch."""

    acked: U64 = field(default_factory=empty_u64)
    """Keys of acked trees: ``uint64[trees]``, ascending."""
    failed: frozenset[int] = frozenset()


class Trees:
    """All open trees of a run."""

    def __init__(self) -> None:
        """Start without trees."""
        self.open: dict[int, dict[int, int]] = {}
        """Key of each open tree -> its unacked deliveries, each with its count."""
        self.hops: list[TreeStep] = []
        self.strangers: list[int] = []
        """Roots of deliveries whose trees never began."""
        self._ended: set[int] = set()
        """Keys of failed or void trees, of which tasks may still hold deliveries."""
        self._last: dict[int, int] = {}
        """The newest sequence that each task has started."""

    def commit(self, sightings: Sequence[Sightings], expired: Iterable[int]) -> ExpectedVerdict:
        """Apply a committed micro-batch.

        Args:
            sightings: The records of the attempts that count.
            expired: Keys of the trees that time out with this micro-batch.

        Returns:
            The expected verdict of its trees.
        """
        for seen in sightings:
            self.hops += seen.hops
        started = _join(array for seen in sightings for array in seen.started)
        started = np.unique(started) if len(started) else started
        failed = {key for key in expired if key in self.open}
        fresh = set(started.tolist()) if len(started) <= 64 else None
        for seen in sightings:
            for fail in seen.fails:
                begun = fail.key in fresh if fresh is not None else _among(started, fail.key)
                if fail.key in self.open or begun:
                    failed.add(fail.key)
        waiting = self._settle(sightings, started)
        self._note_last(started)
        acked = [key for key, left in self.open.items() if not left and key not in failed]
        for key in failed:
            self.open.pop(key, None)
            self._ended.add(key)
        for key in acked:
            del self.open[key]
        if waiting or failed:
            gone = np.array([*waiting, *failed], dtype=np.uint64)
            started = started[~np.isin(started, gone)]
            for key, left in waiting.items():
                if key not in failed:
                    self.open[key] = left
        whole = np.sort(np.concatenate((started, np.array(acked, dtype=np.uint64)))) if acked else started
        return ExpectedVerdict(whole, frozenset(failed))

    def _settle(self, sightings: Sequence[Sightings], started: U64) -> dict[int, dict[int, int]]:
        """Count deliveries and acks; return the rest of the trees that begin, and changes in the open ones.

        Args:
            sightings: The records of the attempts that count.
            started: Keys of the trees that begin: ``uint64[trees]``.
        """
        sent = [pairs for seen in sightings for pairs in seen.sent]
        settled = [pairs for seen in sightings for pairs in seen.settled]
        roots = _join(roots for roots, _ in [*sent, *settled])
        if len(roots) == 0:
            return {}
        ids = _join(edges for _, edges in [*sent, *settled])
        ids ^= mix64_array(roots)  # the same edge in two trees is two deliveries
        count_sent = sum(len(edges) for _, edges in sent)
        if 2 * count_sent == len(ids) and np.array_equal(np.sort(ids[:count_sent]), np.sort(ids[count_sent:])):
            return {}  # each delivery was acked as often as it was sent
        signs = np.ones(len(roots), dtype=np.int64)
        signs[count_sent:] = -1
        order = np.argsort(ids)
        starts = run_starts(ids[order])
        sums = np.add.reduceat(signs[order], starts)
        waiting: dict[int, dict[int, int]] = {}
        odd = np.flatnonzero(sums)
        places = order[starts[odd]]
        for root, id_, count in zip(roots[places].tolist(), ids[places].tolist(), sums[odd].tolist(), strict=True):
            key = unmix64(root)
            left = self.open.get(key)
            if left is None:
                if key not in self._ended and not _among(started, key):
                    self.strangers.append(root)
                    continue
                left = waiting.setdefault(key, {})
            count += left.pop(id_, 0)
            if count:
                left[id_] = count
        return {key: left for key, left in waiting.items() if left and key not in self._ended}

    def _note_last(self, started: U64) -> None:
        if len(started):
            task, sequence = split_key(int(started[-1]))
            self._last[task] = max(sequence, self._last.get(task, -1))

    def forget(self, tasks: Iterable[int]) -> None:
        """Drop the trees of these spout tasks, whose records are lost because their driver has died."""
        for task in tasks:
            first, last = tree_key(task, 0), tree_key(task, MAX_SEQUENCE)
            for key in [key for key in self.open if first <= key <= last]:
                del self.open[key]
                self._ended.add(key)

    def story(self, key: int) -> list[str]:
        """Return the story of a tree, line by line; empty if nothing was recorded."""
        root = mix64(key)
        return [f"micro-batch {hop.micro_batch_id}: {hop.words}" for hop in self.hops if hop.root == root]


def _join(arrays: Iterable[U64]) -> U64:
    parts = list(arrays)
    return np.concatenate(parts) if parts else empty_u64()


def _among(rising: U64, key: int) -> bool:
    slot = int(np.searchsorted(rising, np.uint64(key)))
    return slot < len(rising) and int(rising[slot]) == key


def expand(ranges: Sequence[tuple[int, int, int]], known: U64) -> tuple[U64, list[tuple[int, int, int]]]:
    """Return the keys in ranges, and the ranges whose number of trees is wrong.

    Args:
        ranges: (first key, last key, number of trees), from a promotion.
        known: The possible keys: ``uint64[trees]``, ascending.
    """
    parts: list[npt.NDArray[np.uint64]] = []
    wrong = []
    for first, last, count in ranges:
        low = int(np.searchsorted(known, np.uint64(first), side="left"))
        high = int(np.searchsorted(known, np.uint64(last), side="right"))
        parts.append(known[low:high])
        if high - low != count:
            wrong.append((first, last, count))
    return _join(parts), wrong
