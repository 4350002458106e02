"""KafkaSpout and KafkaBolt against the mock cluster of the client library, without Spark."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import re
import threading
import time
import uuid
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sparkbolt import Bolt, Config, DeadLetter, RetryPolicy, Spout, TopologyBuilder, bolt
from sparkbolt.bolts import KafkaBolt
from sparkbolt.cli import main
from sparkbolt.cli.check import examine, report_lines
from sparkbolt.cli.dlq.topic import client_properties
from sparkbolt.cli.graph import text_drawing
from sparkbolt.cli.svg import svg_drawing
from sparkbolt.core.model.components import Range, TopologyContext
from sparkbolt.core.model.dead_letters import Attempt, RawMessage
from sparkbolt.core.model.lane import lay_out
from sparkbolt.core.model.reports import SourceView
from sparkbolt.core.worker.worker import context_of
from sparkbolt.errors import ConfigError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import KafkaSpout, TextSpout
from sparkbolt.spouts.kafka import KafkaDeadLetters, KafkaMessage
from sparkbolt.spouts.kafka.dead_letters import READ_SECS, letter_of, message_of, read_topic
from sparkbolt.spouts.kafka.driver import watching
from sparkbolt.spouts.kafka.driver.cluster import BrokersAwayError, Cluster
from sparkbolt.spouts.kafka.driver.offsets import Owner, Stored, unpacked
from sparkbolt.spouts.kafka.settings import ClientSettings
from sparkbolt.spouts.kafka.sources import KafkaPartition
from sparkbolt.testing import simulate
from tests.kafka import (
    SEEN,
    Keep,
    committed,
    finished,
    poll,
    run,
    run_to_end,
    see,
    spout,
    store_all,
    topology,
)
from tests.patience import PATIENCE_SECS

pytestmark = pytest.mark.slow


def test_each_message_is_read_once_and_the_group_is_told_all_of_it(kafka, name):
    for number in range(4):
        kafka.produce(name, [f"{number}-{place}" for place in range(300)], kafka_partition=number)
    built = topology(name, spout(kafka.brokers, name, stop_at_end=True))
    engine = run_to_end(built)
    assert sorted((row["partition"], row["offset"], row["line"]) for row in SEEN[name]) == [
        (number, place, f"{number}-{place}") for number in range(4) for place in range(300)
    ]
    assert engine.ledger.metrics.of("messages").acked == 1200
    told = committed(kafka.brokers, name)
    assert {number: offset for number, (offset, _) in told.items()} == dict.fromkeys(range(4), 300)
    metadata = json.loads(told[0][1])
    assert (metadata["topology"], metadata["version"]) == (name, built.version)


def test_a_message_that_is_no_json_fails_alone_and_is_not_tried_again(kafka, name):
    kafka.produce(name, ['{"v":1}', "{nonsense", "[2]", '{"v":3,"w":4}', None, "null"], kafka_partition=0)
    own = spout(kafka.brokers, name, value="json", outputs=["v"], stop_at_end=True)
    engine = run_to_end(topology(name, own, max_attempts=5))
    assert [row["v"] for row in SEEN[name]] == [1, 3, None]
    stories = [tree.story for tree in engine.ledger.failed]
    assert [tree.position for tree in engine.ledger.failed] == [1, 2, 5]
    assert "JSONDecodeError" in stories[0]
    assert "expected an object with the fields ['v'], got [2]" in stories[1]
    assert engine.ledger.metrics.of("messages").set_aside == 3
    assert committed(kafka.brokers, name)[0][0] == 6


def test_bytes_that_are_no_text_fail_their_message_alone(kafka, name):
    kafka.produce(name, [b"to be", b"\xff\xfe", "né"], kafka_partition=0)
    engine = run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    assert [row["line"] for row in SEEN[name]] == ["to be", "né"]
    assert [tree.position for tree in engine.ledger.failed] == [1]


def test_a_failed_message_is_read_again_and_never_stops_those_behind_it(kafka, name):
    kafka.produce(name, [str(place) for place in range(100)], kafka_partition=0)
    policy = RetryPolicy(max_retries=2)
    own = spout(kafka.brokers, name, stop_at_end=True, retry=policy)
    engine = run_to_end(topology(name, own, Keep(name, lambda tup: tup["line"] == "7")))
    again = [(row["line"], row["attempt"]) for row in SEEN[name] if row["line"] == "7"]
    assert again == [("7", 1), ("7", 2), ("7", 3)]
    assert len(SEEN[name]) == 102
    assert engine.ledger.metrics.of("messages").set_aside == 1
    assert committed(kafka.brokers, name)[0][0] == 100


class Store(Keep):
    """Writes to a database that is away for the first two seconds."""

    transient = ("bad", "context")

    def prepare(self, context):
        self.context = context

    def execute(self, tup, collector):
        if self.context.now_ms < 2000:
            raise ConnectionError("the database refuses connections")
        super().execute(tup, collector)


def test_a_database_that_is_away_for_two_seconds_neither_sets_messages_aside_nor_moves_the_offsets(kafka, name):
    kafka.produce(name, [str(place) for place in range(1000)], kafka_partition=0)
    own = spout(kafka.brokers, name, stop_at_end=True, max_uncommitted=300)
    engine = LocalEngine(topology(name, own, Store(name)))
    moved = []
    try:
        run(engine, lambda: engine.now_ms >= 1900)
        moved.append(engine.ledger.finished["messages"])
        run(engine, finished(engine))
    finally:
        for one in engine.host.spouts.values():
            one.close()
        engine.close()
    assert set(moved[0].values()) <= {0}, "nothing passes what waits"
    assert sorted(int(row["line"]) for row in SEEN[name]) == list(range(1000))
    counts = engine.ledger.metrics.of("messages")
    assert (counts.acked, counts.set_aside, engine.letters) == (1000, 0, {})
    assert committed(kafka.brokers, name)[0][0] == 1000


def test_a_new_checkpoint_begins_where_the_group_is_and_repeats_nothing(kafka, name):
    kafka.produce(name, [str(place) for place in range(50)], kafka_partition=1)
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    kafka.produce(name, ["new"], kafka_partition=1)
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    assert [row["line"] for row in SEEN[name]] == [*map(str, range(50)), "new"]


class Refuse(Bolt):
    """Fails whatever it gets."""

    def execute(self, tup, collector):
        collector.fail(tup, "refused")


class Hold(Bolt):
    """Acks everything but one line."""

    transient = ("held",)

    def __init__(self, name: str) -> None:
        self.name = name

    def execute(self, tup, collector):
        see(self.name, dict(tup))
        if tup["line"] != "3":
            collector.ack(tup)


def test_what_is_finished_beyond_the_committed_offset_is_not_repeated_with_a_new_checkpoint(kafka, name):
    kafka.produce(name, [str(place) for place in range(10)], kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name), Hold(name)))
    run(engine, lambda: len(SEEN[name]) == 10 and engine.host.in_force is None)
    for one in engine.host.spouts.values():
        one.close()
    engine.close()
    offset, metadata = committed(kafka.brokers, name)[0]
    assert (offset, unpacked(offset, metadata).finished) == (3, [(4, 10)])
    SEEN[name].clear()
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    assert [row["line"] for row in SEEN[name]] == ["3"]
    assert committed(kafka.brokers, name)[0][0] == 10


def test_offsets_of_another_topology_are_refused_or_started_over_as_told(kafka, name):
    kafka.produce(name, [str(place) for place in range(5)], kafka_partition=0)
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    other = name + "-other"
    with pytest.raises(ConfigError, match=rf"was stored by topology '{name}' as '{name}/messages'"):
        LocalEngine(topology(other, spout(kafka.brokers, name, stop_at_end=True)))
    run_to_end(topology(other, spout(kafka.brokers, name, stop_at_end=True, other_topology="start_over"), Keep(other)))
    assert [row["line"] for row in SEEN[other]] == [*map(str, range(5))]


def test_a_checkpoint_reads_what_it_has_not_read_though_another_one_has_finished_it(kafka, name):
    kafka.produce(name, map(str, range(3)), kafka_partition=0)
    engine = run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    kafka.produce(name, map(str, range(3, 10)), kafka_partition=0)
    store_all(kafka.brokers, name, {0: Stored(5, Owner(f"{name}/messages", name), [(6, 8)])})
    engine.restart()
    run(engine, finished(engine))
    engine.host.spouts["messages"].close()
    assert [row["line"] for row in SEEN[name]] == [*map(str, range(10))]
    assert committed(kafka.brokers, name)[0][0] == 10


def test_a_group_that_forgets_an_idle_spouts_offsets_is_told_again(kafka, name, monkeypatch):
    monkeypatch.setattr("sparkbolt.spouts.kafka.driver.watching.TELL_AGAIN_SECS", 0.2)
    kafka.produce(name, ["a", "b"], kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name)))
    run(engine, lambda: committed(kafka.brokers, name).get(0, (0, ""))[0] == 2)
    store_all(kafka.brokers, name, {0: Stored(0), 1: Stored(7)})
    run(engine, lambda: [committed(kafka.brokers, name)[number][0] for number in (0, 1)] == [2, 0])
    engine.host.spouts["messages"].close()


def test_less_than_a_record_a_second_is_not_none_at_all(kafka, name, monkeypatch):
    kafka.produce(name, ["a", "b"], kafka_partition=0)
    seconds = itertools.count(step=1.0)
    monkeypatch.setattr("sparkbolt.spouts.kafka.spout.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True, max_records_per_sec=0.5)))
    assert [row["line"] for row in SEEN[name]] == ["a", "b"]


def test_a_thread_that_outlives_its_spout_tells_nothing_old(kafka, name, monkeypatch):
    class Store:
        told: list[int] = []

        def open(self, scope): ...

        def load(self, places):
            return {}

        def save(self, offsets):
            self.told.append(max(stored.offset for stored in offsets.values()))

        def close(self): ...

    asked, waiting, answered = threading.Event(), threading.Event(), threading.Event()
    ends = Cluster.ends

    def slow(cluster, places):
        if asked.is_set():
            waiting.set()
            assert answered.wait(PATIENCE_SECS)
        return ends(cluster, places)

    kafka.produce(name, ["a", "b"], kafka_partition=0)
    own = spout(kafka.brokers, name, offsets=Store())
    monkeypatch.setattr("sparkbolt.spouts.kafka.driver.watching.CLOSE_SECS", 0.05)
    monkeypatch.setattr(Cluster, "ends", slow)
    own.open(context_of(lay_out(topology(name, own), 1), 1))
    asked.set()
    assert waiting.wait(PATIENCE_SECS)
    view = SourceView(planned=2, finished=2, waiting=0, open=0, away=0, _done=lambda limit: [])
    own.told({f"{name}/0": view})
    thread = own._watcher._thread
    own.close()
    answered.set()
    thread.join(PATIENCE_SECS)
    assert Store.told == [0]


def test_a_kafka_partition_without_a_leader_is_waited_for_before_the_end(kafka, name, monkeypatch, caplog):
    kafka.produce(name, ["a"], kafka_partition=0)
    kafka.produce(name, ["b"], kafka_partition=1)
    ends, waiting = Cluster.ends, iter(range(3))

    def without_a_leader(cluster, places):
        found = ends(cluster, places)
        if next(waiting, None) is not None:
            found.pop(KafkaPartition(name, 1), None)
        return found

    monkeypatch.setattr(Cluster, "ends", without_a_leader)
    monkeypatch.setattr("sparkbolt.spouts.kafka.driver.watching.LOOK_SECS", 0.05)
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    assert sorted(row["line"] for row in SEEN[name]) == ["a", "b"]
    assert f"nobody answers for {name}/1" in caplog.text


def test_who_starts_over_where_another_topology_was_takes_nothing_as_finished_from_it(kafka, name):
    kafka.produce(name, ["a", "b", "c", "d"], kafka_partition=0)
    theirs = Owner("audit/orders", "audit")
    store_all(kafka.brokers, name, {0: Stored(0, theirs, [(1, 3)])})
    own = spout(kafka.brokers, name, stop_at_end=True, start={f"{name}/0": 0}, other_topology="start_over")
    run_to_end(topology(name, own))
    assert [row["line"] for row in SEEN[name]] == ["a", "b", "c", "d"]


def test_latest_passes_over_what_was_there_and_a_later_start_does_not_take_it_anew(kafka, name):
    kafka.produce(name, ["old"], kafka_partition=0)
    run_to_end(topology(name, spout(kafka.brokers, name, start="latest", stop_at_end=True)))
    kafka.produce(name, ["while nobody looked"], kafka_partition=0)
    run_to_end(topology(name, spout(kafka.brokers, name, start="latest", stop_at_end=True)))
    assert [row["line"] for row in SEEN[name]] == ["while nobody looked"]


def test_a_topic_that_comes_while_the_topology_runs_is_found_by_the_pattern(kafka, name):
    kafka.produce(f"{name}.a", ["first"], kafka_partition=0)
    own = spout(kafka.brokers, name, topics=re.compile(rf"{name}\.[ab]"), start="latest")
    engine = LocalEngine(topology(name, own))
    kafka.produce(f"{name}.b", ["second"], kafka_partition=0)
    kafka.produce(f"{name}.c", ["another"], kafka_partition=0)
    run(engine, lambda: SEEN[name] != [])
    engine.close()
    assert [row["line"] for row in SEEN[name]] == ["second"]


def close(engine: LocalEngine) -> None:
    for one in engine.host.spouts.values():
        one.close()
    engine.close()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_topic_made_again_that_has_grown_is_read_from_its_start(kafka, name, stopped, monkeypatch, caplog):
    """The mock cluster knows no ids, so they are told here; a real broker tells its own in the tests of services."""
    ids = {name: "A"}
    monkeypatch.setattr(Cluster, "ask_ids", lambda *_: None)
    monkeypatch.setattr(Cluster, "ids", lambda _: dict(ids))
    kafka.produce(name, [str(place) for place in range(10)], kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name)))
    progress = lambda: engine.ledger.progress.get("messages", {})  # noqa: E731
    run(engine, lambda: progress().get(f"{name}/0#A") == 1 and engine.host.in_force is None)
    assert len(SEEN[name]) == 10
    if stopped:
        for one in engine.host.spouts.values():
            one.close()
    ids[name] = "B"
    if stopped:
        engine.restart()
    run(engine, lambda: progress().get(f"{name}/0#B") == 2 and engine.host.in_force is None)
    assert [row["line"] for row in SEEN[name]] == [*map(str, range(10))] * 2
    assert progress()[f"{name}/0~1"] == 10
    assert caplog.text.count("the topic was made again (its id was A and is B)") == 1
    kafka.produce(name, ["new"], kafka_partition=0)
    run(engine, lambda: len(SEEN[name]) == 21 and engine.host.in_force is None)
    close(engine)
    assert committed(kafka.brokers, name)[0][0] == 11


def test_a_topic_made_again_is_noticed_with_a_new_checkpoint_by_the_id_in_the_offsets(
    kafka, name, monkeypatch, caplog, tmp_path
):
    ids = {name: "A"}
    monkeypatch.setattr(Cluster, "ask_ids", lambda *_: None)
    monkeypatch.setattr(Cluster, "ids", lambda _: dict(ids))
    kafka.produce(name, [str(place) for place in range(10)], kafka_partition=0)
    file = f"file:{tmp_path / 'offsets.json'}"
    for topic_id, read in (("A", 10), ("A", 10), ("B", 20), ("B", 20)):
        ids[name] = topic_id
        run_to_end(topology(name, spout(kafka.brokers, name, offsets=file, stop_at_end=True)))
        assert len(SEEN[name]) == read
    assert caplog.text.count("the topic was made again (its id was A and is B)") == 1


def several(message: KafkaMessage):
    for word in message.value.split():
        yield [word, message.headers]


def test_a_message_becomes_several_tuples_of_one_tree_or_none(kafka, name):
    kafka.produce(name, ["to be or", "", "not"], kafka_partition=0, headers={"trace": b"ab"})
    own = spout(kafka.brokers, name, translate=several, outputs=["word", "headers"], stop_at_end=True)
    engine = run_to_end(topology(name, own))
    assert [row["word"] for row in SEEN[name]] == ["to", "be", "or", "not"]
    assert SEEN[name][0]["headers"] == [("trace", b"ab")]
    assert engine.ledger.metrics.of("messages").acked == 2
    assert committed(kafka.brokers, name)[0][0] == 3


def test_a_message_fails_whole_when_one_of_its_tuples_fails(kafka, name):
    kafka.produce(name, ["to be or"], kafka_partition=0)
    own = spout(kafka.brokers, name, translate=several, outputs=["word", "headers"], stop_at_end=True)
    engine = run_to_end(topology(name, own, Keep(name, lambda tup: tup["word"] == "be"), max_attempts=2))
    assert [row["word"] for row in SEEN[name]] == ["to", "be", "or"] * 2
    assert engine.ledger.metrics.of("messages").set_aside == 1


def test_without_a_guarantee_nothing_is_tracked_and_nothing_read_again(kafka, name):
    kafka.produce(name, [str(place) for place in range(20)], kafka_partition=0)
    own = spout(kafka.brokers, name, guarantee="none", stop_at_end=True)
    engine = run_to_end(topology(name, own, Keep(name, lambda tup: tup["line"] == "7")))
    assert len(SEEN[name]) == 20
    assert engine.ledger.metrics.of("messages").acked == 0
    assert committed(kafka.brokers, name)[0][0] == 20


def planned(engine: LocalEngine):
    """The next plan, confirmed."""
    plans: list = []

    def ask() -> bool:
        plans.append(engine.host.next_plan(engine.now_ms, engine.now_ms / 1000))
        return plans[-1] is not None

    poll(ask)
    engine.host.confirm(plans[-1], engine.now_ms / 1000)
    return plans[-1]


def test_at_most_once_repeats_nothing_when_the_driver_dies_whichever_checkpoint_comes_next(kafka, name):
    kafka.produce(name, [str(place) for place in range(20)], kafka_partition=0)
    once = functools.partial(spout, kafka.brokers, name, guarantee="at-most-once", max_poll_records=8)
    bad = Keep(name, lambda tup: tup["line"] == "3")
    engine = LocalEngine(topology(name, once(), bad))
    plan = planned(engine)
    assert committed(kafka.brokers, name)[0][0] == 8, "it is told before it is read"
    engine.run(plan)
    assert len(SEEN[name]) == 8
    engine.worker.abandon()  # dead before anything of it was committed
    run_to_end(topology(name, once(stop_at_end=True), bad))
    assert [row["line"] for row in SEEN[name]] == [*map(str, range(20))], "3 has failed, and is not given again"
    assert committed(kafka.brokers, name)[0][0] == 20


def test_at_most_once_gives_back_what_was_told_and_not_read_when_it_is_stopped(kafka, name):
    kafka.produce(name, [str(place) for place in range(5)], kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name, guarantee="at-most-once")))
    (own,) = engine.host.spouts.values()
    assert own.next_ranges({}, 100) == []
    poll(lambda: committed(kafka.brokers, name)[0][0] == 5)
    close(engine)
    assert committed(kafka.brokers, name)[0][0] == 0


def test_a_named_topic_that_is_not_there_is_told_and_waited_for(kafka, name, caplog):
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        engine = LocalEngine(topology(name, spout(kafka.brokers, name)))
    assert f"topic '{name}' is not there" in caplog.text
    kafka.produce(name, ["late"], kafka_partition=0)
    run(engine, lambda: SEEN[name] != [])
    engine.close()


def test_brokers_that_do_not_answer_are_told_by_their_address_without_secrets(name):
    own = KafkaSpout("127.0.0.1:9", name, group=name, request_secs=0.3, client={"sasl.password": "x4!y"})
    with pytest.raises(BrokersAwayError, match=r"no answer from the Kafka brokers at 127\.0\.0\.1:9") as raised:
        LocalEngine(topology(name, own))
    assert "x4!y" not in str(raised.value)


def test_a_property_that_the_client_refuses_is_told_without_its_value(kafka, name):
    own = spout(kafka.brokers, name, client={"sasl.password": "x4!y", "security.protocol": "x4!y"})
    with pytest.raises(ConfigError, match="Kafka's client refuses") as raised:
        LocalEngine(topology(name, own))
    assert "x4!y" not in str(raised.value)


def test_secrets_are_in_no_drawing_story_letter_log_line_or_ledger(kafka, name, capsys, caplog):
    secrets = {"sasl.username": "bob-x4!y", "sasl.password": "x4!y", "ssl.key.password": "x4!y"}
    kafka.create(f"{name}.dlq")
    kafka.produce(name, ["good", "poison"], kafka_partition=0)
    own = spout(kafka.brokers, name, client=secrets, dead_letters=f"{name}.dlq", stop_at_end=True)
    builder = TopologyBuilder(name, Config(max_attempts=1))
    builder.set_spout("messages", own)
    builder.set_bolt("keep", Keep(name, lambda tup: tup["line"] == "poison")).shuffle_grouping("messages")
    builder.set_bolt("write", KafkaBolt(kafka.brokers, f"{name}.out", client=secrets)).shuffle_grouping("messages")
    built = builder.build()
    with caplog.at_level(logging.DEBUG):
        engine = run_to_end(built)
    (letter,) = read_topic(ClientSettings(kafka.brokers), f"{name}.dlq").letters
    examination = examine(built, 2)
    told = [repr(own), repr(own.settings), repr(built), repr(built.components), *report_lines(examination)]
    told += [json.dumps(examination.to_json()), text_drawing(built), svg_drawing(built), letter.to_line(), caplog.text]
    told += [tree.story for tree in engine.ledger.failed] + [entry.decode("latin-1") for entry in engine.log]
    assert len(engine.ledger.failed) == 1
    assert len(engine.log) > 0
    assert [text for text in told if "x4!y" in text] == []


def test_a_consumer_is_kept_and_seeks_only_for_a_range_that_does_not_begin_where_the_last_one_ended(kafka, name):
    for number in (0, 1):
        kafka.produce(name, [str(place) for place in range(5000)], kafka_partition=number)
    own = spout(kafka.brokers, name)
    own.prepare(TopologyContext(name, "messages", 0, 1, 1, Config()))
    read = lambda number, start, end: [at for at, _ in own.read(Range(0, f"{name}/{number}", start, end))]  # noqa: E731
    for start in range(0, 3000, 500):
        for number in (0, 1):
            assert read(number, start, start + 500) == [*range(start, start + 500)]
    readers = {place.number: reader for (place, _), reader in own._readers.items()}
    assert {number: reader.seeks for number, reader in readers.items()} == {0: 1, 1: 1}
    assert read(0, 100, 101) == [100], "a message that is given again"
    assert read(0, 3000, 3500) == [*range(3000, 3500)]
    assert readers[0].seeks == 1, "it was read by a consumer of its own"
    assert read(0, 200, 300) == [*range(200, 300)]
    assert readers[0].seeks == 2
    own.cleanup()


def test_the_bolt_acks_no_tuple_before_the_broker_has_acknowledged_its_message(kafka, name):
    settled: list[tuple[str, int]] = []
    own = KafkaBolt(kafka.brokers, name, value="n", client={"linger.ms": 20_000})
    own.prepare(TopologyContext("t", "out", 0, 1, 1, Config()))
    collector = SimpleNamespace(
        ack=lambda tup: settled.append(("ack", tup["n"])), fail=lambda tup, _: settled.append(("fail", tup["n"]))
    )
    for number in range(600):
        own.execute({"n": number}, collector)
    assert settled == [], "they are in the producer's queue, and not with the broker"
    own.flush()
    assert sorted(settled) == [("ack", number) for number in range(600)]
    assert len(read_back(kafka, name)) == 600
    own.cleanup()


def read_back(kafka, topic):
    """The values of a topic's messages."""
    name = f"{topic}-back"
    SEEN[name] = []
    run_to_end(topology(name, KafkaSpout(kafka.brokers, topic, group=name, outputs=["value"], stop_at_end=True)))
    return [row["value"] for row in SEEN[name]]


