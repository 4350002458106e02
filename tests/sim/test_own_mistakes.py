"""What users do wrong: the simulator names it with an example, apart from broken promises."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Bolt, Config, Spout, TopologyBuilder, Unavailable, bolt
from sparkbolt.sim.mistakes import Mistake, MistakeKind, try_once
from sparkbolt.sim.subject import subject_of
from sparkbolt.sim.subprocess_runner import close_processes
from sparkbolt.spouts import TextSpout
from sparkbolt.testing import simulate
from tests.sim.random_topologies import Messages

pytestmark = pytest.mark.slow

FEED = {"m": [[number] for number in range(30)]}


@pytest.fixture(autouse=True, scope="module")
def _processes() -> Any:
    yield
    close_processes()


def behind(component: Any, config: Config | None = None, **settings: Any) -> Any:
    builder = TopologyBuilder("small", config or Config(message_timeout_secs=5, max_attempts=2))
    builder.set_spout("m", Messages(), parallelism=2)
    builder.set_bolt("b", component, parallelism=2, **settings).fields_grouping("m", ["n"])
    return builder.build()


def mistakes(component: Any, config: Config | None = None, **settings: Any) -> tuple[Mistake, ...]:
    return try_once(subject_of(behind(component, config, **settings), FEED)).mistakes


class Forgets(Bolt):
    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] % 10 != 3:
            collector.ack(tup)


class Flaky(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        if tup.attempt == 1 and tup["n"] == 5:
            raise OSError("not now")


def test_a_bolt_that_never_acks_some_tuples_is_named_with_an_example() -> None:
    (mistake,) = mistakes(Forgets())
    assert (mistake.kind, mistake.component, mistake.messages) == (MistakeKind.NEVER_ACKED, "b", 3)
    assert "got [" in mistake.example
    assert "3] and neither acked nor failed it" in mistake.example
    assert "without collector.ack(tup)" in mistake.likely
    assert "'b': 3 messages were never acked" in mistake.words


def test_messages_that_are_given_up_are_reported_with_the_error() -> None:
    @bolt(outputs=[])
    def parse(tup: Any) -> None:
        if tup["n"] in (4, 9):
            raise ValueError(f"{tup['n']} is no word")

    (mistake,) = mistakes(parse)
    assert (mistake.kind, mistake.component, mistake.messages) == (MistakeKind.EXHAUSTED, "b", 2)
    assert "is no word" in mistake.example


def test_mistakes_are_not_broken_promises_unless_requested() -> None:
    report = simulate(behind(Forgets()), seed=3, feed=FEED, repeat=False)
    assert report.ok, report.story
    assert [mistake.component for mistake in report.mistakes] == ["b"]
    assert "3 messages were never acked" in report.story
    assert report.to_json()["mistakes"][0]["kind"] == "never acked"
    strict = simulate(behind(Forgets()), seed=3, feed=FEED, repeat=False, strict=True)
    assert not strict.ok
    assert strict.promise is None


@pytest.mark.parametrize("kind", ["random", "set", "more"])
def test_differences_of_the_second_run_are_shown_side_by_side(kind: str) -> None:
    here = os.getpid()

    @bolt(outputs=["n"])
    def wild(tup: Any) -> Any:
        if kind == "random":
            yield [random.random()]  # no seed
        elif kind == "set":
            yield from ([word] for word in {"to", "be", "or", "not", f"{tup['n']}"})
        else:
            yield from ([n] for n in range(1 if os.getpid() == here else 2))

    builder = TopologyBuilder("wild")
    builder.set_spout("m", Messages())
    builder.set_bolt("wild", wild).shuffle_grouping("m")
    builder.set_bolt("last", Flaky()).fields_grouping("wild", ["n"])
    report = simulate(builder.build(), seed=5, feed=FEED, history="")
    assert report.component == "wild"
    first, second = (line for line in report.story.splitlines() if line.startswith("  the "))
    assert first.startswith("  the first time:  wild[0] sent [")
    assert second.startswith("  the second time: ")
    assert first.partition(":")[2] != second.partition(":")[2]


class Collects(BasicBolt):
    """Emits a list, and changes it with the next tuple."""

    outputs = ["seen"]

    def prepare(self, context: Any) -> None:
        self.seen: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen.append(tup["n"])
        collector.emit([self.seen])


class Lists(BasicBolt):
    """Emits lists that it does not touch any more."""

    outputs = ["numbers"]

    def execute(self, tup: Any, collector: Any) -> None:
        numbers = [tup["n"]]
        numbers.append(1)
        collector.emit([numbers])


@bolt(outputs=["numbers"])
def extend(tup: Any) -> Any:
    numbers = tup["numbers"]
    numbers.append(2)
    yield [numbers]


@bolt(outputs=["numbers"])
def pass_on(tup: Any) -> Any:
    yield [tup["numbers"]]


def chain(*bolts: Any, fuse: bool = True) -> Any:
    builder = TopologyBuilder("small", Config(message_timeout_secs=5))
    builder.set_spout("m", Messages(), parallelism=1)
    builder.set_bolt("b0", bolts[0], fuse=fuse).fields_grouping("m", ["n"])
    for place, component in enumerate(bolts[1:], 1):
        builder.set_bolt(f"b{place}", component, fuse=fuse).shuffle_grouping(f"b{place - 1}")
    return builder.build()


def changed(*bolts: Any, fuse: bool = True) -> list[tuple[str, int]]:
    trial = try_once(subject_of(chain(*bolts, fuse=fuse), FEED))
    assert all(mistake.kind == MistakeKind.CHANGED for mistake in trial.mistakes)
    return [(mistake.component, mistake.messages) for mistake in trial.mistakes]


def last(tup: Any) -> None:
    pass


def test_a_value_that_is_changed_after_it_was_emitted_is_named_with_its_bolt() -> None:
    (mistake,) = try_once(subject_of(chain(Collects(), bolt(outputs=[])(last)), FEED)).mistakes
    assert (mistake.kind, mistake.component) == (MistakeKind.CHANGED, "b0")
    assert mistake.messages > 10
    assert "b0[0] emitted [" in mistake.example
    assert "as field 'seen' on stream 'default', which was [" in mistake.example
    assert "emit a copy" in mistake.likely
    assert "values were changed after being emitted" in mistake.words


def test_a_bolt_that_mutates_its_input_is_named_when_others_hold_the_same_object() -> None:
    end = bolt(outputs=[])(last)
    assert changed(Lists(), pass_on, extend, end) == [("b2", 30)], "and not those through whom it came"
    assert changed(Lists(), extend, extend, end) == [("b1", 30), ("b2", 30)]
    assert changed(Lists(), extend, end, fuse=False) == [], "there it is a copy of its own"
    assert changed(Lists(), pass_on, end) == []


class Away(BasicBolt):
    """Depends on something that is not there in a simulation, as ``where`` finds out."""

    def __init__(self, where: str) -> None:
        self.where = where

    def prepare(self, context: Any) -> None:
        if self.where == "prepare":
            raise Unavailable("connection refused")

    def execute(self, tup: Any, collector: Any) -> None:
        if self.where == "execute" or (self.where == "for one" and tup["n"] == 3):
            raise Unavailable("connection refused")

    def flush(self) -> None:
        if self.where == "flush":
            raise Unavailable("connection refused")


@pytest.mark.parametrize("where", ["prepare", "execute", "flush", "for one"])
def test_a_bolt_that_stays_unavailable_ends_the_seed_and_is_named(where: str) -> None:
    report = simulate(behind(Away(where)), seed=3, feed=FEED, repeat=False)
    (mistake,) = report.mistakes
    assert (mistake.kind, mistake.component) == (MistakeKind.NEVER_TAKEN, "b")
    assert mistake.messages == (1 if where == "for one" else 30)
    assert "connection refused" in mistake.example
    assert "context.rehearsal_directory is not None" in mistake.likely
    assert report.ok, report.story
    assert report.micro_batches < 60
    assert "the seed ended where bolt 'b' had been unavailable in 20 micro-batches in a row" in report.story


class PassesOn(BasicBolt):
    outputs = ["n"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup[0]])


class Closed(Spout):
    outputs = ["n"]

    def open(self, context: Any) -> None:
        raise ConnectionError("no such queue")

    def next_tuple(self, collector: Any) -> None:
        collector.emit([1], message_id=1)


def test_a_spout_with_a_failing_open_is_named_although_no_promise_is_broken() -> None:
    builder = TopologyBuilder("small")
    builder.set_spout("m", Closed())
    (mistake,) = try_once(subject_of(builder.build())).mistakes
    assert (mistake.kind, mistake.component) == (MistakeKind.RAISED, "m")
    assert mistake.example == "open raised ConnectionError: no such queue"


def test_a_topology_with_nothing_to_read_reports_that_nothing_was_tested(tmp_path: Path) -> None:
    def empty(config: Config, spout: Any, feed: Any = None) -> bool:
        builder = TopologyBuilder("small", config)
        builder.set_spout("m", spout)
        builder.set_bolt("b", PassesOn()).shuffle_grouping("m")
        return try_once(subject_of(builder.build(), feed)).is_empty

    assert empty(Config(), TextSpout(str(tmp_path / "*.txt"), follow=True))
    assert not empty(Config(acker_tasks=0), Messages(), FEED)
