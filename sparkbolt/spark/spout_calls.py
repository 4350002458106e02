"""Spout calls: calls the partitioned spouts of a life in the driver; executors read with their own copies.

All calls of one spout come from one thread, one after the other, without the lock (``user_calls``). Any thread may ask
for the lag, which waits ``LAG_SECS`` at most; after that it is the last answer.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import cloudpickle

from sparkbolt.api.components import PartitionedSpout
from sparkbolt.base.exceptions import line_of
from sparkbolt.driver.effects import AskLag, CallSpout
from sparkbolt.errors import SourceUnavailable, SparkboltError, SpoutAwayError, SpoutOpenError
from sparkbolt.layout.lane import Lane
from sparkbolt.spark.job_bundle import JobBundle
from sparkbolt.spark.user_calls import Caller, Calls, NotReturned
from sparkbolt.worker.worker import context_of

LAG_SECS = 0.5
"""How long a request for metrics waits for ``lag``."""
log = logging.getLogger("sparkbolt")


class SpoutCalls:
    """The partitioned spouts of one life, each with a thread that calls it."""

    def __init__(self, calls: Calls) -> None:
        """Open nothing yet; ``calls`` are the user calls of the topology."""
        self._calls = calls
        self._spouts: dict[str, PartitionedSpout] = {}
        self._callers: dict[str, Caller] = {}
        self._lags: dict[str, tuple[Mapping[str, int], Mapping[str, float]]] = {}
        self._skipped: Counter[str] = Counter()

    def open(self, lane: Lane, bundle: JobBundle) -> Mapping[str, PartitionedSpout]:
        """Open the driver's copy of each spout, and return them by component.

        Raises:
            SpoutOpenError: a spout raised; ``close`` closes those that were opened.
        """
        for spec in lane.topology.spouts:
            if isinstance(spec.component, PartitionedSpout):
                spout = self._spouts[spec.id] = cloudpickle.loads(bundle.components[spec.id])
                self._callers[spec.id] = Caller(self._calls, f"spout-{spec.id}")
                number = lane.topology.tasks(spec.id)[0]
                context = context_of(
                    lane, number, checkpoint_id=bundle.checkpoint_id, recorder=self._calls.metrics.recorder
                )
                try:
                    self(CallSpout(spec.id, spout, "open", (context,)))
                except NotReturned:
                    raise
                except Exception as error:
                    if isinstance(error, SparkboltError) and not isinstance(error, SourceUnavailable):
                        raise  # its message is clear, and a retry would raise it again
                    kind = SpoutAwayError if isinstance(error, SourceUnavailable) else SpoutOpenError
                    raise kind(f"spout {spec.id!r} could not be opened: {line_of(error)}") from error
        return self._spouts

    def __call__(self, effect: CallSpout) -> Any:
        """Call a method in the spout's thread, and wait for it."""
        return self._callers[effect.component].ask(f"{effect.method} of spout {effect.component!r}", effect)

    def lag(self, effect: AskLag) -> tuple[Mapping[str, int], Mapping[str, float], int]:
        """The lag of a spout in positions and seconds, and how many positions it has skipped since the last call."""
        component = effect.component
        with suppress(NotReturned):
            self._callers[component].ask(f"lag of spout {component!r}", partial(self._look, effect), LAG_SECS)
        lags, secs = self._lags.get(component, ({}, {}))
        return lags, secs, self._skipped.pop(component, 0)

    def _look(self, effect: AskLag) -> None:
        lags, secs, skipped = effect()
        self._lags[effect.component] = lags, secs
        self._skipped[effect.component] += skipped

    def close(self) -> None:
        """Close each spout, even if others raise or do not return, and end the threads."""
        for component, spout in self._spouts.items():
            try:
                self._callers[component].end(f"close of spout {component!r}", spout.close)
            except NotReturned as error:
                log.warning("%s: it is left behind, and spout %s is not closed", error, component)
            except BaseException as error:  # noqa: BLE001  user code; the other spouts are still closed
                log.error("close of spout %s raised %s; it is taken for closed", component, line_of(error))
