"""KafkaSpout against the mock cluster of the client library, without Spark: what is read, and how often."""

from __future__ import annotations

import functools
import json
import uuid
from datetime import timedelta

import pytest

from sparkbolt import RetryPolicy, WindowedBolt
from sparkbolt.connectors.kafka.kafka_cluster import Cluster
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.driver.ledger.ledger_settings import spout_infos
from sparkbolt.faces.cli import main
from sparkbolt.faces.cli.lag import report
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts.kafka import KafkaMessage
from tests.kafka import SEEN, Keep, close, committed, finished, poll, run, run_to_end, see, spout, topology
from tests.ledgers import restored

pytestmark = pytest.mark.slow
HOUR_MS = 3_600_000


def test_each_message_is_read_once_and_all_offsets_are_committed_to_the_group(kafka, name):
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


def test_a_message_that_is_not_json_fails_alone_and_is_not_retried(kafka, name):
    kafka.produce(name, ['{"v":1}', "{nonsense", "[2]", '{"v":3,"w":4}', None, "null"], kafka_partition=0)
    own = spout(kafka.brokers, name, value="json", outputs=["v"], stop_at_end=True)
    engine = run_to_end(topology(name, own, max_attempts=5))
    assert [row["v"] for row in SEEN[name]] == [1, 3, None]
    stories = [tree.story for tree in engine.ledger.failed]
    assert [tree.position for tree in engine.ledger.failed] == [1, 2, 5]
    assert "JSONDecodeError" in stories[0]
    assert "expected an object with the fields ['v'], got [2]" in stories[1]
    assert engine.ledger.metrics.of("messages").given_up == 3
    assert committed(kafka.brokers, name)[0][0] == 6


def test_a_failed_message_is_read_again_and_never_blocks_later_messages(kafka, name):
    kafka.produce(name, [str(place) for place in range(100)], kafka_partition=0)
    policy = RetryPolicy(max_retries=2)
    own = spout(kafka.brokers, name, stop_at_end=True, retry=policy)
    engine = run_to_end(topology(name, own, Keep(name, lambda tup: tup["line"] == "7")))
    again = [(row["line"], row["attempt"]) for row in SEEN[name] if row["line"] == "7"]
    assert again == [("7", 1), ("7", 2), ("7", 3)]
    assert len(SEEN[name]) == 102
    assert engine.ledger.metrics.of("messages").given_up == 1
    assert committed(kafka.brokers, name)[0][0] == 100


