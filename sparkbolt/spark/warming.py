"""Warming: what the first micro-batch needs is started while the query is planned.

Spark starts its Python daemon, and the daemon its first worker, when the first spark_task needs one. Before that Spark
asks four Python processes about the source and the levels, one after the other, while other cores have nothing to do.
Rule: a query that does nothing is run beside that, in the session of the topology, so that its worker is of the kind
that levels use. Nothing waits for it, and nobody is told if it fails: the query of the topology will say why.

It is apart from ``starting`` because the worker imports it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

log = logging.getLogger("sparkbolt")


def warm_up(session: SparkSession) -> None:
    """Start a worker of the session's Python daemon; does not block."""

    def run() -> None:
        try:
            session.range(1).mapInArrow(_same, "id long").collect()
        except Exception as error:  # noqa: BLE001  the rule above
            log.debug("no Python worker could be started ahead: %s", error)

    threading.Thread(target=run, name="sparkbolt-warming", daemon=True).start()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
