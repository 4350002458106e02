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

PASSING_BYTES_MAX = 32 << 20
"""After this many bytes of rows that pass, another spark_task sends the rest: Spark sends no task of 128 MiB."""


def packed_task(moment: Moment, pieces: Sequence[Piece], passing: Sequence[Row]) -> bytes:
    """Pack a task for one spark_task.

    Args:
        moment: the number and the time of the micro-batch.
        pieces: the pieces of the plan to read.
        passing: rows that are sent on unchanged: clocks, and looped tuples.
    """
    data: bytes = cloudpickle.dumps((moment, tuple(pieces), tuple(passing)))
    return data


def divided_rows(rows: Sequence[Row], tasks: int, bytes_max: int = PASSING_BYTES_MAX) -> list[list[Row]]:
    """Divide rows that are sent on unchanged among some spark_tasks, or more if they are many bytes.

    >>> rows = [(1, b"12"), (2, b"34"), (3, b"5"), (4, b"6789")]
    >>> [len(part) for part in divided_rows(rows, 2)], [len(part) for part in divided_rows(rows, 2, bytes_max=3)]
    ([3, 1], [2, 2])
    >>> divided_rows([], 2)
    []
    """
    share = min(bytes_max, -(-sum(len(frame) for _, frame in rows) // tasks))
    divided: list[list[Row]] = []
    left = 0
    for row in rows:
        if left <= 0:
            divided.append([])
            left = share
        divided[-1].append(row)
        left -= len(row[1])
    return divided


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
