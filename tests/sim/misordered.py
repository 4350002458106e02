"""Bugs in the order of a micro-batch, planted in the driver machine: each shell has to reveal them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from sparkbolt.driver.effects import WriteEntry
from sparkbolt.driver.machine import DriverMachine

Patch = pytest.MonkeyPatch


def _before_the_entry(patch: Patch, early: Callable[[DriverMachine, int], Generator[Any, Any, Any]]) -> None:
    """Do something before the entry of a micro-batch is durable."""
    staged = DriverMachine.staged

    def misordered(self: DriverMachine, micro_batch_id: int, feedback: Any) -> Generator[Any, Any, None]:
        for effect in staged(self, micro_batch_id, feedback):
            if isinstance(effect, WriteEntry):
                yield from early(self, micro_batch_id)
            yield effect

    patch.setattr(DriverMachine, "staged", misordered)


def a_promotion_before_the_entry(patch: Patch) -> None:
    _before_the_entry(patch, DriverMachine.committed)


def commits_before_the_entry(patch: Patch) -> None:
    _before_the_entry(patch, DriverMachine._commit_rows)


def an_entry_after_the_commit(patch: Patch) -> None:
    """The entry becomes durable only when Spark has committed its micro-batch."""
    staged, committed = DriverMachine.staged, DriverMachine.committed
    late: list[WriteEntry] = []

    def without(self: DriverMachine, micro_batch_id: int, feedback: Any) -> Generator[Any, Any, None]:
        late.clear()
        for effect in staged(self, micro_batch_id, feedback):
            if isinstance(effect, WriteEntry):
                late.append(effect)
            else:
                yield effect

    def belated(self: DriverMachine, micro_batch_id: int) -> Generator[Any, Any, Any]:
        yield from late
        return (yield from committed(self, micro_batch_id))

    patch.setattr(DriverMachine, "staged", without)
    patch.setattr(DriverMachine, "committed", belated)


MISORDERED = (a_promotion_before_the_entry, commits_before_the_entry, an_entry_after_the_commit)
