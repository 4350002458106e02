"""What tests of operating share: a running topology that is a fake, behind the same interface as Spark's."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Mapping
from typing import Any

from sparkbolt import BasicBolt, Config, Topology, TopologyBuilder
from sparkbolt.api.keyed_state import refusal
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.base.codec import salvage
from sparkbolt.control.documents import Gist, TopologyEntry, TopologyState
from sparkbolt.control.operable import Places, TopologyView
from sparkbolt.control.peeks import Peeks
from sparkbolt.control.processes import this_process
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.driver.overrides import Overrides
from sparkbolt.driver.transition import recorded, transition
from sparkbolt.errors import EngineError, StateError, WrongUseError
from sparkbolt.layout.lane import Lane, lay_out
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.wire.peek import Peek, PeekedTuple
from tests.unit.kept import KeptInMemory


class Pass(BasicBolt):
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        pass


def words(name: str = "words", **settings: Any) -> Topology:
    builder = TopologyBuilder(name, Config(**settings))
    builder.set_spout("lines", GeneratorSpout(lambda: [["to be"]], outputs=["line"]))
    builder.set_bolt("split", Pass(), 2).fields_grouping("lines", ["line"])
    return builder.build()


def entry_of(id_: str = "words-1-100", **fields: Any) -> TopologyEntry:
    """An entry of a topology in this process."""
    process = this_process()
    known: TopologyEntry = {
        "id": id_,
        "name": "words",
        "state": TopologyState.ACTIVE,
        "why": None,
        "started_ms": 100_000,
        "ended_ms": None,
        "beat_ms": 100_000,
        "exit_code": None,
        "drained": None,
        "host": process.host,
        "user": "alice",
        "pid": process.pid,
        "pid_started": process.started,
        "pid_space": process.space,
        "checkpoint": None,
        "directory": None,
        "control": None,
        "spark_ui": None,
        "application_id": None,
        "master": None,
        "version": "1",
        "log_directory": None,
        "command": [],
        "gist": salvage(Gist, {}),
        "verdict": {"level": "good", "text": "well"},
    }
    fields.setdefault("directory", fields.get("checkpoint"))
    return {**known, **fields}  # type: ignore[typeddict-item]


class FakeRunning:
    """An ``Operable`` without an engine; ``busy`` is held while a change has to wait."""

    def __init__(self, topology: Topology | None = None, files: dict[str, bytes] | None = None) -> None:
        self.rebalanced: list[tuple[dict[str, int], int | None, str]] = []
        self._lane = lay_out(topology or words(), 2)
        self.files = {} if files is None else files
        self.active = True
        self.stopped = False
        self.busy = threading.Lock()
        self.full = False
        self.overridden: list[Overrides] = []
        self.killed: list[float] = []
        self.restarts = 0
        self.taken = 0
        self.peeks = Peeks()
        self.kept: KeptInMemory | None = KeptInMemory.of_tasks({"be": 2, 7: "x" * 3000}, {"7": None})

    @property
    def lane(self) -> Lane:
        return self._lane

    @property
    def checkpoint(self) -> str | None:
        return "/state"

    def peek(self, peek: Peek, after: int) -> list[tuple[int, PeekedTuple]]:
        return self.peeks.ask(peek, after, 0.0)

    def history(self) -> None:
        return None

    def flows(self) -> dict[Any, Any]:
        return {}

    def processes(self) -> list[Any]:
        return []

    def state_sizes(self) -> dict[str, int]:
        return {}

    def stored(self, as_of: int | None) -> KeptInMemory:
        if as_of not in (None, 7):
            raise WrongUseError(f"micro-batch {as_of} is not there")
        if self.kept is None:
            raise StateError("checkpoint /state has no state yet: no micro-batch is committed")
        return self.kept

    @property
    def letters_directory(self) -> str | None:
        return None

    def places(self) -> Places:
        return Places("local[2]")

    def look(self, patience_secs: float) -> TopologyView:
        counts = {"lines": ComponentMetrics(emitted=5, acked=3, pending=2), "split": ComponentMetrics(executed=4)}
        metrics = TopologyMetrics(counts, micro_batches=7, open_trees=2)
        state = TopologyState.ACTIVE if self.active else TopologyState.INACTIVE
        return TopologyView(TopologyState.KILLED if self.killed else state, metrics=metrics)

    def activate(self) -> None:
        self._switch(active=True)

    def deactivate(self) -> None:
        self._switch(active=False)

    def _switch(self, *, active: bool) -> None:
        if self.stopped:
            raise EngineError("topology 'words' was stopped and cannot be activated")
        with self.busy:
            self.active = active

    def plan(self, executors: Mapping[str, int], spark_partitions: int | None) -> list[str]:
        known = Generations([recorded(Generation(), self._lane)])
        wanted = self._lane.topology.rescaled(executors)
        found = transition(wanted, 2, known, 0, refusal, spark_partitions=spark_partitions)
        found.check_rebalance()
        return [str(step) for step in found.steps]

    def rebalance(self, executors: Mapping[str, int], spark_partitions: int | None, why: str) -> None:
        self.rebalanced.append((dict(executors), spark_partitions, why))

    def override(self, overrides: Overrides) -> None:
        with self.busy:
            self.overridden.append(overrides)

    def kill(self, wait_secs: float, why: str) -> None:
        self.killed.append(wait_secs)

    def savepoint(self, name: str) -> str:
        if name == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return f"/state/savepoints/{name}"

    def take_letters(self) -> None:
        self.taken += 1

    def restart(self, why: str) -> None:
        with self.busy:
            self.restarts += 1

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def write(self, name: str, data: bytes) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.files[name] = data
