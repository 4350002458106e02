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
    """The state of a topology whose bolt ``count`` has some tasks, after micro-batch 7; ``split`` keeps nothing."""

    tasks_of_count: Sequence[TaskView]
    read: list[int]
    """The tasks that were read."""

    @classmethod
    def of_tasks(cls, *tasks: Mapping[Any, Any]) -> KeptInMemory:
        numbers = tuple(range(1, len(tasks) + 1))
        placement = {"stateful": [["count"]], "dests": {str(number): number for number in numbers}}
        generation = Generation(placement=placement, numbering=Numbering({"count": numbers, "split": (9,)}))
        made = cls("state", 7, generation)
        vars(made).update(tasks_of_count=list(map(view, tasks)), read=[])
        return made

    def _answers(
        self, component: str, ask: Callable[[TaskView], Any], tasks: Sequence[int] | None = None
    ) -> dict[int, Any]:
        chosen = range(len(self._dests(component))) if tasks is None else tasks
        self.read.extend(chosen)
        return {task: ask(self.tasks_of_count[task]) for task in chosen}

    def read_rows(self, component: str) -> Iterator[Any]:
        for task, one in enumerate(self.tasks_of_count):
            for row in rows_of(one):
                yield KeptRow(component, task, *row)
