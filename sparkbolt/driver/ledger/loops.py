"""Loops: which trees have tuples that wait for the next micro-batch, and how often their tuples were fed back.

Rule 1: tuples that a micro-batch feeds back wait until a plan that delivers them is promoted.
Rule 2: a tree that has been fed back in more micro-batches than ``max_hops`` is named by the next plan. Its tuples are
not delivered, and it fails with that plan's promotion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sparkbolt.base.ids import I32, U64, empty_u64, split_key
from sparkbolt.wire.acker import locate
from sparkbolt.wire.looped_frames import FedBack, text_to_trees, trees_to_text
from sparkbolt.wire.plan import MicroBatchPlan


def _no_numbers() -> I32:
    return np.empty(0, dtype=np.int32)


@dataclass(eq=False)
class LoopsState:
    """The durable state of ``Loops``."""

    waiting: tuple[int, ...] = ()
    """The micro-batches whose looped tuples no promoted plan has delivered, ascending."""
    keys: U64 = field(default_factory=empty_u64)
    """uint64[trees], ascending: the open trees that have been fed back."""
    hops: I32 = field(default_factory=_no_numbers)
    """int32[trees]: in how many micro-batches."""
    senders: I32 = field(default_factory=_no_numbers)
    """int32[trees]: a task that fed tuples of the tree back in the last of them."""
    last: I32 = field(default_factory=_no_numbers)
    """int32[trees]: that micro-batch."""

    def to_json(self) -> dict[str, Any]:
        """A JSON object, which ``from_json`` reads."""
        numbers = np.concatenate((self.hops, self.senders, self.last))
        return {"waiting": list(self.waiting), "trees": trees_to_text(self.keys, numbers)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> LoopsState:
        """The inverse of ``to_json``."""
        keys, numbers = text_to_trees(body["trees"])
        return cls(tuple(body["waiting"]), keys, *np.split(numbers, 3))


class Loops:
    """The trees that are fed back; part of the ledger.

    >>> from sparkbolt.wire.looped_frames import FedBack
    >>> loops, keys = Loops(None), np.array([5, 9], dtype=np.uint64)
    >>> fed_back = FedBack(keys, np.array([3, 4], dtype=np.int32), rows=2)
    >>> loops.promote(MicroBatchPlan(0, 0, 0), fed_back, lambda keys: np.array([True, False]))
    >>> loops.waiting, loops.hops_of(5), loops.beyond(lambda task: 0)
    ((0,), 1, (5,))
    """

    def __init__(self, state: LoopsState | None) -> None:
        """Begin with a state, which is taken over; None: nothing was fed back."""
        self._state = state or LoopsState()

    def state(self) -> LoopsState | None:
        """The durable state; None if there is nothing to keep."""
        return self._state if self._state.waiting or len(self._state.keys) else None

    @property
    def waiting(self) -> tuple[int, ...]:
        """The micro-batches whose looped tuples the next plan delivers, ascending."""
        return self._state.waiting

    def hops_of(self, key: int) -> int:
        """In how many micro-batches tuples of an open tree were fed back."""
        place = self._place(key)
        return 0 if place is None else int(self._state.hops[place])

    def words_of(self, key: int, task_owner: Callable[[int], tuple[str, int]]) -> str | None:
        """A text about a tree with tuples that wait for the next micro-batch; None if it has none."""
        place, state = self._place(key), self._state
        if place is None or int(state.last[place]) not in state.waiting:
            return None
        component, task = task_owner(int(state.senders[place]))
        number, hops = int(state.last[place]), int(state.hops[place])
        what = f"fed back by {component}[{task}] in micro-batch {number} (hop {hops:,})"
        return f"{what}, and waits for the next micro-batch"

    def sender_of(self, key: int) -> int | None:
        """The number of a task that fed tuples of a tree back last; None if none did."""
        place = self._place(key)
        return None if place is None else int(self._state.senders[place])

    def beyond(self, hops_max: Callable[[int], int]) -> tuple[int, ...]:
        """The keys of trees that have been fed back too often, ascending.

        Args:
            hops_max: the limit for the trees of a task, by its number.
        """
        if len(self._state.keys) == 0:
            return ()
        limits = np.array([hops_max(split_key(key)[0]) for key in self._state.keys.tolist()])
        found: list[int] = self._state.keys[self._state.hops > limits].tolist()
        return tuple(found)

    def promote(
        self, plan: MicroBatchPlan, fed_back: FedBack, are_open: Callable[[U64], npt.NDArray[np.bool_]]
    ) -> None:
        """Count a promoted micro-batch.

        Args:
            plan: its plan.
            fed_back: the trees that were fed back in it.
            are_open: returns bool[keys], which trees are open after it.
        """
        state, number = self._state, plan.micro_batch_id
        if not fed_back.rows and not state.waiting and not len(state.keys):
            return
        state.waiting = tuple(one for one in state.waiting if one not in plan.looped)
        if fed_back.rows:
            state.waiting = (*state.waiting, number)
        slots, known = locate(state.keys, fed_back.keys)
        state.hops[slots[known]] += 1
        state.senders[slots[known]] = fed_back.senders[known]
        state.last[slots[known]] = number
        new = fed_back.keys[~known]
        keys = np.concatenate((state.keys, new))
        order = np.argsort(keys, kind="stable")
        order = order[are_open(keys[order])]
        state.keys = keys[order]
        state.hops = np.concatenate((state.hops, np.ones(len(new), dtype=np.int32)))[order]
        state.senders = np.concatenate((state.senders, fed_back.senders[~known]))[order]
        state.last = np.concatenate((state.last, np.full(len(new), number, dtype=np.int32)))[order]

    def _place(self, key: int) -> int | None:
        place = int(np.searchsorted(self._state.keys, np.uint64(key)))
        there = place < len(self._state.keys) and int(self._state.keys[place]) == key
        return place if there else None
