"""Outage: the state of one bolt that cannot do its work, or of a spout that cannot read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple

from sparkbolt.api.retry import RetryPolicy
from sparkbolt.base.codec import SPARSE

BROKEN_SHARE, AWAY_SHARE = 0.95, 0.5
TUPLES_MIN, MICRO_BATCHES_MIN = 100, 3
"""How many tuples, in how many micro-batches, a bolt must get and raise for nearly all before it is regarded as out."""
PROBE_TUPLES = 10
"""About how many messages of each spout a probe contains: half of them are retries, half are new."""
PROBE_TUPLES_MAX = 1 << 20
PROBE_WAITS = RetryPolicy(
    max_retries=None, min_backoff=timedelta(milliseconds=500), max_backoff=timedelta(seconds=30), jitter=0
)
"""The waits before the probes."""
PROBED_MS_MAX = 60_000
"""The largest part of the patience that one probe uses, in milliseconds."""


class Phase(Enum):
    """How the engine treats a bolt."""

    WELL = "well"
    """It works: its failures count as attempts."""
    OUT = "out"
    """It cannot do its work: its failures cost no attempt, and its spouts only probe it."""
    SPENT = "spent"
    """It still fails, and the patience is used up: its failures count as attempts again."""


@dataclass(frozen=True)
class OutageChange:
    """A bolt or a spout has changed its phase; for logs."""

    component: str
    before: Phase
    after: Phase
    outage: Outage
    """The outage before the change if the change ended it, else after the change."""
    now_ms: int
    reason: str = ""
    """The most frequent reason of the reported failures."""
    reasons: int = 0
    """How many of these failures had this reason, or a similar one."""
    failures: int = 0
    """How many reported failures there were."""
    away: bool = False
    """Whether the bolt itself reported the outage (``Unavailable``)."""
    spout: bool = False
    """Whether it is a spout, which cannot read its records."""


class Health(NamedTuple):
    """The results of one micro-batch for one bolt."""

    got: int
    """How many tuples it got."""
    raised: int = 0
    """For how many of them it raised."""
    unavailable: int = 0
    """For how many of them it raised ``Unavailable``."""
    trailing: int = 0
    """For how many first attempts it raised after the last tuple that it accepted, counted in each task and summed."""
    held: int = 0
    """How many more tuples it holds, neither acked nor failed: they show nothing yet."""

    @property
    def away(self) -> bool:
        """Whether it raised ``Unavailable`` for at least half of its tuples."""
        return self.unavailable > 0 and self.unavailable >= AWAY_SHARE * self.got

    @property
    def broken(self) -> bool:
        """Whether it raised for at least 95 % of its tuples."""
        return self.raised > 0 and self.raised >= BROKEN_SHARE * self.got

    def __add__(self, other: Any) -> Health:
        """Combine the results of two tasks."""
        return Health(*(mine + its for mine, its in zip(self, other, strict=True)))


def add_healths(to: dict[str, Health], more: Mapping[str, Health]) -> None:
    """Add the results of other processes to ``to``, in place."""
    for component, health in more.items():
        to[component] = to.get(component, Health(0)) + health


@dataclass(frozen=True)
class Outage:
    """The state of one bolt; only ``after`` changes it.

    >>> well = Outage()
    >>> out = well.after(Health(got=10, raised=10, unavailable=10, trailing=10), now_ms=0, patience_ms=60_000)
    >>> out.phase, out.next_probe_ms
    (<Phase.OUT: 'out'>, 500)
    >>> out.after(Health(got=5, raised=1), now_ms=500, patience_ms=60_000).phase
    <Phase.WELL: 'well'>
    """

    JSON = SPARSE

    phase: Phase = Phase.WELL
    tuples: int = 0
    """First attempts for which it raised since the last tuple that it accepted."""
    raised: int = 0
    """All tuples for which it raised since then."""
    micro_batches: int = 0
    """Micro-batches in a row in which it was broken."""
    strained: int = 0
    """Micro-batches in a row in which it raised ``Unavailable`` for any tuple."""
    probes: int = 0
    """Probes in a row that found it unavailable or broken."""
    probe_tuples: int = PROBE_TUPLES
    """How many messages of each spout the next probe contains."""
    since_ms: int = 0
    """When the outage began."""
    seen_ms: int = 0
    """When a micro-batch last showed something about it during the outage."""
    probed_ms: int = 0
    """How much of the patience is used, in milliseconds."""
    next_probe_ms: int = 0

    def after(self, health: Health, now_ms: int, patience_ms: int, *, probed: bool = True) -> Outage:
        """Return the state after one more micro-batch.

        Args:
            health: the results of the micro-batch.
            now_ms: the time of the micro-batch.
            patience_ms: the patience in all.
            probed: whether the micro-batch contained messages of the spouts that feed the bolt.
        """
        strained = self.strained + 1 if health.unavailable else 0 if health.got else self.strained
        outage = replace(self, strained=strained)
        if health.got == 0:
            unreached = probed and self.phase is Phase.OUT
            return outage._unreached(now_ms, held=health.held > 0) if unreached else outage
        if self.phase is Phase.OUT:
            return outage._after_probe(health, now_ms, patience_ms)
        if health.away:
            return outage._gone_out(now_ms)
        if not health.broken:
            return Outage(tuples=health.trailing, raised=health.trailing, strained=strained)
        if self.phase is Phase.SPENT:
            return outage
        outage = replace(
            outage,
            tuples=self.tuples + health.trailing,
            raised=self.raised + health.raised,
            micro_batches=self.micro_batches + 1,
        )
        enough = outage.tuples >= TUPLES_MIN and outage.micro_batches >= MICRO_BATCHES_MIN
        return outage._gone_out(now_ms) if enough else outage

    def _gone_out(self, now_ms: int) -> Outage:
        wait_ms = PROBE_WAITS.delay_ms(1, 0)
        return replace(self, phase=Phase.OUT, since_ms=now_ms, seen_ms=now_ms, next_probe_ms=now_ms + wait_ms, probes=0)

    def _unreached(self, now_ms: int, *, held: bool) -> Outage:
        if held:
            return replace(self, next_probe_ms=now_ms + PROBE_WAITS.delay_ms(self.probes + 1, 0))
        return replace(self, probe_tuples=min(2 * self.probe_tuples, PROBE_TUPLES_MAX), next_probe_ms=now_ms)

    def _after_probe(self, health: Health, now_ms: int, patience_ms: int) -> Outage:
        if not health.away and not health.broken:
            return Outage(tuples=health.trailing, raised=health.trailing, strained=self.strained)
        used_ms = 0 if health.away else min(max(0, now_ms - self.seen_ms), PROBED_MS_MAX)
        probed_ms = self.probed_ms + used_ms
        if not health.away and probed_ms >= patience_ms:
            return replace(self, phase=Phase.SPENT, seen_ms=now_ms, probed_ms=probed_ms, probes=self.probes + 1)
        wait_ms = PROBE_WAITS.delay_ms(self.probes + 2, 0)
        return replace(
            self,
            probes=self.probes + 1,
            raised=self.raised + health.raised,
            seen_ms=now_ms,
            probed_ms=probed_ms,
            next_probe_ms=now_ms + wait_ms,
        )
