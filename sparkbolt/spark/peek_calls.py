"""Peek calls: the driver tells the tasks of a micro-batch what operators want to see, by a local property of its jobs.

The tasks are packed before that; a job without a peek costs a task one look at its properties.
"""

from __future__ import annotations

from pyspark import TaskContext
from pyspark.sql import SparkSession

from sparkbolt.wire.peek import Peek, peeks_of

PROPERTY = "sparkbolt.peeks"


def announce_peeks(spark: SparkSession, text: str) -> None:
    """Let the tasks of the jobs that this thread starts from now on look for tuples; ``text`` is as of ``text_of``."""
    spark.sparkContext.setLocalProperty(PROPERTY, text)


def announced_peeks() -> tuple[Peek, ...]:
    """In a task: what operators want to see."""
    context = TaskContext.get()
    return () if context is None else peeks_of(context.getLocalProperty(PROPERTY))
