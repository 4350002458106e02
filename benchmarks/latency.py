"""How long a tree takes from the moment at which its message exists to its ack, at a low, even rate.

At 1,000 sentences a second, how late is the word count: ours, a hand-written Structured Streaming query of the same
shape, and Apache Storm's?

Sentence i is due at the start of the clock + i / rate. Its latency is the time from then until it is done: until the
``ack`` of a ``Spout``; until the promotion of a ``PartitionedSpout`` has moved past it; until ``foreachBatch`` has
collected the result of the hand-written query. So it holds the time in which a sentence waits for the next micro-batch,
which is why it is more than the duration of one.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks import storm
from benchmarks.figures import Figure
from benchmarks.runs import MASTER, PARALLELISM, TIMEOUT_SECS, Options
from benchmarks.text import zipf_text
from benchmarks.words import DEFAULT_TARGET_MS, WARM_WORDS, SplitSentence, WordCount, warm
from sparkbolt import Config, PartitionedSpout, Range, Spout, Topology, TopologyBuilder
from sparkbolt.api.components import Component
from sparkbolt.spark.session import for_lane, make_session

RATE = 1_000
WARM_SECS = 20
"""What is due in the first seconds is not counted: then Java compiles, and the size of micro-batches settles."""
SECS_MAX = 60
LINES = 20_000
"""So many lines are taken from the text, again and again."""
SHARES = ("p50", "p99", "p99.9")
_SOURCE = "clock"


def lines() -> list[str]:
    """The sentences."""
    with zipf_text(WARM_WORDS).path.open() as file:
        return [line.rstrip("\n") for line in islice(file, LINES)]


@dataclass(frozen=True)
class Clock:
    """Says when a sentence is due."""

    rate: int
    secs: int
    """For how long sentences are counted, behind the first ``WARM_SECS``."""
    start_s: float

    @property
    def total(self) -> int:
        return self.rate * (WARM_SECS + self.secs)

    def due(self, at_s: float) -> int:
        """How many sentences are due by then.

        >>> Clock(1000, 60, start_s=5.0).due(5.25), Clock(1000, 60, start_s=5.0).due(1000.0)
        (250, 80000)
        """
        return max(0, min(self.total, int((at_s - self.start_s) * self.rate)))


@dataclass
class Seen:
    """When which sentences were done: (first, behind the last, time) of each group that was done at once."""

    clock: Clock
    done: list[tuple[int, int, float]]

    def latencies_ms(self) -> np.ndarray:
        """Of the sentences that count; float64[sentences].

        Raises:
            RuntimeError: some were not done.
        """
        rate, start_s = self.clock.rate, self.clock.start_s
        parts = [(at_s - start_s - np.arange(first, end) / rate) * 1000 for first, end, at_s in self.done]
        numbers = np.concatenate([np.arange(first, end) for first, end, _ in self.done])
        counted = numbers >= rate * WARM_SECS
        if len(numbers) != self.clock.total:
            raise RuntimeError(f"{len(numbers)} sentences were done, {self.clock.total} were due")
        return np.concatenate(parts)[counted]


_seen: list[Seen] = []
"""What the spouts of this process see; a spout runs as a copy of the one that the topology was built with."""


class DueSpout(Spout):
    """Emits sentences as they fall due, as from a queue."""

    outputs = ["line"]

    def __init__(self, rate: int, secs: int) -> None:
        self.rate, self.secs = rate, secs

    def open(self, context):
        self._lines = lines()
        self._sent = 0
        self._seen = Seen(Clock(self.rate, self.secs, time.time()), [])
        _seen.append(self._seen)

    def next_tuple(self, collector):
        due = self._seen.clock.due(time.time())
        for number in range(self._sent, due):
            collector.emit([self._lines[number % LINES]], message_id=number)
        self._sent = due

    def ack(self, message_id):
        self._seen.done.append((message_id, message_id + 1, time.time()))

    @property
    def exhausted(self) -> bool:
        return self._sent >= self._seen.clock.total


class DueLog(PartitionedSpout):
    """Reads sentences as they fall due, as from a log."""

    outputs = ["line"]

    def __init__(self, rate: int, secs: int) -> None:
        self.rate, self.secs = rate, secs

    def open(self, context):
        self._seen = Seen(Clock(self.rate, self.secs, time.time()), [])
        _seen.append(self._seen)

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get(_SOURCE, 0)
        end = min(start + budget, self._seen.clock.due(time.time()))
        return [Range(0, _SOURCE, start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get(_SOURCE, 0) >= self._seen.clock.total

    def on_committed(self, progress: Mapping[str, int]) -> None:
        done = self._seen.done
        done.append((done[-1][1] if done else 0, progress[_SOURCE], time.time()))

    def prepare(self, context):
        self._lines = lines()

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for position in range(range_.start, range_.end):
            yield position, [self._lines[position % LINES]]


def word_count(spout: Component, target_ms: int) -> Topology:
    """The word count with class bolts and, but for the target, default settings."""
    builder = TopologyBuilder("latency", Config(micro_batch_target_ms=target_ms))
    builder.set_spout("lines", spout)
    builder.set_bolt("split", SplitSentence(), parallelism=PARALLELISM).shuffle_grouping("lines")
    builder.set_bolt("count", WordCount(), parallelism=PARALLELISM).fields_grouping("split", ["word"])
    return builder.build()


def ours(spout: Component, target_ms: int = DEFAULT_TARGET_MS) -> dict[str, float]:
    """Latencies of the word count of a spout.

    Raises:
        RuntimeError: it did not end, or a sentence was not done once.
    """
    running = word_count(spout, target_ms).start(master=MASTER)
    try:
        if not running.await_finished(TIMEOUT_SECS):
            raise RuntimeError(f"the word count did not finish within {TIMEOUT_SECS} s")
    finally:
        running.stop()
    return percentiles(_seen.pop().latencies_ms())


# Written by hand.


class DueReader(DataSourceStreamReader):
    """The same sentences, with their numbers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"at": self._clock.due(time.time())}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not _kept:
            _kept.extend(lines())
        numbers = range(*partition.value)
        columns = [pa.array(numbers, pa.int64()), pa.array([_kept[number % LINES] for number in numbers])]
        yield pa.RecordBatch.from_arrays(columns, names=["number", "line"])


