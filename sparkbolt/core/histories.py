"""Histories: the attempts at messages that may become dead letters.

Which question it answers: when this message is given up, which attempts at it were there, and why did each fail?

Rule 1: something is kept of a message from its first failure until it is acked or its dead letter is durable; of a
message that succeeds at once nothing ever is.
Rule 2: of many attempts the first and the newest are kept; all are counted.
Rule 3: a source that was away is no attempt, nor is a bolt that could not do its work.

Histories are kept for a ``PartitionedSpout`` only: those of a ``Spout`` are with its records (``desk``).
Read before: ``dead_letters``, ``fates``, ``partition_manager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from sparkbolt.core.dead_letters import Attempt, GivenUp, remember
from sparkbolt.core.fates import FailedTree
from sparkbolt.core.ids import U64, tree_key
from sparkbolt.core.plan import Entry
from sparkbolt.core.story import root_text

Place: TypeAlias = tuple[str, str, int]
"""(component, source, position) of a message."""


@dataclass(frozen=True)
class History:
    """The attempts at one message so far."""

    attempts: tuple[Attempt, ...] = ()
    left_out: int = 0
    """How many behind the first one are not kept."""

    def with_failure(self, tree: FailedTree) -> History:
        """The history with one more attempt."""
        if not tree.counted:
            return self
        kept = remember(self.attempts, attempt_of(tree))
        return History(kept, self.left_out + len(self.attempts) + 1 - len(kept))

    def given_up(self, tree: FailedTree) -> GivenUp:
        """What is told of a message whose last attempt, in this history already, has failed."""
        return GivenUp(self.attempts, self.left_out, tree.end, tree.message_id)

    def to_json(self) -> list[Any]:
        """The history as a list."""
        return [[asdict(attempt) for attempt in self.attempts], self.left_out]

    @classmethod
    def from_json(cls, body: list[Any]) -> History:
        """The inverse of ``to_json``."""
        return cls(tuple(Attempt(**attempt) for attempt in body[0]), body[1])


NO_HISTORY = History()


def attempt_of(tree: FailedTree) -> Attempt:
    """A failed tree as an attempt at its message."""
    return Attempt(
        number=tree.attempt,
        root=root_text(tree.key),
        cause=tree.fail.cause,
        reason=tree.fail.reason,
        component=tree.fail.component,
        task=tree.fail.task,
        micro_batch_id=tree.fail.micro_batch_id,
        started_ms=tree.started_ms,
        ended_ms=tree.ended_ms or 0,
        traceback=tree.fail.traceback,
    )


class Histories:
    """What is kept of messages that have failed and are not finished; part of ``Messages``."""

    def __init__(self, kept: Iterable[tuple[Place, History]] = ()) -> None:
        """Begin with what ``items`` gave."""
        self._kept = dict(kept)
        self._running: dict[int, Place] = {}
        """The trees of messages that are being tried again."""

    def __len__(self) -> int:
        """Of how many messages something is kept."""
        return len(self._kept)

    def items(self) -> list[tuple[Place, History]]:
        """All that is kept."""
        return list(self._kept.items())

    def started(self, component: str, entry: Entry) -> None:
        """An entry gives messages again, or reads them for their letters."""
        if not self._kept or entry.source is None:
            return
        for offset, position in enumerate(entry.positions or (entry.start,)):
            place = component, entry.source, position
            if place in self._kept:
                self._running[tree_key(entry.task, entry.base + offset)] = place

    def failed(self, place: Place, tree: FailedTree) -> History:
        """One more attempt has failed; the whole history."""
        history = self._kept[place] = self._kept.get(place, NO_HISTORY).with_failure(tree)
        return history

    def settle(self, open_among: Callable[[U64], Any], waits: Callable[[Place], bool]) -> None:
        """End a promotion: forget the messages that are finished.

        Args:
            open_among: which of some keys are of open trees, as a mask.
            waits: whether a message waits to be given again, or for its letter.
        """
        if not self._running:
            return
        keys = list(self._running)
        for key, still_open in zip(keys, open_among(np.array(keys, dtype=np.uint64)).tolist(), strict=True):
            if not still_open:
                place = self._running.pop(key)
                if not waits(place):
                    self._kept.pop(place, None)
