"""Stories: the ledger's records of the hops of trees.

The stories of at most ``limit`` open trees, ``limit`` failed trees and ``limit`` acked trees are kept, the newest ones;
a tree without reported hops costs nothing. Only a promotion of the ledger changes anything here, so replaying the log
gives the same stories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from sparkbolt.api.reports import FailedTree
from sparkbolt.api.story import HOPS_MAX, Hop, Story, TreeNotes, merged
from sparkbolt.api.tree_life import TreeState
from sparkbolt.base.ids import I32, MAX_TASK_NUMBER, U64, split_key
from sparkbolt.driver.ledger.message_log import Live
from sparkbolt.wire.verdicts import NO_HOLDER

Mask: TypeAlias = npt.NDArray[np.bool_]
STORIES_MAX = 1000
"""The default of the setting ``stories_max``."""
FAILED_KEPT = 10
_TASK_BITS = MAX_TASK_NUMBER.bit_length()
_LOW_BITS = 0xFFFF


@dataclass
class StoriesState:
    """The durable state of ``Stories``, the oldest first."""

    notes: dict[int, TreeNotes] = field(default_factory=dict)
    failed: list[FailedTree] = field(default_factory=list)
    acked: list[Story] = field(default_factory=list)


class Stories:
    """Stores stories; part of the ledger.

    >>> stories = Stories(limit=2)
    >>> stories.receive([Hop(key, 0, 0, 0, "lines", 0, emitted=(("line", 1),)) for key in (5, 6, 7)], {})
    >>> sorted(stories.notes)
    [6, 7]
    """

    def __init__(self, limit: int = STORIES_MAX, state: StoriesState | None = None) -> None:
        """Begin with ``state``, by default empty; it is taken over, not copied."""
        state = state or StoriesState()
        self._limit = limit
        self.notes = state.notes
        """Key to the known hops and message id, for trees that have not ended."""
        self._failed = {tree.key: tree for tree in state.failed}
        self._acked = {story.key: story for story in state.acked}
        self._shorten()

    @property
    def failed(self) -> list[FailedTree]:
        """The newest failed trees, oldest first."""
        return list(self._failed.values())

    @property
    def acked(self) -> list[Story]:
        """The newest traced trees that were acked, oldest first."""
        return list(self._acked.values())

    def state(self) -> StoriesState:
        """The durable state."""
        return StoriesState(self.notes, self.failed, self.acked)

    def receive(self, hops: Iterable[Hop], message_ids: Mapping[int, str], ending: Collection[int] = ()) -> None:
        """Add the hops of one micro-batch.

        A story begins with the hop of its spout, or when a tree fails. If a tree's story was dropped for newer ones,
        its later hops are dropped too, so that no story lacks its beginning.

        Args:
            hops: the hops of any trees.
            message_ids: as in ``Feedback``.
            ending: the keys of trees that may fail with this micro-batch.
        """
        by_tree: dict[int, list[Hop]] = {}
        for hop in hops:
            by_tree.setdefault(hop.key, []).append(hop)
        for key, new in by_tree.items():
            if key in self.notes or key in ending or any(hop.depth == 0 for hop in new):
                notes = self.notes.setdefault(key, TreeNotes())
                notes.hops = merged([*notes.hops, *new])[:HOPS_MAX]
        for key, text in message_ids.items():
            if key in self.notes or key in ending:
                self.notes.setdefault(key, TreeNotes()).message_id = text
        _keep_newest(self.notes, self._limit)

    def fail(self, trees: Iterable[FailedTree]) -> None:
        """Store the stories of failed trees."""
        for tree in trees:
            self.notes.pop(tree.key, None)
            self._failed[tree.key] = tree
        self._drop_failed()

    def settle(
        self,
        acked: Callable[[U64], Mask],
        is_open: Callable[[U64], Mask],
        end: Callable[[int, TreeNotes], Story],
    ) -> None:
        """End a promotion: remove the notes of trees that are no longer open; keep the stories of acked ones.

        Args:
            acked: for ascending uint64[keys], a mask bool[keys] of those that this promotion acked.
            is_open: for ascending uint64[keys], a mask bool[keys] of those that are open.
            end: makes the story of an acked tree from its key and notes.
        """
        if not self.notes:
            return
        keys = np.array(sorted(self.notes), dtype=np.uint64)
        keys = keys[~is_open(keys)]
        for key, complete in zip(keys.tolist(), acked(keys).tolist(), strict=True):
            notes = self.notes.pop(key)
            if complete and any(hop.depth == 0 for hop in notes.hops):
                self._acked[key] = end(key, notes)
        _keep_newest(self._acked, self._limit)

    def find(self, key: int) -> Story | None:
        """The story of a tree that has ended, if it is kept."""
        tree = self._failed.get(key)
        return tree.to_story() if tree is not None else self._acked.get(key)

    def _shorten(self) -> None:
        _keep_newest(self.notes, self._limit)
        self._drop_failed()
        _keep_newest(self._acked, self._limit)

    def _drop_failed(self) -> None:
        """Drop the oldest failed trees; first those of components with more than ``FAILED_KEPT`` failed trees."""
        too_many = len(self._failed) - self._limit
        if too_many <= 0:
            return
        kept = Counter(tree.fail.component for tree in self._failed.values())
        for key, tree in list(self._failed.items()):
            if too_many and kept[tree.fail.component] > FAILED_KEPT:
                kept[tree.fail.component] -= 1
                too_many -= 1
                del self._failed[key]
        _keep_newest(self._failed, self._limit)


@dataclass(frozen=True)
class Ranges:
    """Ranges of keys, uint64[ranges] each, both ends inclusive, that do not overlap."""

    first: U64
    last: U64

    def contain(self, keys: U64) -> Mask:
        """bool[keys]: whether each key is in one of the ranges."""
        if len(self.first) == 0:
            return np.zeros(len(keys), dtype=bool)
        order = np.argsort(self.first)
        slots = np.searchsorted(self.first[order], keys, side="right") - 1
        inside: Mask = (slots >= 0) & (keys <= self.last[order][np.maximum(slots, 0)])
        return inside


def holds_of(holders: I32, micro_batch_id: int) -> I32:
    """int32[trees]: each holder combined with the micro-batch in which it reported the hold; ``NO_HOLDER`` stays.

    A hold is as wide as a task's number, so an open tree needs no more memory. 16 bits are left for the number of the
    micro-batch; it is known if the micro-batch was less than 65,536 micro-batches ago (six hours of the shortest ones).

    >>> hold = holds_of(np.array([3, NO_HOLDER], np.int32), 12)
    >>> [holder_of(one) for one in hold.tolist()]
    [3, 0]
    """
    if len(holders) == 0:
        return holders
    holds = holders.astype(np.uint32)
    holds[holds != NO_HOLDER] |= np.uint32((micro_batch_id & _LOW_BITS) << _TASK_BITS)
    return holds.view(np.int32)


def holder_of(hold: int) -> int:
    """The number of the task that holds a tree; ``NO_HOLDER`` if no task reported a hold."""
    return hold & MAX_TASK_NUMBER


def hold_words(hold: int, last: int, task_owner: Callable[[int], tuple[str, int]]) -> str:
    """A text with the holder of a tree and the micro-batch since when; ``last`` is the newest micro-batch."""
    if hold == NO_HOLDER:
        return "not acked; no task reported that it holds it"
    component, task = task_owner(holder_of(hold))
    ago = (last - (hold >> _TASK_BITS)) & _LOW_BITS
    return f"held by {component}[{task}] since micro-batch {last - ago}"


def story_of(
    key: int, state: TreeState, live: Live | None, notes: TreeNotes, task_owner: Callable[[int], tuple[str, int]]
) -> Story:
    """Make the story of a tree that did not fail, from its entry and its notes."""
    number, sequence = split_key(key)
    component, task = task_owner(number)
    entry = live.entry if live else None
    source = entry.source if entry else None
    return Story(
        key=key,
        component=component,
        task=task,
        state=state,
        source=source,
        position=entry.position_of(sequence) if entry and source is not None else None,
        message_id=notes.message_id,
        attempt=entry.attempt if entry else None,
        started_in=live.micro_batch_id if live else None,
        started_ms=live.born_ms if live else None,
        hops=tuple(notes.hops),
    )


def _keep_newest(kept: dict[int, Any], limit: int) -> None:
    """Drop the oldest items; a dict keeps the order of insertion."""
    for key in list(kept)[: max(0, len(kept) - limit)]:
        del kept[key]
