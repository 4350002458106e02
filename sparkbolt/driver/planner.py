"""The planner: the meaning of the offsets of ``latestOffset(start)`` and ``partitions(start, end)``.

Rule 1: the start of a request shows what Spark has committed; it is compared with what was promoted. A life that is
behind plans nothing: another driver has committed since the ledger was loaded. A life that begins now is up to date.
Rule 2: the end of a micro-batch is a plan, either whole or as the name of its file. Spark runs its first micro-batch
even before any data has arrived, because it has no start to compare with; its plan reads nothing.
Rule 3: with inlets, Spark also runs micro-batches without a request to this source, whose end has not changed. They get
a plan that reads nothing when they run, and only Spark's log of commits shows that they are committed.
Rule 4: the same end gives the same plan, in any life.

It never waits, locks or writes; files are an argument.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from sparkbolt.base.codec import encode
from sparkbolt.base.file_access import Files
from sparkbolt.driver.coordinator import Coordinator
from sparkbolt.driver.effects import Write
from sparkbolt.driver.ledger.agreement import LoggedOffset
from sparkbolt.driver.looped_tuples import LoopedTuples
from sparkbolt.errors import CheckpointError, OutdatedLifeError, check
from sparkbolt.wire.plan import MicroBatchPlan, Offset, Piece, plan_of

VERIFY = "'sparkbolt checkpoint verify' says what disagrees, 'sparkbolt checkpoint repair' mends it"


class Planner:
    """The answers of one life to Spark. Not thread safe: the engine calls it under the lock of its coordinator."""

    def __init__(
        self,
        coordinator: Coordinator,
        files: Files,
        *,
        where: str = "the checkpoint",
        last_commit: Callable[[], int] | None = None,
        logged: Callable[[int], LoggedOffset | None] = lambda _: None,
        first: int = 0,
        base: int = 0,
    ) -> None:
        """Answer for ``coordinator``.

        Args:
            coordinator: makes the plans.
            files: those of the checkpoint, from which plans are read that are too large for an offset.
            where: the checkpoint, for messages.
            last_commit: the number of the last micro-batch that Spark has committed; for a lane with inlets only,
                which has micro-batches without a plan.
            logged: returns the offset that Spark has logged as the end of a micro-batch; None if there is none.
            first: the micro-batch that is Spark's number 0.
            base: the first micro-batch of the generation.
        """
        self._logged = logged
        self._first = first
        self._looped = LoopedTuples(coordinator.lane, coordinator.ledger, files, where, base=base)
        self._last_commit = last_commit
        self.coordinator = coordinator
        self._files = files
        self._where = where
        self._running: Offset | None = None
        """The end of the micro-batch that was confirmed last."""

    # latestOffset.

    def committed(self, start: Offset) -> int | None:
        """The staged micro-batch that is committed according to ``start``; None if all committed ones are promoted.

        Raises:
            OutdatedLifeError: Spark has committed more than this life knows.
            CheckpointError: Spark has committed less than the ledger has promoted.
        """
        ledger = self.coordinator.ledger
        number = int(start["micro_batch_id"])
        if self._last_commit is not None:
            number = max(number, self._last_commit())
        if ledger.staged is not None and number == ledger.staged:
            check(
                start == self._running or (self._last_commit is not None and self._running is None),
                f"micro-batch {number} was run for {self._running}, and ends at {start}",
            )
            return number
        if number > ledger.last_promoted:
            raise self._outdated(f"Spark has committed micro-batch {number}")
        if number < ledger.last_promoted:
            raise CheckpointError(
                f"{self._where}: Spark goes on behind micro-batch {number}, but the ledger has counted "
                f"{ledger.last_promoted}: files of its commits or offsets were removed; {VERIFY}"
            )
        return None

    def look_for_returned(self) -> None:
        """Read the next dead letters that operators have given back, if there may be some."""
        self.coordinator.returned.look(self._files)

    def plan_nothing(self, now_ms: int, mono_s: float) -> MicroBatchPlan | None:
        """The plan to answer with if there is nothing to do: before Spark's first one, one that reads nothing.

        Afterwards it is None, and the answer is the start itself, for which Spark runs no micro-batch.
        """
        return (
            None
            if self.coordinator.ledger.last_promoted >= self._first
            else self.coordinator.plan_nothing(now_ms, mono_s)
        )

    def running(self, micro_batch_id: int, now_ms: int, mono_s: float) -> MicroBatchPlan:
        """The plan of the micro-batch that Spark runs; one that runs for the sources of inlets alone gets its plan."""
        if self.coordinator.in_force is None:
            plan = self.coordinator.plan_nothing(now_ms, mono_s)
            if plan.micro_batch_id != micro_batch_id:
                raise self._outdated(f"Spark runs micro-batch {micro_batch_id}")
        assert self.coordinator.in_force is not None
        return self.coordinator.in_force

    def left_over(self, last_commit: int) -> int | None:
        """After the query has ended: the staged micro-batch that Spark has committed since its last request, if any."""
        staged = self.coordinator.ledger.staged
        return staged if staged is not None and staged == last_commit else None

    # Spark's log.

    def has_rows(self, micro_batch_id: int) -> bool:
        """Whether Spark's log has this micro-batch with something new of the sources of inlets."""
        logged = self._logged(micro_batch_id)
        return logged is not None and logged.has_rows(self._logged(micro_batch_id - 1))

    def is_read_logged(self, micro_batch_id: int) -> bool:
        """Whether Spark's log has this micro-batch, and it reads something: then Spark runs it before any other."""
        logged = self._logged(micro_batch_id)
        plan = self.plan_of(logged.plan) if logged is not None else None
        planned = plan is not None and plan.micro_batch_id == micro_batch_id and Coordinator.reads(plan)
        return planned or self.has_rows(micro_batch_id)

    # partitions.

    def confirm(self, end: Offset, mono_s: float) -> MicroBatchPlan:
        """Accept that Spark runs the micro-batch that ends at ``end``; this life or an earlier one made its plan.

        Raises:
            OutdatedLifeError: Spark has committed more than this life knows of.
            CheckpointError: the offset is not a plan, its file is missing, or its micro-batch was promoted before.
        """
        plan, last = self.plan_of(end), self.coordinator.ledger.last_promoted
        if plan.micro_batch_id > last + 1:
            raise self._outdated(f"Spark runs micro-batch {plan.micro_batch_id}")
        if plan.micro_batch_id <= last:
            raise CheckpointError(
                f"{self._where}: Spark is about to run micro-batch {plan.micro_batch_id}, but the ledger has counted "
                f"{last}: two drivers have written into it, or files were removed; {VERIFY}"
            )
        self.coordinator.confirm(plan, mono_s)
        self._running = end
        return plan

    def shares(self, plan: MicroBatchPlan, most: int) -> list[list[Piece]]:
        """Divide a plan among the Spark tasks of the source: at least one share, at most ``most``.

        The entries of one spout task stay together, in their order.
        """
        # By identity: the time to compare or hash entries grows with their positions and letters.
        alive = {id(entry) for entry in plan.alive_entries(self.coordinator.life)}
        pieces: dict[int, list[Piece]] = {}
        for index, entry in enumerate(plan.entries):
            if id(entry) in alive:
                records = tuple(self.coordinator.records_of(entry)) if entry.source is None else ()
                pieces.setdefault(entry.task, []).append(
                    Piece(index, entry, records, self.coordinator.traced_of(entry))
                )
        shares: list[list[Piece]] = [[] for _ in range(max(1, min(len(pieces), most)))]
        smallest = [(0, place) for place in range(len(shares))]
        for own in sorted(pieces.values(), key=_size, reverse=True):
            size, place = smallest[0]
            shares[place].extend(own)
            heapq.heapreplace(smallest, (size + _size(own), place))
        return shares

    def looped(self, plan: MicroBatchPlan) -> list[tuple[int, bytes]]:
        """The rows (dest, frame) with the looped tuples that a confirmed plan delivers.

        Raises:
            CheckpointError: a file with such tuples is missing or damaged.
        """
        return self._looped.delivered(plan)

    # Offsets and plans.

    def offset_of(self, plan: MicroBatchPlan) -> tuple[Offset, tuple[Write, ...]]:
        """The end of a plan's micro-batch, and the file that is written first if the plan is too large for it."""
        text = plan.dumps()
        if len(text) <= self.coordinator.config.plan_bytes_max:
            return encode(plan), ()
        name = f"{plan.micro_batch_id}-{self.coordinator.life}"
        return {"micro_batch_id": plan.micro_batch_id, "file": name}, (Write(f"plans/{name}", text.encode()),)

    def plan_of(self, offset: Offset) -> MicroBatchPlan:
        """The plan of an offset, made by this life or an earlier one.

        Raises:
            CheckpointError: it has no plan, or the plan's file is missing.
        """
        return plan_of(offset, self._files, self._where)

    def _outdated(self, what: str) -> OutdatedLifeError:
        return OutdatedLifeError(
            f"{self._where}: {what}, but the ledger of life {self.coordinator.life} has counted "
            f"{self.coordinator.ledger.last_promoted}: another driver has gone on meanwhile; this life ends without "
            "counting anything, and what follows it begins from what is committed"
        )


def _size(pieces: Sequence[Piece]) -> int:
    return sum(piece.entry.reserved for piece in pieces)
