"""Source task: the input of a spark_task of the first stage, and its work.

The driver packs a task and the worker unpacks it; the processes between them only see bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import cloudpickle
import pyarrow as pa

from sparkbolt.spark.crash_shield import StoreOf, shielded
from sparkbolt.spark.executor import batches_of, staged, worker_of
from sparkbolt.spark.job_bundle import JobBundle
from sparkbolt.spark.repetition import announced
from sparkbolt.wire.exclusion import Exclusion
from sparkbolt.wire.frames import Moment
from sparkbolt.wire.plan import Piece
from sparkbolt.worker.routing import Row
from sparkbolt.worker.source_reader import run_piece
from sparkbolt.worker.worker import Worker


def packed_task(moment: Moment, pieces: Sequence[Piece], passing: Sequence[Row]) -> bytes:
    """Pack a task for one spark_task.

    Args:
        moment: the number and the time of the micro-batch.
        pieces: the pieces of the plan to read.
        passing: rows that are sent on unchanged: clocks, and looped tuples.
    """
    data: bytes = cloudpickle.dumps((moment, tuple(pieces), tuple(passing)))
    return data


def read(bundle: JobBundle, task: bytes) -> Iterator[pa.RecordBatch]:
    """Run a task that ``packed_task`` has packed: its rows, as Arrow batches of (dest, frame)."""
    moment, pieces, passing = cloudpickle.loads(task)
    exclusion = announced()
    if passing:
        yield from batches_of(passing)
    for piece in pieces:
        with staged():
            rows = shielded(worker_of(bundle), partial(_read, moment, piece, exclusion))
        yield from batches_of(rows)


def _read(moment: Moment, piece: Piece, exclusion: Exclusion, worker: Worker, _: StoreOf) -> list[Row]:
    return run_piece(worker, moment, piece, exclusion).to_rows(worker.lane)