@bolt(outputs=["topic", "key", "word", "headers"])
def to_write(tup):
    word = tup["line"]
    yield [f"{word[0]}-words" if word != "bad" else "", word[:1], word, {"length": str(len(word))}]


def test_the_bolt_writes_topic_key_value_and_headers_and_a_bad_tuple_fails_alone(kafka, name):
    kafka.produce(name, ["be", "bad", "or"], kafka_partition=0)
    builder = TopologyBuilder(name, Config(max_attempts=1))
    builder.set_spout("messages", spout(kafka.brokers, name, stop_at_end=True))
    builder.set_bolt("words", to_write).shuffle_grouping("messages")
    writer = KafkaBolt(kafka.brokers, topic_field="topic", key="key", value="word", headers="headers")
    builder.set_bolt("write", writer).shuffle_grouping("words")
    engine = run_to_end(builder.build())
    assert [tree.position for tree in engine.ledger.failed] == [1]
    assert engine.ledger.metrics.of("messages").acked == 2
    read = KafkaSpout(
        kafka.brokers, ["b-words", "o-words"], group="r", outputs=["topic", "key", "value", "headers"], stop_at_end=True
    )
    run_to_end(topology(name + "-read", read))
    assert sorted((row["topic"], row["key"], row["value"], row["headers"]) for row in SEEN[name + "-read"]) == [
        ("b-words", b"b", b"be", [("length", b"2")]),
        ("o-words", b"o", b"or", [("length", b"2")]),
    ]