_kept: list[str] = []


def due_source(clock: Clock) -> type[DataSource]:
    """A data source of a clock."""

    class DueSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "due"

        def schema(self) -> str:
            return "number long, line string"

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            return DueReader(clock)

    return DueSource


class CountWords(StatefulProcessor):
    """Counts the words of a task in one value of the state store.

    With a value a word it would not keep the pace: each read and each write is a call to the JVM.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.counts = handle.getValueState("counts", "counts binary")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        known = self.counts.get()
        counts: Counter[str] = Counter() if known is None else pickle.loads(bytes(known[0]))
        last = -1
        for part in rows:
            counts.update(part["word"])
            last = max(last, int(part["number"].max()))
        self.counts.update((pickle.dumps(counts),))
        yield pd.DataFrame({"last": [last]})

    def close(self) -> None:
        pass


def by_hand(rate: int, secs: int) -> dict[str, float]:
    """Latencies of the hand-written query.

    Raises:
        RuntimeError: the query failed, or did not end.
    """
    seen = Seen(Clock(rate, secs, time.time()), [])
    spark = for_lane(make_session("latency", MASTER), PARALLELISM)
    spark.dataSource.register(due_source(seen.clock))

    def end_of_query(frame: DataFrame, micro_batch_id: int) -> None:
        last = pc.max(frame.toArrow()["last"]).as_py()
        if last is not None:
            seen.done.append((seen.done[-1][1] if seen.done else 0, last + 1, time.time()))

    words = spark.readStream.format("due").load().select("number", sql.explode(sql.split("line", " ")).alias("word"))
    tasks = words.withColumn("task", sql.pmod(sql.hash("word"), sql.lit(PARALLELISM))).groupBy("task")
    counted = tasks.transformWithStateInPandas(
        statefulProcessor=CountWords(), outputStructType="last long", outputMode="append", timeMode="none"
    )
    with tempfile.TemporaryDirectory(prefix="sparkbolt-latency-", ignore_cleanup_errors=True) as directory:
        query = counted.writeStream.foreachBatch(end_of_query).option("checkpointLocation", directory).start()
        until = time.monotonic() + TIMEOUT_SECS
        while (not seen.done or seen.done[-1][1] < seen.clock.total) and query.isActive and time.monotonic() < until:
            time.sleep(0.1)
        failure = query.exception()
        query.stop()
    if failure is not None:
        raise RuntimeError(f"the hand-written query failed: {failure}")
    return percentiles(seen.latencies_ms())


# Figures.


def percentiles(latencies_ms: np.ndarray) -> dict[str, float]:
    """By name, those of ``SHARES``.

    >>> percentiles(np.arange(1001))
    {'p50': 500.0, 'p99': 990.0, 'p99.9': 999.0}
    """
    return {share: round(float(np.percentile(latencies_ms, float(share[1:]))), 3) for share in SHARES}


def of_storm(rate: int, secs: int) -> dict[str, float]:
    """Storm's latencies, from the moment at which a sentence is due."""
    told = storm.latency(rate, secs)
    return {share: told.get(f"due_{share}", told[share]) for share in SHARES}


def figures(options: Options) -> Iterator[Figure]:
    """Measure: ours with both kinds of spouts, the hand-written query and Storm, in turn."""
    secs = min(options.secs, SECS_MAX)
    warm()
    few = {
        "ours, a Spout, to its ack": lambda: ours(DueSpout(RATE, secs)),
        "ours, a PartitionedSpout, to the promotion": lambda: ours(DueLog(RATE, secs)),
        "a hand-written query, to foreachBatch": lambda: by_hand(RATE, secs),
        "Storm, to the ack": lambda: of_storm(RATE, secs),
    }
    yield from compared("latency", few, RATE, secs, options.rounds)


def compared(
    benchmark: str, contenders: Mapping[str, Callable[[], dict[str, float]]], rate: int, secs: int, rounds: int
) -> Iterator[Figure]:
    """The latencies of contenders that take turns; Storm's are left out, with the reason, where they cannot be had.

    Raises:
        RuntimeError: one that is not Storm failed.
    """
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    left_out: dict[str, str] = {}
    for _ in range(rounds):
        for name, measure in contenders.items():
            try:
                turns[name].append(measure())
            except RuntimeError as error:
                if not name.startswith("Storm"):
                    raise
                left_out = {"left_out": f"{name}: {error}"}
    facts = {"sentences_a_second": rate, "secs": secs, **left_out}
    for name, told in turns.items():
        for share in SHARES if told else ():
            yield Figure(benchmark, f"{name}: {share}", tuple(turn[share] for turn in told), "ms", notes=facts)
