"""Why brokers do not answer: the client library's own texts, and what a user is told."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sparkbolt.connectors.kafka import broker_watcher, kafka_cluster
from sparkbolt.connectors.kafka.client_causes import Causes
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_cluster import BrokersAwayError, Cluster, LoginRefusedError
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.offset_stores import Owner, Scope
from sparkbolt.connectors.kafka.start_offsets import Start
from sparkbolt.errors import ConfigError
from sparkbolt.sim.engine import LocalEngine
from tests.kafka import spout, topology
from tests.small_broker import BAD_PASSWORD, SmallBroker

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "a",
    "sasl.password": "x4!y",
}
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch):
    monkeypatch.setattr(kafka_cluster, "LISTEN_SECS", 0.3)
    monkeypatch.setattr(broker_watcher, "OPEN_AGAIN_SECS", 0.1)


def cluster(address: str, client: dict[str, Any]) -> Cluster:
    return Cluster(ClientSettings(address, client), "g", read_committed=True, request_secs=0.3)


@pytest.mark.parametrize(
    ("broker", "client", "said"),
    [
        (
            {"mechanisms": ("PLAIN",), "login": BAD_PASSWORD},
            LOGIN,
            rf"^the Kafka brokers at 127\S+ refuse the login with PLAIN \({BAD_PASSWORD}\): check sasl.username and "
            "sasl.password$",
        ),
        (
            {"mechanisms": ("SCRAM-SHA-256", "SCRAM-SHA-512")},
            LOGIN,
            r"^the Kafka brokers at 127\S+ do not support sasl.mechanism=PLAIN: set it to one of SCRAM-SHA-256, "
            "SCRAM-SHA-512$",
        ),
        ({}, LOGIN, r"^the Kafka brokers at 127\S+ take no login at this port: set security.protocol to PLAINTEXT or "),
    ],
)
def test_a_login_that_is_refused_fails_the_start_and_is_no_outage(broker, client, said, name):
    with SmallBroker(**broker) as at, pytest.raises(ConfigError, match=said) as raised:
        LocalEngine(topology(name, spout(at.address, name, client=client, request_secs=0.3)))
    assert "x4!y" not in str(raised.value)


def test_a_login_that_is_refused_while_a_topology_runs_is_an_outage(caplog):
    place = KafkaPartition("orders", 0)
    own: Any = SimpleNamespace(
        kafka_partitions=lambda topics: [place],
        ids=lambda topics: {},
        firsts=lambda places: {place: 0},
        ends=lambda places: {place: 5},
    )
    store: Any = SimpleNamespace(open=lambda _: None, load=lambda _: {}, save=lambda _: None)
    wish = broker_watcher.Wish(("orders",), Start("earliest"), Owner("t/s", "t"), "refuse")
    watcher = broker_watcher.Watcher(own, store, wish, Scope(own, "g", ("orders",)))
    watcher._once()

    def refuse(places: Any) -> Any:
        raise LoginRefusedError("the Kafka brokers refuse the login")

    own.ends = refuse
    watcher._once()
    assert watcher.look.problem is None
    assert "the Kafka brokers refuse the login; nothing new is read or told until that is mended" in caplog.text


@pytest.mark.slow
def test_tls_at_a_port_without_tls_is_an_outage_that_names_the_port():
    with SmallBroker() as at:
        own = cluster(at.address, {"security.protocol": "SSL"})
        with pytest.raises(
            BrokersAwayError, match=r"at 127\S+ do not answer in TLS: does this port expect it"
        ) as raised:
            own.kafka_partitions(("orders",))
        own.close()
    assert not isinstance(raised.value, LoginRefusedError)


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        (
            KafkaError._RESOLVE,
            "ssl://kafka.example:9093/bootstrap: Failed to resolve 'kafka.example:9093': Name or service not known "
            "(after 29ms in state CONNECT)",
            "no host has the name 'kafka.example', which is given for the Kafka brokers: is it right?",
        ),
        (
            KafkaError._RESOLVE,
            "kafka-1:9092/1: Failed to resolve 'kafka-1:9092': Name or service not known (after 1ms in state CONNECT)",
            "the Kafka brokers announce the name 'kafka-1', which this machine does not know: set their "
            "advertised.listeners to names that it knows",
        ),
        (
            KafkaError._TRANSPORT,
            "b:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused (after 0ms in state CONNECT)",
            "no answer from the Kafka brokers at b:9092: Connect to ipv4#127.0.0.1:9092 failed: Connection refused: do "
            "they run, and is the port right?",
        ),
        (
            KafkaError._SSL,
            "ssl://b:9092/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: "
            "broker certificate could not be verified (after 1ms in state SSL_HANDSHAKE)",
            "the certificate of the Kafka brokers at b:9092 is not valid for this client: set ssl.ca.location to the "
            "file of the authority that has signed it, and name the brokers as the certificate does",
        ),
        (
            KafkaError._AUTHENTICATION,
            "Failed to acquire SASL OAUTHBEARER token: the server of tokens is away",
            "no login to the Kafka brokers at b:9092 with OAUTHBEARER (Failed to acquire SASL OAUTHBEARER token: the "
            "server of tokens is away): check the sasl properties",
        ),
        (
            KafkaError._AUTHENTICATION,
            "sasl_plaintext://b:9092/bootstrap: SASL PLAIN mechanism handshake failed: Local: Broker transport "
            "failure: broker's supported mechanisms: (n/a) (after 0ms in state DOWN)",
            "no answer from the Kafka brokers at b:9092: they close the connection: does the port expect another "
            "security.protocol than PLAINTEXT, such as SSL or SASL_SSL?",
        ),
    ],
)
def test_the_cause_of_an_outage_is_one_sentence_that_says_what_to_do(code, text, said):
    causes = Causes(ClientSettings("b:9092", {"sasl.mechanism": "OAUTHBEARER"}))
    causes.hear(KafkaError(code, text))
    causes.hear(DOWN)
    cause = causes.cause()
    assert cause is not None
    assert cause.text == said
    assert cause.is_refusal == (code == KafkaError._SSL)
    causes.forget()
    assert causes.cause() is None


def test_the_answer_of_a_broker_is_its_own_cause():
    def committed(*_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    own = cluster("b:9092", {})
    own._causes.hear(KafkaError(KafkaError._TRANSPORT, "c:9092/2: Connect to ipv4#10.0.0.7:9092 failed"))
    own._consumer = SimpleNamespace(committed=committed, poll=lambda _: None)
    own._admin = SimpleNamespace(poll=lambda _: None)
    with pytest.raises(BrokersAwayError, match=r"at b:9092 answer with an error: Broker: Group authorization failed$"):
        own.committed([KafkaPartition("orders", 0)])


def test_a_group_with_a_live_member_is_named_with_the_member():
    def commit(**_: Any) -> None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))

    def described(groups: list[str], request_timeout: float) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(members=[SimpleNamespace(client_id="console-consumer", host="/10.0.0.7")]))
        return {groups[0]: answer}

    own = cluster("127.0.0.1:9", {})
    own._consumer = SimpleNamespace(commit=commit, poll=lambda _: None)
    own._admin = SimpleNamespace(describe_consumer_groups=described, poll=lambda _: None)
    with pytest.raises(
        BrokersAwayError,
        match=r"group 'g' has a live member, 'console-consumer' at /10\.0\.0\.7, .*: stop it, or use another group=",
    ):
        own.commit({KafkaPartition("orders", 0): (7, "")})
