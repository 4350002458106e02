"""What reaches the driver.

How many bytes come to the driver for a million complete trees of a ``PartitionedSpout``, where nothing fails? Counted
are the frames that ``foreachBatch`` collects. And do executors judge trees sooner than the driver, with a spark_stage
more?
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from benchmarks.columns import CountColumns
from benchmarks.figures import Aim, Figure, ratios
from benchmarks.runs import MASTER, TIMEOUT_SECS, Options, one_level, run, steady_marks
from benchmarks.spouts import Numbers
from benchmarks.text import Text, zipf_text
from benchmarks.words import VOCABULARY, SplitSentence, WordCount, class_bolts, word_count
from sparkbolt import Topology
from sparkbolt.api.reports import MicroBatchReport
from sparkbolt.observe.history import MicroBatchRecord
from sparkbolt.spark import life
from sparkbolt.spark.running_on_spark import RunningOnSpark

NUMBERS = 8_000_000
KEYS = 1_000
LINES_WORDS = 10_000_000
JUDGED_BYTES = 6 << 20
"""Of text in a micro-batch whose judges are compared: 110,000 lines, and three pairs of (key, xor) for each."""
WARM = 5
"""So many micro-batches are not counted. Those with an odd number are judged by the driver."""


def figures(options: Options) -> Iterator[Figure]:
    """Measure: a tree a number, and a tree a line; one run each, since bytes have no noise."""
    yield _figure("a tree a number, column bolt", one_level("driver", Numbers(KEYS, fill=NUMBERS), CountColumns()))
    yield _figure("a tree a line of ten words, class bolts", class_bolts(zipf_text(min(options.words, LINES_WORDS))))
    at_executors, at_driver = judged(zipf_text(options.words, ranks=VOCABULARY))
    yield Figure("driver", "around a micro-batch's work, executors judge its trees", at_executors, "ms")
    yield Figure("driver", "the same, the driver judges them", at_driver, "ms")
    against = ratios(at_driver, at_executors)
    yield Figure("driver", "the driver against executors", against, "times", Aim("at most", 1.0))


def judged(text: Text) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What micro-batches of one size take besides reading and counting, in milliseconds.

    That is: Spark plans, the first worker is reached, and all that comes when the last one has counted.

    Returns:
        Of those whose trees executors judge, and of those whose trees the driver judges, in turn.

    Raises:
        RuntimeError: the run did not end.
    """
    topology = word_count(text.path, SplitSentence(), WordCount(), target_ms=600_000, bytes_max=JUDGED_BYTES)
    chosen, judges = life.EXECUTOR_ACKER_PAIRS_MIN, itertools.cycle((text.words, 1))
    running = topology.start(master=MASTER)
    assert isinstance(running, RunningOnSpark)

    def note(report: MicroBatchReport) -> None:
        life.EXECUTOR_ACKER_PAIRS_MIN = next(judges)

    running.on_micro_batch(note)
    try:
        if not running.await_finished(TIMEOUT_SECS):
            raise RuntimeError(f"{topology.name!r} did not finish within {TIMEOUT_SECS} s")
        records = list(running.recording.view().micro_batches)
    finally:
        running.close()
        life.EXECUTOR_ACKER_PAIRS_MIN = chosen
    around = [_around_ms(record) for record in records if record.micro_batch_id >= WARM]
    at_driver, at_executors = around[:-1:2], around[1:-1:2]  # the last micro-batch is not full
    turns = min(len(at_driver), len(at_executors))
    return tuple(at_executors[:turns]), tuple(at_driver[:turns])


def _around_ms(record: MicroBatchRecord) -> float:
    parts = {part: (start, end) for part, start, end in record.parts}
    return record.elapsed_ms - (parts["level 1"][1] - parts["read"][0])


def _figure(name: str, topology: Topology) -> Figure:
    steady = steady_marks(run(topology))
    first, last = steady[0], steady[-1]
    trees, nbytes = last.trees - first.trees, last.collected_bytes - first.collected_bytes
    facts = {
        "micro_batch_target_ms": topology.config.micro_batch_target_ms,
        "micro_batches": len(steady) - 1,
        "trees": trees,
        "bytes_a_micro_batch": nbytes // (len(steady) - 1),
    }
    return Figure("driver", f"a million trees: {name}", (nbytes / trees * 1e6,), "bytes", Aim("at most", 10e3), facts)
