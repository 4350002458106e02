"""Where progress is kept, whose it is, and where to begin: rules without a broker."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime

import pytest

from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.bolts import KafkaBolt
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.offset_stores import (
    METADATA_CHARACTERS_MAX,
    FileOffsets,
    Owner,
    Stored,
    packed,
    store_of,
    unpacked,
)
from sparkbolt.connectors.kafka.start_offsets import Start
from sparkbolt.connectors.kafka.zookeeper_offsets import node_of, record_of
from sparkbolt.errors import ConfigError
from sparkbolt.files.local import temporary_name

PLACE = KafkaPartition("orders", 0)
OURS = Owner("billing/orders", "billing", "ab12")
THEIRS = Owner("audit/orders", "audit")
STARTS = {
    "earliest": "earliest",
    "latest": "latest",
    "time": datetime(2026, 1, 1, tzinfo=UTC),
    "given": {"orders/0": 17},
    "uncommitted-earliest": "uncommitted-earliest",
    "uncommitted-latest": "uncommitted-latest",
}


def where(start, stored, *, other="refuse", new=False):
    return Start.parse(STARTS[start], ("orders",)).where(PLACE, stored, OURS, other=other, new=new)


def test_metadata_gives_back_what_was_packed():
    stored = Stored(40, OURS, [(45, 50), (52, 53)])
    assert unpacked(40, packed(stored)) == stored


def test_every_store_keeps_the_id_of_the_topic(tmp_path):
    stored = Stored(40, OURS, [(45, 50)], "orders", "Xk5q")
    assert unpacked(40, packed(stored)).topic_id == "Xk5q"
    assert record_of(json.loads(node_of(PLACE, stored, ("", 0)))).topic_id == "Xk5q"
    file = FileOffsets(tmp_path / "offsets.json")
    file.open(None)
    file.save({PLACE: stored})
    file.open(None)
    assert file.load([PLACE])[PLACE].topic_id == "Xk5q"


def test_metadata_keeps_as_many_intervals_as_fit_the_character_limit_of_a_broker():
    stored = Stored(10**12, OURS, [(10**12 + 10 * step, 10**12 + 10 * step + 5) for step in range(1, 5000)])
    text = packed(stored)
    assert len(text) <= METADATA_CHARACTERS_MAX
    kept = unpacked(10**12, text).finished
    assert kept == list(stored.finished)[: len(kept)]
    assert len(kept) > 900


@pytest.mark.parametrize(
    ("start", "nothing", "nobody"),
    [
        ("earliest", "first", "first"),
        ("latest", "end", "end"),
        ("time", "time", "time"),
        ("given", 17, 17),
        ("uncommitted-earliest", "first", "stored"),
        ("uncommitted-latest", "end", "stored"),
    ],
)
def test_start_offset_follows_the_table(start, nothing, nobody):
    assert where(start, None) == nothing
    assert where(start, Stored(40)) == nobody
    assert where(start, Stored(40, OURS)) == "stored"
    assert where(start, Stored(40, THEIRS), other="take_over") == "stored"
    assert where(start, Stored(40, THEIRS), other="start_over") == nothing
    assert where(start, None, new=True) == "first"
    with pytest.raises(ConfigError, match="stored by topology 'audit' as 'audit/orders', expected 'billing/orders'"):
        where(start, Stored(40, THEIRS))


@pytest.mark.parametrize("start", ["earliest", "latest", "time", "given", "uncommitted-earliest", "uncommitted-latest"])
def test_a_stored_offset_0_is_used_like_any_other(start):
    """The first PartitionManager took it for no offset, and began at the latest."""
    assert where(start, Stored(0, OURS)) == where(start, Stored(40, OURS)) == "stored"


def test_an_offsets_file_is_replaced_atomically_and_read_again(tmp_path):
    path = tmp_path / "state" / "offsets.json"
    store = FileOffsets(path)
    store.open(None)
    assert store.load([PLACE]) == {}
    store.save({PLACE: Stored(40, OURS, [(45, 50)])})
    store.save({KafkaPartition("orders", 1): Stored(3, OURS)})
    again = store_of(f"file:{path}")
    again.open(None)
    assert again.load([PLACE, KafkaPartition("orders", 7)]) == {PLACE: Stored(40, OURS, [(45, 50)])}
    left, others = (path.with_name(temporary_name(name)) for name in ("offsets.json", "returns.json"))
    for file in (left, others):
        file.touch()
        os.utime(file, (0, 0))
    again.open(None)
    assert sorted(path.parent.iterdir()) == [others, path], "what a dead spout was writing"


def test_spouts_that_share_a_file_leave_each_others_offsets_alone(tmp_path):
    path = tmp_path / "offsets.json"
    others = KafkaPartition("returns", 0)
    stores = FileOffsets(path), FileOffsets(path)
    for store in stores:
        store.open(None)

    def tell(store: FileOffsets, place: KafkaPartition) -> None:
        for offset in range(50):
            store.save({place: Stored(offset, OURS)})

    threads = [threading.Thread(target=tell, args=told) for told in zip(stores, (PLACE, others), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = FileOffsets(path).load([PLACE, others])
    assert {place: stored.offset for place, stored in found.items()} == {PLACE: 49, others: 49}


def test_a_node_in_zookeeper_has_the_keys_of_storms_first_spout():
    node = json.loads(node_of(PLACE, Stored(40, OURS, [(45, 50)]), ("broker1", 9092)))
    assert list(node) == ["topology", "offset", "partition", "broker", "topic", "finished"]
    assert node["topology"] == {"id": "billing/orders", "name": "billing"}
    assert (node["broker"], node["topic"], node["partition"]) == ({"host": "broker1", "port": 9092}, "orders", 0)


def test_a_node_that_storm_wrote_can_be_taken_over():
    node = {
        "topology": {"id": "3c5a-77", "name": "old"},
        "offset": 40,
        "partition": 0,
        "broker": {"host": "b", "port": 9092},
        "topic": "orders",
    }
    stored = record_of(node)
    assert where("earliest", stored, other="take_over") == "stored"


def test_secrets_are_never_printed():
    settings = ClientSettings(
        "localhost:9092", {"sasl.username": "ann", "sasl.password": "x4!y", "ssl.key.pem": "-----KEY", "client.id": "c"}
    )
    for secret in ("x4!y", "-----KEY"):
        assert secret not in repr(settings)
        assert secret not in settings.scrub(f"property sasl.password={secret} is wrong")
    assert "client.id=c" in repr(settings)
    assert settings.scrub("http://user:pw@host:8081 refused") == "http://***@host:8081 refused"


def test_a_short_name_of_a_user_masks_no_text():
    settings = ClientSettings("a.example:9092", {"sasl.username": "a", "sasl.password": "x4!y"})
    assert settings.scrub("ann: a bad password x4!y") == "ann: a bad password ***"
    assert repr(settings) == "ClientSettings('a.example:9092', sasl.username=a, sasl.password=***)"
    assert ClientSettings("h:1", {"sasl.password": "b"}).scrub("/bootstrap: password b") == "/bootstrap: password ***"


def test_a_producer_is_idempotent_and_nobody_can_say_otherwise():
    assert ClientSettings("localhost:9092", {"linger.ms": 50}).producer()["enable.idempotence"] is True
    with pytest.raises(ConfigError, match="always idempotent"):
        ClientSettings("localhost:9092", {"enable.idempotence": False})
    own = KafkaBolt("localhost:9092", "words", client={"acks": 0})
    with pytest.raises(ConfigError, match="Kafka's client refuses its properties"):
        own.prepare(TopologyContext("t", "out", 0, 1, 1, Config()))


@pytest.mark.parametrize("key", ["group.id", "enable.auto.commit", "bootstrap.servers", "auto.offset.reset"])
def test_properties_that_the_spout_decides_are_refused_by_name(key):
    with pytest.raises(ConfigError, match=f"'{key}' cannot be given"):
        ClientSettings("localhost:9092", {key: "x"})


def test_offsets_of_another_topic_are_not_mixed_up_with_ours():
    other = Stored(40, OURS, (), "invoices")
    with pytest.raises(ConfigError, match="was stored for topic 'invoices'"):
        where("uncommitted-earliest", other)
    assert where("latest", other, other="start_over") == "end"
