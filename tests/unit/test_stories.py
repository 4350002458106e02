"""Stories: what stages see, what the ledger keeps, and that trees which succeed pay nothing for it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparkbolt import BasicBolt, Bolt, Config, Spout, Topology, TopologyBuilder
from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.reports import Fail, FailedTree
from sparkbolt.api.story import VALUES_CHARACTERS_MAX, Hop, merged, short, short_values
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.ledger_settings import spout_infos
from sparkbolt.driver.ledger.story_store import Stories
from sparkbolt.testing import TopologyTestDriver
from sparkbolt.worker.held_tuples import held_tuples
from sparkbolt.worker.hop_recorder import FAILED_MAX, TRACED_MAX
from tests.ledgers import restored as restored_of
from tests.topologies import Split


class Lines(Spout):
    outputs = ["line"]

    def next_tuple(self, collector: Any) -> None: ...


class Join(Bolt):
    """Keeps words; "ack" acks and "fail" fails what was kept, "pair" emits it anchored to all."""

    outputs = ["words"]

    def prepare(self, context: Any) -> None:
        self.kept: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        word = tup["word"]
        if word == "raise":
            raise ValueError("asked to")
        if word not in ("ack", "fail", "pair"):
            self.kept.append(tup)
            return
        if word == "pair":
            collector.emit([len(self.kept)], anchors=self.kept)
        for kept in self.kept:
            if word == "fail":
                collector.fail(kept, "asked to")
            else:
                collector.ack(kept)
        self.kept.clear()
        collector.ack(tup)


class Last(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        if tup["words"] == 3:
            raise ValueError("three")


def topology(trace: Any = 0.0, **config: Any) -> Topology:
    builder = TopologyBuilder("t", Config(**config))
    builder.set_spout("lines", Lines(), trace=trace)
    builder.set_bolt("split", Split()).shuffle_grouping("lines")
    builder.set_bolt("join", Join()).global_grouping("split")
    builder.set_bolt("last", Last(), fuse=False).global_grouping("join")
    return builder.build()


def fed(driver: TopologyTestDriver, *lines: str) -> None:
    """Feed each line in a micro-batch of its own; the line is its message's id, too."""
    for line in lines:
        driver.feed("lines", {"line": line}, message_id=line)
        driver.run_until_idle()


def hops_of(stories: Sequence[Any]) -> list[list[str]]:
    return [[hop.words() for hop in story.hops] for story in stories]


def ledger_of(driver: TopologyTestDriver) -> Ledger:
    return driver._engine.ledger


# What stages see.


def test_a_traced_message_shows_what_was_stored_and_what_happened_to_it_later() -> None:
    with TopologyTestDriver(topology(lambda tup: tup["line"] == "a b")) as driver:
        fed(driver, "a b", "ack")
        assert hops_of(ledger_of(driver).traced) == [
            [
                "started by lines[0] in micro-batch 0, emitted 1 (line)",
                "acked by split[0] in micro-batch 0, emitted 2 (word)",
                "held 2 by join[0] in micro-batch 0",
                "acked 2 by join[0] in micro-batch 1",
            ]
        ]
        [story] = ledger_of(driver).traced
        assert (story.message_id, story.ended_in, story.why) == ("'a b'", 1, "")


def test_a_predicate_that_raises_traces_nothing_and_is_reported_once_per_micro_batch() -> None:
    with TopologyTestDriver(topology(lambda tup: tup["nothing"])) as driver:
        fed(driver, "ack")
        assert driver.acked("lines") == ["ack"]
        [error] = driver.errors()
        assert error.text.startswith("trace raised UnknownNameError: 'nothing' does not exist")
        assert error.text.endswith("; such tuples are not traced")
        assert ledger_of(driver).traced == []


def test_path_of_tuples_emitted_for_kept_tuples_begins_where_those_were_kept() -> None:
    with TopologyTestDriver(topology()) as driver:
        fed(driver, "a", "b", "c", "pair")
        assert len(driver.failed("lines")) == 3
        for words in hops_of(ledger_of(driver).failed):
            assert words == ["sent on by join[0] in micro-batch 3", "failed by last[0] in micro-batch 3"]


@pytest.mark.parametrize("trace", [0.0, 1])
def test_stories_of_one_stage_are_bounded(trace: float) -> None:
    with TopologyTestDriver(topology(trace, stories_max=10_000)) as driver:
        for n in range(TRACED_MAX + 300):
            driver.feed("lines", {"line": "raise"}, message_id=n)
        driver.run_until_idle()
        failed = ledger_of(driver).failed
        told = [tree for tree in failed if tree.hops]
        assert len(failed) == TRACED_MAX + 300
        whole = [tree for tree in told if len(tree.hops) == 3]
        assert len(whole) >= (TRACED_MAX if trace else FAILED_MAX)
        assert len(told) <= TRACED_MAX + FAILED_MAX + 1


# What the ledger keeps.


def hop(key: int, micro_batch_id: int = 0, **more: Any) -> Hop:
    return Hop(key, micro_batch_id, 0, 1, "split", 0, **more)


def failed(key: int, bolt: str) -> FailedTree:
    fail = Fail(key, bolt, 0, Cause.EXCEPTION, "asked to", 0)
    return FailedTree(key, "lines", 0, None, None, 1, fail, MessageOutcome.SPOUT, "")


