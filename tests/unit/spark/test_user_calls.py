"""Code of users that hangs in the driver: it holds nobody up, it is named, and a stop leaves it behind."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt import Config, PartitionedSpout, Range, TopologyBuilder
from sparkbolt.api.reports import SourceView
from sparkbolt.api.topology import Topology
from sparkbolt.errors import EngineError, SourceUnavailable
from sparkbolt.layout.lane import lay_out
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.wire.acker import gather
from sparkbolt.worker.activity import Hangs

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from sparkbolt.spark import user_calls as calls_module
from sparkbolt.spark.activity_pages import warning
from sparkbolt.spark.checkpoint import Checkpoint
from sparkbolt.spark.life import Life
from sparkbolt.spark.running_on_spark import RunningOnSpark
from sparkbolt.spark.supervisor import Supervisor
from sparkbolt.spark.user_calls import Caller, Calls
from tests.patience import PATIENCE_SECS
from tests.unit.spark.lives import FakeQuery, NoLock, Pass

HANGS_IN: set[str] = set()
PLAYING: list[Any] = []
"""The topology that is played."""
OPENS: list[BaseException] = []
"""What the next calls of ``open`` raise."""
ENTERED, LET = threading.Event(), threading.Event()


def maybe_hang(method: str) -> None:
    if method in HANGS_IN:
        if method != "listener":  # all calls of a spout that hangs wait in its thread: no other call is cut short
            calls_module.CLOSE_SECS = calls_module.LEAVE_SECS = 0.05
        ENTERED.set()
        LET.wait(60)


class Hanging(PartitionedSpout):
    """Four positions, two at a time; hangs where it is told to."""

    outputs = ["n"]

    def open(self, context: Any) -> None:
        maybe_hang("open")

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> list[Range]:
        maybe_hang("next_ranges")
        start = progress.get("n", 0)
        return [Range(0, "n", start, start + 2)] if start < 4 else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        maybe_hang("finished")
        return progress.get("n", 0) >= 4

    def on_committed(self, progress: Mapping[str, int]) -> None:
        maybe_hang("on_committed")

    def on_sources_changed(self, sources: Mapping[str, SourceView]) -> None:
        if sources:
            maybe_hang("on_sources_changed")

    def lag(self) -> Mapping[str, int]:
        maybe_hang("lag")
        return {"n": 1}

    def close(self) -> None:
        maybe_hang("close")

    def read(self, range_: Range) -> Iterator[tuple[int, list[int]]]:
        for number in range(range_.start, range_.end):
            yield number, [number]


def build(spout: Hanging, **settings: Any) -> Topology:
    builder = TopologyBuilder("t", Config(**{"restart_backoff_secs": 0.01, **settings}))
    builder.set_spout("numbers", spout)
    builder.set_bolt("pass", Pass()).shuffle_grouping("numbers")
    return builder.build()


@pytest.fixture(autouse=True)
def let_go(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(calls_module, "CLOSE_SECS", 1.0)
    monkeypatch.setattr(calls_module, "LEAVE_SECS", 0.5)
    monkeypatch.setattr("sparkbolt.spark.supervisor.why_gone", lambda session: None)
    new_life = Supervisor._new_life
    monkeypatch.setattr(Supervisor, "_new_life", lambda supervisor: PLAYING[-1].play(new_life(supervisor)))
    HANGS_IN.clear()
    ENTERED.clear()
    LET.clear()
    yield
    HANGS_IN.clear()
    LET.set()


class Played(RunningOnSpark):
    """A topology whose query is played here: each plan is run in this process, staged, committed and promoted."""

    def __init__(
        self, directory: Path, open_secs: float | None = None, spout: Hanging | None = None, **settings: Any
    ) -> None:
        topology = build(spout or Hanging(), **settings)
        hangs = [*HANGS_IN]
        away = [*OPENS]
        HANGS_IN.clear()
        OPENS.clear()
        self._engine = LocalEngine(topology)
        HANGS_IN.update(hangs)
        OPENS.extend(away)
        session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]", defaultParallelism=2))
        PLAYING[:] = [self]
        super().__init__(topology, lay_out(topology, 2), session, NoLock(directory), None, open_secs)

    def play(self, life: Life) -> Life:
        """Give a life a query that is played."""
        query = FakeQuery()

        def play() -> None:
            end: Any = life._committed_end()
            try:
                while not query.ended.is_set():
                    start, end = end, life._answer("latest", end)
                    if end != start:
                        self._play(life, end)
            except Exception as error:  # noqa: BLE001  what Spark would make the failure of the query
                query.end(error)

        def begin() -> None:
            life.query = query  # type: ignore[assignment]
            threading.Thread(target=play, daemon=True).start()

        life.start = begin  # type: ignore[method-assign]
        return life

    def _play(self, life: Life, end: Any) -> None:
        life._answer("partitions", end)
        self._engine.machine = life.machine
        plan = life.coordinator.in_force
        assert plan is not None
        life._collected = lambda frame: gather(data for _, data in self._engine.run(plan))  # type: ignore[method-assign]
        life._end_of_lane(object(), end["micro_batch_id"])  # type: ignore[arg-type]
        for log, text in (("offsets", f"v1\n{{}}\n{json.dumps(end)}"), ("commits", "v1\n{}")):
            folder = Path(life._checkpoint.directory, "spark", log)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / str(end["micro_batch_id"])).write_text(text)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[], Played]]:
    running: list[Played] = []

    def start() -> Played:
        one = Played(tmp_path)
        running.append(one)
        one.start()
        return one

    yield start
    LET.set()
    for one in running:
        one.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_simulated_topology_finishes_and_is_idle(begin: Any) -> None:
    running = begin()
    heard: list[int] = []
    running.on_micro_batch(lambda report: heard.append(report.promotion.micro_batch_id))
    assert running.await_finished(20)
    assert running.metrics().of("numbers").acked == 4
    assert heard[-1] == 1, "all have heard of what is finished"
    assert running.await_idle(20)
    began = time.monotonic()
    assert running.stop()
    assert time.monotonic() - began < 5


@pytest.mark.slow
@pytest.mark.parametrize("method", ["next_ranges", "on_committed", "on_sources_changed"])
def test_a_hanging_method_of_a_spout_blocks_nothing_and_is_abandoned_by_a_stop(
    begin: Any, method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    HANGS_IN.add(method)
    running = begin()
    assert ENTERED.wait(20)
    acked = running.metrics().of("numbers").acked
    assert acked == (0 if method == "next_ranges" else 2)
    assert not running.await_finished(0.2)
    running.deactivate()
    assert running.outages == []
    (call,) = running.progress().calls
    assert (call.what, call.waited_for) == (f"{method} of spout 'numbers'", True)
    assert call.where is not None
    assert call.where.startswith("test_user_calls.py:")
    began = time.monotonic()
    assert running.stop(drain=False), "no tree is open"
    assert time.monotonic() - began < 8
    assert not running._supervisor.is_alive
    (said,) = lines(caplog)
    assert said.startswith(f"{method} of spout 'numbers' has not returned for ")
    assert said.endswith(" s: it is left behind, and spout numbers is not closed")
    LET.set()
    HANGS_IN.clear()
    again = begin()
    assert again.await_finished(20)
    assert again.metrics().of("numbers").acked == 4, "nothing is lost, and nothing is acked twice"


def test_result_of_an_abandoned_call_changes_nothing(begin: Any, tmp_path: Path) -> None:
    HANGS_IN.add("next_ranges")
    running = begin()
    assert ENTERED.wait(20)
    running.stop(drain=False)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    LET.set()
    running._supervisor.life._spout_calls._callers["numbers"]._thread.join(20)
    assert running._coordinator.in_force is None
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_hanging_listener_is_named_and_abandoned(begin: Any, caplog: pytest.LogCaptureFixture) -> None:
    running = begin()
    HANGS_IN.add("listener")
    running.on_micro_batch(lambda report: maybe_hang("listener"))
    assert ENTERED.wait(20)
    assert not running.await_drained(0.2), "somebody has not heard yet"
    assert running.progress().micro_batch_id is None
    running.stop(drain=False)
    (said,) = lines(caplog)
    assert said.startswith("listener test_a_hanging_listener_is_named_and_abandoned.<locals>.<lambda> has not ret")
    assert said.endswith("s: it is left behind")


@pytest.mark.parametrize("how", ["stop", "stop without draining", "close"])
def test_a_listener_may_stop_the_topology_and_does_not_wait_for_it(begin: Any, how: str) -> None:
    running = begin()
    returned: list[Any] = []
    back = threading.Event()

    def stop(report: Any) -> None:
        returned.append(running.close() if how == "close" else running.stop(drain=how == "stop"))
        back.set()

    running.on_micro_batch(stop)
    running._supervisor._thread.join(20)
    assert not running._supervisor.is_alive
    assert back.wait(PATIENCE_SECS), "the listener never came back"
    assert returned[0] in (False, None)
    for thread in threading.enumerate():
        if thread.name in ("sparkbolt-stop", "sparkbolt-close"):
            thread.join(20)


def test_a_hanging_close_is_waited_for_only_until_its_limit(
    begin: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    HANGS_IN.add("close")
    running = begin()
    assert running.await_finished(20)
    monkeypatch.setattr(calls_module, "CLOSE_SECS", 0.05)
    monkeypatch.setattr(calls_module, "LEAVE_SECS", 0.05)
    running.stop()
    assert lines(caplog) == [
        "close of spout 'numbers' has not returned for 0 s: it is left behind, and spout numbers is not closed"
    ]


def test_a_hanging_open_of_a_spout_after_a_restart_does_not_block_a_stop(begin: Any) -> None:
    running = begin()
    assert running.await_finished(20)
    HANGS_IN.add("open")
    running._supervisor.life.query.end(ValueError("a query may end"))
    assert ENTERED.wait(20)
    began = time.monotonic()
    running.stop(drain=False)
    assert time.monotonic() - began < 8
    assert not running._supervisor.is_alive


def test_a_spout_with_a_hanging_open_at_the_start_is_named_and_an_interrupt_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sparkbolt.spark.supervisor.LOOK_OUT_SECS", 0.05)
    monkeypatch.setattr("sparkbolt.spark.supervisor.Hangs", lambda: Hangs(0.2))
    HANGS_IN.add("open")
    main = threading.get_ident()

    class Interrupt(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logger.removeHandler(self)
            signal.pthread_kill(main, signal.SIGINT)

    logger = logging.getLogger("sparkbolt")
    logger.addHandler(Interrupt())
    with pytest.raises(KeyboardInterrupt):
        Played(tmp_path)
    assert lines(caplog)[0].startswith("open of spout 'numbers' has not returned for 0 s, at test_user_calls.py:")
    assert lines(caplog)[-1].endswith("it is left behind, and spout numbers is not closed")


class Refused(PySparkException):
    """What Spark says of a query that it does not take."""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Refused("x\nModuleNotFoundError: No module named 'sparkbolt'  SQLSTATE: 38000"), EngineError),
        (OSError(28, "No space left on device"), OSError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_a_start_that_raises_releases_the_checkpoint_its_threads_and_its_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, told: type[BaseException]
) -> None:
    let_go: list[Checkpoint] = []
    monkeypatch.setattr(NoLock, "close", lambda self: let_go.append(self))
    before = set(threading.enumerate())
    running = Played(tmp_path)
    directory = Path(running._supervisor.life._bridge.directory)
    assert directory.exists()

    def refuse() -> None:
        raise error

    running._supervisor.life.start = refuse  # type: ignore[method-assign]
    with pytest.raises(told):
        running.start()
    assert let_go == [running._checkpoint]
    assert not directory.exists()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
        assert not thread.is_alive(), thread.name


class Away(Hanging):
    """Its source is away as often as it is told to be."""

    def open(self, context: Any) -> None:
        if OPENS:
            raise OPENS.pop()
        ENTERED.set()


def test_a_source_unavailable_at_the_start_costs_no_restart_and_logs_one_line_per_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running = Played(tmp_path, spout=Away(), restarts_max=1)
    OPENS[:] = [SourceUnavailable("nobody answers") for _ in range(3)]
    running._supervisor.life.end()
    running._supervisor.life = running._supervisor._first_life()
    running.start()
    assert running.await_finished(20)
    ENTERED.clear()
    OPENS[:] = [SourceUnavailable("nobody answers") for _ in range(3)]
    running._supervisor.life.query.end(ValueError("a query may end"))  # type: ignore[union-attr]
    assert ENTERED.wait(20)
    running.stop()
    assert running.failure is None
    text = "spout 'numbers' could not be opened: nobody answers; it is tried again in"
    assert lines(caplog)[:3] == [f"{text} {secs:g} s (costs no restart)" for secs in (0.01, 0.02, 0.04)]
    assert sum("(costs no restart)" in line for line in lines(caplog)) == 6


# The parts.


@pytest.fixture
def calls() -> Calls:
    return Calls(threading.Condition(threading.RLock()))


def test_exception_of_a_call_is_raised_where_the_call_is_awaited(calls: Calls) -> None:
    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        Caller(calls, "caller").ask("leave", leave)


def test_a_hanging_call_is_reported_with_what_waits_for_it(calls: Calls) -> None:
    caller = Caller(calls, "caller")
    HANGS_IN.add("call")
    caller.later("next_ranges of spout 'numbers'", lambda: maybe_hang("call"))
    assert ENTERED.wait(20)
    (sight,) = calls.sights().values()
    assert "nothing new is read before it returns; Ctrl-C or stop() leaves it behind" in warning(
        sight, lambda _: ("", 0)
    )
    LET.set()
    caller.end()
    assert calls.sights() == {}
