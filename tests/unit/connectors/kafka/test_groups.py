"""Offsets of a group, against the mock cluster: where a spout begins, and what it tells the group."""

from __future__ import annotations

import threading

import pytest

from sparkbolt import Bolt, Topology, TopologyBuilder, bolt
from sparkbolt.api.reports import SourceView
from sparkbolt.connectors.kafka.kafka_cluster import Cluster
from sparkbolt.connectors.kafka.offset_stores import Owner, Stored, unpacked
from sparkbolt.errors import ConfigError
from sparkbolt.layout.lane import lay_out
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import simulate
from sparkbolt.worker.worker import context_of
from tests.kafka import SEEN, Keep, close, committed, finished, run, run_to_end, see, spout, store_all, topology
from tests.patience import PATIENCE_SECS

pytestmark = pytest.mark.slow


def test_a_new_checkpoint_starts_at_the_offsets_of_the_group_and_repeats_nothing(kafka, name):
    kafka.produce(name, [str(place) for place in range(50)], kafka_partition=1)
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    kafka.produce(name, ["new"], kafka_partition=1)
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    assert [row["line"] for row in SEEN[name]] == [*map(str, range(50)), "new"]


class Hold(Bolt):
    """Acks everything but one line."""

    transient = ("held",)

    def __init__(self, name: str) -> None:
        self.name = name

    def execute(self, tup, collector):
        see(self.name, dict(tup))
        if tup["line"] != "3":
            collector.ack(tup)


def test_messages_finished_beyond_the_committed_offset_are_not_repeated_with_a_new_checkpoint(kafka, name):
    kafka.produce(name, [str(place) for place in range(10)], kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name), Hold(name)))
    run(engine, lambda: len(SEEN[name]) == 10 and engine.coordinator.in_force is None)
    close(engine)
    offset, metadata = committed(kafka.brokers, name)[0]
    assert (offset, unpacked(offset, metadata).finished) == (3, [(4, 10)])
    SEEN[name].clear()
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    assert [row["line"] for row in SEEN[name]] == ["3"]
    assert committed(kafka.brokers, name)[0][0] == 10


def test_offsets_of_another_topology_are_refused_or_started_over_as_configured(kafka, name):
    kafka.produce(name, [str(place) for place in range(5)], kafka_partition=0)
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    other = name + "-other"
    with pytest.raises(ConfigError, match=rf"was stored by topology '{name}' as '{name}/messages'"):
        LocalEngine(topology(other, spout(kafka.brokers, name, stop_at_end=True)))
    run_to_end(topology(other, spout(kafka.brokers, name, stop_at_end=True, other_topology="start_over"), Keep(other)))
    assert [row["line"] for row in SEEN[other]] == [*map(str, range(5))]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_spout_with_another_id_takes_over_what_it_has_told_its_group(kafka, name, goes_on):
    def built(id_: str, old: str | None) -> Topology:
        builder = TopologyBuilder(name)
        builder.set_spout(id_, spout(kafka.brokers, name, stop_at_end=True), parallelism=2, renamed_from=old)
        builder.set_bolt("bolt0", Keep(name)).shuffle_grouping(id_)
        return builder.build()

    kafka.produce(name, map(str, range(5)), kafka_partition=0)
    engine = run_to_end(built("messages", None))
    kafka.produce(name, map(str, range(5, 8)), kafka_partition=0)
    if goes_on:
        engine.restart(built("texts", "messages"))
        run(engine, finished(engine))
        close(engine)
    else:  # with a new checkpoint
        run_to_end(built("texts", "messages"))
    assert [row["line"] for row in SEEN[name]] == [*map(str, range(8))]
    offset, metadata = committed(kafka.brokers, name)[0]
    assert (offset, unpacked(offset, metadata).owner.id) == (8, f"{name}/texts")


def test_a_checkpoint_reads_its_unread_data_although_another_checkpoint_has_finished_it(kafka, name):
    kafka.produce(name, map(str, range(3)), kafka_partition=0)
    engine = run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    kafka.produce(name, map(str, range(3, 10)), kafka_partition=0)
    store_all(kafka.brokers, name, {0: Stored(5, Owner(f"{name}/messages", name), [(6, 8)])})
    engine.restart()
    run(engine, finished(engine))
    engine.coordinator.spouts["messages"].close()
    assert [row["line"] for row in SEEN[name]] == [*map(str, range(10))]
    assert committed(kafka.brokers, name)[0][0] == 10


@bolt(outputs=[])
def ignore(tup):
    return None


