"""Looped tuples: stores the tuples that a micro-batch feeds back, and sends them on in a later one.

    looped/n    the tuples that micro-batch n feeds back; written before its entry, and replaced with it

Rule 1: the file of n counts only with the entry of n, which has the trees of its tuples. The plan that delivers the
tuples names n, and every run of that plan reads the same file.
Rule 2: tuples that belong only to trees that are not open any more are not delivered. Which trees are open depends only
on promoted micro-batches, so every run of the plan delivers the same.
Rule 3: compaction removes files that no micro-batch that may still run can name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparkbolt.base.file_access import Files
from sparkbolt.base.ids import mix64_array
from sparkbolt.driver.effects import Write
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.ledger_files import LOOPED_FOLDER
from sparkbolt.errors import CheckpointError
from sparkbolt.layout.lane import Lane
from sparkbolt.wire.frames import Moment, looped
from sparkbolt.wire.looped_frames import LoopedFrame, dump_frames, load_frames
from sparkbolt.wire.plan import MicroBatchPlan


def stored(micro_batch_id: int, frames: Sequence[LoopedFrame]) -> Write:
    """Make the tuples that a micro-batch feeds back durable, before its entry."""
    return Write(f"{LOOPED_FOLDER}/{micro_batch_id}", dump_frames(frames))


def delivered(lane: Lane, ledger: Ledger, files: Files, plan: MicroBatchPlan, where: str) -> list[tuple[int, bytes]]:
    """The rows (dest, frame) with the looped tuples that a plan delivers; they enter the lane with its clocks.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    moment, rows = Moment(plan.micro_batch_id, plan.now_ms), []
    for number in plan.looped:
        name = f"{LOOPED_FOLDER}/{number}"
        data = files.read(name)
        if data is None:
            raise CheckpointError(
                f"{where}: {name} is missing, though micro-batch {plan.micro_batch_id} delivers its tuples: files were "
                "removed by hand, or only a part was copied; restore it"
            )
        for frame in load_frames(data, f"{where}: {name}"):
            row = _row(lane, ledger, frame, plan, moment)
            if row is not None:
                rows.append(row)
    return rows


def _row(
    lane: Lane, ledger: Ledger, frame: LoopedFrame, plan: MicroBatchPlan, moment: Moment
) -> tuple[int, bytes] | None:
    living = ledger.are_open(frame.keys)
    if plan.beyond:
        living &= ~np.isin(frame.keys, np.array(plan.beyond, dtype=np.uint64))
    if not living.any() and not frame.loose:
        return None
    return lane.dests[frame.target], looped(frame.data, mix64_array(frame.keys[~living]), moment)


def looped_mistakes(files: Files) -> list[str]:
    """The damage in the files of looped tuples, in sentences."""
    wrong = []
    for name in files.names(LOOPED_FOLDER):
        try:
            load_frames(files.read(f"{LOOPED_FOLDER}/{name}") or b"", f"{LOOPED_FOLDER}/{name}")
        except CheckpointError as error:
            wrong.append(str(error))
    return wrong
