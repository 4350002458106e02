"""Repetition: executes a micro-batch once more, within the same call of ``foreachBatch``.

Rule 1: the executed plan of a micro-batch names the version and, with format 2 of state checkpoints, the id of the
state before it. A second job of the same plan loads that state again; it does not use a later version of a worker or an
executor, because its id differs. The writes of the first job have an id of their own, and nothing refers to it.
Rule 2: Spark would reuse the shuffle files of the first job and skip all stages before the last one. So they are
dropped.
Rule 3: the ids of the new state reach Spark's commit log through an accumulator, from which Spark takes the first value
of each partition. So it is emptied, else the commit would name the state of the aborted execution.
Rule 4: values that change from one execution to the next travel as a local property of the jobs, since the tasks of the
source are packed when the micro-batch is planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from sparkbolt.errors import EngineError
from sparkbolt.wire.exclusion import Exclusion

PROPERTY = "sparkbolt.exclusion"


def announce(spark: SparkSession, exclusion: Exclusion) -> None:
    """Let the jobs that this thread starts from now on leave something out."""
    spark.sparkContext.setLocalProperty(PROPERTY, exclusion.to_text())


def announced() -> Exclusion:
    """In a task: the messages that its job leaves out."""
    context = TaskContext.get()
    return Exclusion() if context is None else Exclusion.of_text(context.getLocalProperty(PROPERTY))


def prepare(spark: SparkSession, frame: DataFrame, name: str) -> None:
    """Make the next action on a micro-batch's frame execute all of it, from the state before it.

    Args:
        spark: the session of the query.
        frame: the argument of ``foreachBatch``.
        name: the name of the query.

    Raises:
        EngineError: this version of Spark keeps the ids of new state elsewhere.
    """
    _drop_shuffles(spark, frame)
    _empty_accumulators(spark, name)


def _drop_shuffles(spark: SparkSession, frame: DataFrame) -> None:
    scala: Any = spark.sparkContext._jsc.sc()  # pyspark has no public API for shuffles
    cleaner = scala.cleaner().get()
    known, left = set(), [frame._jdf.queryExecution().toRdd()]
    while left:
        rdd = left.pop()
        dependencies = rdd.dependencies()
        for place in range(dependencies.size()):
            dependency = dependencies.apply(place)
            if dependency.getClass().getSimpleName() == "ShuffleDependency":
                cleaner.doCleanupShuffle(dependency.shuffleId(), True)
            before = dependency.rdd()
            if before.id() not in known:
                known.add(before.id())
                left.append(before)


def _empty_accumulators(spark: SparkSession, name: str) -> None:
    """Forget the ids of the state that the last execution has written."""
    for query in spark._jsparkSession.streams().active():
        if query.name() == name:
            for operator in _operators(query.streamingQuery().lastExecution().executedPlan()):
                if operator.getClass().getSimpleName().startswith("TransformWithState"):
                    operator.checkpointInfoAccumulator().reset()
            return
    raise EngineError(f"query {name} is not among the active ones of its session: its micro-batch cannot run again")


def _operators(plan: Any) -> Iterator[Any]:
    left = [plan]
    while left:
        operator = left.pop()
        yield operator
        children = operator.children()
        left += [children.apply(place) for place in range(children.size())]
