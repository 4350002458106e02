"""The attempt store: the failed attempts at messages that may become dead letters.

Rule 1: the attempts at a message are kept from its first failure until it is acked or its dead letter is durable.
Nothing is kept of a message that succeeds at once.
Rule 2: if there are many attempts, the first and the newest are kept; all are counted.
Rule 3: a failure because a source is away is not an attempt, nor is a failure in an outage of a bolt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import Any, TypeAlias

import numpy as np

from sparkbolt.api.reports import FailedTree
from sparkbolt.base.ids import U64, tree_key
from sparkbolt.driver.ledger.retry_schedule import LogName
from sparkbolt.wire.attempts import NO_ATTEMPTS, MessageAttempts
from sparkbolt.wire.plan import Entry

MessageKey: TypeAlias = tuple[str, str, int]
"""(component, source, position) of a message."""


class AttemptStore:
    """The attempts at messages that have failed and are not finished; part of ``Messages``."""

    def __init__(self, kept: Iterable[tuple[MessageKey, MessageAttempts]] = ()) -> None:
        """Begin with the result of ``items``."""
        self._kept = dict(kept)
        self._running: dict[int, MessageKey] = {}
        """Tree key to message, for messages that are being retried."""

    def __len__(self) -> int:
        """The number of messages whose attempts are kept."""
        return len(self._kept)

    def items(self) -> list[tuple[MessageKey, MessageAttempts]]:
        """All messages with their attempts."""
        return list(self._kept.items())

    def started(self, log: LogName, entry: Entry) -> None:
        """Note that an entry retries messages of a log, or reads them for their dead letters."""
        if not self._kept:
            return
        for offset, position in enumerate(entry.positions or (entry.start,)):
            key = *log, position
            if key in self._kept:
                self._running[tree_key(entry.task, entry.base + offset)] = key

    def failed(self, key: MessageKey, tree: FailedTree) -> MessageAttempts:
        """Add a failed attempt; returns all attempts at the message."""
        attempts = self._kept[key] = self._kept.get(key, NO_ATTEMPTS).with_failure(tree)
        return attempts

    def forget(self, logs: Set[LogName]) -> None:
        """Drop the attempts at the messages of these logs."""
        self._kept = {key: attempts for key, attempts in self._kept.items() if key[:2] not in logs}
        self._running = {tree: key for tree, key in self._running.items() if key[:2] not in logs}

    def take_over(self, old: AttemptStore, log: LogName) -> None:
        """Keep the attempts that another store has at the messages of a log."""
        self._kept |= {key: attempts for key, attempts in old._kept.items() if key[:2] == log}

    def settle(self, open_among: Callable[[U64], Any], waits: Callable[[MessageKey], bool]) -> None:
        """End a promotion: drop the messages that are finished.

        Args:
            open_among: for uint64[keys], a mask bool[keys] of the keys whose trees are open.
            waits: whether a message waits for a retry or for its dead letter.
        """
        if not self._running:
            return
        trees = list(self._running)
        for tree, still_open in zip(trees, open_among(np.array(trees, dtype=np.uint64)).tolist(), strict=True):
            if not still_open:
                key = self._running.pop(tree)
                if not waits(key):
                    self._kept.pop(key, None)
