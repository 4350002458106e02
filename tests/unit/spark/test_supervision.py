"""What user code in the driver raises, and what ends a query: each has a defined end, and a line that tells it."""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from sparkbolt import BasicBolt, CheckpointError, Config, EngineError, InvalidTopology, Spout, TopologyBuilder
from sparkbolt.core.base.exceptions import line_of
from sparkbolt.core.driver.restart_policy import QueryFailure
from sparkbolt.core.model.lane import lay_out
from sparkbolt.core.model.metrics import TopologyMetrics
from sparkbolt.core.model.outage import Outage, Phase
from sparkbolt.core.model.reports import Promotion
from sparkbolt.core.model.topology import Topology
from sparkbolt.errors import PrepareError, SparkboltError, SpoutOpenError, StateError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from sparkbolt.spark import life as life_module
from sparkbolt.spark import running as running_module
from sparkbolt.spark.checkpoint import Checkpoint, LocalFiles, _in_use
from sparkbolt.spark.driver_rpc import Bridge
from sparkbolt.spark.driver_rpc_client import Asker
from sparkbolt.spark.failure_text import carried, errors_carried, query_failure
from sparkbolt.spark.running import RunningTopology
from sparkbolt.spark.session import JVM_IS_GONE, SESSION_IS_STOPPED, check_usable, why_gone
from sparkbolt.spark.spout_threads import SpoutFailure
from sparkbolt.spark.user_calls import Calls


class Pass(BasicBolt):
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        pass


def topology(name: str = "numbers", **settings: Any) -> Topology:
    builder = TopologyBuilder("t", Config(restart_backoff_secs=0.01, **settings))
    builder.set_spout(name, GeneratorSpout(lambda: [[1], [2]], outputs=["n"]))
    builder.set_bolt("pass", Pass()).shuffle_grouping(name)
    return builder.build()


# Lives that fail.


class NoLock(Checkpoint):
    """A checkpoint in a local directory, without a JVM that locks it."""

    def __init__(self, directory: Path) -> None:
        self.directory = str(directory)
        self.files = self.letters = LocalFiles(self.directory)
        self._lock: Any = None


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

    def __call__(self, lane: Any, spark: Any, checkpoint: Checkpoint, calls: Any, tell: Any) -> Any:
        number = checkpoint.begin_life()
        error = self.fails(number)
        if error is not None:
            raise error
        ledger = SimpleNamespace(replayed=None, metrics=TopologyMetrics())
        host = SimpleNamespace(life=number, ledger=ledger, desks={}, take_over=lambda old: None, drained=True)
        life = SimpleNamespace(
            host=host,
            query=None,
            passing=False,
            promoted=False,
            quiet=False,
            telling=False,
            failure=None,
            runs=None,
            collected_bytes=0,
            end=lambda: None,
            promote_what_is_committed=lambda: None,
        )

        life.progress = lambda: SimpleNamespace(micro_batch_id=life.runs)

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
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., RunningTopology]]:
    running: list[RunningTopology] = []

    def begin(lives: Lives, **settings: Any) -> RunningTopology:
        monkeypatch.setattr(running_module, "Life", lives)
        monkeypatch.setattr(running_module, "why_gone", lambda spark: None)
        own = topology(**settings)
        one = RunningTopology(own, lay_out(own, 2), None, NoLock(tmp_path), None)  # type: ignore[arg-type]
        monkeypatch.setattr(RunningTopology, "_make_threads", lambda self: [])
        running.append(one)
        one._threads = []
        one.start()
        return one

    yield begin
    for one in running:
        one.close()


