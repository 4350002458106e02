"""The inlet: a task that keeps the rows that something else has brought, and starts their trees.

A row is in the task's outbox, under the sequence of its tree, before the micro-batch that brought it is committed, and
stays there until its tree is acked or its dead letter is written. Rows are numbered in the order of (piece, frame,
row). If a repeat brings the rows of a piece in another order, their ids change, but no row is lost: a tree that mixes
the deliveries of two attempts does not become complete, and its row is emitted again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparkbolt.api.inlets import InletSpout
from sparkbolt.api.progress import Activity
from sparkbolt.api.reports import ErrorReport
from sparkbolt.api.story import short
from sparkbolt.api.tuples import DEFAULT_STREAM, TRACED
from sparkbolt.base.exceptions import line_of
from sparkbolt.base.ids import mix64_array
from sparkbolt.errors import check
from sparkbolt.wire.frames import FrameKind, Inbox, encode_control, python_values
from sparkbolt.worker.dead_letter_reader import LetterReader
from sparkbolt.worker.hop_recorder import Chooser
from sparkbolt.worker.outbox import Outbox, Started
from sparkbolt.worker.routing import EmittedRows
from sparkbolt.worker.stage import Stage
from sparkbolt.worker.state.segments import SegmentStore


def run_inlet(stage: Stage, number: int, inbox: Inbox, store: SegmentStore | None) -> None:
    """Run an inlet's task on its rows and its clock.

    Args:
        stage: the stage that it runs in.
        number: the number of the task.
        inbox: frames of rows without trees, and the clock.
        store: the durable segments of the task.
    """
    check(store is not None, f"task {number} of an inlet has no state to keep its rows in")
    assert store is not None
    worker = stage.worker
    worker.enter(number)
    with worker.doing(Activity.STATE, number):
        own = worker.load_inlet(number, store)
    _Inlet(stage, number, own).run(inbox)
    if own is None:
        worker.leave(number)
        return
    with worker.doing(Activity.STATE, number):
        worker.make_inlet_ready(number)
    stage.ready(number)


class _Inlet:
    """One task of an inlet in one micro-batch."""

    def __init__(self, stage: Stage, number: int, own: Outbox | None) -> None:
        self._stage = stage
        self._number = number
        self._own = own
        self._streams = {stream.name: stream for stream in stage.worker.routes(number)}
        self._component, self._index = stage.lane.topology.task_owner(number)
        spout: InletSpout = stage.worker.spout(number)
        self._id_field = spout.message_id
        self._sent = 0

    def run(self, inbox: Inbox) -> None:
        clock, own = inbox.clock, self._own
        if clock is not None and own is not None:
            with self._stage.worker.doing(Activity.STATE, self._number):
                own.settle(clock.outbox_acks)
                again = [list(own.again(entry, self._streams)) for entry in clock.again if not entry.letters]
            for blocks in again:
                for started in blocks:
                    self._name(started)
                    self._send(started)
            for entry in clock.again:
                if entry.letters:
                    with self._stage.worker.doing(Activity.STATE, self._number):
                        kept = own.values_at(entry.positions or ())
                    LetterReader(self._stage, entry, kept=kept, id_field=self._id_field).read()
        for frame in inbox.in_order():
            stream = self._streams[DEFAULT_STREAM]
            path = ((self._number, stream.index),)
            block = EmittedRows(stream, frame.columns, frame.rows, self._sent, None, path=path)
            if own is None:
                self._send(Started(block))
                continue
            with self._stage.worker.doing(Activity.STATE, self._number):
                started = own.start(block)
            self._trace(started)
            self._send(started)

    def _send(self, started: Started) -> None:
        started.block.first = self._sent
        self._sent += started.block.count
        self._stage.send_started(started, self._number)

    def _trace(self, started: Started) -> None:
        """Mark the rows that the setting ``trace`` chooses."""
        block, trace = started.block, self._stage.lane.topology.components[self._component].config.trace
        if trace == 0 or not len(started.keys):
            return
        chooser = Chooser(trace, self._stage.worker.origin(self._number, block.stream.index))
        marks = chooser.marks(block.columns, mix64_array(started.keys))
        if chooser.error is not None:
            text = f"trace raised {line_of(chooser.error)}; such tuples are not traced"
            self._stage.report(ErrorReport(self._component, self._index, text))
            self._stage.counts(self._component).errors += 1
        if marks is not None:
            block.attempts = np.uint8(1) | marks
            self._name(started, marks & TRACED != 0)

    def _name(self, started: Started, chosen: Any = None) -> None:
        """Report to the driver the users' own ids of the rows that are followed: of all, or of those ``chosen``."""
        block = started.block
        if self._id_field is None or not block.count or self._id_field not in block.stream.fields:
            return
        ids = python_values(block.columns[block.stream.fields.index(self._id_field)])
        names = {
            key: short(ids[row])
            for row, key in enumerate(started.keys.tolist())
            if (chosen is None or chosen[row]) and ids[row] is not None
        }
        if names:
            data = encode_control(FrameKind.NAMES, names, self._stage.moment)
            self._stage.add_row((self._stage.lane.feedback_dest, data))
