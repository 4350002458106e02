"""How much KafkaSpout reads at once, in offsets, in bytes and a second, against the mock cluster, without Spark."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, TopologyBuilder
from sparkbolt.connectors.kafka import kafka_spout as spout_module
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import KafkaSpout
from sparkbolt.spouts.kafka import MockKafka
from tests.kafka import SEEN, close, committed, finished, run, see, spout, topology

KIB = 1024
MAX_BYTES = 64 * KIB
SMALL, LARGE = 100, 10_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The spout's clock in the driver, which the test moves."""
    own = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(spout_module, "time", SimpleNamespace(monotonic=lambda: own.now_s))
    return own


class Weigh(BasicBolt):
    """Notes how long each line is, and in which micro-batch it came."""

    transient = ("context",)

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, context):
        self.context = context

    def execute(self, tup, collector):
        number, length = self.context.micro_batch_id, len(tup["line"])
        see(self.name, {"number": number, "length": length, "place": (tup["partition"], tup["offset"])})


def weighed(name: str, own: KafkaSpout, **config: Any) -> LocalEngine:
    builder = TopologyBuilder(name, Config(**config))
    builder.set_spout("messages", own, parallelism=2)
    builder.set_bolt("weigh", Weigh(name), fuse=False).shuffle_grouping("messages")
    return LocalEngine(builder.build())


def sizes(name: str) -> list[int]:
    """The bytes of each micro-batch that had any, in their order."""
    found: Counter[int] = Counter()
    for row in SEEN[name]:
        found[row["number"]] += row["length"]
    return [found[number] for number in sorted(found)]


def test_a_micro_batch_reads_about_max_bytes_of_all_kafka_partitions_together(kafka, name):
    for number in range(4):
        kafka.produce(name, ["x" * SMALL] * 2000, kafka_partition=number)
    engine = weighed(name, spout(kafka.brokers, name, stop_at_end=True, max_bytes=MAX_BYTES))
    run(engine, finished(engine))
    close(engine)
    found = sizes(name)
    assert len(SEEN[name]) == 8000
    assert max(found) <= MAX_BYTES
    assert min(found[-8:-1]) > 0.9 * MAX_BYTES, "once sizes are known, it reads as much as it may"


def growing(kafka: MockKafka, name: str) -> None:
    """Messages that are a hundredfold in the middle, in one kafka_partition."""
    for size, count in ((SMALL, 2000), (LARGE, 200), (SMALL, 2000)):
        kafka.produce(name, ["x" * size] * count, kafka_partition=0)


def test_messages_growing_a_hundredfold_are_read_up_to_twice_max_bytes_and_the_rest_later(kafka, name):
    growing(kafka, name)
    own = spout(kafka.brokers, name, stop_at_end=True, max_bytes=MAX_BYTES)
    own.first_budget = 10_000
    engine = weighed(name, own, max_attempts=1)
    run(engine, finished(engine))
    close(engine)
    found = sizes(name)
    assert [row["place"] for row in SEEN[name]] == [(0, offset) for offset in range(4200)], "once, and in their order"
    beyond = [number for number, size in enumerate(found) if size > MAX_BYTES]
    assert max(found) < 2 * MAX_BYTES + LARGE
    assert beyond == list(range(beyond[0], beyond[0] + len(beyond))), (
        "only while a range goes on that was planned before"
    )
    after = found[beyond[-1] + 1 :]
    assert after[0] <= 7 * SMALL, "what comes next counts with the large ones"
    assert after[-2] > 0.9 * MAX_BYTES, "small messages are read by the hundreds again"
    assert committed(kafka.brokers, name)[0][0] == 4200
    messages = engine.ledger.metrics.of("messages")
    assert (messages.errors, messages.given_up, messages.failed) == (0, 0, 0)


def test_a_message_larger_than_max_bytes_is_read_by_itself(kafka, name):
    kafka.produce(name, ["x" * 20 * KIB, "y" * 200 * KIB, "z" * 20 * KIB] * 2, kafka_partition=1)
    engine = weighed(name, spout(kafka.brokers, name, stop_at_end=True, max_bytes=32 * KIB))
    run(engine, finished(engine))
    close(engine)
    assert sizes(name) == [20 * KIB, 200 * KIB, 20 * KIB] * 2


def test_no_more_than_max_records_per_sec_are_planned_and_a_second_s_worth_at_once(kafka, name, clock):
    kafka.produce(name, ["x"] * 1000, kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name, max_records_per_sec=100)))
    taken = []
    for elapsed_s in (0.0, 0.0, 0.5, 0.25, 60.0):
        clock.now_s += elapsed_s
        engine.step()
        taken.append(len(SEEN[name]))
    close(engine)
    assert taken == [100, 100, 150, 175, 275]


def test_a_new_life_starts_with_small_micro_batches_again(kafka, name):
    kafka.produce(name, ["x" * SMALL] * 6000, kafka_partition=0)
    engine = weighed(name, spout(kafka.brokers, name, stop_at_end=True, max_bytes=MAX_BYTES))
    run(engine, lambda: len(SEEN[name]) > 1000)
    before = sizes(name)
    assert before[-1] > 100 * SMALL
    engine.restart()
    run(engine, lambda: len(sizes(name)) > len(before))
    assert sizes(name)[len(before)] == SMALL
    close(engine)


def test_consumers_fetch_little_ahead_where_max_bytes_is_small_and_the_users_properties_win(kafka, name, monkeypatch):
    given: list[dict[str, Any]] = []
    really = ClientSettings.new

    def new(settings, kind, properties, on_error=None):
        if "queued.max.messages.kbytes" in properties:
            given.append(properties)
        return really(settings, kind, properties, on_error)

    monkeypatch.setattr(ClientSettings, "new", new)
    kafka.produce(name, ["a", "b"], kafka_partition=0)
    for more in ({}, {"fetch.message.max.bytes": 200_000}):
        group = f"{name}{len(given)}"
        own = spout(kafka.brokers, name, group=group, stop_at_end=True, max_bytes=MAX_BYTES, client=more)
        engine = LocalEngine(topology(name, own))
        run(engine, finished(engine))
        close(engine)
    assert [(one["queued.max.messages.kbytes"], one["fetch.message.max.bytes"]) for one in given] == [
        (64, 65_536),
        (64, 200_000),
    ]


def test_max_poll_records_limits_each_kafka_partition_in_a_micro_batch(kafka, name):
    for number in range(2):
        kafka.produce(name, ["x"] * 20, kafka_partition=number)
    engine = weighed(name, spout(kafka.brokers, name, stop_at_end=True, max_poll_records=7))
    run(engine, finished(engine))
    close(engine)
    assert sizes(name) == [14, 14, 12]


def test_ranges_are_read_whole_without_ackers_because_no_later_plan_would_read_the_rest(kafka, name):
    growing(kafka, name)
    own = spout(kafka.brokers, name, stop_at_end=True, max_bytes=MAX_BYTES)
    engine = weighed(name, own, acker_tasks=0)
    run(engine, finished(engine))
    close(engine)
    assert [row["place"] for row in SEEN[name]] == [(0, offset) for offset in range(4200)]
    assert max(sizes(name)) > 3 * MAX_BYTES
