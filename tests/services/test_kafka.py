"""Kafka as a source and a sink, against a real broker: gaps, what is gone, a broker that dies, kept offsets."""

from __future__ import annotations

import functools
import itertools
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt import BasicBolt, RetryPolicy, TopologyBuilder
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.api.dead_letters import Attempt, DeadLetter, RawMessage
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.bolts import KafkaBolt
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.partition_reader import MessageChunk, PartitionReader
from sparkbolt.control.letters.topic import LetterTopic
from sparkbolt.errors import ConfigError
from sparkbolt.faces.cli import main
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import KafkaSpout, ZooKeeperOffsets
from sparkbolt.spouts.kafka import KafkaDeadLetters
from tests.kafka import SEEN, Keep, committed, run, run_to_end, spout, topology
from tests.patience import PATIENCE_SECS
from tests.services import Kafka
from tests.services.test_kafka_commit import read

pytestmark = pytest.mark.service

KINDS = ("kept", "aborted")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic, and a group, of the test's own."""
    own = f"{re.sub(r'[^a-z0-9]+', '-', request.node.name)[:80]}-{uuid.uuid4().hex[:6]}"
    SEEN[own] = []
    return own


@functools.cache
def admin(brokers: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": brokers, "log_level": 0})


def create(brokers: str, topic: str, parts: int = 1, **settings: str) -> None:
    from confluent_kafka.admin import NewTopic

    admin(brokers).create_topics([NewTopic(topic, parts, 1, config=settings)])[topic].result()


def produce(brokers: str, topic: str, values: Sequence[Any], *, part: int = 0, key: bytes | None = None) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers, "log_level": 0, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, partition=part, key=key)
        producer.poll(0)
    assert producer.flush(30) == 0


