"""Spark's loop: the calls that a query makes to its source, their order, and which answers are durable.

Rule 1: no rules of Sparkbolt here. This is the behaviour of Spark's ``MicroBatchExecution`` with a Python source that
has ``latestOffset(start, limit)``; ``tests/sim/test_spark_loop.py`` compares it with recorded runs of Spark.
Rule 2: an offset is text. Spark compares the text of an end with that of the start, and keeps nothing else of it.

Spark's behaviour:

* The last micro-batch in the offset log runs again unless the commit log has it. Its partitions are requested before
  any ``latestOffset``.
* Without a committed offset there is no start. Spark then calls ``initialOffset`` each time it needs one, for
  ``latestOffset`` and again for ``partitions``. Any answer of ``latestOffset`` then counts as new, even that offset.
* Otherwise an end that equals the start is not new, and no micro-batch runs.
* ``commit`` for a micro-batch is called only after the end of the next one is logged.
* The end is in the offset log before anything runs. If the log has this number already, another driver has written it,
  and the query fails; the same holds for the commit log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

Parts = TypeVar("Parts")


class ConcurrentLogError(Exception):
    """Another query has already written this log entry; Spark's ``CONCURRENT_STREAM_LOG_UPDATE``."""


class Query(Protocol[Parts]):
    """The code that the loop calls: the planner of a source, and the code that runs a micro-batch."""

    def initial_offset(self) -> Mapping[str, Any]:
        """``initialOffset()``."""

    def latest_offset(self, start: Mapping[str, Any]) -> Mapping[str, Any]:
        """``latestOffset(start, limit)``."""

    def spark_partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Parts:
        """``partitions(start, end)``."""

    def commit(self, end: Mapping[str, Any]) -> None:
        """``commit(end)``."""

    def run_micro_batch(self, micro_batch_id: int, parts: Parts) -> None:
        """Run all spark_tasks of the micro-batch, and ``foreachBatch``."""

    def at(self, step: str, micro_batch_id: int) -> None:
        """Called before Spark writes a log file (``log``, ``commit``) and after it (``logged``, ``committed``)."""


@dataclass
class SimulatedLog:
    """Spark's own files in a checkpoint: the end of each micro-batch, and which micro-batches are committed."""

    offsets: dict[int, str] = field(default_factory=dict)
    commits: set[int] = field(default_factory=set)

    @property
    def last_commit(self) -> int:
        """The last committed micro-batch; -1 if there is none."""
        return max(self.commits, default=-1)

    @property
    def running(self) -> int | None:
        """The micro-batch whose end is logged but that is not committed; None if there is none."""
        last = max(self.offsets, default=-1)
        return last if last > self.last_commit else None


class MicroBatchLoop(Generic[Parts]):
    """One start of a query, from the contents of the logs."""

    def __init__(self, log: SimulatedLog, query: Query[Parts]) -> None:
        """Read the logs; the source is not asked yet."""
        self._log = log
        self._query = query
        self._start: str | None = None
        self._end: str | None = None
        """The end of the micro-batch to run; None if the source must give it."""
        last = max(log.offsets, default=-1)
        if last < 0 or last in log.commits:
            self.micro_batch_id = last + 1
            self._start = log.offsets.get(last)
        else:
            self.micro_batch_id = last
            self._start = log.offsets.get(last - 1)
            self._end = log.offsets[last]

    def trigger(self) -> bool:
        """Run the next micro-batch, if there is one; return False if nothing is new."""
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
        """Ask for the end of the next micro-batch and log it; return False if nothing is new."""
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
    """Return an offset as Spark returns it."""
    sent: Mapping[str, Any] = json.loads(json.dumps(offset))
    return sent
