"""The two engines behind one face: what a contract test may ask of either."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparkbolt.api.dead_letters import DeadLetter
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.reports import ErrorReport
from sparkbolt.api.topology import Topology
from sparkbolt.driver.ledger.generations import TOPOLOGY_FILE, Generation, Generations
from sparkbolt.driver.ledger.ledger import FailedTree, Promotion, Story
from sparkbolt.driver.ledger.ledger_files import FORMAT, FORMAT_FILE
from sparkbolt.driver.transition import recorded
from sparkbolt.sim.checkers.dead_letter_sinks import letters_in
from sparkbolt.sim.engine import LocalEngine
from tests.contract.parts import notes, phase
from tests.patience import PATIENCE_SECS


def write_checkpoint(engine: LocalEngine, directory: Path) -> Path:
    """What Spark's engine would have in the directory, as far as a reader of the ledger looks at it."""
    for folder in ("ledger", "spark/commits"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    (directory / FORMAT_FILE).write_text(str(FORMAT))
    (directory / TOPOLOGY_FILE).write_bytes(Generations([recorded(Generation(), engine.lane)]).dumps())
    for number, entry in enumerate(engine.log):
        (directory / "ledger" / f"{number}.entry").write_bytes(entry)
        (directory / "spark" / "commits" / str(number)).touch()
    return directory


class NeverHeldError(AssertionError):
    """A condition did not come to hold."""


class Engine(ABC):
    """A topology on one of the engines, begun by the constructor."""

    def __init__(self, topology: Topology, directory: Path) -> None:
        self.topology = topology
        self.directory = directory
        self.failed: list[FailedTree] = []
        self.reports: list[ErrorReport] = []
        self.restarts: list[tuple[dict[str, ComponentMetrics], dict[str, ComponentMetrics]]] = []
        """For each restart the counts of all components, before and after it."""
        self.missed: list[str] = []
        """What ``await_all`` awaited in vain."""

    def learn(self, promotion: Promotion) -> None:
        self.failed += promotion.failed
        self.reports += promotion.reports

    def of(self, component: str) -> ComponentMetrics:
        return self.metrics().of(component)

    def notes(self, name: str) -> list[list[Any]]:
        return notes(str(self.directory), name)

    def failures_of(self, spout: str) -> dict[int | None, FailedTree]:
        return {tree.position: tree for tree in self.failed if tree.component == spout}

    def counts(self) -> dict[str, ComponentMetrics]:
        return {name: replace(counts) for name, counts in self.metrics().components.items()}

    def begin_phase(self) -> None:
        """Begin the next phase: spouts see it when they are asked next."""
        Path(self.directory, f"phase-{phase(str(self.directory)) + 1}").touch()

    def await_all(self, conditions: dict[str, Callable[[], bool]]) -> None:
        """Run until all conditions hold; note the names of those that never do.

        The topology goes on without them: a part that is broken fails its own tests, not those of the other parts.
        """
        try:
            self.until(lambda: all(condition() for condition in conditions.values()))
        except NeverHeldError:
            self.missed += [name for name, condition in conditions.items() if not condition()]

    def restart(self) -> None:
        """Stop without draining and start again with the same checkpoint."""
        before = self.counts()
        self.begin_anew()
        self.restarts.append((before, self.counts()))

    @abstractmethod
    def metrics(self) -> TopologyMetrics: ...

    @abstractmethod
    def until(self, condition: Callable[[], bool]) -> None:
        """Run, and let time pass where there is nothing to do, until the condition holds.

        Raises:
            NeverHeldError: it does not.
            RuntimeError: the topology failed.
        """

    @abstractmethod
    def finished(self) -> bool: ...

    @abstractmethod
    def stories(self) -> tuple[list[FailedTree], list[Story]]:
        """The failed trees and the traced ones that were acked, as the ledger keeps them."""

    @abstractmethod
    def letters(self) -> list[DeadLetter]:
        """The dead letters of the checkpoint."""

    @abstractmethod
    def checkpoint(self) -> Path:
        """A directory with what is durable of the ledger."""

    @abstractmethod
    def begin_anew(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class Sim(Engine):
    def __init__(self, topology: Topology, directory: Path) -> None:
        super().__init__(topology, directory)
        self.engine = LocalEngine(topology)

    def metrics(self) -> TopologyMetrics:
        return self.engine.ledger.metrics

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(2000):
            promotion = self.engine.step()
            if promotion is not None:
                self.learn(promotion)
            if condition():
                return
            if self.engine.failure is not None:
                raise RuntimeError(self.engine.failure)
            if promotion is None:
                self.engine.now_ms += 100
        raise NeverHeldError(f"{self.metrics()}, failed {self.failed}")

    def finished(self) -> bool:
        return self.engine.coordinator.finished

    def stories(self) -> tuple[list[FailedTree], list[Story]]:
        return self.engine.ledger.failed, self.engine.ledger.traced

    def letters(self) -> list[DeadLetter]:
        return letters_in(self.engine.letters)

    def checkpoint(self) -> Path:
        return write_checkpoint(self.engine, self.directory / "checkpoint")

    def begin_anew(self) -> None:
        self.engine.restart()

    def close(self) -> None:
        self.engine.close()


class OnSpark(Engine):
    def __init__(self, topology: Topology, directory: Path, spark: Any) -> None:
        super().__init__(topology, directory)
        self.spark = spark
        self.promoted = threading.Event()
        self.until_s = time.monotonic() + PATIENCE_SECS
        self.begin()

    def begin(self) -> None:
        checkpoint = str(self.directory / "checkpoint")
        self.running = self.topology.start(spark=self.spark, checkpoint=checkpoint)
        self.running.on_micro_batch(self.hear)

    def hear(self, micro_batch: Any) -> None:
        self.learn(micro_batch.promotion)
        self.promoted.set()

    def metrics(self) -> TopologyMetrics:
        metrics: TopologyMetrics = self.running.metrics()
        return metrics

    def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self.running.failure is not None:
                raise RuntimeError(self.running.failure)
            if time.monotonic() > self.until_s:
                raise NeverHeldError(f"{self.metrics()}, failed {self.failed}")
            self.promoted.wait(0.1)
            self.promoted.clear()

    def finished(self) -> bool:
        finished: bool = self.running.await_finished(0)
        return finished

    def stories(self) -> tuple[list[FailedTree], list[Story]]:
        return self.running.failed, self.running.traced

    def letters(self) -> list[DeadLetter]:
        return letters_in(path.read_bytes() for path in sorted(self.checkpoint().glob("dead-letters/*.jsonl")))

    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def begin_anew(self) -> None:
        self.running.stop(drain=False)
        self.begin()

    def close(self) -> None:
        self.running.stop(drain=False)