def transactions(brokers: str, topic: str, *several: tuple[Sequence[str], bool]) -> None:
    """Write messages in transactions, some of which are aborted; the end of each takes one offset more."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": brokers, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for values, aborted in several:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0
        producer.abort_transaction(30) if aborted else producer.commit_transaction(30)


def delete_before(brokers: str, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition

    for answer in admin(brokers).delete_records([TopicPartition(topic, 0, offset)]).values():
        answer.result()


def until(condition: Callable[[], bool]) -> None:
    limit, pause = time.monotonic() + PATIENCE_SECS, threading.Event()
    while not condition():
        assert time.monotonic() < limit
        pause.wait(0.05)


def lines(name: str) -> list[str]:
    return [row["line"] for row in SEEN[name]]


def test_transactions_leave_gaps_and_aborted_messages_are_not_read(kafka, name):
    create(kafka, name)
    turns = [([f"{what} {turn}.{n}" for n in range(5)], what == "aborted") for turn in range(3) for what in KINDS]
    transactions(kafka, name, *turns)
    engine = run_to_end(topology(name, spout(kafka, name, stop_at_end=True, max_poll_records=4)))
    assert lines(name) == [f"kept {turn}.{number}" for turn in range(3) for number in range(5)]
    metrics = engine.ledger.metrics.of("messages")
    assert (metrics.acked, metrics.failed, metrics.retried) == (15, 0, 0)
    assert committed(kafka, name)[0][0] == 36


def test_ranges_are_cut_at_their_bytes_over_gaps_and_messages_that_are_larger_than_a_fetch(kafka, name):
    create(kafka, name)
    kept = ["small"] * 2000, ["x" * 20_000] * 10, ["y" * 300_000, "last"]
    transactions(kafka, name, *((values, False) for values in kept[:2]), (["aborted"] * 5, True), (kept[2], False))
    engine = run_to_end(topology(name, spout(kafka, name, stop_at_end=True, max_bytes=16 * 1024)))
    assert lines(name) == [line for values in kept for line in values], "once, and in their order"
    metrics = engine.ledger.metrics.of("messages")
    assert (metrics.acked, metrics.failed, metrics.errors) == (2012, 0, 0)
    assert {tree.fail.cause for tree in engine.ledger.failed} == {"postponed"}
    assert committed(kafka, name)[0][0] == 2000 + 10 + 5 + 2 + len(kept) + 1


def test_a_compacted_topic_is_read_across_its_gaps_for_any_split_into_ranges(kafka, name):
    compacted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    create(kafka, name, **compacted, **{"max.compaction.lag.ms": "200"})
    for turn in range(4):
        for number in range(10):
            produce(kafka, name, [f"{turn}.{number}"], key=b"%d" % (number % 7))
    tail = [f"tail {number}" for number in range(3)]

    def left() -> int:
        produce(kafka, name, ["roll"], key=b"roll")  # only what is not in the newest segment is compacted
        reader = PartitionReader(ClientSettings(kafka), name, KafkaPartition(name, 0), read_committed=True)
        try:
            return sum(len(chunk.offsets) for chunk in reader.chunks(0, 40) if isinstance(chunk, MessageChunk))
        finally:
            reader.close()

    until(lambda: left() < 30)
    produce(kafka, name, tail, key=b"tail")
    engine = run_to_end(topology(name, spout(kafka, name, stop_at_end=True, max_poll_records=3)))
    seen = lines(name)
    assert {f"3.{number}" for number in range(3, 10)} <= set(seen)
    assert seen[-3:] == tail
    assert engine.ledger.metrics.of("messages").failed == 0
    assert committed(kafka, name)[0][0] == engine.ledger.progress["messages"][f"{name}/0"]


def test_a_failed_message_compacted_away_before_its_retry_blocks_nothing(kafka, name):
    """The first PartitionManager asked for such an offset for ever (STORM-643)."""
    create(kafka, name)
    produce(kafka, name, ["a", "b", "c"])
    own = spout(kafka, name, stop_at_end=True, retry=RetryPolicy(max_retries=3))
    engine = LocalEngine(topology(name, own, Keep(name, lambda tup: tup["line"] == "a")))
    run(engine, lambda: len(SEEN[name]) == 3)
    delete_before(kafka, name, 2)
    run(engine, lambda: engine.coordinator.finished)
    for one in engine.coordinator.spouts.values():
        one.close()
    engine.close()
    assert lines(name).count("a") <= 2
    assert committed(kafka, name)[0][0] == 3


@pytest.mark.parametrize(("out_of_range", "read"), [("earliest", ["c", "d"]), ("match", ["c", "d"]), ("latest", [])])
def test_offsets_removed_by_retention_are_skipped_as_configured_and_counted(kafka, name, caplog, out_of_range, read):
    create(kafka, name)
    produce(kafka, name, ["a", "b", "c", "d"])
    delete_before(kafka, name, 2)
    own = spout(kafka, name, start={f"{name}/0": 0}, out_of_range=out_of_range)
    engine = LocalEngine(topology(name, own))
    try:
        if read:
            run(engine, lambda: len(SEEN[name]) == len(read) and engine.coordinator.in_force is None)
        else:
            assert engine.step() is None
            produce(kafka, name, ["new"])
            run(engine, lambda: SEEN[name] != [])
            read = ["new"]
        assert lines(name) == read
        assert engine.ledger.metrics.of("messages").skipped == (4 if out_of_range == "latest" else 2)
        assert "offset 0 comes next, but the brokers have offsets 2 to 4" in caplog.text
    finally:
        for one in engine.coordinator.spouts.values():
            one.close()
        engine.close()


def test_offsets_removed_by_retention_stop_the_topology_if_configured(kafka, name):
    create(kafka, name)
    produce(kafka, name, ["a", "b"])
    delete_before(kafka, name, 1)
    engine = LocalEngine(topology(name, spout(kafka, name, start={f"{name}/0": 0}, out_of_range="fail")))
    with pytest.raises(ConfigError, match="out_of_range is 'fail'"):
        engine.step()
    for one in engine.coordinator.spouts.values():
        one.close()


def test_data_removed_between_plan_and_reading_is_one_bad_record_with_its_size(kafka, name):
    create(kafka, name)
    produce(kafka, name, [b"%d" % number for number in range(10)])
    delete_before(kafka, name, 6)
    reader = KafkaSpout(kafka, name, group=name, value="text", outputs=["line"])
    reader.prepare(TopologyContext(name, "messages", 0, 1, 1, Config()))
    first, *rest = reader.read(Range(0, f"{name}/0", 2, 8))
    assert isinstance(first, BadRecord)
    assert (first.position, first.skipped) == (2, 4)
    assert "offsets 2 to 5 were planned and are gone, the brokers have 6 to 10" in first.reason
    assert rest == [(6, ["6"]), (7, ["7"])]
    (all_gone,) = reader.read(Range(0, f"{name}/0", 3, 5))
    assert isinstance(all_gone, BadRecord)
    assert all_gone.skipped == 2
    assert list(reader.read(Range(0, f"{name}/0", 8, 10))) == [(8, ["8"]), (9, ["9"])]
    reader.cleanup()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_recreated_topic_that_has_outgrown_the_read_offsets_is_read_completely(kafka, name, stopped, caplog):
    create(kafka, name)
    produce(kafka, name, [f"old {number}" for number in range(5)])
    engine = LocalEngine(topology(name, spout(kafka, name)))
    progress = lambda: engine.ledger.progress.get("messages", {})  # noqa: E731
    run(engine, lambda: len(progress()) == 2 and engine.coordinator.in_force is None)
    if stopped:
        for one in engine.coordinator.spouts.values():
            one.close()
    admin(kafka).delete_topics([name])[name].result()
    until(lambda: name not in admin(kafka).list_topics(timeout=10).topics)
    create(kafka, name)
    new = [f"new {number}" for number in range(9)]
    produce(kafka, name, new)
    if stopped:
        engine.restart()
    run(engine, lambda: set(new) <= set(lines(name)) and engine.coordinator.in_force is None)
    assert lines(name)[5:] == new, "nothing of the new one is read under the old one's offsets"
    assert progress()[f"{name}/0~1"] == 9
    assert "the topic was made again (its id was " in caplog.text
    for one in engine.coordinator.spouts.values():
        one.close()
    engine.close()
    assert committed(kafka, name)[0][0] == 9


def test_new_kafka_partitions_are_found_and_read_from_their_first_message(kafka, name):
    from confluent_kafka.admin import NewPartitions

    create(kafka, name)
    engine = LocalEngine(topology(name, spout(kafka, name, start="latest")))
    admin(kafka).create_partitions([NewPartitions(name, 2)])[name].result()
    until(lambda: len(admin(kafka).list_topics(name, timeout=10).topics[name].partitions) == 2)
    produce(kafka, name, ["there"], part=1)
    run(engine, lambda: SEEN[name] != [])
    engine.close()
    assert [(row["line"], row["partition"], row["offset"]) for row in SEEN[name]] == [("there", 1, 0)]


@pytest.mark.campaign
def test_a_broker_that_is_killed_while_it_is_read_costs_nothing_but_time(name, tmp_path, monkeypatch):
    with Kafka(tmp_path / "kafka") as server:
        create(server.address, name, 2)
        for part in range(2):
            produce(server.address, name, [f"{part}.{number}" for number in range(3000)], part=part)
        own = spout(server.address, name, stop_at_end=True, max_poll_records=200, request_secs=2.0)
        monkeypatch.setattr("sparkbolt.connectors.kafka.partition_reader.AWAY_SECS", 0.5)
        engine = LocalEngine(topology(name, own))
        for share in (1000, 3000):
            run(engine, lambda: len(SEEN[name]) >= share)  # noqa: B023  it is used before the loop goes on
            server.kill()
            for _ in itertools.takewhile(lambda _: engine.ledger.metrics.of("messages").waiting == 0, range(200)):
                if engine.step() is None:
                    break
            server.start()
        run(engine, lambda: engine.coordinator.finished)
        for one in engine.coordinator.spouts.values():
            one.close()
        engine.close()
        assert set(lines(name)) == {f"{part}.{number}" for part in range(2) for number in range(3000)}
        assert engine.ledger.metrics.of("messages").given_up == 0
        assert {offset for offset, _ in committed(server.address, name).values()} == {3000}


def test_zookeeper_keeps_offsets_in_the_layout_of_storms_first_spout(kafka, zookeeper, name):
    from kazoo.client import KazooClient

    create(kafka, name)
    produce(kafka, name, ["a", "b", "c"])
    root = f"/{name}"
    offsets = ZooKeeperOffsets(zookeeper, root=root, id="words")
    run_to_end(topology(name, spout(kafka, name, stop_at_end=True, offsets=offsets)))
    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        node = json.loads(client.get(f"{root}/words/partition_0")[0])
        coordinator, port = kafka.split(":")
        node.pop("topic_id", None)
        assert node == {
            "topology": {"id": f"{name}/messages", "name": name},
            "offset": 3,
            "partition": 0,
            "broker": {"host": coordinator, "port": int(port)},
            "topic": name,
        }
        produce(kafka, name, ["d"])
        run_to_end(topology(name, spout(kafka, name, stop_at_end=True, offsets=offsets)))
        assert lines(name) == ["a", "b", "c", "d"]
        client.set(
            f"{root}/words/partition_0", json.dumps(node | {"topology": {"id": "7-uuid", "name": "old"}}).encode()
        )
        with pytest.raises(ConfigError, match="stored by topology 'old' as '7-uuid'"):
            LocalEngine(topology(name, spout(kafka, name, stop_at_end=True, offsets=offsets)))
        SEEN[name].clear()
        over = spout(kafka, name, stop_at_end=True, offsets=offsets, other_topology="take_over")
        run_to_end(topology(name, over))
        assert lines(name) == ["d"]
    finally:
        client.stop()
        client.close()


def test_bolt_fails_the_tuple_with_a_missing_topic_and_acks_the_others(kafka, name):
    create(kafka, name)
    create(kafka, f"{name}-out")
    produce(kafka, name, [f"{name}-out", f"{name}-nowhere", f"{name}-out"])
    builder = TopologyBuilder(name, Config(max_attempts=1))
    builder.set_spout("messages", spout(kafka, name, stop_at_end=True))
    quick = {"topic.metadata.propagation.max.ms": 500}
    builder.set_bolt("write", KafkaBolt(kafka, topic_field="line", client=quick)).shuffle_grouping("messages")
    engine = run_to_end(builder.build())
    assert [tree.position for tree in engine.ledger.failed] == [1], [tree.story for tree in engine.ledger.failed]
    assert engine.ledger.metrics.of("messages").acked == 2
    read = f"{name}-read"
    run_to_end(topology(read, KafkaSpout(kafka, f"{name}-out", group=read, outputs=["value"], stop_at_end=True)))
    assert [json.loads(row["value"])["offset"] for row in SEEN[read]] == [0, 2]


@pytest.mark.parametrize(
    ("settings", "bad"),
    [
        ({"max.message.bytes": "2000"}, {"value": "x" * 5000}),
        ({"cleanup.policy": "compact"}, {"key": None}),
    ],
)
def test_a_message_that_the_broker_refuses_fails_alone_in_its_batch(kafka, name, settings, bad):
    create(kafka, name, **settings)
    good = [{"key": b"k", "value": f"{number}" * 500} for number in range(6)]
    heard: list[tuple[str, Any]] = []
    collector = SimpleNamespace(
        ack=lambda tup: heard.append(("ack", tup)), fail=lambda tup, why: heard.append(("fail", tup))
    )
    bolt = KafkaBolt(kafka, name, key="key", value="value", client={"linger.ms": 1000})
    bolt.prepare(TopologyContext(name, "out", 0, 1, 1, Config()))
    for number in range(6):
        message = good[number] | (bad if number == 3 else {})
        bolt.execute({"number": number} | message, collector)
    bolt.flush()
    assert sorted((tup["number"], what) for what, tup in heard) == [
        (number, "fail" if number == 3 else "ack") for number in range(6)
    ]
    run_to_end(topology(name, spout(kafka, name, stop_at_end=True)))
    assert sorted(lines(name)) == [f"{number}" * 500 for number in range(6) if number != 3]
    bolt.cleanup()


class Odd(BasicBolt):
    """Takes odd numbers only once there is a file ``mended``."""

    outputs = ["n"]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def execute(self, tup, collector):
        collector.emit([int(tup["line"])])
        if int(tup["line"]) % 2 and not (self.folder / "mended").exists():
            raise ValueError("it is odd")


@pytest.mark.spark
def test_letters_of_a_transactional_topology_go_back_while_it_is_idle_and_are_sent_once(
    kafka, name, spark, home, tmp_path, capsys
):
    create(kafka, name)
    create(kafka, f"{name}.out")
    produce(kafka, name, [str(number) for number in range(10)])
    builder = TopologyBuilder(name, Config(transactional=True, max_attempts=1))
    builder.set_spout("numbers", spout(kafka, name))
    builder.set_bolt("odd", Odd(tmp_path)).shuffle_grouping("numbers")
    builder.set_bolt("out", KafkaBolt(kafka, f"{name}.out", value="n")).shuffle_grouping("odd")
    state = str(tmp_path / "state")
    with builder.build().start(spark=spark, checkpoint=state) as running:
        numbers = lambda: running.metrics().components["numbers"]  # noqa: E731
        for written in (5, 10):
            until(lambda written=written: numbers().dead_letters == written and running.await_idle(1))
            if written == 10:
                (tmp_path / "mended").touch()
            assert main(["dlq", "replay", state]) == 0
            assert "5 letter(s) go back into numbers" in capsys.readouterr().out
        until(lambda: numbers().acked == 10 and running.await_idle(1))
    assert sorted(int(value) for value, _ in read(kafka, f"{name}.out")) == list(range(10))


def test_a_replay_skips_a_message_that_its_topic_refuses_and_replays_the_others_once(kafka, name):
    create(kafka, name, **{"max.message.bytes": "2000"})
    create(kafka, f"{name}.dlq")
    sink = KafkaDeadLetters(kafka, f"{name}.dlq")
    sink.open(SimpleNamespace())
    last = Attempt(1, "33c3a78b9b45efb1", "exception", "no", "count", 0, 7, 1000, 1500, "Traceback")
    raws = {"first": b"a", "long": b"x" * 30_000, "last": b"b"}
    own = {"source": f"{name}/0", "position": 17}
    sink.write([DeadLetter(id_, "t", "v", "in", 0, (last,), raw=RawMessage(raws[id_], b"k"), **own) for id_ in raws])
    sink.close()
    for ids in (["first", "last"], []):
        topic = LetterTopic(f"{kafka}/{name}.dlq")
        done = topic.replay([one for one in topic.letters().letters if one.id not in topic.replayed()], None)
        assert done.ids == ids
        assert [why.partition(":")[0].split()[0] for why in done.left_out] == ["long"]
    run_to_end(topology(name, spout(kafka, name, stop_at_end=True)))
    assert lines(name) == ["a", "b"]
