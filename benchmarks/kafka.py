"""Kafka: what its messages cost, beside the memory, the client alone, and Spark's own source.

How fast is a KafkaSpout, tracked, against a real broker on this machine?

The broker is started for it (a process that shares the two cores), with the text's lines spread over eight
kafka_partitions. Contenders take turns within one run, since the machine's speed is not the same all day.
"""

from __future__ import annotations

import functools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.figures import Aim, Figure, ratios
from benchmarks.peers import PROGRAMS, TIMEOUT_SECS
from benchmarks.runs import PARALLELISM, Mark, Options, in_turn, rate_of, run, start, steady_rate
from benchmarks.text import WORDS_A_LINE, Text, zipf_text
from benchmarks.words import SplitSentence, WordCount
from sparkbolt import BasicBolt, ColumnBolt, Config, PartitionedSpout, Range, RetryPolicy, Topology, TopologyBuilder
from sparkbolt.api.components import BoltBase
from sparkbolt.connectors.kafka.client_settings import ClientSettings
from sparkbolt.connectors.kafka.kafka_partition import KafkaPartition
from sparkbolt.connectors.kafka.partition_reader import FETCHING, PartitionReader
from sparkbolt.spouts import KafkaSpout
from tests.services import Kafka
from tests.services.jars import jars

TOPIC_PARTS = 8
TARGET_MS = 3000
READ_TIMES = 4
"""How often the topic that is only read has the text: reading is so fast that there were too few micro-batches."""
READ_FIRST_BUDGET = 1_000_000
FIRST_BUDGET = 100_000
"""Lines of the first micro-batch."""
RANGE_MESSAGES = 10_000
RANGES = 20
WARM_WORDS = 1_000_000
POISON_BACKOFF = timedelta(milliseconds=200)
"""A message that always fails is given again with every micro-batch."""


