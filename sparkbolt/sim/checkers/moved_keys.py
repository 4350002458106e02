"""Moved keys: what a change of tasks does with the keys of a bolt's state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkbolt.api.keyed_state import is_broadcast, is_divided_by_code
from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.driver.transition import moves
from sparkbolt.sim.canonical import same
from sparkbolt.sim.checkers.base import Checker
from sparkbolt.sim.checkers.states import content_of
from sparkbolt.worker.state.task_state import DictStore

Stores = Mapping[int, DictStore]


class EachKeyHasOneTask(Checker):
    """A key that one task had is with one task after a change of tasks, and has its value still."""

    promise = "each key has one task"

    def moved(self, had: Stores, has: Stores, between: tuple[Generation, Generation]) -> None:
        """Compare the keys before and after the first micro-batch of a generation gets its state."""
        components = self.facts.subject.topology.components
        for move in moves(*between):
            spec = components[move.component]
            if not move.divides or is_broadcast(spec) or is_divided_by_code(spec.component):
                continue
            before, after = (
                [self._dicts(stores.get(dest, DictStore())) for dest in dests]
                for stores, dests in ((had, move.before), (has, move.after))
            )
            for name in dict.fromkeys(name for dicts in before for name in dicts):
                words = _difference([one.get(name, {}) for one in before], [one.get(name, {}) for one in after])
                if words is not None:
                    self.broken(f"{move.component!r} has {len(move.after)} tasks now: {name}: {words}")
                    return

    def _dicts(self, store: DictStore) -> dict[str, Mapping[Any, Any]]:
        """By name: what a task keeps by key."""
        content = content_of(store, self.facts.subject.environment.namespace)
        attributes = content.attributes if isinstance(content.attributes, dict) else {}
        found = {f"attribute {name!r}": value for name, value in attributes.items() if isinstance(value, dict)}
        return {"its KeyValueState": content.key_values, **found}


def _difference(before: Sequence[Mapping[Any, Any]], after: Sequence[Mapping[Any, Any]]) -> str | None:
    """What happened to a key, in words; None if nothing did, or if several tasks had it already."""
    had = {key: value for one in before for key, value in one.items()}
    if len(had) < sum(map(len, before)):
        return None
    for key, value in had.items():
        tasks = [place for place, one in enumerate(after) if key in one]
        if len(tasks) != 1:
            return f"key {key!r:.80} is in {f'tasks {tasks}' if tasks else 'no task'}"
        if not same(value, after[tasks[0]][key]):
            return f"key {key!r:.80} had {value!r:.80} and has {after[tasks[0]][key]!r:.80}"
    new = next((key for one in after for key in one if key not in had), None)
    return None if new is None else f"no task had key {new!r:.80}"
