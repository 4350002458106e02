"""Bytewax's word count, of its own operators. Run by ``peers`` in an environment that has Bytewax.

It uses the operators that take batches: with ``flat_map`` and ``count_final`` it takes twice as long. Each process
prints ``began SECONDS`` and, for each of its workers, ``ended SECONDS WORDS``.
"""

import os
import time
from pathlib import Path

import bytewax.operators as op
from bytewax.connectors.files import DirSource
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition


def say(line):
    """Write a line whole: the processes share one pipe, and ``print`` would write its parts one by one."""
    os.write(1, f"{line}\n".encode())


class Count(StatefulBatchLogic):
    """The count of one word."""

    def __init__(self):
        self.count = 0

    def on_batch(self, values):
        self.count += len(values)
        return (), StatefulBatchLogic.RETAIN

    def on_eof(self):
        return (self.count,), StatefulBatchLogic.DISCARD

    def snapshot(self):
        return self.count


class Total(StatelessSinkPartition):
    """Adds the final counts of one worker up."""

    def __init__(self):
        self.words = 0

    def write_batch(self, items):
        self.words += sum(count for _, count in items)

    def close(self):
        say(f"ended {time.time()} {self.words}")


class Totals(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Total()


def split(lines):
    """The words of a batch of lines, each with its key."""
    return [(word, 1) for line in lines for word in line.split()]


def flow(directory):
    """The dataflow over all files of a directory."""
    say(f"began {time.time()}")
    dataflow = Dataflow("words")
    lines = op.input("lines", dataflow, DirSource(Path(directory), batch_size=1000))
    words = op.flat_map_batch("split", lines, split)
    counts = op.stateful_batch("count", words, lambda resumed: Count())
    op.output("total", counts, Totals())
    return dataflow
