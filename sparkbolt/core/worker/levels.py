"""Levels: what one process does for one level of a micro-batch.

Which question it answers: rows of all kinds come in; which go to which task, which pass on?

Rule: nothing is committed of a task's state before all of it is known to be such that it can be kept. Where it cannot,
the work is done again, in the same process, without the tuple that is to blame (``crash_isolation``).

Read before: ``stages``, ``crash_isolation``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from sparkbolt.core.protocol.frames import collect, moment_of
from sparkbolt.core.state.segments import SegmentStore
from sparkbolt.core.worker.crash_isolation import Unkept
from sparkbolt.core.worker.stages import Row, StageRun
from sparkbolt.core.worker.worker import Worker


def run_level(
    worker: Worker,
    level: int,
    rows: Iterable[tuple[int, Any]],
    store_of: Callable[[int], SegmentStore | None],
) -> list[Row]:
    """One process's part of a level: rows in, rows out; rows for later levels pass through.

    Args:
        worker: what the process keeps.
        level: the number of the level, from 1.
        rows: (dest, frame) in any order.
        store_of: the durable segments of a task, by its dest; None where the level keeps none.
    """
    own = worker.lane.dests_of_level(level)
    by_dest: dict[int, list[Any]] = {}
    for dest, data in rows:
        by_dest.setdefault(dest, []).append(data)
    if own.isdisjoint(by_dest):  # Spark groups what passes apart from a task's own
        return [(dest, data) for dest, frames in by_dest.items() for data in frames]
    try:
        return _attempt(worker, own, by_dest, store_of)
    except Unkept as unkept:
        return _again(worker, unkept, lambda: _attempt(worker, own, by_dest, store_of))


def _again(worker: Worker, unkept: Unkept, attempt: Callable[[], list[Row]]) -> list[Row]:
    """Further attempts, each without what was found to be to blame for the ends of those before."""
    watch = worker.watch
    try:
        while True:
            worker.begin_again(unkept)
            try:
                return attempt()
            except Unkept as another:
                unkept = another
    finally:
        worker.end_again(watch)


def _attempt(
    worker: Worker,
    own: Collection[int],
    by_dest: Mapping[int, list[Any]],
    store_of: Callable[[int], SegmentStore | None],
) -> list[Row]:
    """All that is to be done; the states of tasks are committed when all of them can be kept.

    Raises:
        Unkept: one of them cannot; nothing is committed.
    """
    run = StageRun(worker, moment_of(next(iter(by_dest.values()))[0]))
    passing: list[Row] = []
    for dest, frames in sorted(by_dest.items()):
        if dest in own:
            run.run_level(worker.lane.task_at[dest], collect(frames), store_of(dest))
        else:
            passing.extend((dest, data) for data in frames if not run.absorb(data))
    run.save()
    return passing + run.close()


def by_dest(rows: Iterable[Row]) -> list[list[Row]]:
    """The runs of a stateful level, where each dest's rows are a run of their own: Spark groups by it."""
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row)
    return [group for _, group in sorted(groups.items())]