def test_an_open_that_raises_once_after_a_restart_is_not_taken_for_another_driver(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives(lambda number: ConnectionError("the broker is away") if number == 1 else None)
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        running = start(lives)
        lives.await_begun(1).query.end(ValueError("a query may end"))
        again = lives.await_begun(2)
    assert again.host.life == 2
    assert running.failure is None
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "query failed: ValueError: a query may end; it is started again in 0.01 s (1 of 5)",
        "query failed: ConnectionError: the broker is away; it is started again in 0.02 s (2 of 5)",
    ]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_user_code_that_exits_does_not_end_the_supervisor(
    start: Any, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    lives = Lives(lambda number: error if number == 1 else None)
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        running = start(lives)
        lives.await_begun(1).query.end(ValueError("a query may end"))
        assert lives.await_begun(2).host.life == 2
    assert running.failure is None
    assert f"query failed: {line_of(error)}; it is started again" in caplog.records[-1].getMessage()


class LeavesOpen(GeneratorSpout):
    def open(self, context: Any) -> None:
        sys.exit(3)


def test_a_partitioned_spout_that_exits_in_open_is_one_that_cannot_be_opened() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", LeavesOpen(lambda: [[1]], outputs=["n"]))
    lane = lay_out(builder.build(), 2)
    life = object.__new__(life_module.Life)
    life.lane, life.topology = lane, lane.topology
    life.shipment = life_module.packed(lane, "run")
    life._calls = Calls(threading.Condition())
    with pytest.raises(SpoutOpenError, match=r"spout 'numbers' could not be opened: .*SystemExit: 3"):
        life._open_spouts({})


class Leaves(GeneratorSpout):
    """Exits in one of the methods that are called in the driver."""

    def __init__(self, method: str) -> None:
        super().__init__(lambda: [[1], [2]], outputs=["n"])
        self.method = method

    def _may_leave(self, method: str) -> None:
        if self.method == method:
            sys.exit(3)

    def next_ranges(self, progress: Any, budget: int) -> Any:
        self._may_leave("next_ranges")
        return super().next_ranges(progress, budget)

    def finished(self, progress: Any) -> bool:
        self._may_leave("finished")
        return super().finished(progress)

    def committed(self, progress: Any) -> None:
        self._may_leave("committed")

    def told(self, sources: Any) -> None:
        self._may_leave("told")

    def lag(self) -> Any:
        self._may_leave("lag")
        return {}

    def measured(self, reads: Any) -> None:
        self._may_leave("measured")

    def read_bytes(self) -> int:
        return 1

    def prepare(self, context: Any) -> None:
        self._may_leave("prepare")
        super().prepare(context)


@pytest.mark.parametrize("method", ["next_ranges", "finished", "committed", "told", "lag", "measured", "prepare"])
def test_a_partitioned_spout_that_exits_raises_as_any_other_exception(method: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", Leaves(method))
    builder.set_bolt("pass", Pass()).shuffle_grouping("numbers")

    def run() -> None:
        engine = LocalEngine(builder.build())
        while engine.step() is not None or not engine.host.finished:
            pass

    with pytest.raises((RuntimeError, PrepareError), match=f"{method} of 'numbers' raised SystemExit: 3"):
        run()


class Raises(Leaves):
    """Raises what it also keeps, in one of the methods that are called in the driver."""

    error = ValueError("no such table")

    def _may_leave(self, method: str) -> None:
        if self.method == method:
            raise self.error


@pytest.mark.parametrize("method", ["next_ranges", "finished", "committed", "told", "lag", "measured"])
def test_what_a_spout_raises_in_the_driver_keeps_its_type_and_says_whose_it_is_and_where(method: str) -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("numbers", Raises(method))
    builder.set_bolt("pass", Pass()).shuffle_grouping("numbers")

    def run() -> None:
        engine = LocalEngine(builder.build())
        while engine.step() is not None or not engine.host.finished:
            pass

    for _ in range(2):
        with pytest.raises(ValueError, match="no such table") as raised:
            run()
    text = query_failure(raised.value).text
    assert text.startswith(f"ValueError: no such table, raised by {method} of 'numbers', at test_supervision.py:")
    assert text.count("raised by") == 1


def test_another_driver_that_took_the_checkpoint_over_is_still_found(start: Any, tmp_path: Path) -> None:
    lives = Lives()
    running = start(lives)
    life = lives.await_begun(1)
    NoLock(tmp_path).begin_life()
    life.query.end(ValueError("a query may end"))
    running._supervisor.join(30)
    assert "was taken over by another driver (life 1 began, this one is 0)" in running.failure


def test_a_query_that_somebody_else_has_stopped_is_not_started_again(start: Any) -> None:
    lives = Lives()
    running = start(lives)
    lives.await_begun(1).query.end()
    running._supervisor.join(30)
    assert running.failure.startswith("the query was stopped by somebody else")
    assert len(lives.begun) == 1


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (StateError("bolt 'count': attribute 'socket' cannot be kept"), False),
        (CheckpointError("plans/3-0 is missing"), False),
        (EngineError("module 'x' is missing on the executors"), False),
        (SparkboltError("something"), True),
        (ConnectionError("sparkbolt.errors.StateError: a text that only looks like one"), True),
    ],
)
def test_whether_a_query_is_started_again_depends_on_the_type_of_what_ended_it(
    start: Any, error: Exception, again: bool
) -> None:
    lives = Lives()
    running = start(lives)
    life = lives.await_begun(1)
    life.failure = query_failure(error)
    life.query.end(RuntimeError("whatever Spark made of it"))
    if again:
        lives.await_begun(2)
        assert running.failure is None
    else:
        running._supervisor.join(30)
        assert running.failure == f"{error} (not started again: it would fail again)"


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


