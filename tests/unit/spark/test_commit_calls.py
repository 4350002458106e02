"""The committers of a topology as the driver calls them: one thread each, and patience with what is away."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta

import cloudpickle
import pytest

from sparkbolt import Committer, RetryPolicy, TopologyBuilder, Unavailable
from sparkbolt.api.outside import WritesOutside
from sparkbolt.driver.effects import Commit
from sparkbolt.errors import EngineError
from sparkbolt.layout.lane import lay_out
from sparkbolt.spark import commit_calls
from sparkbolt.spark.commit_calls import CommitCalls
from sparkbolt.spark.user_calls import Calls, NotReturned
from sparkbolt.spouts import GeneratorSpout
from tests.patience import PATIENCE_SECS

SEEN: list[object] = []
CALLED, ANSWERS = threading.Event(), threading.Event()


class Target(Committer):
    """Notes its calls; raises what it was made with, so often."""

    def __init__(self, error: BaseException | None = None, times: int = 0) -> None:
        self.error, self.times = error, times

    def begin(self, context):
        SEEN.append(("begin", context.checkpoint_id, context.index, threading.current_thread().name))

    def commit(self, txid, rows):
        if self.times:
            self.times -= 1
            rows.clear()
            raise self.error
        SEEN.append(("commit", txid, list(rows)))

    def end(self):
        SEEN.append("end")


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    SEEN.clear()
    quick = timedelta(milliseconds=10)
    monkeypatch.setattr(commit_calls, "AWAY", RetryPolicy(min_backoff=quick, max_backoff=2 * quick))


def calls_of(bolt: Committer) -> tuple[CommitCalls, Calls]:
    builder = TopologyBuilder("t")
    builder.set_spout("s", GeneratorSpout(list, outputs=["n"]))
    builder.set_bolt("out", bolt, parallelism=2).shuffle_grouping("s")
    calls = Calls(threading.Condition())
    return CommitCalls(lay_out(builder.build(), 2), {"out": cloudpickle.dumps(bolt)}, "c" * 32, calls), calls


def test_committer_is_opened_by_the_first_commit_and_ended_once() -> None:
    made, calls = calls_of(Target())
    with calls.changed:
        made(Commit("out", 0, lambda: [1]))
        made(Commit("out", 1, lambda: [2]))
    made.end()
    assert SEEN == [("begin", "c" * 32, 0, "commit-out"), ("commit", 0, [1]), ("commit", 1, [2]), "end"]


class Named(Target):
    """Notes as whom it begins."""

    def begin(self, context):
        SEEN.append(context.component)


def test_rows_of_before_are_committed_by_a_copy_with_the_id_that_it_had() -> None:
    made, calls = calls_of(Named())
    with calls.changed:
        made(Commit("out", 0, lambda: [1], "before"))
        made(Commit("out", 1, lambda: [2]))
    made.end()
    assert SEEN == ["before", ("commit", 0, [1]), "out", ("commit", 1, [2]), "end", "end"]


def test_commit_waits_for_an_unavailable_target(caplog: pytest.LogCaptureFixture) -> None:
    made, calls = calls_of(Target(Unavailable("the disk is full"), 4))
    with caplog.at_level(logging.INFO, "sparkbolt"), calls.changed:
        made(Commit("out", 7, lambda: [1]))
    made.end()
    assert SEEN[1:] == [("commit", 7, [1]), "end"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "commit 7 of out waits: the disk is full" in caplog.text


class Locked(WritesOutside, Committer):
    """Its database answers once ``ANSWERS`` is set."""

    place = "table orders at sqlite:////srv/shop.db"

    def commit(self, txid, rows):
        CALLED.set()
        ANSWERS.wait(PATIENCE_SECS)


def test_a_commit_that_has_no_answer_yet_names_its_database(monkeypatch: pytest.MonkeyPatch) -> None:
    made, calls = calls_of(Locked())
    ANSWERS.clear()
    CALLED.clear()
    monkeypatch.setattr(commit_calls, "WAIT_SECS", 0.0)

    def commit() -> None:
        with calls.changed:
            made(Commit("out", 7, lambda: [1]))

    committing = threading.Thread(target=commit)
    committing.start()
    try:
        assert CALLED.wait(PATIENCE_SECS)
        assert made.waits == f"commit 7 of out waits for {Locked.place} for 0 s"
        monkeypatch.setattr(commit_calls, "WAIT_SECS", 3600.0)
        assert made.waits is None
    finally:
        ANSWERS.set()
        committing.join()
    monkeypatch.setattr(commit_calls, "WAIT_SECS", 0.0)
    assert made.waits is None, "it has answered"
    made.end()


def test_a_stopping_topology_does_not_wait_for_a_commit_call() -> None:
    made, calls = calls_of(Target(Unavailable("away"), 1 << 40))
    threading.Timer(0.2, calls.break_off).start()
    began = time.monotonic()
    with calls.changed, pytest.raises(NotReturned):
        made(Commit("out", 7, lambda: [1]))
    assert time.monotonic() - began < PATIENCE_SECS
    made.end()


@pytest.mark.parametrize("error", [ValueError("no such column"), SystemExit("enough"), KeyboardInterrupt()])
def test_any_other_exception_shows_where_it_was_raised_and_what_happens_to_the_rows(error: BaseException) -> None:
    made, calls = calls_of(Target(error, 1))
    said = rf"commit of 'out' raised {type(error).__name__}.*test_commit_calls.py, line \d+\): the rows of txid 7"
    with calls.changed, pytest.raises(EngineError, match=said):
        made(Commit("out", 7, lambda: [1]))
    made.end()
