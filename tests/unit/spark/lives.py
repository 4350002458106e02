"""A topology whose lives and queries are fakes, and failures as Spark has them: what tests of the supervisor share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.api.metrics import TopologyMetrics
from sparkbolt.api.topology import Topology
from sparkbolt.driver.ledger.generations import Generation, Generations
from sparkbolt.files.memory import MemoryFiles
from sparkbolt.layout.lane import lay_out
from sparkbolt.listeners import Progress
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError

from sparkbolt.files.local import LocalFiles
from sparkbolt.observe.recorder import Observed
from sparkbolt.spark import running_on_spark as running_module
from sparkbolt.spark import supervisor as supervisor_module
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.running_on_spark import RunningOnSpark
from sparkbolt.spark.supervisor import Supervisor


class Pass(BasicBolt):
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        pass


def topology(name: str = "numbers", **settings: Any) -> Topology:
    builder = TopologyBuilder("t", Config(restart_backoff_secs=0.01, **settings))
    builder.set_spout(name, GeneratorSpout(lambda: [[1], [2]], outputs=["n"]))
    builder.set_bolt("pass", Pass()).shuffle_grouping(name)
    return builder.build()


class NoLock(Checkpoint):
    """A checkpoint in a local directory, without a JVM that locks it: as on a cluster's file system."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.files = self.letters = LocalFiles(self.directory)
        self._lock: Any = None
        self._generations = Generations([Generation()])


class FakeQuery:
    """A query that ends when it is told to."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.error: Exception | None = None
        self.isActive = True

    def end(self, error: Exception | None = None) -> None:
        self.error = error
        self.ended.set()

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802  Spark's name
        done = self.ended.wait(timeout)
        if done and self.error is not None:
            raise self.error
        return done

    def stop(self) -> None:
        self.end()


class Lives:
    """Stands in for ``Life``: counts lives, and has some of them fail to begin."""

    def __init__(self, fails: Callable[[int], BaseException | None] = lambda number: None) -> None:
        self.fails = fails
        self.begun: list[Any] = []
        self.changed = threading.Condition()

    def __call__(
        self, lane: Any, spark: Any, checkpoint: Checkpoint, calls: Any, lifecycle: Any, tell: Any, peeks: Any
    ) -> Any:
        number = checkpoint.begin_life()
        error = self.fails(number)
        if error is not None:
            raise error
        outages = SimpleNamespace(sentences=lambda *_: [])
        ledger = SimpleNamespace(
            replayed=None, staged=None, metrics=TopologyMetrics(), flows={}, outages=outages, last_promoted=-1
        )
        coordinator = SimpleNamespace(
            observed=Observed(),
            full=dict,
            life=number,
            ledger=ledger,
            buffers={},
            spouts={},
            take_over=lambda old: None,
            drained=True,
            only_time_advances=False,
            given_back=[],
            retries=0,
        )
        life = SimpleNamespace(
            commit_waits=None,
            bundle=None,
            see_lag=lambda: None,
            machine=SimpleNamespace(promoted=False, promoting=False),
            sights=dict,
            coordinator=coordinator,
            query=None,
            passing=False,
            failure=None,
            collected_bytes=0,
            end=lambda: None,
            promote_what_is_committed=lambda: None,
        )

        life.progress = Progress

        def start() -> None:
            life.query = FakeQuery()
            with self.changed:
                self.begun.append(life)
                self.changed.notify_all()

        life.start, life.stop_query = start, lambda: life.query and life.query.stop()
        return life

    def await_begun(self, count: int) -> Any:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= count, 30), f"{len(self.begun)} lives have begun"
            return self.begun[count - 1]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., RunningOnSpark]]:
    running: list[RunningOnSpark] = []

    def begin(lives: Lives, **settings: Any) -> RunningOnSpark:
        monkeypatch.setattr(supervisor_module, "Life", lives)
        monkeypatch.setattr(supervisor_module, "why_gone", lambda spark: None)
        monkeypatch.setattr(running_module, "threads_of", lambda *_, **__: [])
        own = topology(**settings)
        one = RunningOnSpark(own, lay_out(own, 2), None, NoLock(tmp_path), None)  # type: ignore[arg-type]
        running.append(one)
        one.start()
        return one

    yield begin
    for one in running:
        one.close()


def in_memory() -> Any:
    """A checkpoint that has files, and nothing else."""
    return SimpleNamespace(files=MemoryFiles())


def idle_running(
    own: Topology, monkeypatch: pytest.MonkeyPatch, checkpoint: Any = None, engine: Any = None, **arguments: Any
) -> RunningOnSpark:
    """A topology that was not started; its life has the machine of an engine, and a query that runs until it ends."""
    machine = (engine or LocalEngine(own)).machine
    query = FakeQuery()
    life = SimpleNamespace(
        machine=machine,
        coordinator=machine.coordinator,
        query=query,
        start=lambda: None,
        stop_query=query.stop,
        end=lambda: None,
        promote_what_is_committed=lambda: None,
        sights=dict,
        progress=Progress,
        passing=False,
        failure=None,
        collected_bytes=0,
        bundle=None,
        see_lag=lambda: None,
        commit_waits=None,
    )
    monkeypatch.setattr(Supervisor, "_new_life", lambda supervisor: life)
    monkeypatch.setattr(running_module, "threads_of", lambda *_, **__: [])
    monkeypatch.setattr(supervisor_module, "why_gone", lambda spark: None)
    return RunningOnSpark(own, lay_out(own, 2), None, checkpoint or in_memory(), None, **arguments)  # type: ignore[arg-type]


def thrown(kind: str, thrower: str, cause: Any = None) -> Any:
    """What Java has thrown, as py4j gives it."""
    return SimpleNamespace(
        getClass=lambda: SimpleNamespace(getName=lambda: kind),
        getStackTrace=lambda: [SimpleNamespace(getClassName=lambda: thrower)],
        getCause=lambda: cause,
    )


FACTORY = "org.apache.spark.api.python.PythonWorkerFactory"
NO_WORKER = thrown("org.apache.spark.SparkException", FACTORY, thrown("java.net.SocketTimeoutException", FACTORY))


class SparkSaysError(Py4JError):
    def __init__(self, java: Any) -> None:
        super().__init__("o1.awaitTermination\njava.lang.Something: else")
        self.java_exception = java