def test_a_python_process_of_sparks_that_does_not_come_up_costs_no_restart(
    start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives()
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        running = start(lives, restarts_max=1)
        for number in range(1, 4):
            lives.await_begun(number).query.end(
                SparkSaysError(thrown("x.StreamingQueryException", "x.Stream", NO_WORKER))
            )
        lives.await_begun(4).query.end(ValueError("a query may end"))
        lives.await_begun(5)
    assert running.failure is None
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split("; ")[1] for line in lines] == [
        "it is started again in 0.01 s (costs no restart)",
        "it is started again in 0.02 s (costs no restart)",
        "it is started again in 0.04 s (costs no restart)",
        "it is started again in 0.01 s (1 of 1)",
    ]
    assert lines[0].startswith(
        "query failed: Spark has waited 10 s in vain for a Python process to start (Python worker"
    )


def test_a_python_process_that_never_comes_up_is_waited_for_as_long_as_for_an_outage(start: Any) -> None:
    lives = Lives()
    running = start(lives, outage_patience_secs=0.001)
    lives.await_begun(1).query.end(SparkSaysError(NO_WORKER))
    lives.await_begun(2).query.end(SparkSaysError(NO_WORKER))
    running._supervisor.join(30)
    assert running.failure.endswith("(so for 0.001 s, outage_patience_secs)")
    assert len(lives.begun) == 2


@pytest.mark.parametrize(
    "java",
    [
        thrown("java.net.SocketTimeoutException", "org.postgresql.Driver"),
        thrown("java.lang.IllegalStateException", FACTORY),
        thrown("org.apache.spark.SparkException: java.net.SocketTimeoutException " + FACTORY, "x"),
    ],
)
def test_no_other_failure_is_taken_for_a_process_that_did_not_come_up(java: Any) -> None:
    assert not query_failure(SparkSaysError(java)).free


@pytest.mark.parametrize(
    ("text", "is_free"),
    [
        (
            "[STREAM_FAILED] Query [id = 6, runId = 7] terminated with exception: Job aborted due to stage failure: "
            "Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 9) (localhost "
            "executor driver): org.apache.spark.SparkException: Python worker failed to connect back.\n\tat " + FACTORY,
            True,
        ),
        (
            "[STREAM_FAILED] Query [id = 6, runId = 7] terminated with exception: Python worker failed to connect back."
            " SQLSTATE: XXKST",
            True,
        ),
        ("ValueError: Python worker failed to connect back.", False),
    ],
)
def test_a_process_that_did_not_come_up_is_known_by_what_spark_tells_of_it(text: str, is_free: bool) -> None:
    assert query_failure(PySparkException(text)).free is is_free


class DeadJvm:
    """What py4j gives when nobody listens any more."""

    def __getattr__(self, name: str) -> Any:
        raise ConnectionRefusedError(111, "Connection refused")


def stopped(java: Any) -> Any:
    """A session whose JVM lives, and whose context PySpark knows as that."""
    return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=MagicMock(), _jsc=java))


def context(is_stopped: bool) -> Any:
    """What PySpark knows as a context."""
    return SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: is_stopped))


@pytest.mark.parametrize(
    ("session", "told"),
    [
        (SimpleNamespace(sparkContext=SimpleNamespace(_jvm=DeadJvm(), _jsc=None)), JVM_IS_GONE),
        (stopped(DeadJvm()), JVM_IS_GONE),
        (stopped(None), SESSION_IS_STOPPED),
        (stopped(context(is_stopped=True)), SESSION_IS_STOPPED),
    ],
)
def test_a_jvm_that_has_died_and_a_session_that_was_stopped_are_one_sentence_at_once(
    start: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, session: Any, told: str
) -> None:
    lives = Lives()
    running = start(lives)
    running._spark = session
    monkeypatch.setattr(running_module, "why_gone", why_gone)
    lives.await_begun(1).query.end(Py4JError("An error occurred while calling getBroadcastThreshold"))
    running._supervisor.join(30)
    assert running.failure == told
    assert repr(running).startswith("<RunningTopology 't': failed, ")
    assert running.progress().sentence == "no micro-batch runs"
    assert caplog.records == []
    with pytest.raises(EngineError, match="start the topology again with the same checkpoint"):
        check_usable(session)
    check_usable(stopped(context(is_stopped=False)))