def test_a_message_that_the_broker_does_not_take_fails_its_tuple_alone(kafka, name):
    kafka.produce(name, ["short", "long" * 1000, "last"], kafka_partition=0)
    builder = TopologyBuilder(name, Config(max_attempts=1))
    builder.set_spout("messages", spout(kafka.brokers, name, stop_at_end=True))
    writer = KafkaBolt(kafka.brokers, f"{name}-out", client={"message.max.bytes": 1000})
    builder.set_bolt("write", writer).shuffle_grouping("messages")
    engine = run_to_end(builder.build())
    assert [tree.position for tree in engine.ledger.failed] == [1]
    assert engine.ledger.metrics.of("messages").acked == 2


def test_what_is_given_up_goes_to_a_topic_as_it_came_and_comes_back_by_replay(kafka, name, capsys):
    dlq = f"{name}.dlq"
    kafka.create(dlq)
    kafka.produce(name, ["good"], kafka_partition=1)
    kafka.produce(name, ["poison"], key="k", kafka_partition=1, headers={"trace": "ab"})
    own = spout(kafka.brokers, name, stop_at_end=True, dead_letters=dlq, retry=RetryPolicy(max_retries=1))
    engine = run_to_end(topology(name, own, Keep(name, lambda tup: tup["line"] == "poison")))
    assert engine.ledger.metrics.of("messages").dead_letters == 1
    assert committed(kafka.brokers, name)[1][0] == 2
    began = time.monotonic()
    (letter,) = read_topic(ClientSettings(kafka.brokers), dlq).letters
    assert time.monotonic() - began < READ_SECS, "a short topic is read to its end, and not until nothing has come"
    assert (letter.source, letter.position, letter.attempts_in_all) == (f"{name}/1", 1, 2)
    assert (letter.raw.key, letter.raw.value, letter.raw.headers) == (b"k", b"poison", (("trace", b"ab"),))
    assert "is bad" in letter.last.reason
    headers = dict(message_of(letter).headers)
    assert headers["__streams.errors.exception"] == b"ValueError"
    assert (headers["__streams.errors.topic"], headers["__streams.errors.offset"]) == (name.encode(), b"1")
    where = f"kafka:{kafka.brokers}/{dlq}"
    assert main(["dlq", "list", where]) == 0
    assert f"messages[1] {name}/1@1, 2 attempts" in capsys.readouterr().out
    assert main(["dlq", "show", where, letter.id[:8]]) == 0
    shown = capsys.readouterr().out
    assert all(f"attempt {number}, root " in shown for number in (1, 2)), "the story of each attempt"
    assert f"{name}/1@1" in shown
    assert "exception in bolt0[" in shown
    assert "Traceback" in shown
    assert main(["dlq", "replay", where]) == 0
    assert "1 letter(s) replayed" in capsys.readouterr().out
    SEEN[name].clear()
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    assert [(row["line"], row["partition"], row["offset"]) for row in SEEN[name]] == [("poison", 1, 2)]
    assert main(["dlq", "replay", where]) == 0
    assert "0 letter(s) replayed" in capsys.readouterr().out


