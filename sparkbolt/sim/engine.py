"""A topology in one process: plan, source, levels, acker, ledger, one after the other, on frames that are really encoded.

Which question it answers: what would Spark do with this topology, if nothing ever went wrong and time stood still?
Rule: no rules here. What a micro-batch reads is decided by ``host``, what tasks do by ``stages``, what becomes of
trees by ``ledger``; this file only calls them in the order in which Spark does.

Read before: ``core.host``, ``core.stages``, ``core.feedback``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from sparkbolt.core.components import PartitionedSpout
from sparkbolt.core.feedback import gather, judge_rows
from sparkbolt.core.frames import Moment
from sparkbolt.core.host import ROTATIONS, Host, spout_infos
from sparkbolt.core.lane import lay_out
from sparkbolt.core.ledger import Ledger, Promotion
from sparkbolt.core.plan import MicroBatchPlan
from sparkbolt.core.reading import clock_rows, run_entry
from sparkbolt.core.shipping import materials_of
from sparkbolt.core.stages import Capture, Row, Worker, context_of, run_level
from sparkbolt.core.state import DictStore
from sparkbolt.core.topology import Topology


class LocalEngine:
    """Runs a topology micro-batch by micro-batch; the caller moves the time."""

    def __init__(
        self,
        topology: Topology,
        *,
        cores: int = 2,
        seed: int = 0,
        now_ms: int = 0,
        capture: Capture | None = None,
    ) -> None:
        """Lay the topology out and begin its first life.

        Args:
            topology: what to run.
            cores: as if on so many cores.
            seed: of the stamps of state.
            now_ms: the wall clock to begin with.
            capture: told of everything that is emitted.
        """
        self.topology = topology
        self.now_ms = now_ms
        self.lane = lay_out(topology, cores)
        stamps = random.Random(seed)
        self._materials = materials_of(
            self.lane, stamps=lambda: stamps.randrange(1, 1 << 64), clock=lambda: 0.0, capture=capture
        )
        self.worker = Worker(self._materials)
        self.stores: dict[int, DictStore] = {}
        self.log: list[bytes] = []
        self.ledger = Ledger(spout_infos(self.lane), rotations=ROTATIONS, task_owner=topology.task_owner)
        self.ledger.begin_life(0)
        self.host = Host(self.lane, self.ledger, self._open_spouts(), now_ms=now_ms, mono_s=now_ms / 1000)

    def _open_spouts(self) -> Mapping[str, PartitionedSpout]:
        spouts = {}
        for spec in self.topology.spouts:
            if isinstance(spec.component, PartitionedSpout):
                spout = self._materials.unpickle(self._materials.components[spec.id])
                spout.open(context_of(self.lane, self.topology.tasks(spec.id)[0]))
                spouts[spec.id] = spout
        return spouts

    def step(self) -> Promotion | None:
        """Run one micro-batch from its plan to its promotion; None if there is nothing to do."""
        plan = self.host.next_plan(self.now_ms, self.now_ms / 1000)
        if plan is None:
            return None
        self.host.confirm(plan, self.now_ms / 1000)
        feedback = gather(data for _, data in self.run(plan))
        self.log.append(self.host.stage(plan.micro_batch_id, feedback))
        return self.host.promote(plan.micro_batch_id, self.now_ms / 1000)

    def run(self, plan: MicroBatchPlan) -> list[Row]:
        """The rows that come out of the lane for a plan."""
        moment = Moment(plan.micro_batch_id, plan.now_ms)
        rows = clock_rows(self.lane, plan)
        for piece, entry in enumerate(plan.alive_entries(self.host.life)):
            records = self.host.records_of(entry) if entry.source is None else ()
            rows += run_entry(self.worker, moment, piece, entry, records)
        for level in self.lane.levels:
            rows = run_level(self.worker, level.number, rows, self._store_of)
        return judge_rows(rows)

    def _store_of(self, dest: int) -> DictStore:
        return self.stores.setdefault(dest, DictStore())

    def close(self) -> None:
        """Clean tasks and spouts up."""
        self.worker.close()
        for spout in self.host.spouts.values():
            spout.close()