@pytest.mark.parametrize(
    "text",
    [
        "[PYTHON_DATA_SOURCE_ERROR] Failed:\nModuleNotFoundError: No module named 'sparkbolt'  SQLSTATE: 38000",
        "Error from python worker:\n  /usr/bin/python3: No module named pyspark",
        "[PYTHON_DATA_SOURCE_ERROR] Failed:\nModuleNotFoundError: No module named 'numpy'",
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11",
        'java.io.IOException: Cannot run program "/opt/python3.9": error=2, No such file or directory',
    ],
)
def test_workers_of_another_python_are_one_sentence_that_says_which_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(pythonExec="/opt/python3.9"))
    failure = query_failure(PySparkException(text))
    assert failure.hopeless
    assert "Spark's workers run the Python '/opt/python3.9', as PYSPARK_PYTHON said" in failure.text
    assert f"this program runs {sys.executable}. Set the environment variable PYSPARK_PYTHON" in failure.text


@pytest.mark.parametrize(
    "text", ["ModuleNotFoundError: No module named 'sparkbolt.mine'", "No module named 'sparkbolt_extras'"]
)
def test_a_module_with_a_similar_name_is_a_users(text: str) -> None:
    assert not query_failure(PySparkException(text)).hopeless


def test_what_py4j_logs_of_a_jvm_that_has_died_sets_up_no_logger_of_the_program() -> None:
    """In a process of its own, since pytest has set up the root logger."""
    program = """
import logging
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JNetworkError
from sparkbolt.spark.jvm import quieten_py4j
quieten_py4j()
gateway = JavaGateway(gateway_parameters=GatewayParameters(port=9))
def broken(self):
    class Connection:
        def send_command(self, command):
            raise Py4JNetworkError("gone")
        def close(self, reset):
            pass
    return Connection()
type(gateway._gateway_client)._get_connection = broken
try:
    gateway.jvm.java.lang.System.nanoTime()
except Exception as error:
    print(type(error).__name__)
assert not logging.getLogger().handlers
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Py4J")


def test_a_topology_is_up_when_its_query_works_and_in_trouble_when_it_has_failed_since(start: Any) -> None:
    lives = Lives()
    running = start(lives)
    life = lives.await_begun(1)
    not_yet = "Spark has not run its first micro-batch"
    assert (running.waits_for, running.trouble) == (not_yet, None)
    life.quiet = True
    assert (running.waits_for, running.trouble) == (None, None)
    life.query.end(ValueError("a query may end"))
    again = lives.await_begun(2)
    said = "its query failed and is being started again: ValueError: a query may end"
    assert (running.waits_for, running.trouble) == (not_yet, said)
    again.runs = 0
    assert (running.waits_for, running.trouble) == (None, said), "it runs a micro-batch, which may fail again"
    again.promoted = True
    assert (running.waits_for, running.trouble) == (None, None)
    closed = SimpleNamespace(name="a[0]", opened=False, trouble="open of spout a[0] raised")
    running._threads = [closed]
    assert (running.waits_for, running.trouble) == ("a[0]: open has not returned", "open of spout a[0] raised")
    running._threads = []


# User code in the driver.


def test_a_listener_that_raises_or_exits_is_told_and_the_others_hear(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    own = topology()
    engine = LocalEngine(own)
    life = SimpleNamespace(host=engine.host, promoted=False, quiet=False, telling=False)
    monkeypatch.setattr(RunningTopology, "_new_life", lambda running: life)
    monkeypatch.setattr(RunningTopology, "_make_threads", lambda running: [])
    running = RunningTopology(own, lay_out(own, 2), None, None, None)  # type: ignore[arg-type]
    heard: list[int] = []

    def raising(report: Any) -> None:
        raise KeyError("no such series")

    def leaving(report: Any) -> None:
        sys.exit(3)

    for listener in (raising, leaving, lambda report: heard.append(report.promotion.micro_batch_id)):
        running.on_micro_batch(listener)
    promotion = engine.step()
    assert promotion is not None
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        running._tell(engine.host, promotion)
    assert heard == [0]
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(": ", 1)[0].split(".")[-1] for line in lines] == [
        "raising raised KeyError",
        "leaving raised SystemExit",
    ]
    assert all(line.endswith("the topology goes on, and it is called again next time") for line in lines)


def test_a_partitioned_spout_whose_close_raises_does_not_keep_the_others_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed: list[str] = []

    def close(name: str, error: BaseException | None) -> SimpleNamespace:
        def run() -> None:
            closed.append(name)
            if error is not None:
                raise error

        return SimpleNamespace(close=run)

    spouts: Any = {
        "first": close("first", OSError("gone")),
        "second": close("second", SystemExit(1)),
        "third": close("third", None),
    }
    with caplog.at_level(logging.ERROR, "sparkbolt"):
        life_module.close_spouts(spouts)
    assert closed == ["first", "second", "third"]
    assert [record.getMessage() for record in caplog.records] == [
        "close of spout first raised OSError: gone; it is taken for closed",
        "close of spout second raised SystemExit: 1; it is taken for closed",
    ]


@pytest.mark.parametrize("name", ["a spout", "a[0]", "of x[1] y"])
def test_an_error_is_counted_for_the_component_that_raised_whatever_its_id(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = topology(name)
    life = SimpleNamespace(host=LocalEngine(own).host)
    monkeypatch.setattr(RunningTopology, "_new_life", lambda running: life)
    monkeypatch.setattr(RunningTopology, "_make_threads", lambda running: [])
    running = RunningTopology(own, lay_out(own, 2), None, None, None)  # type: ignore[arg-type]
    running._spout_raised(SpoutFailure(name, 0, "next_tuple", ValueError("x")))
    assert {id_: counts.errors for id_, counts in running.metrics().components.items() if counts.errors} == {name: 1}


def idle_running(own: Topology, monkeypatch: pytest.MonkeyPatch, checkpoint: Any = None) -> RunningTopology:
    """A topology whose life is a fake and that was never begun."""
    life = SimpleNamespace(host=LocalEngine(own).host, stop_query=lambda: None, end=lambda: None)
    monkeypatch.setattr(RunningTopology, "_new_life", lambda running: life)
    monkeypatch.setattr(RunningTopology, "_make_threads", lambda running: [])
    return RunningTopology(own, lay_out(own, 2), None, checkpoint, None)  # type: ignore[arg-type]


def test_each_component_has_counters_before_anything_is_committed_and_the_log_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = idle_running(topology(), monkeypatch)
    before = running._host.ledger.snapshot()
    counts = running.metrics().components
    assert (list(counts), counts["pass"].executed) == (["numbers", "pass"], 0)
    assert running.metrics().of("pass").executed == 0
    wrong = "there is no component 'pas'; there is 'numbers', 'pass': did you mean 'pass'?"
    for look in (counts.__getitem__, running.metrics().of):
        with pytest.raises(KeyError) as refused:
            look("pas")
        assert str(refused.value) == wrong
    assert "pas" not in counts
    assert running._host.ledger.snapshot() == before


def test_a_bolt_that_is_out_is_told_with_its_reason_and_its_next_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    running = idle_running(topology(), monkeypatch)
    assert running.outages == []
    outages = running._host.ledger.outages
    outages.known["pass"] = Outage(Phase.OUT, since_ms=1_000, next_probe_ms=53_000)
    outages.reasons["pass"] = {"": ("ConnectionError: refused", 3)}
    monkeypatch.setattr(running_module, "now_ms", lambda: 41_000)
    assert running.outages == ["pass is out for 40 s (ConnectionError: refused), next probe in 12 s"]


def test_a_listener_gets_counters_of_each_component(monkeypatch: pytest.MonkeyPatch) -> None:
    running = idle_running(topology(), monkeypatch)
    heard: list[Any] = []
    running.on_micro_batch(heard.append)
    running._host.ledger.metrics.components.clear()
    running._tell(running._host, Promotion(0))
    assert list(heard[0].metrics.components) == ["numbers", "pass"]
    with pytest.raises(KeyError, match="there is no component 'typo'"):
        heard[0].metrics.of("typo")


def test_a_driver_that_comes_next_has_the_counters_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine(topology())
    while engine.step() is not None:
        pass
    engine.restart()
    running = idle_running(engine.topology, monkeypatch)
    running._life.host = engine.host
    metrics = running.metrics()
    assert metrics.micro_batches > 0
    assert (metrics.components["numbers"].acked, metrics.components["pass"].executed) == (2, 2)


def test_a_running_topology_tells_its_state_and_takes_no_orders_once_it_is_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running = idle_running(topology(), monkeypatch, NoLock(tmp_path))
    monkeypatch.setattr(running, "_supervisor", SimpleNamespace(is_alive=lambda: True))
    assert repr(running) == f"<RunningTopology 't': running, checkpoint {tmp_path}>"
    running.deactivate()
    running.activate()
    monkeypatch.setattr(running, "_supervisor", SimpleNamespace(is_alive=lambda: False))
    running.stop()
    assert repr(running) == f"<RunningTopology 't': stopped, checkpoint {tmp_path}>"
    for order in (running.activate, running.deactivate):
        with pytest.raises(EngineError, match=r"topology 't' was stopped and cannot be (de)?activated"):
            order()
    running.stop()


def test_a_second_start_in_the_same_process_is_told_that_it_is_its_own() -> None:
    owner = f"another driver (process {os.getpid()}, its JVM is 7)"
    said = _in_use("/state", owner, held_here=True)
    assert said.startswith("checkpoint /state is in use by this process: stop the topology that runs with it ")
    assert "(running.stop())" in said
    for other, held_here in ((owner, False), ("another driver (process 1, its JVM is 7)", True)):
        assert _in_use("/state", other, held_here=held_here) == (
            f"checkpoint /state is in use by {other}: stop that one first, or give this topology a checkpoint "
            "directory of its own"
        )


# Errors as data.


def test_an_error_of_ours_leaves_a_process_with_its_kind_and_all_its_words() -> None:
    for error in (StateError("bolt 'a'\nsecond line: \"quoted\" é"), InvalidTopology("t", ["one", "two"])):
        with pytest.raises(Exception) as raised, errors_carried():  # noqa: PT011  a type of its own, as a text to Spark
            raise error
        text = f"py4j: An error occurred while calling o77.\n: java.lang.X: {raised.value}\n\tat java.lang.Thread.run"
        assert carried(text) == QueryFailure(str(error), type(error))
        assert query_failure(Py4JError(text)) == QueryFailure(str(error), type(error))


def test_what_is_none_of_ours_leaves_as_it_is_and_damaged_words_carry_nothing() -> None:
    with pytest.raises(ValueError, match=r"^mine$"), errors_carried():
        raise ValueError("mine")
    assert carried("ValueError: mine") is None
    assert carried('sparkbolt-error:{"kind": "StateErr') is None
    assert carried('sparkbolt-error:["no", "object"]') is None
    foreign = json.dumps({"kind": "Callable", "text": "no error at all"})
    assert carried(f"sparkbolt-error:{foreign}") == QueryFailure("no error at all", None)


def test_a_full_disk_is_told_by_its_number() -> None:
    assert query_failure(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))).text.startswith("a disk is full")
    assert (
        query_failure(OSError(errno.EACCES, "Permission denied")).text
        == "PermissionError: [Errno 13] Permission denied"
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CheckpointError("plans/3-0 is missing"), QueryFailure("plans/3-0 is missing", CheckpointError)),
        (ValueError("next_ranges is broken"), None),
        (SystemExit(2), None),
    ],
)
def test_what_the_driver_raises_reaches_the_planner_as_data(error: BaseException, expected: Any) -> None:
    def answer(verb: str, argument: Any) -> Any:
        raise error

    bridge = Bridge(answer)
    try:
        with pytest.raises(RuntimeError, match="the driver could not answer 'latest'") as raised:
            Asker(bridge.directory).ask("latest", None)
        assert carried(str(raised.value)) == expected
        if expected is None:
            assert f"{type(error).__name__}: {error}" in str(raised.value)
    finally:
        bridge.close()


class Leaving(Spout):
    """Raises and exits where it can, and emits one tuple in the end."""

    outputs = ["n"]

    def open(self, context: Any) -> None:
        self.calls = 0
        self.asked = 0

    def next_tuple(self, collector: Any) -> None:
        self.calls += 1
        if self.calls == 1:
            sys.exit("enough")
        if self.calls == 2:
            collector.emit([7], message_id=7)

    @property
    def exhausted(self) -> bool:
        self.asked += 1
        if self.asked == 2:
            raise ZeroDivisionError("no share")
        return self.calls > 1


def test_a_spout_without_a_thread_goes_on_too_whatever_it_raises() -> None:
    builder = TopologyBuilder("t")
    builder.set_spout("leaving", Leaving())
    builder.set_bolt("pass", Pass()).shuffle_grouping("leaving")
    engine = LocalEngine(builder.build())
    for _ in range(5):
        engine.step()
    assert engine.ledger.metrics.of("leaving").acked == 1
    assert [report.text for report in engine.reports()] == [
        "next_tuple raised SystemExit: enough",
        "exhausted raised ZeroDivisionError: no share",
    ]
