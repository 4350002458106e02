"""A real broker that does not answer for a while: nothing is read twice, passed over or taken for another topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkbolt.connectors.kafka import broker_watcher as watching
from sparkbolt.connectors.kafka import offset_planner as planning
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_cluster import BrokersAwayError, Cluster
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.sim.engine import LocalEngine
from tests.kafka import SEEN, close, run, spout, topology
from tests.services import Kafka
from tests.services.test_kafka import create, lines, produce

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with Kafka(tmp_path_factory.mktemp("paused") / "kafka") as own:
        yield own


def test_a_broker_that_does_not_answer_for_a_while_is_not_a_recreated_topic(server, monkeypatch, caplog):
    name, asked, ends = "paused", [], Cluster.ends

    def noted(cluster, places):
        asked.append(places)
        return ends(cluster, places)

    monkeypatch.setattr(planning, "BACKWARDS_SECS", 1e-9)
    monkeypatch.setattr(watching, "LOOK_SECS", 1e9)  # only the ends are asked for
    monkeypatch.setattr(watching, "TELL_SECS", 1e9)  # storing offsets has no deadline: it waits for the broker
    create(server.address, name)
    produce(server.address, name, [f"{number}" for number in range(200)])
    SEEN[name] = []
    engine = LocalEngine(topology(name, spout(server.address, name)))
    watcher = engine.coordinator.spouts["messages"]._watcher
    run(engine, lambda: len(SEEN[name]) == 200 and bool(watcher.look.ids.now) and engine.coordinator.in_force is None)
    watcher._cluster._secs = 0.3
    monkeypatch.setattr(Cluster, "ends", noted)
    with server.paused():
        run(engine, lambda: len(asked) >= 3)
    produce(server.address, name, ["after"])
    run(engine, lambda: len(SEEN[name]) > 200 and engine.coordinator.in_force is None)
    close(engine)
    assert lines(name) == [*map(str, range(200)), "after"]
    assert "made again" not in caplog.text


def test_no_request_succeeds_while_the_broker_does_not_answer(server):
    name = "asked"
    place = KafkaPartition(name, 0)
    create(server.address, name)
    produce(server.address, name, ["a", "b"])
    own = Cluster(ClientSettings(server.address), name, read_committed=True, request_secs=0.5)
    own.commit({place: (1, "")})
    questions = [
        lambda: own.kafka_partitions((name,)),
        lambda: own.firsts([place]),
        lambda: own.ends([place]),
        lambda: own.since({place: 2}, 0),
        lambda: own.committed([place]),
    ]
    with server.paused():
        for question in questions:
            with pytest.raises(BrokersAwayError):
                question()
    own.close()