class Hours(WindowedBolt):
    outputs = ["end", "count"]

    def __init__(self, name):
        self.name = name

    def execute(self, window, collector):
        see(self.name, {"end": window.end_ms // HOUR_MS, "count": len(window)})


def test_the_watermark_waits_for_the_kafka_partition_that_is_read_more_slowly(kafka, name):
    kafka.produce(name, [f'{{"at":{HOUR_MS * hour}}}' for hour in range(10)], kafka_partition=0)
    kafka.produce(name, [f'{{"at":{HOUR_MS // 10 * place}}}' for place in range(91)], kafka_partition=1)
    windowed = Hours(name).with_tumbling_window(timedelta(hours=1), closed="left").with_timestamp_field("at")
    own = spout(kafka.brokers, name, value="json", outputs=["at"], stop_at_end=True, max_poll_records=10)
    engine = run_to_end(topology(name, own, windowed.with_watermark_interval(timedelta(milliseconds=1))))
    assert engine.ledger.metrics.of("bolt0").late_tuples == 0
    assert [(row["end"], row["count"]) for row in SEEN[name]] == [(hour, 11) for hour in range(1, 10)]


class Store(Keep):
    """Writes to a database that is away for the first two seconds."""

    transient = ("bad", "context")

    def prepare(self, context):
        self.context = context

    def execute(self, tup, collector):
        if self.context.now_ms < 2000:
            raise ConnectionError("the database refuses connections")
        super().execute(tup, collector)


def test_a_database_unavailable_for_two_seconds_sets_no_message_aside_and_moves_no_offset(kafka, name):
    kafka.produce(name, [str(place) for place in range(1000)], kafka_partition=0)
    own = spout(kafka.brokers, name, stop_at_end=True, max_uncommitted=300)
    engine = LocalEngine(topology(name, own, Store(name)))
    moved = []
    try:
        run(engine, lambda: engine.now_ms >= 1900)
        moved.append(engine.ledger.finished["messages"])
        run(engine, finished(engine))
    finally:
        close(engine)
    assert set(moved[0].values()) <= {0}, "nothing passes what waits"
    assert sorted(int(row["line"]) for row in SEEN[name]) == list(range(1000))
    counts = engine.ledger.metrics.of("messages")
    assert (counts.acked, counts.given_up, engine.letters) == (1000, 0, [])
    assert committed(kafka.brokers, name)[0][0] == 1000


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


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_the_traceparent_of_a_followed_message_reaches_its_story_and_survives_a_restart(kafka, name):
    kafka.produce(name, ["0", "1"], kafka_partition=0)
    kafka.produce(name, ["2", "3"], kafka_partition=0, headers={"traceparent": PARENT})
    kafka.produce(name, ["4"], kafka_partition=0, headers={"traceparent": "nonsense"})
    own = spout(kafka.brokers, name, stop_at_end=True)
    built = topology(name, own, Keep(name, lambda tup: tup["line"] == "3"), trace=1.0, max_attempts=2)
    engine = run_to_end(built)
    parents = {story.position: story.trace_parent for story in engine.ledger.traced}
    assert parents == {0: None, 1: None, 2: PARENT, 4: None}
    assert [(tree.attempt, tree.to_story().trace_parent) for tree in engine.ledger.failed] == [(1, PARENT), (2, PARENT)]
    again = restored(engine.ledger.snapshot(), spout_infos(engine.lane), task_owner=built.task_owner)
    assert [story.trace_parent for story in again.traced] == [story.trace_parent for story in engine.ledger.traced]


def test_a_message_fails_completely_when_one_of_its_tuples_fails(kafka, name):
    kafka.produce(name, ["to be or"], kafka_partition=0)
    own = spout(kafka.brokers, name, translate=several, outputs=["word", "headers"], stop_at_end=True)
    engine = run_to_end(topology(name, own, Keep(name, lambda tup: tup["word"] == "be"), max_attempts=2))
    assert [row["word"] for row in SEEN[name]] == ["to", "be", "or"] * 2
    assert engine.ledger.metrics.of("messages").given_up == 1


def test_nothing_is_tracked_or_read_again_without_a_guarantee(kafka, name):
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
        plans.append(engine.perform_all(engine.coordinator.next_plan(engine.now_ms, engine.now_ms / 1000)))
        return plans[-1] is not None

    poll(ask)
    engine.coordinator.confirm(plans[-1], engine.now_ms / 1000)
    return plans[-1]


def test_at_most_once_repeats_nothing_when_the_driver_dies_whichever_checkpoint_is_next(kafka, name):
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
    engine.close()  # only now: whoever is dead tells nothing more


def test_at_most_once_gives_back_what_was_told_and_not_read_when_it_is_stopped(kafka, name):
    kafka.produce(name, [str(place) for place in range(5)], kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name, guarantee="at-most-once")))
    (own,) = engine.coordinator.spouts.values()
    assert own.next_ranges({}, 100) == []
    poll(lambda: committed(kafka.brokers, name)[0][0] == 5)
    close(engine)
    assert committed(kafka.brokers, name)[0][0] == 0


def test_command_reports_the_lag_of_each_source(kafka, name, tmp_path, monkeypatch, capsys):
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


def test_a_kafka_partition_that_does_not_answer_has_an_unknown_lag(kafka, name, monkeypatch):
    for number in range(4):
        kafka.produce(name, ["a", "b", "c"], kafka_partition=number)
    ends, silent = Cluster.ends, KafkaPartition(name, 2)
    monkeypatch.setattr(Cluster, "ends", lambda *asked: {p: end for p, end in ends(*asked).items() if p != silent})
    built = topology(name, spout(kafka.brokers, name))
    lines = report(built, as_json=False)
    assert lines[0] == f"messages  group {name}  lag 9 + ?"
    assert lines[4].split() == [f"{name}/2", "-", "?", "0", "?", "-"]
    body = json.loads(report(built, as_json=True)[0])
    assert (body["lag"], body["sources"][2]["source"], body["sources"][2]["lag"]) == (9, f"{name}/2", None)
