"""Simulating topologies: what users ask for, and what they are told."""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BadRecord, BasicBolt, Bolt, Committer, Config, Range, Spout, TopologyBuilder, bolt
from sparkbolt.api.components import rehearsal_path
from sparkbolt.base.ids import edge_salt
from sparkbolt.bolts import JsonLinesBolt, KafkaBolt, ParquetBolt, RabbitMQBolt
from sparkbolt.connectors.kafka import kafka_bolt
from sparkbolt.connectors.rabbitmq import rabbitmq_bolt
from sparkbolt.errors import EnoughRead
from sparkbolt.sim.checkers.base import Checker
from sparkbolt.sim.faults import KINDS, SHAPED
from sparkbolt.sim.simulate import run_seed
from sparkbolt.sim.subject import SimulationError, subject_of
from sparkbolt.sim.subprocess_runner import close_processes
from sparkbolt.spouts import GeneratorSpout, KestrelSpout, QueueSpout, RabbitMQSpout, SocketSpout, TextSpout
from sparkbolt.testing import simulate
from sparkbolt.worker import routing
from tests.sim.random_topologies import Jobs, Messages, Twice, random_topology

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def _processes() -> Any:
    yield
    close_processes()


def behind(component: Any, *, spout: Any = None, config: Config | None = None, **settings: Any) -> Any:
    """A spout that is fed, and a bolt behind a fields grouping."""
    builder = TopologyBuilder("small", config or Config(message_timeout_secs=5))
    builder.set_spout("m", spout or Messages(), parallelism=2)
    builder.set_bolt("b", component, parallelism=2, **settings).fields_grouping("m", ["n"])
    return builder.build()


FEED = {"m": [[number] for number in range(30)]}
ENDS = ("jsonl", "parquet")


class Nowhere(Committer):
    """Commits nothing."""

    def commit(self, txid, rows):
        pass


class CountNumbers(BasicBolt):
    outputs = ["n", "count"]

    def prepare(self, context: Any) -> None:
        self.counts: dict[int, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        self.counts[tup["n"]] = self.counts.get(tup["n"], 0) + 1
        collector.emit([tup["n"], self.counts[tup["n"]]])


def test_a_topology_keeps_its_promises_under_many_seeds() -> None:
    subject = subject_of(behind(CountNumbers()), FEED)
    for seed in range(50):
        assert run_seed(subject, seed).violations == ()


def test_values_of_a_key_value_state_may_be_of_any_type() -> None:
    class Gather(BasicBolt):
        def init_state(self, state: Any) -> None:
            self.table = state

        def execute(self, tup: Any, collector: Any) -> None:
            self.table.put(tup["n"] % 3, [*self.table.get(tup["n"] % 3, []), {tup["n"]}])

    report = simulate(behind(Gather()), seed=2, feed=FEED, repeat=False)
    assert report.ok, report.story


def test_values_of_a_class_of_the_main_program_are_emitted_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Order:
        def __init__(self, number: int) -> None:
            self.number = number

    Order.__module__, Order.__qualname__ = "__main__", "Order"
    monkeypatch.setattr(sys.modules["__main__"], "Order", Order, raising=False)

    class Ordering(BasicBolt):
        outputs = ["order"]

        def prepare(self, context: Any) -> None:
            self.orders: list[Any] = []

        def execute(self, tup: Any, collector: Any) -> None:
            self.orders.append(Order(tup["n"]))
            collector.emit([self.orders[-1]])

    class Again(BasicBolt):
        def execute(self, tup: Any, collector: Any) -> None:
            assert isinstance(tup["order"], Order)

    builder = TopologyBuilder("orders")
    builder.set_spout("m", Messages())
    builder.set_bolt("b", Ordering()).shuffle_grouping("m")
    builder.set_bolt("again", Again()).global_grouping("b")
    report = simulate(builder.build(), seed=2, feed=FEED)
    assert report.ok, report.story
    assert report.mistakes == ()


def test_the_same_seed_is_the_same_run() -> None:
    subject = subject_of(*random_topology(3))
    runs = [run_seed(subject, 11, trails=True) for _ in range(2)]
    assert runs[0] == runs[1]
    assert len({run_seed(subject, seed, trails=True).trail for seed in range(11, 19)}) > 1


def test_every_kind_of_fault_happens() -> None:
    builder = TopologyBuilder("small", Config(message_timeout_secs=5))
    builder.set_spout("m", Jobs(), parallelism=2)
    builder.set_bolt("b", CountNumbers(), parallelism=2).fields_grouping("m", ["n"])
    builder.set_bolt("out", Nowhere()).shuffle_grouping("b")
    subject = subject_of(builder.build(), {"m": [[number] for number in range(6)]})
    happened = set()
    for seed in range(600):
        happened |= {(fault.step, fault.kind) for fault in run_seed(subject, seed, state=False).happened}
    assert happened == {(step, kind) for step, kinds in KINDS.items() for kind in kinds if kind not in SHAPED}


@pytest.mark.parametrize("kind", ["time", "random", "set"])
def test_a_component_that_is_not_deterministic_is_named(kind: str) -> None:
    @bolt(outputs=["n"])
    def wild(tup: Any) -> Any:
        if kind == "time":
            yield [time.monotonic_ns()]
        elif kind == "random":
            yield [random.random()]  # no seed
        else:
            yield from ([word] for word in {"to", "be", "or", "not", f"{tup['n']}"})

    builder = TopologyBuilder("wild")
    builder.set_spout("m", Messages())
    builder.set_bolt("tame", CountNumbers()).fields_grouping("m", ["n"])
    builder.set_bolt("wild", wild, parallelism=2).fields_grouping("tame", ["n"])
    builder.set_bolt("last", CountNumbers()).fields_grouping("wild", ["n"])
    report = simulate(builder.build(), seed=5, feed=FEED, history="")
    assert not report.ok
    assert report.promise == "components are deterministic"
    assert report.component == "wild"
    assert "run twice, and 'wild' did something else" in report.story


class Remembering(BasicBolt):
    outputs = ["n"]
    transient = ["memory"]  # else it is refused when it is built
    memory: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.memory.append(1)
        collector.emit([len(self.memory)])


def test_a_component_that_keeps_state_outside_its_attributes_is_named() -> None:
    builder = TopologyBuilder("remembering")
    builder.set_spout("m", Messages())
    builder.set_bolt("b", Remembering(), parallelism=2).fields_grouping("m", ["n"])
    builder.set_bolt("last", CountNumbers()).fields_grouping("b", ["n"])
    report = simulate(builder.build(), feed=FEED, history="0:level:task-repeats:0", repeat=False)
    assert report.promise == "the same micro-batch again is the same"
    assert report.component == "b"
    assert "ran twice, and b[" in report.story
    assert "is not deterministic" in report.story


def test_a_failure_shows_its_seed_its_shortest_history_its_tree_and_how_to_reproduce_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "edge_salt", lambda number, anchor, slot, to: edge_salt(number, anchor, 0, to))

    class Holds(Bolt):
        def prepare(self, context: Any) -> None:
            self.held: list[Any] = []

        def execute(self, tup: Any, collector: Any) -> None:
            if not tup.is_tick:
                self.held.append(tup)
            while tup.is_tick and self.held:
                collector.ack(self.held.pop())

    builder = TopologyBuilder("small", Config(message_timeout_secs=5))
    builder.set_spout("m", Messages())
    builder.set_bolt("b", Holds(), parallelism=2, tick_tuple_freq_secs=1).grouping("m", Twice())
    topology = builder.build()
    history = "0:planned:driver-dies:1,0:run:slow:2"
    report = simulate(topology, seed=7, feed=FEED, history=history, repeat=False)
    assert not report.ok
    assert report.promise == "no false ack"
    assert report.history == ()  # nothing need go wrong
    assert "was acked by the promotion of micro-batch 0, but 2 of its deliveries are not acked" in report.story
    assert "m[0] sent [0] to b[" in report.story
    assert report.story.endswith("to see it again: simulate(topology, seed=7, history='')")


