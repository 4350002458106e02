"""Outbox acks: which values a task may drop from its outbox, stored until the task is notified.

Outbox acks are intervals of the positions of first attempts; the second receipt of one changes nothing. An interval
stays until a plan that carries it is promoted, so a plan that is made and dropped loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sparkbolt.api.causes import MessageOutcome
from sparkbolt.base.ids import AGAIN, MAX_SEQUENCE, SEQUENCE_BITS, U64, run_starts, split_key
from sparkbolt.base.intervals import union_of_columns

if TYPE_CHECKING:
    from sparkbolt.api.reports import Promotion
    from sparkbolt.driver.ledger.messages import Messages

OutboxAck: TypeAlias = tuple[int, int, int]
"""(task number, start, end): the positions [start, end) of a task."""


class OutboxAcks:
    """The intervals of all tasks, the oldest first; part of the ledger.

    >>> from sparkbolt.base.ids import tree_key
    >>> outbox_acks = OutboxAcks()
    >>> keys = np.array([tree_key(6, 10), tree_key(6, 11)], dtype=np.uint64)
    >>> outbox_acks.add(keys, keys)
    >>> outbox_acks.first()
    ((6, 10, 12),)
    """

    def __init__(self, intervals: Iterable[OutboxAck] = ()) -> None:
        """Begin with the result of ``first``."""
        self._intervals = dict.fromkeys(intervals)

    def add(self, first: U64, last: U64) -> None:
        """Add the positions of finished first attempts, given as ranges of tree keys.

        Args:
            first: uint64[n], in any order.
            last: uint64[n], ``last[i]`` included; of the same task as ``first[i]``.
        """
        tasks = first >> np.uint64(SEQUENCE_BITS)
        starts = (first & np.uint64(MAX_SEQUENCE)).astype(np.int64)
        ends = (last & np.uint64(MAX_SEQUENCE)).astype(np.int64) + 1
        order = np.argsort(tasks, kind="stable")
        at = run_starts(tasks[order])
        for task, own in zip(tasks[order[at]].tolist(), np.split(order, at[1:]), strict=False):
            for start, end in union_of_columns(starts[own], ends[own]):
                self._intervals[task, start, end] = None

    def learn(self, promotion: Promotion, messages: Messages) -> None:
        """Add the values whose trees were acked or given up in a promotion, and those of written dead letters.

        Call it before ``messages.advance``, which drops the entries that map retries to their first attempts.
        """
        own = messages.own_tasks
        chosen = np.isin(promotion.acked_first >> np.uint64(SEQUENCE_BITS), own)
        first, last = promotion.acked_first[chosen], promotion.acked_last[chosen]
        again = (first & np.uint64(AGAIN)) != 0
        tasks = frozenset(own.tolist())
        letters = ((begin, end) for begin, end, _ in promotion.letters if split_key(begin)[0] in tasks)
        ranges = chain(zip(first[again].tolist(), last[again].tolist(), strict=True), letters)
        keys = [key for begin, end in ranges for key in range(begin, end + 1)]
        exhausted = [tree.key for tree in promotion.failed if tree.outcome == MessageOutcome.GIVEN_UP]
        keys += [key for key in exhausted if split_key(key)[0] in tasks]
        ends = np.array(messages.first_keys_of(keys), dtype=np.uint64)
        self.add(np.concatenate((first[~again], ends)), np.concatenate((last[~again], ends)))

    def first(self, limit: int | None = None) -> tuple[OutboxAck, ...]:
        """Up to ``limit`` intervals, the oldest first."""
        return tuple(islice(self._intervals, limit))

    def delivered(self, intervals: Iterable[OutboxAck]) -> None:
        """Remove these intervals: a plan that carried them was promoted."""
        for interval in intervals:
            self._intervals.pop(interval, None)
