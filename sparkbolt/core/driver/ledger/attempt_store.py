"""The attempt store: the attempts at messages that may become dead letters.

Which question it answers: when this message is given up, which attempts at it were there, and why did each fail?

Rule 1: something is kept of a message from its first failure until it is acked or its dead letter is durable; of a
message that succeeds at once nothing ever is.
Rule 2: of many attempts the first and the newest are kept; all are counted.
Rule 3: a source that was away is no attempt, nor is a bolt that could not do its work.

Attempts are kept for a ``PartitionedSpout`` only: those of a ``Spout`` are with its records (``spout_buffer``).
Read before: ``dead_letters``, ``outcomes``, ``partition_manager``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from sparkbolt.core.base.ids import U64, tree_key
from sparkbolt.core.model.reports import FailedTree
from sparkbolt.core.protocol.attempts import NO_ATTEMPTS, MessageAttempts
from sparkbolt.core.protocol.plan import Entry

MessageKey: TypeAlias = tuple[str, str, int]
"""(component, source, position) of a message."""


class AttemptStore:
    """What is kept of messages that have failed and are not finished; part of ``Messages``."""

    def __init__(self, kept: Iterable[tuple[MessageKey, MessageAttempts]] = ()) -> None:
        """Begin with what ``items`` gave."""
        self._kept = dict(kept)
        self._running: dict[int, MessageKey] = {}
        """The trees of messages that are being tried again."""

    def __len__(self) -> int:
        """Of how many messages something is kept."""
        return len(self._kept)

    def items(self) -> list[tuple[MessageKey, MessageAttempts]]:
        """All that is kept."""
        return list(self._kept.items())

    def started(self, component: str, entry: Entry) -> None:
        """An entry gives messages again, or reads them for their letters."""
        if not self._kept or entry.source is None:
            return
        for offset, position in enumerate(entry.positions or (entry.start,)):
            key = component, entry.source, position
            if key in self._kept:
                self._running[tree_key(entry.task, entry.base + offset)] = key

    def failed(self, key: MessageKey, tree: FailedTree) -> MessageAttempts:
        """One more attempt has failed; all of them."""
        attempts = self._kept[key] = self._kept.get(key, NO_ATTEMPTS).with_failure(tree)
        return attempts

    def settle(self, open_among: Callable[[U64], Any], waits: Callable[[MessageKey], bool]) -> None:
        """End a promotion: forget the messages that are finished.

        Args:
            open_among: which of some keys are of open trees, as a mask.
            waits: whether a message waits to be given again, or for its letter.
        """
        if not self._running:
            return
        trees = list(self._running)
        for tree, still_open in zip(trees, open_among(np.array(trees, dtype=np.uint64)).tolist(), strict=True):
            if not still_open:
                key = self._running.pop(tree)
                if not waits(key):
                    self._kept.pop(key, None)