def test_a_history_keeps_only_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    from sparkbolt.driver.ledger.messages import Messages as Known

    forget = Known.forget_records

    def forgetful(self: Any, *arguments: Any) -> Any:
        void = forget(self, *arguments)
        for task, _ in void:
            self._next_sequence.pop(task, None)
        return void

    monkeypatch.setattr(Known, "forget_records", forgetful)
    history = "0:plan:planner-dies:0,0:source:worker-dies:9,0:committed:driver-dies:0,1:plan:clock-jumps:5"
    report = simulate(behind(CountNumbers(), spout=Jobs()), seed=3, feed=FEED, history=history, repeat=False)
    assert report.promise == "no sequence used twice"
    assert report.history == ("0:committed:driver-dies:0",)


def test_a_spout_that_is_unreadable_here_is_named_with_what_to_do(tmp_path: Path) -> None:
    builder = TopologyBuilder("small")
    builder.set_spout("m", TextSpout(str(tmp_path / "nothing" / "*.txt")))
    topology = builder.build()
    with pytest.raises(SimulationError, match=r"spout 'm' cannot be read here .*--feed m=FILE"):
        simulate(topology)


def test_an_unbounded_source_is_read_as_far_as_requested() -> None:
    def forever() -> Any:
        number = 0
        while True:
            yield [number]
            number += 1

    spout = GeneratorSpout(forever, outputs=["n"], count=10**12)
    subject = subject_of(behind(CountNumbers(), spout=spout), messages_max=40)
    assert {len(positions) for found in subject.surveys.values() for _, _, positions in found.values()} == {40}
    assert all(not run_seed(subject, seed).violations for seed in range(10))


class Spoonfuls(GeneratorSpout):
    """Has enough of each range after three records."""

    def read(self, range_: Range) -> Any:
        for record in super().read(range_):
            if not isinstance(record, BadRecord) and record[0] == range_.start + 3:
                raise EnoughRead(record[0], "three records are read")
            yield record