def test_the_command_tells_the_lag_of_each_source(kafka, name, tmp_path, monkeypatch, capsys):
    kafka.produce(name, ["a", "b", "c"], kafka_partition=2)
    module = f"lag_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{module}.py").write_text(
        "from sparkbolt import TopologyBuilder\n"
        "from sparkbolt.bolts import PrintBolt\n"
        "from sparkbolt.spouts import KafkaSpout\n"
        f"builder = TopologyBuilder({name!r})\n"
        f"builder.set_spout('orders', KafkaSpout({kafka.brokers!r}, {name!r}, group={name!r}))\n"
        "builder.set_bolt('print', PrintBolt()).shuffle_grouping('orders')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["lag", f"{module}:builder"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"orders  group {name}  lag 3"
    assert lines[4].split() == [f"{name}/2", "-", "3", "0", "3", "-"]
    assert main(["lag", f"{module}:builder", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert (body["spout"], body["lag"], body["sources"][2]["end"]) == ("orders", 3, 3)


def test_the_driver_never_sees_the_record_of_a_dead_letter(kafka, name):
    """Plans and the ledger's log are all that a driver has of a message; a story shows both ends of its values."""
    kafka.create(f"{name}.dlq")
    record = "x" * 5000 + " within the record " + "x" * 5000
    kafka.produce(name, [record], kafka_partition=0, headers={"trace": "in no story"})
    own = spout(kafka.brokers, name, dead_letters=f"{name}.dlq", retry=RetryPolicy(max_retries=1))
    engine = LocalEngine(topology(name, own, Refuse()))
    plans, plan = [], engine.host.next_plan

    def noted(*when):
        plans.append(plan(*when))
        return plans[-1]

    engine.host.next_plan = noted
    run(engine, lambda: engine.ledger.metrics.of("messages").dead_letters == 1 and engine.host.in_force is None)
    close(engine)
    asked = [entry for one in plans if one is not None for entry in one.entries if entry.letters is not None]
    assert [(entry.source, entry.positions) for entry in asked] == [(f"{name}/0", (0,))], "the plan says what is read"
    seen = [json.dumps(one.to_json()) for one in plans if one is not None]
    seen += [entry.decode("latin-1") for entry in engine.log]
    assert [text for text in seen if "within the record" in text or "in no story" in text] == []
    (letter,) = read_topic(ClientSettings(kafka.brokers), f"{name}.dlq").letters
    assert (letter.raw.value.decode(), letter.raw.headers) == (record, (("trace", b"in no story"),))


def test_a_letter_has_the_headers_of_kafka_streams_dead_letter_queue(kafka, name):
    """Their names are those of KIP-1034, and all of them are there whatever the cause is."""
    kafka.create(f"{name}.dlq")
    kafka.produce(name, ["a", "b"], kafka_partition=2)
    for bolt_, number in ((Refuse(), 0), (Keep(name, lambda tup: True), 1)):
        own = spout(kafka.brokers, name, group=f"{name}{number}", stop_at_end=True, dead_letters=f"{name}.dlq")
        run_to_end(topology(f"{name}{number}", own, bolt_, max_attempts=1))
    letters = sorted(read_topic(ClientSettings(kafka.brokers), f"{name}.dlq").letters, key=lambda one: one.last.cause)
    assert [letter.last.cause for letter in letters] == ["exception", "exception", "fail", "fail"]
    for letter in letters:
        headers = {key: value.decode() for key, value in message_of(letter).headers}
        names = ("exception", "message", "stacktrace", "topic", "partition", "offset")
        told = {key: headers[f"__streams.errors.{key}"] for key in names}
        assert (told["topic"], told["partition"], told["offset"]) == (name, "2", str(letter.position))
        assert told["message"] == letter.last.reason != ""
        if letter.last.cause == "exception":
            assert told["exception"] == "ValueError"
            assert told["stacktrace"].startswith("Traceback")
        else:
            assert (told["exception"], told["stacktrace"]) == ("fail", "")


def test_no_more_is_read_than_max_records_per_sec(kafka, name, monkeypatch):
    kafka.produce(name, [str(place) for place in range(500)], kafka_partition=0)
    clock = [100.0]
    monkeypatch.setattr("sparkbolt.spouts.kafka.spout.time", SimpleNamespace(monotonic=lambda: clock[0]))
    engine = LocalEngine(topology(name, spout(kafka.brokers, name, max_records_per_sec=100)))
    (own,) = engine.host.spouts.values()
    progress: dict[str, int] = {}
    read = []
    for passed_secs in (0.0, 0.0, 0.25, 0.005, 1.0, 60.0):
        clock[0] += passed_secs
        ranges = [range_ for range_ in own.next_ranges(progress, 1000) if range_.source == f"{name}/0"]
        progress |= {range_.source: range_.end for range_ in ranges}
        read.append(sum(range_.end - range_.start for range_ in ranges))
    assert read == [100, 0, 25, 0, 100, 100], "a second's worth at first and after a silence, then what time allows"
    close(engine)


def test_the_metrics_tell_the_lag_of_each_source_and_of_all(kafka, name):
    for number, count in ((0, 30), (1, 7)):
        kafka.produce(name, [str(place) for place in range(count)], kafka_partition=number)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name, max_poll_records=10)))
    while engine.ledger.metrics.of("messages").acked < 17:
        assert engine.step() is not None
    assert engine.ledger.metrics.lags["messages"] == {f"{name}/0": 20}
    assert engine.ledger.metrics.of("messages").lag == 20
    close(engine)


