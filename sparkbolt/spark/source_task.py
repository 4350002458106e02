"""The tasks of the source: what a spark_task of the first stage is told, and what it does.

Which question it answers: who reads the pieces of a plan?
Rule: what it is told is packed by the driver and unpacked where it is done; whoever passes it on sees bytes.

Read before: ``data_source``, ``executor``, ``crash_shield``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import cloudpickle
import pyarrow as pa

from sparkbolt.core.driver.planner import Piece
from sparkbolt.core.protocol.frames import Moment
from sparkbolt.core.worker.results import Row
from sparkbolt.core.worker.source_reader import run_entry
from sparkbolt.core.worker.worker import Worker
from sparkbolt.spark.crash_shield import StoreOf, shielded
from sparkbolt.spark.executor import batches_of, staged, worker_of
from sparkbolt.spark.job_bundle import JobBundle


def packed_task(moment: Moment, pieces: Sequence[Piece], clocks: Sequence[Row]) -> bytes:
    """Read ``pieces``; send ``clocks`` off as they are."""
    data: bytes = cloudpickle.dumps((moment, tuple(pieces), tuple(clocks)))
    return data


def read(bundle: JobBundle, task: bytes) -> Iterator[pa.RecordBatch]:
    """Do what ``packed_task`` has packed."""
    moment, pieces, clocks = cloudpickle.loads(task)
    if clocks:
        yield from batches_of(clocks)
    for piece in pieces:
        with staged():
            rows = shielded(worker_of(bundle), partial(_read, moment, piece))
        yield from batches_of(rows)


def _read(moment: Moment, piece: Piece, worker: Worker, _: StoreOf) -> list[Row]:
    return run_entry(worker, moment, piece.index, piece.entry, piece.records).to_rows(worker.lane)
