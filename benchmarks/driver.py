"""What reaches the driver.

Which question it answers: how many bytes come to the driver for a million complete trees of a ``PartitionedSpout``,
where nothing fails? Counted are the frames that ``foreachBatch`` collects.

Read before: ``runs``, ``spouts``.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.columns import CountColumns
from benchmarks.figures import Aim, Figure
from benchmarks.runs import Options, one_level, run, steady_marks
from benchmarks.spouts import Numbers
from benchmarks.text import zipf_text
from benchmarks.words import class_bolts
from sparkbolt import Topology

NUMBERS = 8_000_000
KEYS = 1_000
LINES_WORDS = 10_000_000


def figures(options: Options) -> Iterator[Figure]:
    """Measure: a tree a number, and a tree a line; one run each, since bytes have no noise."""
    yield _figure("a tree a number, column bolt", one_level("driver", Numbers(KEYS, fill=NUMBERS), CountColumns()))
    yield _figure("a tree a line of ten words, class bolts", class_bolts(zipf_text(min(options.words, LINES_WORDS))))


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
