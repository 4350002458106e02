"""Kafka on Spark: executors read and write the mock cluster of the driver's process over loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, RetryPolicy, TopologyBuilder
from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.bolts import KafkaBolt
from sparkbolt.faces.cli import main
from sparkbolt.spouts import KafkaSpout
from sparkbolt.spouts.kafka import MockKafka
from tests.kafka import SEEN, committed, poll, run_to_end, topology
from tests.patience import PATIENCE_SECS

pytestmark = pytest.mark.spark

MESSAGES = 20_000
POISON = 10
MAX_BYTES, SMALL, LARGE = 256 * 1024, 100, 10_000


class Work(BasicBolt):
    """Fails some lines at first, and takes the poisonous ones only once there is a file ``mended``."""

    outputs = ["line"]
    stateless = True

    def __init__(self, directory: Path) -> None:
        self.mended = directory / "mended"

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["line"].startswith("poison") and not self.mended.exists():
            raise ValueError("this one fails until it is mended")
        if tup["offset"] % 100 == 7 and tup.attempt == 1:
            raise ValueError("this one fails at first")
        collector.emit([tup["line"]])


class Weigh(BasicBolt):
    """Writes the length of each line to a file of its micro-batch."""

    stateless = True

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self, context: Any) -> None:
        self.context = context

    def execute(self, tup: Any, collector: Any) -> None:
        with (self.directory / str(self.context.micro_batch_id)).open("a") as file:
            file.write(f"{len(tup['line'])}\n")


@dataclass
class Ran:
    """What a topology with two spouts of Kafka has left."""

    lines: ComponentMetrics
    """Before the dead letters of ``lines`` are given back."""
    returned: ComponentMetrics
    """``lines`` afterwards."""
    growing: ComponentMetrics
    offsets: dict[int, int]
    """The committed offsets of ``lines`` by kafka_partition."""
    written: list[str]
    sizes: list[int]
    """How many bytes of ``growing`` each micro-batch had."""


@pytest.fixture(scope="module")
def ran(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    directory = tmp_path_factory.mktemp("kafka")
    (directory / "sizes").mkdir()
    with MockKafka() as kafka:
        for number in range(4):
            lines = [f"{number}.{place}" for place in range(MESSAGES // 4)]
            kafka.produce("lines", lines, kafka_partition=number)
        kafka.produce("lines", [f"poison {place}" for place in range(POISON)], kafka_partition=1)
        kafka.produce("growing", ["x" * SMALL] * 4000 + ["x" * LARGE] * 60, kafka_partition=0)
        kafka.create("out")
        # However long its micro-batches take on this machine, they are not cut for that.
        builder = TopologyBuilder("kafka-on-spark", Config(micro_batch_target_ms=3_600_000))
        lines = KafkaSpout(
            kafka.brokers,
            "lines",
            group="words",
            value="text",
            outputs=["line", "offset"],
            retry=RetryPolicy(max_retries=2, min_backoff=timedelta(milliseconds=1)),
        )
        lines.first_budget = 4000
        builder.set_spout("lines", lines, parallelism=2)
        builder.set_bolt("work", Work(directory)).shuffle_grouping("lines")
        builder.set_bolt("write", KafkaBolt(kafka.brokers, "out", value="line")).shuffle_grouping("work")
        growing = KafkaSpout(
            kafka.brokers, "growing", group="g", value="text", outputs=["line"], stop_at_end=True, max_bytes=MAX_BYTES
        )
        growing.first_budget = 10_000
        builder.set_spout("growing", growing)
        builder.set_bolt("weigh", Weigh(directory / "sizes")).shuffle_grouping("growing")
        running = builder.build().start(spark=spark, checkpoint=directory / "checkpoint")
        try:
            rest = lambda: running.metrics().components["growing"].acked < 4060  # noqa: E731
            while rest() or not running.await_idle(1):
                assert running.failure is None, running.failure
            components = running.metrics().components
            assert components["lines"].dead_letters == POISON
            (directory / "mended").touch()
            main(["dlq", "replay", str(directory / "checkpoint")])
            poll(lambda: running.metrics().components["lines"].acked == MESSAGES + POISON)
            returned = running.metrics().components["lines"]
        finally:
            running.stop()
        offsets = {number: at for number, (at, _) in committed(kafka.brokers, "lines", "words").items()}
        read = KafkaSpout(kafka.brokers, "out", group="read", value="text", outputs=["line"], stop_at_end=True)
        run_to_end(topology("kafka-read-back", read))
    written = [row["line"] for row in SEEN["kafka-read-back"]]
    files = sorted((directory / "sizes").iterdir(), key=lambda file: int(file.name))
    sizes = [sum(map(int, file.read_text().split())) for file in files]
    return Ran(components["lines"], returned, components["growing"], offsets, written, sizes)


def test_all_messages_except_the_poison_arrive_and_the_group_reaches_the_end(ran: Ran) -> None:
    assert (ran.lines.acked, ran.lines.given_up, ran.lines.lag) == (MESSAGES, POISON, 0)
    assert ran.offsets == {number: MESSAGES // 4 + (POISON if number == 1 else 0) for number in range(4)}
    lines = {f"{number}.{place}" for number in range(4) for place in range(MESSAGES // 4)}
    assert set(ran.written) == lines | {f"poison {place}" for place in range(POISON)}
    assert len(ran.written) == MESSAGES + POISON


def test_dead_letters_go_back_into_their_partition_while_the_topology_is_idle(ran: Ran) -> None:
    before, after = ran.lines, ran.returned
    assert (after.acked - before.acked, after.failed - before.failed) == (POISON, 1), "one has the offset 5007"
    assert after.emitted - before.emitted == POISON + 1, "each is read once more, and one is retried"


def test_sizes_that_executors_measure_reach_the_driver_and_a_range_that_is_too_large_is_cut(ran: Ran) -> None:
    assert (ran.growing.acked, ran.growing.failed, ran.growing.errors) == (4060, 0, 0)
    assert ran.sizes[:5] == [1 * SMALL, 2 * SMALL, 16 * SMALL, 128 * SMALL, 1024 * SMALL], "it starts small"
    assert [size for size in ran.sizes if size > MAX_BYTES] == [ran.sizes[6]], "only the range with the large ones"
    assert 2 * MAX_BYTES <= ran.sizes[6] < 2 * MAX_BYTES + LARGE
    assert sum(ran.sizes) == 4000 * SMALL + 60 * LARGE


@pytest.mark.campaign
def test_ctrl_c_finishes_what_was_read_from_kafka_and_leaves_its_offsets_at_the_end() -> None:
    """The example, as a user runs it with a broker of his own: the whole group of processes gets the signal."""
    root = Path(__file__).parents[2]
    with MockKafka() as kafka:
        kafka.create("counts")
        kafka.produce("lines", ["to be or not to be"] * 3000, kafka_partition=0)
        program = subprocess.Popen(
            [sys.executable, "examples/kafka_words.py", "--brokers", kafka.brokers, "--drain", "3600"],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            at = lambda: committed(kafka.brokers, "lines", "kafka-words").get(0, (0, ""))[0]  # noqa: E731
            poll(lambda: program.poll() is not None or at() >= 3000)
            kafka.produce("lines", ["that is the question"] * 500, kafka_partition=0)
            os.killpg(program.pid, signal.SIGINT)
            told, _ = program.communicate(timeout=PATIENCE_SECS)
        finally:
            program.kill()
            program.communicate()
        assert program.returncode == 0, told
        assert "stopping: no new tuples, the micro-batch is being finished" in told
        end = at()
        assert 3000 <= end <= 3500
        read = KafkaSpout(
            kafka.brokers, "counts", group="read", value="json", outputs=["word", "count"], stop_at_end=True
        )
        run_to_end(topology("counts", read))
    counts = {row["word"]: row["count"] for row in sorted(SEEN["counts"], key=lambda row: row["count"])}
    assert (counts["to"], counts.get("question", 0)) == (6000, end - 3000), "each message once, and none half"
