"""Topics and brokers that come, go and are made again while a spout watches them, against the mock cluster."""

from __future__ import annotations

import logging
import re

import pytest

from sparkbolt.connectors.kafka import broker_watcher as watching
from sparkbolt.connectors.kafka.kafka_cluster import BrokersAwayError, Cluster
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.layout.lane import lay_out
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.worker.worker import context_of
from tests.kafka import SEEN, close, committed, run, run_to_end, spout, topology

pytestmark = pytest.mark.slow


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
    monkeypatch.setattr("sparkbolt.connectors.kafka.broker_watcher.LOOK_SECS", 0.05)
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    assert sorted(row["line"] for row in SEEN[name]) == ["a", "b"]
    assert f"no broker answers for {name}/1" in caplog.text


def test_a_topic_created_while_the_topology_runs_is_found_by_the_pattern(kafka, name):
    kafka.produce(f"{name}.a", ["first"], kafka_partition=0)
    own = spout(kafka.brokers, name, topics=re.compile(rf"{name}\.[ab]"), start="latest")
    engine = LocalEngine(topology(name, own))
    kafka.produce(f"{name}.b", ["second"], kafka_partition=0)
    kafka.produce(f"{name}.c", ["another"], kafka_partition=0)
    run(engine, lambda: SEEN[name] != [])
    engine.close()
    assert [row["line"] for row in SEEN[name]] == ["second"]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_recreated_topic_that_has_grown_is_read_from_its_start(kafka, name, stopped, monkeypatch, caplog):
    """The mock cluster knows no ids, so they are told here; a real broker tells its own in the tests of services."""
    ids = {name: "A"}
    monkeypatch.setattr(Cluster, "ids", lambda *_: dict(ids))
    kafka.produce(name, [str(place) for place in range(10)], kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name)))
    progress = lambda: engine.ledger.progress.get("messages", {})  # noqa: E731
    run(engine, lambda: progress().get(f"{name}/0#A") == 1 and engine.coordinator.in_force is None)
    assert len(SEEN[name]) == 10
    if stopped:
        for one in engine.coordinator.spouts.values():
            one.close()
    ids[name] = "B"
    if stopped:
        engine.restart()
    run(engine, lambda: progress().get(f"{name}/0#B") == 2 and engine.coordinator.in_force is None)
    assert [row["line"] for row in SEEN[name]] == [*map(str, range(10))] * 2
    assert progress()[f"{name}/0~1"] == 10
    assert caplog.text.count("the topic was made again (its id was A and is B)") == 1
    kafka.produce(name, ["new"], kafka_partition=0)
    run(engine, lambda: len(SEEN[name]) == 21 and engine.coordinator.in_force is None)
    close(engine)
    assert committed(kafka.brokers, name)[0][0] == 11


def test_a_topic_recreated_between_two_requests_is_not_read_under_the_old_offsets(kafka, name, monkeypatch):
    """The new topic has outgrown what was read before anything tells its id."""
    ids, created_again = {name: "A"}, iter([False] * 3 + [True])
    ends = Cluster.ends

    def recreated_first(cluster, places):
        if progress().get(f"{name}/0#A") == 1 and next(created_again, False):
            ids[name] = "B"
            kafka.produce(name, [f"new {number}" for number in range(9)], kafka_partition=0)
        return ends(cluster, places)

    monkeypatch.setattr(Cluster, "ids", lambda *_: dict(ids))
    monkeypatch.setattr(Cluster, "ends", recreated_first)
    progress = dict  # until there is an engine
    kafka.produce(name, [f"old {number}" for number in range(5)], kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name)))
    progress = lambda: engine.ledger.progress.get("messages", {})  # noqa: E731
    run(engine, lambda: progress().get(f"{name}/0~1") == 14 and engine.coordinator.in_force is None)
    engine.close()
    assert progress()[f"{name}/0"] == 5, "offsets of the old topic cover none of the new one's records"
    assert len(SEEN[name]) == 5 + 14


def test_a_missing_named_topic_is_reported_and_waited_for(kafka, name, caplog):
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        engine = LocalEngine(topology(name, spout(kafka.brokers, name)))
    assert f"topic '{name}' does not exist" in caplog.text
    kafka.produce(name, ["late"], kafka_partition=0)
    run(engine, lambda: SEEN[name] != [])
    engine.close()


def test_an_offset_for_a_missing_kafka_partition_is_reported_once(kafka, name, caplog):
    kafka.produce(name, ["a", "b"], kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name, start={f"{name}/0": 1, f"{name}/9": 0})))
    run(engine, lambda: SEEN[name] != [])
    close(engine)
    assert [row["line"] for row in SEEN[name]] == ["b"]
    assert caplog.text.count(f"start= names {name}/9, which the brokers do not have") == 1


def test_brokers_unavailable_when_a_spout_opens_are_reported_once_by_the_opener(name, monkeypatch, caplog):
    monkeypatch.setattr(watching, "OPEN_AGAIN_SECS", 0.2)
    built = topology(name, spout("127.0.0.1:9", name, request_secs=0.5))
    own = built.component("messages").component
    context = context_of(lay_out(built, 1), built.tasks("messages")[0])
    with caplog.at_level(logging.WARNING), pytest.raises(BrokersAwayError, match="no answer from the Kafka brokers"):
        own.open(context)
    assert [record.getMessage() for record in caplog.records] == []


def test_a_recreated_topic_is_detected_with_a_new_checkpoint_by_the_id_in_the_offsets(
    kafka, name, monkeypatch, caplog, tmp_path
):
    ids = {name: "A"}
    monkeypatch.setattr(Cluster, "ids", lambda *_: dict(ids))
    kafka.produce(name, [str(place) for place in range(10)], kafka_partition=0)
    file = f"file:{tmp_path / 'offsets.json'}"
    for topic_id, read in (("A", 10), ("A", 10), ("B", 20), ("B", 20)):
        ids[name] = topic_id
        run_to_end(topology(name, spout(kafka.brokers, name, offsets=file, stop_at_end=True)))
        assert len(SEEN[name]) == read
    assert caplog.text.count("the topic was made again (its id was A and is B)") == 1
