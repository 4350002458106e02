"""Commit calls: calls the committers of a topology in the driver.

Rule 1: all calls of one committer come from one thread, one after the other, without the lock (``user_calls``).
Rule 2: after ``Unavailable`` the call is repeated, with growing pauses, until the topology stops. Nothing else is
committed meanwhile, so the topology waits with it.
Rule 3: any other exception ends the life with ``EngineError``; the rows stay in the checkpoint.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

import cloudpickle
import py4j
import pyspark
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from sparkbolt.api.committers import CommittingBolt
from sparkbolt.api.outside import WritesOutside
from sparkbolt.api.progress import WAIT_SECS, duration
from sparkbolt.api.retry import RetryPolicy
from sparkbolt.base.exceptions import cause_in_jvm, line_of, raised_at
from sparkbolt.driver.effects import Commit
from sparkbolt.errors import EngineError, Unavailable
from sparkbolt.layout.lane import Lane
from sparkbolt.spark.failure_text import query_failure
from sparkbolt.spark.user_calls import Caller, Calls, NotReturned
from sparkbolt.worker.worker import context_of

AWAY = RetryPolicy(max_backoff=timedelta(seconds=5))
"""How long it waits after ``Unavailable``."""
SAY_AGAIN_SECS = 60.0
"""How often the log repeats that a target is unavailable."""
_LIBRARIES = tuple(os.path.dirname(module.__file__ or "") for module in (py4j, pyspark))
"""Folders of code that belongs neither to the user nor to Sparkbolt."""
log = logging.getLogger("sparkbolt")


class CommitCalls:
    """The committers of one life; each is opened with its first commit."""

    def __init__(
        self,
        lane: Lane,
        components: Mapping[str, bytes],
        checkpoint_id: str,
        calls: Calls,
        spark: SparkSession | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            lane: the topology, laid out.
            components: by id: the pickled components.
            checkpoint_id: see ``TopologyContext.checkpoint_id``.
            calls: the user calls of the topology.
            spark: the topology's own session, for ``TopologyContext.spark``.
        """
        self._lane = lane
        self._spark = spark
        self._components = components
        self._checkpoint_id = checkpoint_id
        self._calls = calls
        self._callers: dict[str, Caller] = {}
        self._open: dict[str, CommittingBolt] = {}
        """By the id under which the rows were kept (``Commit.kept_as``)."""
        self._away: str | None = None
        """Which commit waits for its target, and why, after ``Unavailable``."""
        self._calling: tuple[Commit, float] | None = None
        """The call that runs, and when it began, by ``time.monotonic``."""

    @property
    def waits(self) -> str | None:
        """Which commit waits for its target, and why; None if none does. Read by any thread."""
        calling = self._calling
        if self._away is not None or calling is None:
            return self._away
        effect, began_s = calling
        component = effect.component
        bolt, secs = self._lane.topology.components[component].component, time.monotonic() - began_s
        if not isinstance(bolt, WritesOutside) or secs < WAIT_SECS:
            return None
        return f"commit {effect.txid} of {component} waits for {bolt.place} for {duration(secs)}"

    def __call__(self, effect: Commit) -> None:
        """Commit rows of a component; waits for an unavailable target. The lock is held, and released meanwhile.

        Raises:
            NotReturned: the topology stops, and the rows are not known to be outside.
            EngineError: ``begin`` or ``commit`` raised an exception other than ``Unavailable``.
        """
        component, txid, name = effect.component, effect.txid, effect.kept_as or effect.component
        caller = self._callers.setdefault(name, Caller(self._calls, f"commit-{name}"))
        said_s, away_s = 0.0, None
        for tries in itertools.count(1):
            try:
                self._calling = effect, time.monotonic()
                caller.ask(f"commit of {component!r}", partial(self._commit, effect, name))
            except Unavailable as error:
                now_s = time.monotonic()
                away_s = now_s if away_s is None else away_s
                self._away = f"commit {txid} of {component} waits: {line_of(error)}"
                if not said_s or now_s - said_s >= SAY_AGAIN_SECS:
                    said_s = now_s
                    log.warning("%s; it is tried again", self._away)
                self._pause(component, txid, AWAY.delay_ms(tries, txid) / 1000)
            except NotReturned:
                raise
            except BaseException as error:
                call = "commit" if name in self._open else "begin"
                raise EngineError(
                    f"{call} of {component!r} raised {_said(error)}: the rows of txid {txid} are in the checkpoint, "
                    "and are committed before anything else at the next start"
                ) from error
            else:
                self._away = None
                if away_s is not None:
                    log.info("commit %d of %s is done after %.0f s", txid, component, time.monotonic() - away_s)
                return
            finally:
                self._calling = None

    def _pause(self, component: str, txid: int, pause_s: float) -> None:
        until_s = time.monotonic() + pause_s
        while (left := until_s - time.monotonic()) > 0:
            if self._calls.ended_s <= time.monotonic():
                raise NotReturned(f"commit {txid} of {component!r} waits for what it writes to")
            self._calls.changed.wait(min(left, 0.1))

    def _commit(self, effect: Commit, name: str) -> None:
        bolt = self._open.get(name)
        if bolt is None:
            bolt = cloudpickle.loads(self._components[effect.component])
            number = self._lane.topology.tasks(effect.component)[0]
            context = context_of(
                self._lane, number, checkpoint_id=self._checkpoint_id, recorder=self._calls.metrics.recorder
            )
            context.component = name
            context.spark = self._spark
            bolt.begin(context)
            self._open[name] = bolt
        bolt.commit(effect.txid, effect.rows())

    def end(self) -> None:
        """Call ``end`` of each committer that was opened, and end their threads."""
        for component, caller in self._callers.items():
            bolt = self._open.get(component)
            try:
                caller.end(f"end of {component!r}", bolt.end if bolt is not None else _nothing)
            except NotReturned as error:
                log.warning("%s: it is left behind", error)
            except BaseException as error:  # noqa: BLE001  user code; the others are still ended
                log.error("end of committer %s raised %s; it is taken for ended", component, line_of(error))


def _said(error: BaseException) -> str:
    """An error of user code in one line, with the place where it was raised."""
    text = query_failure(error).text if isinstance(error, Py4JError) else line_of(error)
    why = cause_in_jvm(error)
    text = text if why is None or why in text else f"{text}: {why}"
    return text + raised_at(error, *_LIBRARIES)


def _nothing() -> None:
    pass
