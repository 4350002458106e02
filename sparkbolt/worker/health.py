"""Health: how the work of each bolt went in one micro-batch.

Each task reports its own numbers, and stages and the driver add them up. The driver's ``outages`` decides what follows
from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sparkbolt.api.causes import RAISED, Cause
from sparkbolt.api.outage import Health
from sparkbolt.api.tuples import ATTEMPT_MAX
from sparkbolt.worker.failures import Failure


@dataclass
class WorkSeen:
    """Counts how the work of one task goes in one micro-batch, frame by frame.

    >>> seen = WorkSeen()
    >>> seen.add(3, {0: Failure(Cause.EXCEPTION, "no"), 2: Failure(Cause.UNAVAILABLE, "away")}, None)
    >>> seen.add(1, {0: Failure(Cause.FAIL, "said by the bolt")}, None)
    >>> seen.health()
    Health(got=4, raised=2, unavailable=1, trailing=0, held=0)
    """

    got: int = 0
    raised: int = 0
    unavailable: int = 0
    trailing: int = 0
    held: int = 0
    first_attempts: int = 0

    def add(
        self,
        count: int,
        failures: Mapping[int, Failure],
        attempts: npt.NDArray[np.uint8] | None,
        held: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Count some rows that the task got.

        Args:
            count: how many rows.
            failures: by row, why it failed.
            attempts: uint8[count], as in frames; None if all rows are first attempts.
            held: bool[count], the rows that the task has neither acked nor failed; None if there are none.
        """
        took = np.ones(count, dtype=bool) if held is None else ~held
        took[list(failures)] = False
        kept = count - int(np.count_nonzero(took)) - len(failures)
        self.held += kept
        self.got += count - kept
        self.first_attempts += count if attempts is None else int(np.count_nonzero(attempts & ATTEMPT_MAX <= 1))
        raised = [row for row, failure in failures.items() if failure.cause in RAISED]
        for row in failures.keys() - set(raised):
            took[row] = True  # to fail or to reject a tuple is part of a bolt's work
        if not raised:
            self.trailing = 0 if bool(took.any()) else self.trailing
            return
        self.raised += len(raised)
        self.unavailable += sum(failures[row].cause == Cause.UNAVAILABLE for row in raised)
        last = int(np.flatnonzero(took)[-1]) if bool(took.any()) else -1
        self.trailing = self.trailing if last < 0 else 0
        behind = [row for row in raised if row > last]
        first = np.ones(len(behind)) if attempts is None else attempts[behind] & ATTEMPT_MAX <= 1
        self.trailing += int(np.count_nonzero(first))

    def fail_all(self, failure: Failure) -> None:
        """Count all rows that the task got as failed, since its ``flush`` failed."""
        if failure.cause in RAISED:
            self.raised, self.trailing = self.got, self.first_attempts
            self.unavailable = self.got if failure.cause == Cause.UNAVAILABLE else self.unavailable

    def health(self) -> Health:
        """The sum of all frames."""
        return Health(self.got, self.raised, self.unavailable, self.trailing, self.held)
