"""Spark's loop: what a query asks of its source, in which order, and what of it is durable.

Which question it answers: which offsets does Spark log, with which ends does it ask for partitions, what does it ask
after a restart?
Rule 1: no rules of Sparkbolt here. This is what Spark's ``MicroBatchExecution`` does with a Python source that has
``latestOffset(start, limit)``, and ``tests/sim/test_spark_loop.py`` compares it with recorded runs of Spark.
Rule 2: an offset is text. Spark compares the text of an end with that of the start, and keeps nothing else of it.

What it takes Spark to do:

* The last micro-batch in the offset log runs again unless the commit log has it: its partitions are asked for before
  any ``latestOffset``.
* Without a committed offset there is no start: ``initialOffset`` is asked in its place each time one is needed, for
  ``latestOffset`` and again for ``partitions``, and whatever ``latestOffset`` answers is news, also that very offset.
* Otherwise an end that equals the start is no news, and no micro-batch runs.
* ``commit`` tells of a micro-batch only when the end of the one behind it is logged.
* The end is in the offset log before anything runs. A number that is there already was written by another driver, and
  the query fails; so it is with the commit log.

Read before: nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

Parts = TypeVar("Parts")


class ConcurrentLogError(Exception):
    """Another query has written what this one was about to write; Spark's ``CONCURRENT_STREAM_LOG_UPDATE``."""


class Query(Protocol[Parts]):
    """What the loop calls: a source's planner, and what runs a micro-batch."""

    def initial_offset(self) -> Mapping[str, Any]:
        """``initialOffset()``."""

    def latest_offset(self, start: Mapping[str, Any]) -> Mapping[str, Any]:
        """``latestOffset(start, limit)``."""

    def spark_partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Parts:
        """``partitions(start, end)``."""

    def commit(self, end: Mapping[str, Any]) -> None:
        """``commit(end)``."""

    def run_micro_batch(self, micro_batch_id: int, parts: Parts) -> None:
        """All spark_tasks of the micro-batch, and ``foreachBatch``."""

    def at(self, step: str, micro_batch_id: int) -> None:
        """Spark is about to write (``log``, ``commit``) or has written (``logged``, ``committed``) a log's file."""


@dataclass
class SparkLog:
    """Spark's own files in a checkpoint: what each micro-batch ends with, and which are committed."""

    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    @property
    def last_commit(self) -> int:
        """The last micro-batch that is committed; -1 if none is."""
        return max(self.commits, default=-1)

    @property
    def running(self) -> int | None:
        """The micro-batch whose end is logged and that is not committed; None if there is none."""
        last = max(self.offsets, default=-1)
        return last if last > self.last_commit else None


class MicroBatchLoop(Generic[Parts]):
    """One start of a query, from what the logs hold."""

    def __init__(self, log: SparkLog, query: Query[Parts]) -> None:
        """Read the logs; nothing is asked yet."""
        self._log = log
        self._query = query
        self._start: str | None = None
        self._end: str | None = None
        """The end of the micro-batch that is to run; None where it is to be asked for."""
        last = max(log.offsets, default=-1)
        if last < 0 or last in log.commits:
            self.micro_batch_id = last + 1
            self._start = log.offsets.get(last)
        else:
            self.micro_batch_id = last
            self._start = log.offsets.get(last - 1)
            self._end = log.offsets[last]

    def trigger(self) -> bool:
        """Run the next micro-batch, if there is one; False if there was no news."""
        if self._end is None and not self._construct():
            return False
        assert self._end is not None
        number = self.micro_batch_id
        parts = self._query.spark_partitions(self._begin(), json.loads(self._end))
        self._query.run_micro_batch(number, parts)
        self._query.at("commit", number)
        if number in self._log.commits:
            raise ConcurrentLogError(number)
        self._log.commits.add(number)
        self._start, self._end, self.micro_batch_id = self._end, None, number + 1
        self._query.at("committed", number)
        return True

    def _begin(self) -> Mapping[str, Any]:
        begin: Mapping[str, Any] = (
            json.loads(self._start) if self._start is not None else _sent(self._query.initial_offset())
        )
        return begin

    def _construct(self) -> bool:
        """Ask for the end of the next micro-batch and log it; False if there was no news."""
        end = json.dumps(self._query.latest_offset(self._begin()))
        if end == self._start:
            return False
        number = self.micro_batch_id
        self._query.at("log", number)
        if number in self._log.offsets:
            raise ConcurrentLogError(number)
        self._log.offsets[number] = end
        self._end = end
        if number > 0:
            self._query.commit(json.loads(self._log.offsets[number - 1]))
        self._query.at("logged", number)
        return True


def _sent(offset: Mapping[str, Any]) -> Mapping[str, Any]:
    """An offset as it comes back from Spark."""
    sent: Mapping[str, Any] = json.loads(json.dumps(offset))
    return sent
