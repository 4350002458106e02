"""Outbox acks: what a task that starts trees need not keep any more, until the task was told.

Which question it answers: of which kept values is the fate known, and who has yet to hear of it?
Rule 1: what is settled is named by the positions of first attempts, as spans; to hear of it twice changes nothing.
Rule 2: a span stays until a plan that carries it is promoted, so a plan that was made and dropped loses nothing.

Read before: ``ids``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from sparkbolt.core.base.ids import AGAIN, SEQUENCE_BITS, U64, split_key
from sparkbolt.core.base.intervals import folded

if TYPE_CHECKING:
    from sparkbolt.core.driver.ledger.messages import Messages
    from sparkbolt.core.model.reports import Promotion

OutboxAck: TypeAlias = tuple[int, int, int]
"""(task number, first position, last position)."""


class OutboxAcks:
    """The spans of all tasks, those that wait longest first; part of the ledger.

    >>> from sparkbolt.core.base.ids import tree_key
    >>> outbox_acks = OutboxAcks()
    >>> keys = np.array([tree_key(6, 10), tree_key(6, 11)], dtype=np.uint64)
    >>> outbox_acks.add(keys, keys)
    >>> outbox_acks.first()
    ((6, 10, 11),)
    """

    def __init__(self, spans: Iterable[OutboxAck] = ()) -> None:
        """Begin with what ``first`` gave."""
        self._spans = dict.fromkeys(spans)

    def add(self, first: U64, last: U64) -> None:
        """What has these tree keys, from ``first[i]`` to ``last[i]``, is settled; each pair is of one task."""
        tasks = first >> np.uint64(SEQUENCE_BITS)
        for task in np.unique(tasks).tolist():
            own = tasks == np.uint64(task)
            for begin, end in folded(first[own], last[own]):
                self._spans[task, split_key(begin)[1], split_key(end)[1]] = None

    def learn(self, promotion: Promotion, messages: Messages) -> None:
        """Add what was acked or set aside with a promotion.

        This comes before ``messages.advance``, which forgets where further attempts came from.
        """
        own = messages.own_tasks
        chosen = np.isin(promotion.acked_first >> np.uint64(SEQUENCE_BITS), own)
        first, last = promotion.acked_first[chosen], promotion.acked_last[chosen]
        again = (first & np.uint64(AGAIN)) != 0
        ranges = zip(first[again].tolist(), last[again].tolist(), strict=True)
        keys = [key for begin, end in ranges for key in range(begin, end + 1)]
        keys += [tree.key for tree in promotion.failed if tree.fate == "set_aside" and split_key(tree.key)[0] in own]
        ends = np.array(messages.first_keys_of(keys), dtype=np.uint64)
        self.add(np.concatenate((first[~again], ends)), np.concatenate((last[~again], ends)))

    def first(self, limit: int | None = None) -> tuple[OutboxAck, ...]:
        """Up to ``limit`` of (task number, first position, last position)."""
        return tuple(islice(self._spans, limit))

    def delivered(self, spans: Iterable[OutboxAck]) -> None:
        """A plan that carried these spans was promoted."""
        for span in spans:
            self._spans.pop(span, None)
