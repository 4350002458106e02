"""Looped tuples: stores the tuples that a micro-batch feeds back, and sends them on in a later one.

    looped/n    the tuples that micro-batch n feeds back; written before its entry, and replaced with it

Rule 1: the file of n counts only with the entry of n, which has the trees of its tuples. The plan that delivers the
tuples names n, and every run of that plan reads the same file.
Rule 2: tuples that belong only to trees that are not open any more are not delivered. Which trees are open depends only
on promoted micro-batches, so every run of the plan delivers the same.
Rule 3: tuples of an earlier generation go to the tasks that its groupings choose in the present one.
Rule 4: compaction removes files that no micro-batch that may still run can name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sparkbolt.api.groupings import Emitted, FieldsGrouping, Grouping, PartialKeyGrouping
from sparkbolt.base.file_access import Files
from sparkbolt.base.ids import mix64_array
from sparkbolt.driver.effects import Write
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.ledger_files import LOOPED_FOLDER
from sparkbolt.driver.ledger.ledger_log import load_entry
from sparkbolt.errors import CheckpointError
from sparkbolt.layout.lane import FUSIBLE, Lane
from sparkbolt.wire.frames import Moment, decode, encode, looped
from sparkbolt.wire.looped_frames import LoopedFrame, dump_frames, load_frames
from sparkbolt.wire.plan import MicroBatchPlan


def stored(micro_batch_id: int, frames: Sequence[LoopedFrame]) -> Write:
    """Make the tuples that a micro-batch feeds back durable, before its entry."""
    return Write(f"{LOOPED_FOLDER}/{micro_batch_id}", dump_frames(frames))


class LoopedTuples:
    """Delivers looped tuples; part of the planner."""

    def __init__(self, lane: Lane, ledger: Ledger, files: Files, where: str, *, base: int = 0) -> None:
        """Deliver for one life.

        Args:
            lane: the lane of the topology.
            ledger: knows which trees are open.
            files: those of the checkpoint; they are only read.
            where: the checkpoint, for messages.
            base: the first micro-batch of this generation: tuples of earlier ones may need other tasks.
        """
        self._lane, self._ledger, self._files, self._where, self._base = lane, ledger, files, where, base

    def delivered(self, plan: MicroBatchPlan) -> list[tuple[int, bytes]]:
        """The rows (dest, frame) with the looped tuples that a plan delivers; they enter the lane with its clocks.

        Raises:
            CheckpointError: a file is missing or damaged.
        """
        rows = []
        for number in plan.looped:
            name = f"{LOOPED_FOLDER}/{number}"
            data = self._files.read(name)
            if data is None:
                raise CheckpointError(
                    f"{self._where}: {name} is missing, though micro-batch {plan.micro_batch_id} delivers its tuples: "
                    "files were removed by hand, or only a part was copied; restore it"
                )
            for frame in load_frames(data, f"{self._where}: {name}"):
                rows += [self._row(one, plan) for one in self._sent_on(frame, number) if self._lives(one, plan)]
        return rows

    def _living(self, frame: LoopedFrame, plan: MicroBatchPlan) -> npt.NDArray[np.bool_]:
        """bool[trees]: which trees of a frame are open, and have not been fed back too often."""
        living = self._ledger.are_open(frame.keys)
        return living & ~np.isin(frame.keys, np.array(plan.beyond, dtype=np.uint64)) if plan.beyond else living

    def _lives(self, frame: LoopedFrame, plan: MicroBatchPlan) -> bool:
        return frame.loose > 0 or bool(self._living(frame, plan).any())

    def _row(self, frame: LoopedFrame, plan: MicroBatchPlan) -> tuple[int, bytes]:
        gone = mix64_array(frame.keys[~self._living(frame, plan)])
        moment = Moment(plan.micro_batch_id, plan.now_ms)
        return self._lane.dests[frame.target], looped(frame.data, gone, moment)

    def _sent_on(self, frame: LoopedFrame, number: int) -> list[LoopedFrame]:
        """A frame, as the present topology gets it; the trees of a frame that it cannot get expire with the next plan.

        Edges stay as they are: they were counted when the tuples were emitted.
        """
        if number >= self._base:
            return [frame]
        topology = self._lane.topology
        component, stream = topology.numbering.streams[frame.stream]
        consumer, index = topology.task_owner(frame.target)
        found = (one for spec, _, one in topology.consumers(component, stream) if spec.id == consumer)
        grouping = next(found, None)
        if grouping is not None and isinstance(grouping, FieldsGrouping | PartialKeyGrouping):
            return self._by_fields(frame, grouping, topology.tasks(consumer))
        targets = topology.tasks(consumer) if grouping is not None else ()
        if frame.target in targets:
            return [frame]
        if type(grouping) in FUSIBLE:
            return [replace(frame, target=targets[index % len(targets)])]
        self._ledger.release_trees(frame.keys)
        return []

    def _by_fields(self, frame: LoopedFrame, grouping: Grouping, targets: Sequence[int]) -> list[LoopedFrame]:
        """The rows of a frame, each with the task that has its key now."""
        whole, topology = decode(frame.data), self._lane.topology
        _, stream = topology.stream_at(frame.stream)
        emitted = Emitted(frame.sender, 0, 0, whole.rows, stream.fields, whole.columns)
        moment, found = Moment(0, 0), []
        for delivery in grouping.deliveries(emitted, targets):
            part = whole if delivery.rows is None else whole.take(delivery.rows)
            found.append(LoopedFrame.of(targets[delivery.target], part, encode(part, moment)))
        return found


def looped_mistakes(files: Files, last_commit: int) -> list[str]:
    """What is wrong with the files of looped tuples, in sentences: damage, and a file that the next plan needs.

    Args:
        files: those of the checkpoint.
        last_commit: the last micro-batch that counts; its entry says whether it has fed tuples back.
    """
    wrong, names = [], set(files.names(LOOPED_FOLDER))
    for name in sorted(names):
        try:
            load_frames(files.read(f"{LOOPED_FOLDER}/{name}") or b"", f"{LOOPED_FOLDER}/{name}")
        except CheckpointError as error:
            wrong.append(str(error))
    data = files.read(f"ledger/{last_commit}.entry")
    if data is not None and str(last_commit) not in names:
        try:
            rows = load_entry(data, f"ledger/{last_commit}.entry")[2].fed_back.rows
        except CheckpointError:
            return wrong  # the examination of the ledger reports it
        if rows:
            wrong.append(f"{LOOPED_FOLDER}/{last_commit} is missing, with {rows:,} tuples for the next micro-batch")
    return wrong
