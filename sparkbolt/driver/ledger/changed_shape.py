"""Changed shape: the state of a ledger, as the next generation of its topology goes on from it.

Messages of components that are gone are forgotten, except how far their sources were finished: if such a spout comes
back, it goes on from there. Everything else has its numbers still, and the names of today.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from sparkbolt.base.ids import SEQUENCE_BITS
from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.driver.ledger.ledger_log import State
from sparkbolt.driver.ledger.message_log import LogState
from sparkbolt.driver.ledger.messages import MessagesState
from sparkbolt.driver.ledger.retry_schedule import Retry


def changed(state: State, generation: Generation) -> State:
    """The state with which a generation begins, from that at the end of the one before.

    Args:
        state: it is taken over, not copied.
        generation: the one that begins.
    """
    shape = _Shape(generation)
    metrics = state.metrics
    metrics.components = {shape.name_of(id_): counts for id_, counts in metrics.components.items()}
    keys, xors, holders = state.trees
    kept = ~np.isin(keys >> np.uint64(SEQUENCE_BITS), np.array(shape.gone, dtype=np.uint64))
    return replace(
        state,
        metrics=metrics,
        messages=_messages(state.messages, shape),
        outbox_acks=tuple(one for one in state.outbox_acks if one[0] not in shape.retired),
        outages={shape.name_of(id_): one for id_, one in state.outages.items() if shape.lives(id_)},
        flows={
            flow._replace(component=shape.name_of(flow.component), sender=shape.name_of(flow.sender)): counts
            for flow, counts in state.flows.items()
        },
        marks=[_marks(one, shape) for one in state.marks],
        trees=(keys[kept], xors[kept], holders[kept]),
    )


def gone_tasks(generation: Generation) -> list[int]:
    """The tasks of components that are gone; what the tasks of others held has moved to those that there are now."""
    numbering = generation.numbering
    return [number for number, (id_, _) in numbering.retired.items() if id_ not in numbering.tasks]


class _Shape:
    """The names and the tasks of the generation that begins."""

    def __init__(self, generation: Generation) -> None:
        self._renamed: Mapping[str, str] = generation.renamed
        self._tasks = generation.numbering.tasks
        self.retired = generation.numbering.retired
        self.gone = gone_tasks(generation)

    def name_of(self, id_: str) -> str:
        """The id of today."""
        return self._renamed.get(id_, id_)

    def lives(self, id_: str) -> bool:
        """Whether a component of the generation before is there."""
        return self.name_of(id_) in self._tasks

    def heir(self, task: int) -> int:
        """The task that reads what a task has read: itself, if it is there."""
        if task not in self.retired:
            return task
        id_, index = self.retired[task]
        return self._tasks[id_][index % len(self._tasks[id_])]


def _messages(state: MessagesState, shape: _Shape) -> MessagesState:
    gone = set(shape.gone)
    return replace(
        state,
        logs=[_log(one, shape) for one in state.logs],
        attempts=[
            ((shape.name_of(id_), source, position), attempts)
            for (id_, source, position), attempts in state.attempts
            if shape.lives(id_)
        ],
        live=[live for live in state.live if live.entry.task not in gone],
    )


def _log(log: LogState, shape: _Shape) -> LogState:
    if not shape.lives(log.component):
        return replace(log, planned=log.finished, retries=[])
    return replace(log, component=shape.name_of(log.component), retries=list(_retries(log.retries, shape)))


def _retries(retries: Iterable[Retry], shape: _Shape) -> Iterable[Retry]:
    for retry in retries:
        yield retry if retry.task not in shape.retired else replace(retry, task=shape.heir(retry.task))


def _marks(marks: list[Any], shape: _Shape) -> list[Any]:
    """The marks of one stream, as ``SourceMarks.state`` returns them."""
    bolt, component, stream, newest_ms, sources = marks
    places = [[shape.name_of(spout), source, mark] for spout, source, mark in sources]
    return [shape.name_of(bolt), shape.name_of(component), stream, newest_ms, places]