class Once(Spout):
    outputs = ["n", "kind"]

    def next_tuple(self, collector):
        if not hasattr(self, "given"):
            self.given = True
            collector.emit([7, "odd"], message_id="job-7")


def test_dead_letters_of_any_spout_go_to_a_topic(kafka, name, tmp_path, capsys):
    kafka.create(f"{name}.dlq")
    (tmp_path / "lines.txt").write_text("good\npoison\n")
    builder = TopologyBuilder(name, Config(max_attempts=1))
    letters = KafkaDeadLetters(kafka.brokers, f"{name}.dlq", client={"client.id": "letters"})
    builder.set_spout("lines", TextSpout(str(tmp_path / "lines.txt")), dead_letters=letters)
    builder.set_spout("jobs", Once(), dead_letters=letters)
    refuses = Keep(name, lambda tup: "line" not in tup or tup["line"] == "poison")
    builder.set_bolt("keep", refuses).shuffle_grouping("lines").shuffle_grouping("jobs")
    engine = LocalEngine(builder.build())
    counts = engine.ledger.metrics.of
    run(engine, lambda: counts("lines").dead_letters == counts("jobs").dead_letters == 1)
    close(engine)
    where = f"kafka:{kafka.brokers}/{name}.dlq"
    found = {letter.component: letter for letter in read_topic(ClientSettings(kafka.brokers), f"{name}.dlq").letters}
    assert found["lines"].values()[0]["line"] == "poison"
    assert found["lines"].position == 5
    assert (found["jobs"].message_id, found["jobs"].values()) == ("'job-7'", [{"n": 7, "kind": "odd"}])
    assert [letter.raw for letter in found.values()] == [None, None]
    assert main(["dlq", "list", where]) == 0
    assert "jobs[0] message 'job-7', 1 attempt" in capsys.readouterr().out
    assert main(["dlq", "replay", where, "--spout", "jobs"]) == 1
    assert "0 letter(s) replayed, 0 tuple(s); 1 could not be" in capsys.readouterr().err


