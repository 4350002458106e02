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
from dataclasses import dataclass, field
from typing import Any

from sparkbolt.core.model.causes import RAISED, Cause
from sparkbolt.core.model.metrics import span_text
from sparkbolt.core.model.outage import PROBE_WAITS, Health, Outage, OutageChange, Phase
from sparkbolt.core.model.reports import Fail

REASONS_MAX = 20
"""How many different reasons are counted of an outage; the rest count as others."""
REASON_CHARACTERS_MAX = 300


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
        if fail.cause == Cause.UNAVAILABLE:
            return True
        return (fail.cause in RAISED or fail.cause == Cause.TIMEOUT) and self._is_out(fail.component)

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
