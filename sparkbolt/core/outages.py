"""Outages: bolts that cannot do their work at all, and how carefully they are fed meanwhile.

Which question it answers: after this micro-batch, is a bolt taken for broken, how much is it given next and when, and
do its failures count as attempts?

A bolt is in one of three phases. A micro-batch changes it by what the bolt *got* in it (tuples, ticks not among them)
and by how much of that it *raised* for (an exception; ``fail`` and ``Reject`` are part of a bolt's work). *Away* is a
micro-batch in which it raised ``Unavailable`` for at least half, *broken* one in which it raised for nearly everything:

======= ========================================== ======= ========================================================
phase   a micro-batch                              then    and
======= ========================================== ======= ========================================================
well    in which it got nothing                    well    nothing changes
well    away                                       out     a probe after the first wait
well    broken, with enough tuples and             out     a probe after the first wait
        micro-batches in a row
well    broken                                     well    it is counted
well    any other                                  well    counting begins anew, with what it raised for since the
                                                           last tuple that it took
out     that was a probe and did not reach it      out     the next probe at once, and twice as large
out     that was a probe, of which it has kept all out     the next probe after the same wait
out     away                                       out     the next probe after twice the wait
out     broken                                     out     the same, and it uses up patience
out     broken, and patience is used up            spent   everything at full speed again, and failures count
out     any other                                  well    everything at full speed again
spent   away                                       out     a probe after the first wait
spent   broken                                     spent   nothing changes
spent   any other                                  well    counting begins anew
======= ========================================== ======= ========================================================

Rule 1: counted as tuples are first attempts alone. What is left of a source at its end are the messages that fail each
time: that all of these fail again is no outage.
Rule 2: patience is used by probes that found the bolt broken, at most ``PROBED_MS_MAX`` each: nor the time in which no
driver ran, nor a clock that was set, uses it up. Of ``Unavailable`` nobody loses patience: the bolt has said it.
Rule 3: what is known depends on the promoted log alone, so that it outlives ``kill -9``.

Time is that of plans. Prior art: the circuit breaker of M. Nygard, "Release It!", whose half-open state is a probe.
Read before: ``failures``, ``retry``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparkbolt.core.acker import Fail
from sparkbolt.core.failures import RAISED, UNAVAILABLE, Failure
from sparkbolt.core.metrics import span_text
from sparkbolt.core.retry import RetryPolicy
from sparkbolt.core.tuples import ATTEMPT_MAX

TUPLES_MIN, MICRO_BATCHES_MIN = 100, 3
"""From how many tuples on, in how many micro-batches, a bolt that raises for nearly everything is taken for broken."""
BROKEN_SHARE, AWAY_SHARE = 0.95, 0.5
PROBE_TUPLES = 10
"""About how many messages a probe has, of each spout: half of them are given again, half are new."""
PROBE_TUPLES_MAX = 1 << 20
PROBE_WAITS = RetryPolicy(
    max_retries=None, min_backoff=timedelta(milliseconds=500), max_backoff=timedelta(seconds=30), jitter=0
)
"""How long is waited before each probe."""
PROBED_MS_MAX = 60_000
"""How much patience one probe uses at most."""
REASONS_MAX = 20
"""How many different reasons are counted of an outage; the rest count as others."""
REASON_CHARACTERS_MAX = 300


class Phase(Enum):
    """How a bolt is taken."""

    WELL = "well"
    OUT = "out"
    SPENT = "spent"


class Health(NamedTuple):
    """What one micro-batch shows of one bolt."""

    got: int
    """How many tuples it got."""
    raised: int = 0
    """For how many of them it raised."""
    unavailable: int = 0
    """For how many of them it raised ``Unavailable``."""
    trailing: int = 0
    """For how many first attempts it raised, in each of its tasks, after the last tuple that the task took."""
    held: int = 0
    """How many tuples it has besides, neither acked nor failed: they tell nothing yet."""

    @property
    def away(self) -> bool:
        """Whether it raised ``Unavailable`` for at least half."""
        return self.unavailable > 0 and self.unavailable >= AWAY_SHARE * self.got

    @property
    def broken(self) -> bool:
        """Whether it raised for nearly everything."""
        return self.raised > 0 and self.raised >= BROKEN_SHARE * self.got

    def __add__(self, other: Any) -> Health:
        """What two tasks show together."""
        return Health(*(mine + its for mine, its in zip(self, other, strict=True)))


@dataclass
class WorkSeen:
    """What one task shows in one micro-batch, frame by frame.

    >>> seen = WorkSeen()
    >>> seen.add(3, {0: Failure("exception", "no"), 2: Failure("unavailable", "away")}, None)
    >>> seen.add(1, {0: Failure("fail", "said by the bolt")}, None)
    >>> seen.health()
    Health(got=4, raised=2, unavailable=1, trailing=0, held=0)
    """

    got: int = 0
    raised: int = 0
    unavailable: int = 0
    trailing: int = 0
    held: int = 0
    first_attempts: int = 0

    def add(
        self,
        count: int,
        failures: Mapping[int, Failure],
        attempts: npt.NDArray[np.uint8] | None,
        held: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """It got some rows.

        Args:
            count: how many.
            failures: those that failed.
            attempts: the rows' (as in frames); None where all are first ones.
            held: bool[count], the rows that it has neither acked nor failed; None where there are none.
        """
        took = np.ones(count, dtype=bool) if held is None else ~held
        took[list(failures)] = False
        kept = count - int(np.count_nonzero(took)) - len(failures)
        self.held += kept
        self.got += count - kept
        self.first_attempts += count if attempts is None else int(np.count_nonzero(attempts & ATTEMPT_MAX <= 1))
        raised = [row for row, failure in failures.items() if failure.cause in RAISED]
        for row in failures.keys() - set(raised):
            took[row] = True  # to fail or to reject a tuple is part of its work
        if not raised:
            self.trailing = 0 if bool(took.any()) else self.trailing
            return
        self.raised += len(raised)
        self.unavailable += sum(failures[row].cause == UNAVAILABLE for row in raised)
        last = int(np.flatnonzero(took)[-1]) if bool(took.any()) else -1
        self.trailing = self.trailing if last < 0 else 0
        behind = [row for row in raised if row > last]
        first = np.ones(len(behind)) if attempts is None else attempts[behind] & ATTEMPT_MAX <= 1
        self.trailing += int(np.count_nonzero(first))

    def fail_all(self, failure: Failure) -> None:
        """All that it got has failed after all."""
        if failure.cause in RAISED:
            self.raised, self.trailing = self.got, self.first_attempts
            self.unavailable = self.got if failure.cause == UNAVAILABLE else self.unavailable

    def health(self) -> Health:
        """All of it."""
        return Health(self.got, self.raised, self.unavailable, self.trailing, self.held)


def add_healths(to: dict[str, Health], more: Mapping[str, Health]) -> None:
    """Put together what several processes show."""
    for component, health in more.items():
        to[component] = to.get(component, Health(0)) + health


@dataclass(frozen=True)
class Outage:
    """What is known of one bolt; it changes by ``after`` alone.

    >>> well = Outage()
    >>> out = well.after(Health(got=10, raised=10, unavailable=10, trailing=10), now_ms=0, patience_ms=60_000)
    >>> out.phase, out.next_probe_ms
    (<Phase.OUT: 'out'>, 500)
    >>> out.after(Health(got=5, raised=1), now_ms=500, patience_ms=60_000).phase
    <Phase.WELL: 'well'>
    """

    phase: Phase = Phase.WELL
    tuples: int = 0
    """First attempts for which it raised since it took one."""
    raised: int = 0
    """All for which it raised since then."""
    micro_batches: int = 0
    """Micro-batches in a row in which it was broken."""
    strained: int = 0
    """Micro-batches in a row in which it raised ``Unavailable`` for anything."""
    probes: int = 0
    """Probes in a row that found it away or broken."""
    probe_tuples: int = PROBE_TUPLES
    """How many messages the next probe has, of each spout."""
    since_ms: int = 0
    """When it went out."""
    seen_ms: int = 0
    """When it was looked at last."""
    probed_ms: int = 0
    """How much patience is used."""
    next_probe_ms: int = 0

    def after(self, health: Health, now_ms: int, patience_ms: int, *, probed: bool = True) -> Outage:
        """What is known after one more micro-batch.

        Args:
            health: what the micro-batch shows.
            now_ms: its time.
            patience_ms: how much patience there is in all.
            probed: whether it gave anything to those that the bolt is fed by.
        """
        strained = self.strained + 1 if health.unavailable else 0 if health.got else self.strained
        known = replace(self, strained=strained)
        if health.got == 0:
            unreached = probed and self.phase is Phase.OUT
            return known._unreached(now_ms, held=health.held > 0) if unreached else known
        if self.phase is Phase.OUT:
            return known._after_probe(health, now_ms, patience_ms)
        if health.away:
            return known._gone_out(now_ms)
        if not health.broken:
            return Outage(tuples=health.trailing, raised=health.trailing, strained=strained)
        if self.phase is Phase.SPENT:
            return known
        known = replace(
            known,
            tuples=self.tuples + health.trailing,
            raised=self.raised + health.raised,
            micro_batches=self.micro_batches + 1,
        )
        enough = known.tuples >= TUPLES_MIN and known.micro_batches >= MICRO_BATCHES_MIN
        return known._gone_out(now_ms) if enough else known

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

    def to_json(self) -> dict[str, Any]:
        """As a JSON object, without what has its default."""
        mine, default = asdict(self), asdict(Outage())
        return {name: value for name, value in mine.items() if value != default[name]} | {"phase": self.phase.value}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Outage:
        """The inverse of ``to_json``."""
        return cls(**{**body, "phase": Phase(body["phase"])})


@dataclass(frozen=True)
class OutageChange:
    """A bolt has come into another phase; for logs."""

    component: str
    before: Phase
    after: Phase
    outage: Outage
    """Before the change where it ended, else after it."""
    now_ms: int
    reason: str = ""
    """The most frequent reason of those failures that are told of."""
    reasons: int = 0
    """How many failures had it, or one like it."""
    failures: int = 0
    """Of how many."""
    away: bool = False
    """Whether it was the bolt itself that said so (``Unavailable``)."""


@dataclass(frozen=True)
class Allowance:
    """How much of what feeds a bolt that is out may be given now."""

    tuples: int
    """0: nothing."""
    next_probe_ms: int


@dataclass
class Outages:
    """What is known of all bolts; part of the ledger.

    ``feeders`` names, for each bolt, the spouts, and bolts that start trees, whose tuples may come to it.

    >>> outages = Outages({"store": frozenset({"orders"})})
    >>> away = Health(got=4, raised=4, unavailable=4)
    >>> [change.after for change in outages.observe({"store": away}, [], now_ms=0, patience_ms=1000, given=["orders"])]
    [<Phase.OUT: 'out'>]
    >>> outages.allowances(499), outages.allowances(500)["orders"].tuples
    ({'orders': Allowance(tuples=0, next_probe_ms=500)}, 10)
    """

    feeders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    known: dict[str, Outage] = field(default_factory=dict)
    """Only of bolts of which there is something to know."""
    reasons: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    """For the log, by bolt and pattern: (a reason, how often one like it came). They do not outlive the process."""

    def observe(
        self,
        healths: Mapping[str, Health],
        fails: Iterable[Fail],
        *,
        now_ms: int,
        patience_ms: int,
        given: Iterable[str],
    ) -> list[OutageChange]:
        """A micro-batch is promoted: what has changed.

        Args:
            healths: what it shows of each bolt that got anything.
            fails: the trees that were failed in it.
            now_ms: its time.
            patience_ms: how much patience there is.
            given: the spouts, and bolts that start trees, of which it gave anything.
        """
        self._count_reasons(fails)
        gave, changes = frozenset(given), []
        for component in sorted({*healths, *self.known}):
            before = self.known.get(component, Outage())
            probed = bool(gave & self.feeders.get(component, gave))
            health = healths.get(component, Health(0))
            after = before.after(health, now_ms, patience_ms, probed=probed)
            if after == Outage():
                self.known.pop(component, None)
            else:
                self.known[component] = after
            if after.phase is not before.phase:
                told = self._most_frequent(component)
                shown = before if after.phase is Phase.WELL else after
                changes.append(
                    OutageChange(component, before.phase, after.phase, shown, now_ms, *told, away=health.away)
                )
        return changes

    def _count_reasons(self, fails: Iterable[Fail]) -> None:
        """Count why bolts raised, anew for those that were well before."""
        for component in list(self.reasons):
            known = self.known.get(component)
            if known is None or (known.phase is Phase.WELL and not known.micro_batches):
                del self.reasons[component]
        for fail in fails:
            if fail.cause in RAISED:
                kinds = self.reasons.setdefault(fail.component, {})
                reason = fail.reason[:REASON_CHARACTERS_MAX]
                kind = _pattern(reason)
                kind = kind if kind in kinds or len(kinds) < REASONS_MAX else ""
                example, count = kinds.get(kind, (reason, 0))
                kinds[kind] = example, count + 1

    def _most_frequent(self, component: str) -> tuple[str, int, int]:
        kinds = self.reasons.get(component, {})
        reason, count = max(kinds.values(), key=lambda kind: kind[1], default=("", 0))
        return reason, count, sum(count for _, count in kinds.values())

    # What follows from it.

    def costs_nothing(self, fail: Fail) -> bool:
        """Whether a failure is no attempt at its message.

        That somebody said ``Unavailable``; and, while a bolt is out, that it raised, or that a tree timed out in its
        hands. A timeout is no sign of an outage by itself: a bolt that forgets to ack looks the same.
        """
        if fail.cause == UNAVAILABLE:
            return True
        return (fail.cause in RAISED or fail.cause == "timeout") and self._is_out(fail.component)

    def wait_ms(self, fail: Fail) -> int:
        """How long a message waits whose failure costs no attempt: while its bolt is out, probes choose when."""
        if self._is_out(fail.component):
            return 0
        known = self.known.get(fail.component)
        return PROBE_WAITS.delay_ms(max(1, known.strained if known else 1), fail.key)

    def _is_out(self, component: str) -> bool:
        known = self.known.get(component)
        return known is not None and known.phase is Phase.OUT

    def allowances(self, now_ms: int) -> dict[str, Allowance]:
        """What of spouts, and of bolts that start trees, may be given at ``now_ms``; all of those not named here."""
        found: dict[str, Allowance] = {}
        for component, known in self.known.items():
            if known.phase is not Phase.OUT:
                continue
            tuples = known.probe_tuples if known.next_probe_ms <= now_ms else 0
            for feeder in self.feeders.get(component, ()):
                other = found.get(feeder, Allowance(tuples, known.next_probe_ms))
                found[feeder] = Allowance(min(tuples, other.tuples), max(known.next_probe_ms, other.next_probe_ms))
        return found

    def out(self) -> dict[str, Outage]:
        """The bolts that are out now."""
        return {name: known for name, known in self.known.items() if known.phase is Phase.OUT}

    def sentences(self, now_ms: int) -> list[str]:
        """For people: which bolts are out, for how long, why, and when they are tried next.

        >>> out = Outage(Phase.OUT, since_ms=0, next_probe_ms=52_000)
        >>> reasons = {"db": {"": ("ConnectionError: refused", 3)}}
        >>> Outages(known={"db": out}, reasons=reasons).sentences(40_000)
        ['db is out for 40 s (ConnectionError: refused), next probe in 12 s']
        >>> Outages(known={"db": out}).sentences(60_000)
        ['db is out for 1 min, next probe now']
        """
        found = []
        for component, known in self.out().items():
            reason, _, _ = self._most_frequent(component)  # not known to a driver that has just started
            why = f" ({' '.join(reason.split())})" if reason else ""
            wait_ms = known.next_probe_ms - now_ms
            when = f"in {span_text(wait_ms)}" if wait_ms > 0 else "now"
            since = span_text(max(0, now_ms - known.since_ms))
            found.append(f"{component} is out for {since}{why}, next probe {when}")
        return found

    def to_json(self) -> dict[str, Any]:
        """All that outlives the process."""
        return {name: known.to_json() for name, known in self.known.items()}


def outages_from_json(body: Mapping[str, Any]) -> dict[str, Outage]:
    """What ``Outages.to_json`` gave."""
    return {name: Outage.from_json(known) for name, known in body.items()}


def _pattern(reason: str) -> str:
    """A reason without the numbers in it, which tell one failure from another of its kind.

    >>> _pattern("ConnectionError: 10.0.0.1:5432 refused, try 17")
    'ConnectionError: #.#.#.#:# refused, try #'
    """
    return re.sub(r"\d+", "#", reason)
