"""What the tasks of a bolt keep, in memory: it is read as on Spark, where each task answers for itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sparkbolt.api.numbering import Numbering
from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.spark.state_reading import StoredState
from sparkbolt.worker.state.state_rows import rows_of
from sparkbolt.worker.state.task_state import DictStore, TaskState
from sparkbolt.worker.state.task_view import TaskView

STAMPS = itertools.count(1).__next__


def view(entries: Mapping[Any, Any]) -> TaskView:
    """What a task keeps that has these keys."""
    store, state = DictStore(), TaskState()
    state.begin(store)
    for key, value in entries.items():
        state.key_value().put(key, value)
    state.make_ready()
    state.commit(STAMPS)
    return TaskView(store)


class KeptRow(NamedTuple):
    """A row, as Spark has it."""

    component: str
    task: int
    attribute: str | None
    key: str | None
    value: str


class KeptInMemory(StoredState):
    """The state of a topology one of whose bolts has some tasks, after micro-batch 7; the other bolt keeps nothing."""

    tasks_of_count: Sequence[TaskView]
    read: list[int]
    """The tasks that were read."""

    @classmethod
    def of_tasks(cls, *tasks: Mapping[Any, Any], bolt: str = "count", other: str = "split") -> KeptInMemory:
        numbers = tuple(range(1, len(tasks) + 1))
        placement = {"stateful": [[bolt]], "dests": {str(number): number for number in numbers}}
        generation = Generation(placement=placement, numbering=Numbering({bolt: numbers, other: (9,)}))
        made = cls("state", 7, generation)
        vars(made).update(tasks_of_count=list(map(view, tasks)), read=[])
        return made

    def _answers_of(
        self, component: str, dests: Sequence[int], ask: Callable[[TaskView], Any]
    ) -> dict[int, dict[str, Any]]:
        tasks = [self._dests(component).index(dest) for dest in dests]
        self.read.extend(tasks)
        return {dest: {"answer": ask(self.tasks_of_count[task])} for dest, task in zip(dests, tasks, strict=True)}

    def read_rows(self, component: str) -> Iterator[Any]:
        for task, one in enumerate(self.tasks_of_count):
            for row in rows_of(one):
                yield KeptRow(component, task, *row)