class MemoryLines(PartitionedSpout):
    """The text's lines, from the memory of whoever reads them."""

    outputs = ["line"]
    first_budget = FIRST_BUDGET

    def __init__(self, path: Path, lines: int) -> None:
        self.path, self.lines = path, lines

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        ranges = []
        for task in range(PARALLELISM):
            first, end = (self.lines * part // PARALLELISM for part in (task, task + 1))
            at = progress.get(f"memory-{task}", first)
            stop = min(end, at + budget // PARALLELISM)
            if stop > at:
                ranges.append(Range(task, f"memory-{task}", at, stop))
        return ranges

    def finished(self, progress: Mapping[str, int]) -> bool:
        ends = [self.lines * (task + 1) // PARALLELISM for task in range(PARALLELISM)]
        return all(progress.get(f"memory-{task}", 0) >= end for task, end in enumerate(ends))

    def prepare(self, context: Any) -> None:
        self.held = pa.array(self.path.read_bytes().splitlines(), pa.string())

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for positions, (lines,) in self.read_columns(range_):
            yield from ((position, [line]) for position, line in zip(positions, lines.to_pylist(), strict=True))

    def read_columns(self, range_: Range) -> Iterator[tuple[Any, Sequence[Any]]]:
        for at in range(range_.start, range_.end, 10_000):
            end = min(range_.end, at + 10_000)
            yield np.arange(at, end, dtype=np.int64), [self.held.slice(at, end - at)]


class Nothing(ColumnBolt):
    """Does nothing with what it gets, within the process that reads."""

    stateless = True

    def execute(self, batch, collector): ...


class Poison(BasicBolt):
    """Fails one message, always; looks at each message by itself, so that no other fails with it."""

    stateless = True

    def __init__(self, line: str | None) -> None:
        self.line = line

    def execute(self, tup, collector):
        if tup[0] == self.line:
            raise ValueError("this one always fails")


def fill(kafka: Kafka, topic: str, parts: int, lines: Sequence[bytes]) -> None:
    """Make a topic of these lines."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {"bootstrap.servers": kafka.address, "log_level": 0}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, parts, 1)])[topic].result()
    producer = Producer({**settings, "linger.ms": 50, "batch.size": 500_000, "queue.buffering.max.messages": 500_000})
    for place, line in enumerate(lines):
        while True:
            try:
                producer.produce(topic, line, partition=place % parts)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def spout(kafka: Kafka, topic: str, **options: Any) -> KafkaSpout:
    """A spout that reads a topic once, as a group of its own."""
    group = f"bench-{time.time_ns()}"
    made = KafkaSpout(kafka.address, topic, group=group, value="text", outputs=["line"], stop_at_end=True, **options)
    made.first_budget = FIRST_BUDGET
    return made


def word_count(source: PartitionedSpout) -> Topology:
    """api.md's word count of a source of lines."""
    builder = TopologyBuilder("kafka-words", Config(micro_batch_target_ms=TARGET_MS, message_timeout_secs=120))
    builder.set_spout("lines", source, parallelism=PARALLELISM)
    builder.set_bolt("split", SplitSentence(), parallelism=PARALLELISM).shuffle_grouping("lines")
    builder.set_bolt("count", WordCount(), parallelism=PARALLELISM).fields_grouping("split", ["word"])
    return builder.build()


def reading(source: PartitionedSpout, bolt: BoltBase) -> Topology:
    """A source and a bolt that runs where it reads, tracked."""
    builder = TopologyBuilder("kafka-read", Config(micro_batch_target_ms=TARGET_MS, message_timeout_secs=120))
    builder.set_spout("lines", source, parallelism=PARALLELISM)
    builder.set_bolt("count", bolt, parallelism=PARALLELISM).shuffle_grouping("lines")
    return builder.build()


def reading_rate(kafka: Kafka, topic: str, lines: int) -> float:
    """Messages a second that are read and acked."""
    source = spout(kafka, topic)
    source.first_budget = READ_FIRST_BUDGET
    marks = run(reading(source, Nothing()))
    assert marks[-1].done == lines, (marks[-1], lines)
    return steady_rate(marks)


def client_rate(kafka: Kafka, topic: str, lines: int) -> float:
    """Messages a second of the client library alone: two processes with four consumers each."""
    settings = json.dumps(FETCHING)
    each = lines // TOPIC_PARTS
    commands = [
        [sys.executable, "kafka_client.py", kafka.address, topic, numbers, str(each), settings]
        for numbers in ("0,2,4,6", "1,3,5,7")
    ]
    said = [line.split() for output in at_once(commands) for line in output.splitlines()]
    ended = [line for line in said if line[0] == "ended"]
    assert sum(int(line[2]) for line in ended) == each * TOPIC_PARTS
    return each * TOPIC_PARTS / (max(float(line[1]) for line in ended) - min(float(line[1]) for line in said))


def at_once(commands: Sequence[Sequence[str]]) -> list[str]:
    """What some programs say that run at the same time."""
    running = [subprocess.Popen(command, cwd=PROGRAMS, stdout=subprocess.PIPE, text=True) for command in commands]
    said = [process.communicate(timeout=TIMEOUT_SECS)[0] for process in running]
    assert not any(process.returncode for process in running), said
    return said


def poison_rate(kafka: Kafka, topic: str, lines: int, poison: str | None) -> float:
    """Messages a second that are acked of a topic with one kafka_partition, of which one message may always fail."""
    policy = RetryPolicy(max_retries=None, min_backoff=POISON_BACKOFF, max_backoff=POISON_BACKOFF)
    running, marks = start(reading(spout(kafka, topic, retry=policy), Poison(poison)))
    good = lines - (poison is not None)
    try:
        limit, pause = time.monotonic() + TIMEOUT_SECS, threading.Event()
        while not marks or marks[-1].trees < good:
            assert time.monotonic() < limit, marks[-1:]
            assert running.failure is None, running.failure
            pause.wait(0.05)
        failed = running.metrics().of("lines").failed
        acked = [replace(mark, done=mark.trees) for mark in marks if mark.trees]
        micro_batches = len(until(acked, good))
        assert failed >= micro_batches // 2 if poison is not None else failed == 0, (failed, micro_batches)
        return steady_rate(until(acked, good))
    finally:
        running.stop(drain=False)


def range_ms(kafka: Kafka, topic: str, kind: str) -> float:
    """Milliseconds for ``RANGE_MESSAGES`` messages: the median of some ranges.

    Args:
        kafka: the broker.
        topic: has one kafka_partition.
        kind: ``on`` where each range follows the last one, ``seek`` where none does, ``new`` if each has a consumer of
            its own, as in a worker that reads for the first time.
    """
    places = range(0, RANGE_MESSAGES * RANGES, RANGE_MESSAGES)
    readers = [_reader(kafka, topic)]
    taken = []
    for first in reversed(places) if kind == "seek" else places:
        if kind == "new":
            readers.append(_reader(kafka, topic))
        began = time.perf_counter()
        count = sum(len(chunk.messages) for chunk in readers[-1].chunks(first, first + RANGE_MESSAGES))
        taken.append((time.perf_counter() - began) * 1000)
        assert count == RANGE_MESSAGES
    for reader in readers:
        reader.close()
    return statistics.median(taken[1:])


def _reader(kafka: Kafka, topic: str) -> PartitionReader:
    return PartitionReader(ClientSettings(kafka.address), "bench", KafkaPartition(topic, 0), read_committed=True)


def until(marks: Sequence[Mark], done: int) -> list[Mark]:
    """The marks up to the first that has seen everything."""
    last = next(place for place, mark in enumerate(marks) if mark.done >= done)
    return list(marks[: last + 1])


def spark_rate(kafka: Kafka, topic: str, text: Text, offsets: int) -> float:
    """Words a second of Spark's own Kafka source with ``mapInPandas``, in micro-batches of so many lines."""
    lines = text.words // WORDS_A_LINE
    files = ",".join(map(str, sorted(jars("spark-kafka").glob("*.jar"))))
    (said,) = at_once([[sys.executable, "spark_kafka.py", kafka.address, topic, str(lines), str(offsets), files]])
    marks = [Mark(float(at), int(done), 0, 0) for word, at, done in map(str.split, said.splitlines()) if word == "mark"]
    return steady_rate(marks) * WORDS_A_LINE


def figures(options: Options) -> Iterator[Figure]:
    """Measure all of it against one broker."""
    text = zipf_text(options.words)
    lines = text.path.read_bytes().splitlines()
    with tempfile.TemporaryDirectory(prefix="sparkbolt-bench-") as directory, Kafka(Path(directory)) as kafka:
        fill(kafka, "lines", TOPIC_PARTS, lines)
        fill(kafka, "many", TOPIC_PARTS, lines * READ_TIMES)
        fill(kafka, "single", 1, lines)
        warm_text = zipf_text(WARM_WORDS)
        run(word_count(MemoryLines(warm_text.path, warm_text.words // WORDS_A_LINE)))
        yield from _words(options, kafka, text)
        yield from _reading(options, kafka, len(lines) * READ_TIMES)
        yield from _ranges(options, kafka)
        yield from _poison(options, kafka, lines)


def _words(options: Options, kafka: Kafka, text: Text) -> Iterator[Figure]:
    count = text.words // WORDS_A_LINE
    ours, memory, sparks = in_turn(
        options.rounds,
        lambda: rate_of(word_count(spout(kafka, "lines")), text),
        lambda: rate_of(word_count(MemoryLines(text.path, count)), text),
        lambda: spark_rate(kafka, "lines", text, max(50_000, count // 10)),
    )
    facts = {"words": text.words, "distinct": text.distinct, "micro_batch_target_ms": TARGET_MS}
    yield Figure("kafka", "word count from Kafka, tracked", ours, "words/s", notes=facts)
    yield Figure("kafka", "word count from memory, tracked", memory, "words/s")
    yield Figure("kafka", "Kafka against memory", ratios(ours, memory), "times", Aim("at least", 0.7))
    yield Figure("kafka", "Spark's own Kafka source, mapInPandas, not tracked", sparks, "words/s")
    yield Figure("kafka", "ours against Spark's own", ratios(ours, sparks), "times", Aim("at least", 1.0))


def _reading(options: Options, kafka: Kafka, lines: int) -> Iterator[Figure]:
    read, alone = in_turn(
        options.rounds,
        functools.partial(reading_rate, kafka, "many", lines),
        functools.partial(client_rate, kafka, "many", lines),
    )
    facts = {"messages": lines, "micro_batch_target_ms": TARGET_MS}
    yield Figure("kafka", "reading alone, tracked", read, "messages/s", notes=facts)
    yield Figure("kafka", "the client library by itself, as many consumers", alone, "messages/s")
    yield Figure("kafka", "reading against the client", ratios(read, alone), "times", Aim("at least", 0.7))


def _ranges(options: Options, kafka: Kafka) -> Iterator[Figure]:
    kinds = {"on": "that follows the last one", "seek": "behind a seek", "new": "of a consumer that is new"}
    found = in_turn(options.rounds, *(functools.partial(range_ms, kafka, "single", kind) for kind in kinds))
    for what, values in zip(kinds.values(), found, strict=True):
        yield Figure("kafka", f"a range of {RANGE_MESSAGES:,} messages {what}", values, "ms")


def _poison(options: Options, kafka: Kafka, lines: Sequence[bytes]) -> Iterator[Figure]:
    counts = Counter(lines)
    poison = next(line for line in lines[1000:] if counts[line] == 1).decode()
    with_one, without = in_turn(
        options.rounds,
        functools.partial(poison_rate, kafka, "single", len(lines), poison),
        functools.partial(poison_rate, kafka, "single", len(lines), None),
    )
    yield Figure("kafka", "one kafka_partition, one message always fails", with_one, "messages/s")
    kept = ratios(with_one, without)
    yield Figure("kafka", "its rate against that without", kept, "times", Aim("at least", 0.95))
