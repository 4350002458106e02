"""What a real broker says to a client with the wrong properties, and what a user is told."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from sparkbolt import Config
from sparkbolt.api.components import TopologyContext
from sparkbolt.bolts import KafkaBolt
from sparkbolt.connectors.kafka import broker_watcher, kafka_sender
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_cluster import BrokersAwayError, Cluster, LoginRefusedError
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.errors import ConfigError, Unavailable
from sparkbolt.sim.engine import LocalEngine
from tests.kafka import poll, run_to_end, spout, topology
from tests.services.kafka import Kafka
from tests.services.server import HOST, free_port
from tests.services.test_kafka import create

pytestmark = pytest.mark.service

LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ann",
    "sasl.password": "right",
}


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The addresses of a broker of the module's own: one where it expects a login, and one where it does not."""
    server, port = Kafka(tmp_path_factory.mktemp("login")), free_port()
    without, login = f"PLAINTEXT://{HOST}:{server.port}", f"LOGIN://{HOST}:{port}"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    server.settings |= {
        "listeners": f"{without},{login},CONTROLLER://{HOST}:{server.controller}",
        "advertised.listeners": f"{without},{login}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{module} required user_ann="right";',
    }
    with server:
        yield {"login": f"{HOST}:{port}", "plain": server.address}


def cluster(address: str, group: str, client: dict[str, Any]) -> Cluster:
    return Cluster(ClientSettings(address, client), group, read_committed=True, request_secs=3.0)


@pytest.mark.parametrize(
    ("port", "wrong", "said"),
    [
        ("login", {"sasl.password": "wrong"}, r"refuse the login with PLAIN \(Authentication failed: Invalid username"),
        ("login", {"sasl.mechanism": "SCRAM-SHA-256"}, "sasl.mechanism=SCRAM-SHA-256: set it to one of PLAIN$"),
        ("plain", {}, "take no login at this port"),
    ],
)
def test_a_login_that_a_broker_refuses_fails_the_start(ports, name, port, wrong, said, monkeypatch):
    monkeypatch.setattr(broker_watcher, "OPEN_AGAIN_SECS", 0.5)
    own = spout(ports[port], name, client={**LOGIN, **wrong})
    with pytest.raises(ConfigError, match=said) as raised:
        LocalEngine(topology(name, own))
    assert "right" not in str(raised.value)


@pytest.mark.parametrize(
    ("port", "client", "said"),
    [
        ("plain", {"security.protocol": "SSL"}, "do not answer in TLS: does this port expect it"),
        ("login", {}, "they close the connection: does the port expect another security.protocol than PLAINTEXT"),
    ],
)
def test_a_port_that_expects_another_protocol_is_an_outage_that_says_so(ports, name, port, client, said):
    own = cluster(ports[port], name, client)
    with pytest.raises(BrokersAwayError, match=said) as raised:
        own.kafka_partitions((name,))
    own.close()
    assert not isinstance(raised.value, LoginRefusedError)


def test_the_right_login_reads_a_topic(ports, name):
    create(ports["plain"], name)
    run_to_end(topology(name, spout(ports["login"], name, client=LOGIN, stop_at_end=True)))


def test_a_group_with_another_consumer_is_named_with_it(ports, name):
    create(ports["plain"], name)
    other = Consumer({"bootstrap.servers": ports["plain"], "group.id": name, "client.id": "other"})
    own = cluster(ports["plain"], name, {})
    try:
        other.subscribe([name])
        poll(lambda: other.poll(0.1) is None and bool(other.assignment()))
        with pytest.raises(BrokersAwayError, match=f"the group '{name}' has a live member, 'other' at /127.0.0.1, "):
            own.commit({KafkaPartition(name, 0): (0, "")})
    finally:
        other.close()
        own.close()


def test_a_bolt_waits_for_its_topic_and_names_it(ports, name, monkeypatch):
    monkeypatch.setattr(kafka_sender, "NEW_TOPIC_SECS", 0.5)
    bolt, reasons = KafkaBolt(ports["plain"], name, value="word"), []
    bolt.prepare(TopologyContext("t", "out", 0, 1, 1, Config()))
    collector: Any = type("", (), {"fail": lambda self, tup, reason: reasons.append(reason)})()
    bolt.execute({"word": "a"}, collector)  # type: ignore[arg-type]
    bolt.flush()
    (reason,) = reasons
    assert isinstance(reason, Unavailable)
    assert str(reason) == f"topic {name!r} at {ports['plain']}: it does not exist: create it"
