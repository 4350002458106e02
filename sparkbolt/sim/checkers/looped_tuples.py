"""Checker: the tuples that a micro-batch feeds back are delivered in the next one, each once."""

from __future__ import annotations

from collections import Counter

import numpy as np

from sparkbolt.base.ids import mix64_array
from sparkbolt.sim.checkers.base import Checker, Facts, Records
from sparkbolt.sim.checkers.trees import ExpectedVerdict
from sparkbolt.sim.executors import MicroBatchOutcome
from sparkbolt.wire.frames import FrameKind, Moment, kind_of, looped, unwrap
from sparkbolt.wire.looped_frames import LoopedFrame
from sparkbolt.wire.plan import MicroBatchPlan
from sparkbolt.worker.routing import Row


class LoopedTuplesRideOnce(Checker):
    """Each looped tuple rides the next micro-batch, once, unless all its trees have ended."""

    promise = "a looped tuple is delivered once"

    def __init__(self, facts: Facts) -> None:
        """Start without looped tuples."""
        super().__init__(facts)
        self._waiting: dict[int, list[LoopedFrame]] = {}
        """By micro-batch: the committed frames that no committed plan has delivered."""
        self._expected: Counter[Row] = Counter()

    def begun(self, plan: MicroBatchPlan, records: Records) -> None:
        """Compute the rows that the plan has to deliver, from the trees that are open now."""
        if plan.looped != tuple(sorted(self._waiting)):
            self.broken(
                f"micro-batch {plan.micro_batch_id} delivers the looped tuples of {list(plan.looped)}, but those of "
                f"{sorted(self._waiting)} wait"
            )
        frames = [frame for number in plan.looped for frame in self._waiting.get(number, ())]
        self._expected = Counter(row for frame in frames for row in self._rows_of(frame, plan))

    def _rows_of(self, frame: LoopedFrame, plan: MicroBatchPlan) -> list[Row]:
        living = [key in self.facts.trees.open and key not in plan.beyond for key in frame.keys.tolist()]
        if not any(living) and not frame.loose:
            return []
        gone = mix64_array(frame.keys[~np.array(living, dtype=bool)])
        moment = Moment(plan.micro_batch_id, plan.now_ms)
        return [(self.facts.subject.lane.dests[frame.target], looped(frame.data, gone, moment))]

    def ran(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome) -> None:
        """Compare the delivered rows."""
        given = Counter(outcome.looped)
        if given != self._expected:
            more, less = (given - self._expected).total(), (self._expected - given).total()
            self.broken(
                f"micro-batch {plan.micro_batch_id} delivers {more} frame(s) of looped tuples too many, and {less} too "
                "few"
            )

    def committed(self, plan: MicroBatchPlan, outcome: MicroBatchOutcome, verdict: ExpectedVerdict) -> None:
        """Note the tuples that the micro-batch has fed back."""
        for number in plan.looped:
            self._waiting.pop(number, None)
        fed_back = [data for _, data in outcome.rows if kind_of(data) == FrameKind.LOOPING]
        if fed_back:
            frames = [LoopedFrame.loads(unwrap(data, FrameKind.LOOPING)) for data in fed_back]
            self._waiting[plan.micro_batch_id] = frames
