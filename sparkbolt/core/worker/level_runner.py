"""Level runner: what one process does for one level of a micro-batch.

Which question it answers: rows come in by dest; which of them are a task's, which does the stage combine with its own,
and which pass through?
Rule: if a state cannot be kept, all of the work is repeated, without the calls that are to blame.

Read before: ``stage``, ``inlet``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sparkbolt.core.model.measurements import level_part
from sparkbolt.core.protocol.exclusion import NOTHING_EXCLUDED, Exclusion
from sparkbolt.core.protocol.frames import Moment, collect, moment_of
from sparkbolt.core.state.segments import SegmentStore
from sparkbolt.core.worker.crash_isolation import Unkept
from sparkbolt.core.worker.inlet import run_inlet
from sparkbolt.core.worker.results import StageResult
from sparkbolt.core.worker.stage import Stage
from sparkbolt.core.worker.worker import Worker


def run_level(
    worker: Worker,
    level: int,
    rows: Iterable[tuple[int, Any]],
    store_of: Callable[[int], SegmentStore | None],
    exclusion: Exclusion = NOTHING_EXCLUDED,
) -> StageResult:
    """Run one process's part of a level; rows for later levels pass through.

    Args:
        worker: the worker of this process.
        level: the number of the level, from 1.
        rows: (dest, frame) in any order. What stages report rides with a task's frames, or comes by itself.
        store_of: returns the durable segments of a task, by its dest; None if the level keeps none.
        exclusion: the trees of tasks that are left out.
    """
    own = worker.lane.dests_of_level(level)
    by_dest: dict[int, list[Any]] = {}
    for dest, data in rows:
        by_dest.setdefault(dest, []).append(data)
    if own.isdisjoint(by_dest):  # Spark groups by dest, so rows that pass through come apart from a task's own
        passing = [(dest, data) for dest, frames in by_dest.items() for data in frames]
        return StageResult(moment_of(passing[0][1]) if passing else Moment(-1, 0), passing)
    try:
        return _attempt(worker, level, by_dest, store_of, exclusion)
    except Unkept as unkept:
        return _again(worker, unkept, lambda: _attempt(worker, level, by_dest, store_of, exclusion))


def _again(worker: Worker, unkept: Unkept, attempt: Callable[[], StageResult]) -> StageResult:
    """Make further attempts, each without the calls that were blamed for the ends of earlier attempts."""
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
    level: int,
    by_dest: Mapping[int, list[Any]],
    store_of: Callable[[int], SegmentStore | None],
    exclusion: Exclusion,
) -> StageResult:
    """Do all the work of the level; the states of its tasks are committed once all of them can be kept.

    Raises:
        Unkept: a state cannot be kept; nothing is committed.
    """
    own, inlets = worker.lane.dests_of_level(level), worker.lane.inlet_tasks
    stage = Stage(worker, moment_of(next(iter(by_dest.values()))[0]), part=level_part(level))
    stage.exclusion = exclusion
    for dest, frames in sorted(by_dest.items()):
        left = [data for data in frames if not stage.absorb(data)]
        if dest not in own:
            stage.result.rows.extend((dest, data) for data in left)
        elif left and worker.lane.task_at[dest] in inlets:
            run_inlet(stage, worker.lane.task_at[dest], collect(left), store_of(dest))
        elif left:
            stage.run_task(worker.lane.task_at[dest], collect(left), store_of(dest))
    stage.save()
    return stage.finish()