def test_a_simulation_reads_the_offsets_of_a_group_and_moves_none(kafka, name, tmp_path):
    kafka.produce(name, ["line"] * 8, kafka_partition=0)
    file = tmp_path / "offsets.json"
    for offsets in ("group", f"file:{file}"):
        report = simulate(topology(name, spout(kafka.brokers, name, offsets=offsets), ignore), seed=1, repeat=False)
        assert report.ok, report.story
    assert committed(kafka.brokers, name) == {}
    assert not file.exists()


def test_offsets_of_an_idle_spout_that_a_group_forgets_are_committed_again(kafka, name, monkeypatch):
    monkeypatch.setattr("sparkbolt.connectors.kafka.broker_watcher.TELL_AGAIN_SECS", 0.2)
    kafka.produce(name, ["a", "b"], kafka_partition=0)
    engine = LocalEngine(topology(name, spout(kafka.brokers, name)))
    run(engine, lambda: committed(kafka.brokers, name).get(0, (0, ""))[0] == 2)
    store_all(kafka.brokers, name, {0: Stored(0), 1: Stored(7)})
    run(engine, lambda: [committed(kafka.brokers, name)[number][0] for number in (0, 1)] == [2, 0])
    engine.coordinator.spouts["messages"].close()


def test_finished_messages_that_are_not_stored_with_the_offset_are_reported(kafka, name, caplog):
    kafka.produce(name, ["a"], kafka_partition=0)
    own = spout(kafka.brokers, name)
    own.open(context_of(lay_out(topology(name, own), 1), 1))
    for planned in (1800, 4000, 4000, 6000):
        every_second = [(at, at + 1) for at in range(1, planned, 2)]
        done = lambda limit, found=every_second: found[:limit]  # noqa: E731
        view = SourceView(planned=planned, finished=0, waiting=planned // 2, open=0, away=0, _done=done)
        own.on_sources_changed({f"{name}/0": view})
    own.close()
    kept = len(unpacked(*committed(kafka.brokers, name)[0]).finished)
    assert 900 < kept < 1000
    told = f"only the first {kept} finished intervals behind the committed offset are stored"
    assert caplog.text.count(told) == 1
    assert f"would process up to {1000 - kept + 2000} finished messages again" in caplog.text


def test_who_starts_over_where_another_topology_was_takes_nothing_as_finished_from_it(kafka, name):
    kafka.produce(name, ["a", "b", "c", "d"], kafka_partition=0)
    theirs = Owner("audit/orders", "audit")
    store_all(kafka.brokers, name, {0: Stored(0, theirs, [(1, 3)])})
    own = spout(kafka.brokers, name, stop_at_end=True, start={f"{name}/0": 0}, other_topology="start_over")
    run_to_end(topology(name, own))
    assert [row["line"] for row in SEEN[name]] == ["a", "b", "c", "d"]


def test_latest_passes_over_what_was_there_and_a_later_start_does_not_take_it_anew(kafka, name):
    kafka.produce(name, ["old"], kafka_partition=0)
    run_to_end(topology(name, spout(kafka.brokers, name, start="latest", stop_at_end=True)))
    kafka.produce(name, ["while nobody looked"], kafka_partition=0)
    run_to_end(topology(name, spout(kafka.brokers, name, start="latest", stop_at_end=True)))
    assert [row["line"] for row in SEEN[name]] == ["while nobody looked"]


def test_a_thread_that_outlives_its_spout_commits_no_old_offsets(kafka, name, monkeypatch):
    class Store:
        told: list[int] = []

        def open(self, scope): ...

        def load(self, places):
            return {}

        def save(self, offsets):
            self.told.append(max(stored.offset for stored in offsets.values()))

        def close(self): ...

    asked, waiting, answered = threading.Event(), threading.Event(), threading.Event()
    ends = Cluster.ends

    def slow(cluster, places):
        if asked.is_set():
            waiting.set()
            assert answered.wait(PATIENCE_SECS)
        return ends(cluster, places)

    kafka.produce(name, ["a", "b"], kafka_partition=0)
    own = spout(kafka.brokers, name, offsets=Store())
    monkeypatch.setattr("sparkbolt.connectors.kafka.broker_watcher.CLOSE_SECS", 0.05)
    monkeypatch.setattr(Cluster, "ends", slow)
    own.open(context_of(lay_out(topology(name, own), 1), 1))
    asked.set()
    assert waiting.wait(PATIENCE_SECS)
    view = SourceView(planned=2, finished=2, waiting=0, open=0, away=0, _done=lambda limit: [])
    own.on_sources_changed({f"{name}/0": view})
    thread = own._watcher._thread
    own.close()
    answered.set()
    thread.join(PATIENCE_SECS)
    assert Store.told == [0]
