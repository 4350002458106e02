"""KafkaBolt in a transactional topology, without a broker: what a task keeps, and what errors of the client mean."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sparkbolt import Config, TopologyBuilder
from sparkbolt.api.committers import take_rows
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.tuples import Origin, Tuple
from sparkbolt.bolts import KafkaBolt
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_committer import KafkaCommitter, TopicChecks
from sparkbolt.connectors.txid_note import CommitRefusedError, TxidNote
from sparkbolt.errors import Unavailable
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver


def tup(**values: Any) -> Tuple:
    return Tuple.of(Origin("in", 0, "default", tuple(values)), list(values.values()), ((1, 2),))


class Acked(list[Any]):
    def ack(self, one: Tuple) -> None:
        self.append(one)


def test_a_task_keeps_messages_and_connects_to_nothing_without_a_trial() -> None:
    bolt = KafkaBolt("localhost:1", "words", key="word", trial=False, client={"message.max.bytes": 1000})
    config = Config(transactional=True)
    bolt.prepare(TopologyContext("t", "out", 0, 1, 1, config, checkpoint_id="c" * 32, now_ms=5))
    acked = Acked()
    bolt.execute(tup(word="be"), acked)
    with pytest.raises(ValueError, match=r"has 1\d+ bytes, and the client property message.max.bytes is 1000"):
        bolt.execute(tup(word="x" * 450), acked)
    with pytest.raises(TypeError):
        bolt.execute(tup(word={1}), acked)
    bolt.flush()
    bolt.cleanup()
    assert len(acked) == 1
    assert [pickle.loads(row) for row in take_rows(bolt)] == [(5, "words", b"be", b'{"word":"be"}', None)]


def meaning(code: int, *refused: int, secs: float = 1.0, fatal: bool = False) -> Exception:
    committer = KafkaCommitter(ClientSettings("localhost:1"), "c", "out", request_secs=1.0)

    class Sent:
        def topic(self) -> str:
            return "words"

        def key(self) -> bytes:
            return b"k"

        def value(self) -> bytes:
            return b"v" * 1000

    several = [(KafkaError(one), Sent()) for one in refused]
    first = committer._meaning(KafkaException(KafkaError(code, fatal=fatal)), several, 7, secs)
    if not committer._single:
        return first
    assert isinstance(first, Unavailable), "it is tried again, with a batch for each message"
    return committer._meaning(KafkaException(KafkaError(code)), several, 7, secs)


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (meaning(KafkaError._TIMED_OUT), Unavailable, "no commit to Kafka at localhost:1"),
        (meaning(KafkaError._FENCED, fatal=True), CommitRefusedError, "another driver goes on with this checkpoint"),
        (meaning(KafkaError._FENCED, secs=100.0), Unavailable, "no commit"),
        (meaning(KafkaError.TOPIC_AUTHORIZATION_FAILED), Unavailable, "no commit"),
        (meaning(KafkaError._INCONSISTENT, KafkaError._PURGE_QUEUE, KafkaError.MSG_SIZE_TOO_LARGE), CommitRefusedError,
         "refuses 1 messages of txid 7, first the one with key b'k' and value b'vvv"),
        (meaning(KafkaError._INCONSISTENT, KafkaError._MSG_TIMED_OUT), Unavailable, "timed out"),
    ],
)  # fmt: skip
def test_a_client_error_is_waited_for_or_stops_the_topology(error: Exception, kind: type, words: str) -> None:
    assert type(error) is kind
    assert words in str(error)


def test_rehearsal_records_messages() -> None:
    builder = TopologyBuilder("words", Config(transactional=True))
    builder.set_spout("in", GeneratorSpout(list, outputs=["word"], count=0))
    builder.set_bolt("out", KafkaBolt("localhost:1", "words")).shuffle_grouping("in")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("in", ["be"], message_id=1)
        driver.run_until_idle()
        assert driver.acked("in") == [1]
        assert driver.unsent("out") == [{"topic": "words", "key": None, "value": b'{"word":"be"}', "headers": None}]


class Unended:
    """A consumer that waits in vain for the end of a transaction."""

    def committed(self, partitions: Any, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_an_unknown_commit_result_is_unavailable_unless_the_commit_has_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    committer = KafkaCommitter(ClientSettings("localhost:1"), "c", "out", request_secs=1.0)
    monkeypatch.setattr(KafkaCommitter, "_is_unended", lambda self, topic: True)
    with pytest.raises(Unavailable, match="of which the brokers do not know the end"):
        committer._marker(Unended(), "words", 11)  # a new driver knows of no commit
    committer._returned, committer._ended = TxidNote(10, 20), 10
    assert committer._marker(Unended(), "words", 11) == TxidNote(10, 20)
    committer._ended = 11  # its answer was not seen
    with pytest.raises(Unavailable, match="of which the brokers do not know the end"):
        committer._marker(Unended(), "words", 11)
    monkeypatch.setattr(KafkaCommitter, "_is_unended", lambda self, topic: False)
    with pytest.raises(KafkaException):
        committer._marker(Unended(), "words", 12)


class Silent:
    """A client of brokers that do not answer; it counts the requests."""

    def __init__(self) -> None:
        self.asked = 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.asked += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, wait_secs: float) -> None: ...


def test_brokers_that_do_not_answer_are_asked_once_for_many_messages_and_the_cause_is_named() -> None:
    checks, client = TopicChecks(ClientSettings("localhost:1"), request_secs=1.0, asks=True), Silent()
    checks._clients = client, client
    checks._causes.hear(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: Invalid username"))
    for topic in ("a", "a", "b"):
        with pytest.raises(Unavailable, match=r"refuse the login with GSSAPI \(Invalid username\)"):
            checks.check((0, topic, None, b"v", None), waits=True)
    assert client.asked == 1


def test_a_commit_names_the_cause_that_the_producer_reports() -> None:
    committer = KafkaCommitter(ClientSettings("localhost:1"), "c", "out", request_secs=1.0)
    committer._causes.hear(KafkaError(KafkaError._SSL, "certificate verify failed"))
    error = committer._meaning(KafkaException(KafkaError(KafkaError._TIMED_OUT)), [], 7, 1.0)
    assert str(error).startswith("no commit to Kafka at localhost:1: the certificate of the Kafka brokers")
