"""Brokers that do not answer, or not yet: an invalid offset, a topic without kafka_partitions, an old answer."""

from __future__ import annotations

import json
import re
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError

from sparkbolt.api.ranges import Range
from sparkbolt.connectors.kafka import broker_watcher as watching
from sparkbolt.connectors.kafka import offset_planner as planning
from sparkbolt.connectors.kafka.broker_watcher import Watcher, Wish
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_cluster import BrokersAwayError, Cluster, topic_exists
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.offset_planner import OffsetPlanner, PartitionLog
from sparkbolt.connectors.kafka.offset_stores import Owner
from sparkbolt.connectors.kafka.start_offsets import Start
from sparkbolt.faces.cli.lag import report
from sparkbolt.sim.engine import LocalEngine
from tests.kafka import SEEN, close, run, run_to_end, spout, topology
from tests.small_broker import SmallBroker

NONE_SO_LATE = -1
PLACES = [KafkaPartition("orders", number) for number in range(3)]


class Admin:
    """Answers each request for offsets with the next of ``offsets``, as the client library does."""

    def __init__(self, *offsets: int) -> None:
        self.offsets = offsets

    def list_offsets(self, asked: Any, **_: Any) -> dict[Any, Future[Any]]:
        answers = {place: Future() for place in asked}
        for answer, offset in zip(answers.values(), self.offsets, strict=True):
            answer.set_result(SimpleNamespace(offset=offset))
        return answers

    def list_topics(self, topic: str, timeout: float) -> None: ...

    def poll(self, timeout: float) -> None: ...

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_exception(TimeoutError())
        return {"orders": answer}


def cluster(*offsets: int) -> Cluster:
    own = Cluster(ClientSettings("127.0.0.1:9"), "g", read_committed=True, request_secs=0.1)
    own._admin = Admin(*offsets)
    return own


def metadata(error: int | None, *numbers: int) -> Any:
    return SimpleNamespace(
        error=None if error is None else KafkaError(error), partitions=dict.fromkeys(numbers), topic="orders"
    )


@pytest.mark.parametrize("question", [Cluster.firsts, Cluster.ends])
def test_an_invalid_offset_is_no_answer(question):
    assert question(cluster(7, OFFSET_INVALID, 0), PLACES) == {PLACES[0]: 7, PLACES[2]: 0}
    with pytest.raises(BrokersAwayError, match="no answer from the Kafka brokers at "):
        question(cluster(*[OFFSET_INVALID] * 3), PLACES)


def test_a_start_by_time_is_at_the_end_only_if_the_brokers_report_all_records_as_older():
    found = cluster(7, NONE_SO_LATE, OFFSET_INVALID).since(dict.fromkeys(PLACES, 90), 1000)
    assert found == {PLACES[0]: 7, PLACES[1]: 90}


@pytest.mark.parametrize("between", [{}, {PLACES[0]: 3}, BrokersAwayError("no answer")])
def test_a_recreated_topic_that_has_outgrown_the_old_one_is_not_read_before_its_id_is_known(between):
    brokers = SimpleNamespace(topic_id="A", ends={PLACES[0]: 5})

    def ends(_: Any) -> Any:
        if isinstance(brokers.ends, Exception):
            raise brokers.ends
        return brokers.ends

    def describe_topics(*_: Any, request_timeout: float) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(topic_id=brokers.topic_id))
        return {"orders": answer}

    own = cluster()
    own.kafka_partitions, own.firsts, own.ends = lambda _: PLACES[:1], lambda _: {PLACES[0]: 0}, ends
    own._admin = SimpleNamespace(describe_topics=describe_topics)
    store = SimpleNamespace(open=lambda _: None, load=lambda _: {}, save=lambda _: None)
    watcher = Watcher(own, store, Wish(("orders",), Start("earliest"), Owner("t/s", "t"), "refuse"), None)
    planner, progress = OffsetPlanner(1), {"orders/0": 5, "orders/0#A": 1}

    def next_ranges() -> list[Range]:
        watcher._once()
        return planner.plan(progress, replace(watcher.look, asked_s=0.0), budget=100)[0]

    assert [next_ranges() for _ in range(4)] == [[]] * 4
    brokers.ends = between
    assert next_ranges() == []
    brokers.topic_id, brokers.ends = "B", {PLACES[0]: 9}
    found = [ranges for _ in range(5) if (ranges := next_ranges())]
    assert found[0] == found[-1] == [Range(0, "orders/0~1", 0, 9)]


@pytest.mark.parametrize(
    ("about", "exists"),
    [
        (metadata(None, 0), True),
        (metadata(None), None),
        (metadata(KafkaError.LEADER_NOT_AVAILABLE), None),
        (metadata(KafkaError.UNKNOWN_TOPIC_OR_PART), False),
        (metadata(KafkaError.TOPIC_AUTHORIZATION_FAILED), False),
    ],
)
def test_a_topic_is_missing_only_if_the_brokers_say_so(about, exists):
    assert topic_exists(about) is exists


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        (["order"], "topic 'order' does not exist at {}: is the name right?"),
        (re.compile("order"), "no topic at {} matches 'order' as a whole: is the pattern right?"),
    ],
)
def test_the_lag_of_a_topic_that_does_not_exist_is_unknown_and_a_line_names_it(topics, said, name):
    with SmallBroker() as broker:
        built = topology(name, spout(broker.address, name, topics=topics))
        line = said.format(broker.address)
        assert report(built, as_json=False) == [f"messages  group {name}  lag ?", line]
        (body,) = map(json.loads, report(built, as_json=True))
    assert (body["lag"], body["sources"], body["missing"]) == (None, [], [line])


@pytest.mark.slow
def test_a_topic_without_kafka_partitions_for_a_moment_is_read_to_its_end(kafka, name, monkeypatch):
    kafka.produce(name, ["a"], kafka_partition=0)
    topics, answers = Cluster._topics, iter([metadata(None), metadata(KafkaError.LEADER_NOT_AVAILABLE)])
    monkeypatch.setattr(watching, "AWAY_SECS", 0.01)
    monkeypatch.setattr(
        Cluster, "_topics", lambda own, asked: {name: answer} if (answer := next(answers, None)) else topics(own, asked)
    )
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    assert [row["line"] for row in SEEN[name]] == ["a"]


@pytest.mark.slow
def test_a_log_that_was_shorter_in_the_last_answer_is_no_new_topic_while_no_other_answer_comes(
    kafka, name, monkeypatch, caplog
):
    monkeypatch.setattr(planning, "BACKWARDS_SECS", 1e-9)
    kafka.produce(name, ["a", "b"], kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name)))
    run(engine, lambda: len(SEEN[name]) == 2 and engine.coordinator.in_force is None)
    ends, answers = Cluster.ends, iter([1])

    def shorter_and_then_none(own, places):
        end = next(answers, None)
        if end is None:
            raise BrokersAwayError("no answer")
        return ends(own, places) | {KafkaPartition(name, 0): end}

    watcher = engine.coordinator.spouts["messages"]._watcher
    with monkeypatch.context() as silence:
        silence.setattr(Cluster, "ends", shorter_and_then_none)
        run(engine, lambda: watcher.look.logs[KafkaPartition(name, 0)] == PartitionLog(0, 1))
        for _ in range(5):
            engine.step()
    kafka.produce(name, ["c"], kafka_partition=0)
    run(engine, lambda: len(SEEN[name]) == 3 and engine.coordinator.in_force is None)
    close(engine)
    assert [row["line"] for row in SEEN[name]] == ["a", "b", "c"]
    assert "made again" not in caplog.text