def test_the_letter_of_a_message_keeps_when_it_was_written():
    attempt = Attempt(1, "root", "fail", "no", "keep", 0, 3, None, 40)
    raw = RawMessage(b"v", b"k", (("trace", b"ab"), ("sparkbolt.trace", b"mine")), timestamp_ms=1_700_000_000_123)
    for since in (1_700_000_000_123, None):
        letter = DeadLetter("ab", "t", "1", "messages", 0, (attempt,), source="orders/2", position=17)
        letter = replace(letter, raw=replace(raw, timestamp_ms=since))
        as_read = replace(message_of(letter), timestamp_ms=1_800_000_000_000)
        assert letter_of(as_read) == letter


def test_the_letter_of_a_message_that_is_gone_is_not_replayed_as_an_empty_one():
    attempt = Attempt(1, "root", "fail", "no", "keep", 0, 3, None, 40)
    letter = DeadLetter("ab", "t", "1", "messages", 0, (attempt,), source="orders/2", position=17, note="it is gone")
    message = message_of(letter)
    assert dict(message.headers)["__streams.errors.offset"] == b"17"
    assert letter_of(message) == letter
    assert letter_of(message).raw is None


def test_an_unreadable_message_is_a_dead_letter_as_it_came(kafka, name):
    kafka.create(f"{name}.dlq")
    kafka.produce(name, [b"{no json"], kafka_partition=0)
    own = spout(kafka.brokers, name, value="json", outputs=["v"], stop_at_end=True, dead_letters=f"{name}.dlq")
    run_to_end(topology(name, own))
    (letter,) = read_topic(ClientSettings(kafka.brokers), f"{name}.dlq").letters
    assert letter.raw.value == b"{no json"
    assert letter.last.cause == "unreadable"