def test_stories_of_open_failed_and_acked_trees_are_bounded_and_the_newest_are_kept() -> None:
    with TopologyTestDriver(topology(1, stories_max=3)) as driver:
        fed(driver, *(f"open{n}" for n in range(5)))
        ledger = ledger_of(driver)
        assert [ledger.story(key).message_id for key in ledger.told_keys()] == ["'open2'", "'open3'", "'open4'"]
        fed(driver, "ack", *("raise" for _ in range(5)))
        assert [story.message_id for story in ledger.traced] == ["'open3'", "'open4'", "'ack'"]
        assert [tree.started_in for tree in ledger.failed] == [8, 9, 10]
        assert ledger.told_keys() == []


def test_a_component_that_fails_many_trees_leaves_the_last_ten_stories_of_the_others() -> None:
    stories = Stories(limit=100)
    stories.fail([failed(n, "calm") for n in range(12)])
    stories.fail([failed(n, "noisy") for n in range(12, 2000)])
    assert [tree.key for tree in stories.failed] == [*range(2, 12), *range(1910, 2000)]


def test_a_snapshot_and_the_log_restore_the_same_stories() -> None:
    made = topology(lambda tup: tup["line"] != "plain", message_timeout_secs=5)
    with TopologyTestDriver(made) as driver:
        fed(driver, "a", "ack", "plain", "b", "raise", "fail", "still here")
        ledger = ledger_of(driver)
        known = ledger.failed, ledger.traced, [ledger.story(key) for key in ledger.told_keys()]
        assert all(known)
        infos, owner = spout_infos(driver._engine.lane), driver._topology.task_owner
        restored = restored_of(ledger.snapshot(), infos, task_owner=owner)
        replayed = Ledger(infos, task_owner=owner)
        for entry in driver._engine.log:
            replayed.replay(entry)
        for again in (restored, replayed):
            assert (again.failed, again.traced, [again.story(key) for key in again.told_keys()]) == known
        driver.advance(timedelta(seconds=10))
        assert ledger.told_keys() == []


def test_an_open_tree_shows_its_holder_and_how_long_it_has_been_open() -> None:
    with TopologyTestDriver(topology()) as driver:
        fed(driver, "a")
        driver.advance(timedelta(seconds=7))
        fed(driver, "b")
        ledger = ledger_of(driver)
        [first, second] = [ledger.story(key) for key in ledger.open_keys(10)]
        assert (first.state, first.why) == ("open", "held by join[0] since micro-batch 0; open for 7.0 s")
        assert second.why == "held by join[0] since micro-batch 1; open for 0.0 s"


# Words.

hops = st.builds(
    hop,
    st.just(1),
    st.integers(0, 2),
    tuples=st.integers(0, 2),
    acked=st.integers(0, 2),
    failed=st.integers(0, 1),
    values=st.sampled_from(["", "{'a': 1}", "{'b': 2}"]),
    emitted=st.sampled_from([(), (("word", 0),), (("word", 3),), (("line", 1), ("word", 1))]),
)


@given(st.lists(hops, max_size=5))
def test_merging_hops_does_not_depend_on_their_order_and_loses_no_count(told: list[Hop]) -> None:
    expected = merged(told)
    for order in itertools.islice(itertools.permutations(told), 24):
        assert merged(order) == expected
    assert merged(expected) == expected
    for word in ("tuples", "acked", "failed"):
        assert sum(getattr(one, word) for one in expected) == sum(getattr(one, word) for one in told)


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_values_are_shortened_and_a_repr_that_raises_is_named() -> None:
    assert short(Rude()) == "<Rude instance>"
    assert short(object()) == "<object object>"
    assert len(short_values([f"f{n}" for n in range(100)], ["x" * 1000] * 100)) <= VALUES_CHARACTERS_MAX
    assert len(short(b"x" * 10**6)) < 100


class SeesAttempts(BasicBolt):
    outputs = ["attempt", "mark"]

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup.attempt, tup.mark])


def test_a_bolt_sees_the_attempt_without_the_mark() -> None:
    builder = TopologyBuilder("t", Config(trace=1))
    builder.set_spout("lines", Lines())
    builder.set_bolt("sees", SeesAttempts()).shuffle_grouping("lines")
    with TopologyTestDriver(builder.build()) as driver:
        fed(driver, "a")
        assert driver.emitted("sees") == [[1, 129]]


class Box:
    def __init__(self, content: Any) -> None:
        self.content = content
        self.myself = self


def test_held_tuples_are_each_found_once_wherever_a_bolt_stores_them() -> None:
    origin = Origin("split", 0, "default", ("word",))
    made = [Tuple.of(origin, [str(n)], ((n, 1),)) for n in range(8)]
    attributes = {
        "alone": made[0],
        "list": [made[1], [made[2], made[1]]],
        "dict": {"x": made[3], made[4]: 1},
        "object": Box((made[5], {made[6]})),
        "other": made[7],
        "text": "word",
    }
    found = held_tuples(attributes, frozenset(range(7)))
    assert sorted(tup["word"] for tup in found) == [str(n) for n in range(7)]