def test_ranges_read_in_several_parts_keep_all_promises() -> None:
    spout = Spoonfuls(lambda: [[number % 5] for number in range(40)], outputs=["n"])
    subject = subject_of(behind(CountNumbers(), spout=spout))
    assert sum(len(positions) for found in subject.surveys.values() for _, _, positions in found.values()) == 40
    reports = [run_seed(subject, seed) for seed in range(60)]
    assert [report.violations for report in reports if report.violations] == []


class Numbers(Spout):
    """Emits without end; gives again what failed."""

    outputs = ["n"]

    def open(self, context: Any) -> None:
        self.next, self.again = 0, []

    def next_tuple(self, collector: Any) -> None:
        number = self.again.pop() if self.again else self.next
        self.next += number == self.next
        collector.emit([number], message_id=number)

    def fail(self, message_id: Any) -> None:
        self.again.append(message_id)


def test_a_custom_spout_runs_unchanged() -> None:
    subject = subject_of(behind(CountNumbers(), spout=Numbers()), messages_max=30)
    assert all(not run_seed(subject, seed).violations for seed in range(20))


@pytest.mark.parametrize("sink", [JsonLinesBolt, ParquetBolt])
def test_a_simulation_does_not_touch_the_files_of_a_topology_and_does_not_blame_their_writer(
    tmp_path: Path, sink: Any
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    names = [f"part-{number:06d}-b-{task}.{end}" for number in range(6) for task in (0, 1) for end in ENDS]
    for name in names:
        (out / name).write_text("precious")
    for seed in range(3):  # each of them in two processes
        report = simulate(behind(sink(out)), seed, feed=FEED)
        assert report.ok, report.story
        assert report.mistakes == ()
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    assert {path.read_text() for path in out.iterdir()} == {"precious"}


class Appends(Bolt):
    """A sink as users write it."""

    transient = ["context"]

    def prepare(self, context: Any) -> None:
        self.context = context

    def execute(self, tup: Any, collector: Any) -> None:
        assert os.path.isdir(self.context.rehearsal_directory)
        with open(self.context.output_path("appended"), "a") as file:
            file.write(f"{tup['n']}\n")
        collector.ack(tup)


def test_each_seed_starts_with_an_empty_directory_that_is_removed_at_the_end() -> None:
    subject = subject_of(behind(Appends()), FEED)
    place = Path(subject.rehearsal.directory)
    sizes: list[int] = []

    class Looks(Checker):
        promise = "none"

        def ended(self, driver: Any) -> None:
            sizes.append(len(Path(rehearsal_path(str(place), "appended")).read_text().splitlines()))

    for _ in range(2):
        assert run_seed(subject, 1, (), state=False, watch=Looks).violations == ()
        assert list(place.iterdir()) == []
    assert sizes == [30, 30]
    del subject
    gc.collect()
    assert not place.exists()


@pytest.mark.parametrize(
    ("sender", "kind"),
    [
        (KafkaBolt("localhost:1", "numbers", key="n"), "KafkaBolt"),
        (RabbitMQBolt("amqp://localhost:1/", routing_key="numbers"), "RabbitMQBolt"),
    ],
)
def test_a_simulation_sends_nothing_to_a_server_and_reports_once_what_it_did_not_send(
    monkeypatch: pytest.MonkeyPatch, sender: Any, kind: str
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("a client of the real server was made")

    monkeypatch.setattr(kafka_bolt, "Sender", refuse)
    monkeypatch.setattr(rabbitmq_bolt, "Publisher", refuse)
    for seed in range(3):
        report = simulate(behind(sender), seed, feed=FEED, repeat=seed == 0)
        assert report.ok, report.story
        assert report.mistakes == ()
        assert report.unsent == {"b": 30}
        assert report.story.count(f"{kind} 'b': 30 messages not sent: simulate sends nothing") == 1


class Ring(QueueSpout):
    """A queue in memory."""

    outputs = ["n"]

    def open(self, context: Any) -> None:
        super().open(context)
        self._waiting = list(range(10))

    def receive(self, limit: int) -> Any:
        taken, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return [(number, [number]) for number in taken]

    def confirm(self, message_id: Any) -> None:
        pass

    def release(self, message_id: Any, *, again: bool) -> None:
        pass


@pytest.mark.parametrize(
    "spout",
    [
        RabbitMQSpout("amqp://localhost:1/", queue="jobs", outputs=["n"]),
        KestrelSpout("localhost:1", "jobs", outputs=["n"]),
        SocketSpout("localhost", 1),
        Ring(),
    ],
)
def test_a_spout_that_would_empty_a_real_queue_is_refused_unless_it_is_fed(spout: Any) -> None:
    builder = TopologyBuilder("small")
    builder.set_spout("m", spout)
    builder.set_bolt("b", CountNumbers()).shuffle_grouping("m")
    topology = builder.build()
    with pytest.raises(SimulationError, match=f"spout 'm' is a {type(spout).__name__}: .*--feed m=FILE"):
        simulate(topology)
    assert simulate(behind(CountNumbers(), spout=Ring()), feed=FEED, repeat=False).ok