def test_places_are_named_as_topic_and_number():
    assert str(KafkaPartition("orders", 3)) == "orders/3"


def test_properties_for_the_letters_of_a_topic_come_from_a_file_and_are_never_printed(kafka, name, tmp_path, capsys):
    kafka.create(name)
    file, where = tmp_path / "client.properties", f"kafka:{kafka.brokers}/{name}"
    file.write_text("# of the billing team\n\nclient.id = letters\nsasl.password=x=4!y\n")
    assert client_properties(str(file)) == {"client.id": "letters", "sasl.password": "x=4!y"}
    assert main(["dlq", "list", where, "--client-config", str(file)]) == 0
    assert "0 dead letter(s)" in capsys.readouterr().out
    file.write_text("sasl.password=x4!y\nsecurity.protocol=x4!y\n")
    for command in (["list", where], ["show", where, "ab"], ["replay", where]):
        assert main(["dlq", *command, "--client-config", str(file)]) == 1
        told = capsys.readouterr().err
        assert "Kafka's client refuses its properties" in told, "they have reached the client"
        assert "x4!y" not in told


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["sasl.mechanism=PLAIN", "sasl.password x4!y"], "line 2 is no property, expected key=value"),
        (["=x4!y"], "line 1 is no property"),
        (["group.id=x4!y"], "client property 'group.id' cannot be given"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_holds_no_properties_is_told_by_its_line_and_not_shown(lines, said, tmp_path, capsys):
    file = tmp_path / "client.properties"
    if lines is not None:
        file.write_text("\n".join(lines))
    assert main(["dlq", "list", "kafka:127.0.0.1:9/letters", "--client-config", str(file)]) != 0
    told = capsys.readouterr().err
    assert said in told
    assert "x4!y" not in told


def test_a_file_of_letters_has_no_use_for_properties_of_a_client(tmp_path, capsys):
    letters, file = tmp_path / "dead.jsonl", tmp_path / "client.properties"
    letters.write_text("")
    file.write_text("client.id=letters\n")
    assert main(["dlq", "list", str(letters), "--client-config", str(file)]) == 2
    assert "--client-config is for letters in a topic" in capsys.readouterr().err


@bolt(outputs=[])
def ignore(tup):
    return None


def test_a_simulation_reads_a_group_and_moves_none_of_its_offsets(kafka, name, tmp_path):
    kafka.produce(name, ["line"] * 8, kafka_partition=0)
    file = tmp_path / "offsets.json"
    for offsets in ("group", f"file:{file}"):
        report = simulate(topology(name, spout(kafka.brokers, name, offsets=offsets), ignore), seed=1, repeat=False)
        assert report.ok, report.story
    assert committed(kafka.brokers, name) == {}
    assert not file.exists()


def test_brokers_that_are_away_when_a_spout_opens_are_told_once_by_who_opens_it(name, monkeypatch, caplog):
    monkeypatch.setattr(watching, "OPEN_AGAIN_SECS", 0.2)
    before = set(threading.enumerate())
    built = topology(name, spout("127.0.0.1:9", name, request_secs=0.5))
    own = built.component("messages").component
    context = context_of(lay_out(built, 1), built.tasks("messages")[0])
    with caplog.at_level(logging.WARNING), pytest.raises(BrokersAwayError, match="no answer from the Kafka brokers"):
        own.open(context)
    assert [record.getMessage() for record in caplog.records] == []
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "kafka-watcher"]
