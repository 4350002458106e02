"""Offsets of a group, against the mock cluster: where a spout begins, and what it tells the group."""

from __future__ import annotations

import pytest

from sparkbolt import Bolt, bolt
from sparkbolt.connectors.kafka.offset_stores import Owner, Stored, unpacked
from sparkbolt.errors import ConfigError
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.testing import simulate
from tests.kafka import SEEN, Keep, close, committed, finished, run, run_to_end, see, spout, store_all, topology

pytestmark = pytest.mark.slow


def test_a_new_checkpoint_begins_where_the_group_is_and_repeats_nothing(kafka, name):
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


def test_what_is_finished_beyond_the_committed_offset_is_not_repeated_with_a_new_checkpoint(kafka, name):
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


def test_offsets_of_another_topology_are_refused_or_started_over_as_told(kafka, name):
    kafka.produce(name, [str(place) for place in range(5)], kafka_partition=0)
    run_to_end(topology(name, spout(kafka.brokers, name, stop_at_end=True)))
    other = name + "-other"
    with pytest.raises(ConfigError, match=rf"was stored by topology '{name}' as '{name}/messages'"):
        LocalEngine(topology(other, spout(kafka.brokers, name, stop_at_end=True)))
    run_to_end(topology(other, spout(kafka.brokers, name, stop_at_end=True, other_topology="start_over"), Keep(other)))
    assert [row["line"] for row in SEEN[other]] == [*map(str, range(5))]


def test_a_checkpoint_reads_what_it_has_not_read_though_another_one_has_finished_it(kafka, name):
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


def test_a_simulation_reads_a_group_and_moves_none_of_its_offsets(kafka, name, tmp_path):
    kafka.produce(name, ["line"] * 8, kafka_partition=0)
    file = tmp_path / "offsets.json"
    for offsets in ("group", f"file:{file}"):
        report = simulate(topology(name, spout(kafka.brokers, name, offsets=offsets), ignore), seed=1, repeat=False)
        assert report.ok, report.story
    assert committed(kafka.brokers, name) == {}
    assert not file.exists()
