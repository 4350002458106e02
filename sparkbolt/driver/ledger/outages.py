"""Outages: bolts that cannot do their work at all, and how many messages their spouts may emit then.

A bolt is in one of three phases. The results of a micro-batch change the phase. They are the number of tuples that the
bolt *got* in it (without ticks), and the number of these for which it *raised* an exception; ``fail`` and ``Reject``
are part of a bolt's work. The bolt was *unavailable* if it raised ``Unavailable`` for at least half of them, and
*broken* if it raised for nearly all. A spout that reads ranges is treated like a bolt: it gets the records of a range,
and raises for those that it cannot read (``BadRecord``), such as all messages of a topic with a wrong decoder.

======= ========================================== ======= ========================================================
phase   a micro-batch                              then    and
======= ========================================== ======= ========================================================
well    in which it got nothing                    well    nothing changes
well    unavailable                                out     a probe after the first wait
well    broken, with enough tuples and             out     a probe after the first wait
        micro-batches in a row
well    broken                                     well    it is counted
well    any other                                  well    counting starts again, with its exceptions after the
                                                           last tuple that it accepted
out     that was a probe and did not reach it      out     the next probe at once, and twice as large
out     that was a probe, and it holds all of it   out     the next probe after the same wait
out     unavailable                                out     the next probe after twice the wait
out     broken                                     out     the same, and it uses up patience
out     broken, and patience is used up            spent   everything at full speed again, and failures count
out     any other                                  well    everything at full speed again
spent   unavailable                                out     a probe after the first wait
spent   broken                                     spent   nothing changes
spent   any other                                  well    counting starts again
======= ========================================== ======= ========================================================

Rule 1: only first attempts count as tuples. At the end of a source only the messages that fail each time are left; it
is no outage if all of these fail again.
Rule 2: only probes that found the bolt broken use up patience, at most ``PROBED_MS_MAX`` each. Time in which no driver
ran, and changes of the clock, do not. ``Unavailable`` uses up no patience either, because the bolt itself reported it.
Rule 3: the state of outages depends only on the promoted log, so that it survives ``kill -9``.

Time is the time of plans. Prior art: the circuit breaker of M. Nygard, "Release It!", whose half-open state is a probe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sparkbolt.api.causes import NOT_TRIED, RAISED, Cause
from sparkbolt.api.metrics import span_text
from sparkbolt.api.outage import PROBE_WAITS, Health, Outage, OutageChange, Phase
from sparkbolt.api.reports import Fail
from sparkbolt.api.story import since_text

REASONS_MAX = 20
"""How many different reasons of an outage are counted; all further reasons are counted together."""
REASON_CHARACTERS_MAX = 300


@dataclass(frozen=True)
class Allowance:
    """The number of messages that a component that feeds a bolt in an outage may emit now."""

    tuples: int
    """How many messages; 0: none."""
    next_probe_ms: int


@dataclass
class Outages:
    """The outages of all bolts; part of the ledger.

    ``feeders`` contains, for each bolt, the spouts and the bolts that start trees whose tuples may reach it; for a
    spout, the spout itself.

    >>> outages = Outages({"store": frozenset({"orders"})})
    >>> away = Health(got=4, raised=4, unavailable=4)
    >>> [change.after for change in outages.observe({"store": away}, [], now_ms=0, patience_ms=1000, given=["orders"])]
    [<Phase.OUT: 'out'>]
    >>> outages.allowances(499), outages.allowances(500)["orders"].tuples
    ({'orders': Allowance(tuples=0, next_probe_ms=500)}, 10)
    """

    feeders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    known: dict[str, Outage] = field(default_factory=dict)
    """Bolt to its state; bolts in the initial state are left out."""
    reasons: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    """For logging, by bolt and pattern: (a reason, how often the pattern occurred). They do not outlive the process."""

    def observe(
        self,
        healths: Mapping[str, Health],
        fails: Iterable[Fail],
        *,
        now_ms: int,
        patience_ms: int,
        given: Iterable[str],
    ) -> list[OutageChange]:
        """Apply the results of a promoted micro-batch; returns the changes of phases.

        Args:
            healths: the results of each bolt that received tuples.
            fails: the fails of the micro-batch.
            now_ms: the time of the micro-batch, in milliseconds.
            patience_ms: the patience in all, in milliseconds.
            given: the spouts, and the bolts that start trees, that emitted anything in the micro-batch.
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
                spout = component in self.feeders.get(component, ())
                changes.append(
                    OutageChange(component, before.phase, after.phase, shown, now_ms, *told, health.away, spout)
                )
        return changes

    def _count_reasons(self, fails: Iterable[Fail]) -> None:
        """Count the reasons for which bolts raised; the counts of a bolt that was well begin at zero."""
        for component in list(self.reasons):
            known = self.known.get(component)
            if known is None or (known.phase is Phase.WELL and not known.micro_batches):
                del self.reasons[component]
        for fail in fails:
            if fail.cause in RAISED:
                kinds = self.reasons.setdefault(fail.component, {})
                reason = fail.reason.removeprefix(NOT_TRIED)[:REASON_CHARACTERS_MAX]
                kind = _pattern(reason)
                kind = kind if kind in kinds or len(kinds) < REASONS_MAX else ""
                example, count = kinds.get(kind, (reason, 0))
                kinds[kind] = example, count + 1

    def _most_frequent(self, component: str) -> tuple[str, int, int]:
        kinds = self.reasons.get(component, {})
        reason, count = max(kinds.values(), key=lambda kind: kind[1], default=("", 0))
        return reason, count, sum(count for _, count in kinds.values())

    # Consequences.

    def costs_nothing(self, fail: Fail) -> bool:
        """Whether a failure does not count as an attempt at its message.

        This holds for ``Unavailable``. While a bolt is in an outage, it also holds if the bolt raised, or if a tree
        that it held timed out. A timeout alone is not a sign of an outage: a bolt that forgets to ack causes timeouts
        too.
        """
        if fail.cause == Cause.UNAVAILABLE:
            return True
        return (fail.cause in RAISED or fail.cause == Cause.TIMEOUT) and self._is_out(fail.component)

    def wait_ms(self, fail: Fail) -> int:
        """How long, in ms, a message waits after a failure that does not count; 0 in an outage, when probes decide."""
        if self._is_out(fail.component):
            return 0
        known = self.known.get(fail.component)
        return PROBE_WAITS.delay_ms(max(1, known.strained if known else 1), fail.key)

    def _is_out(self, component: str) -> bool:
        known = self.known.get(component)
        return known is not None and known.phase is Phase.OUT

    def allowances(self, now_ms: int) -> dict[str, Allowance]:
        """How much spouts and bolts that start trees may emit at ``now_ms``; those left out have no limit."""
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
        """The bolts in an outage now."""
        return {name: known for name, known in self.known.items() if known.phase is Phase.OUT}

    def sentences(self, now_ms: int, awaited: Mapping[str, str] | None = None) -> list[str]:
        """Sentences for users: which bolts wait, for what, since when (UTC), why, and when the next probe runs.

        Args:
            now_ms: the time, in milliseconds.
            awaited: by component what it waits for, such as ``its database``; empty or left out: unknown.

        >>> out = Outage(Phase.OUT, since_ms=0, next_probe_ms=52_000)
        >>> reasons = {"db": {"": ("ConnectionError: refused", 3)}}
        >>> Outages(known={"db": out}, reasons=reasons).sentences(40_000, {"db": "its database"})
        ['db waits for its database since 00:00 UTC (ConnectionError: refused), next probe in 12 s']
        >>> Outages(known={"db": out}).sentences(86_400_000)
        ['db waits since 1970-01-01 00:00 UTC, next probe now']
        """
        found = []
        for component, known in self.out().items():
            reason, _, _ = self._most_frequent(component)  # unknown to a driver that has just started
            why = f" ({' '.join(reason.split())})" if reason else ""
            wait_ms = known.next_probe_ms - now_ms
            when = f"in {span_text(wait_ms)}" if wait_ms > 0 else "now"
            what = f" for {awaited[component]}" if awaited and awaited.get(component) else ""
            found.append(f"{component} waits{what} since {since_text(known.since_ms, now_ms)}{why}, next probe {when}")
        return found


def _pattern(reason: str) -> str:
    """A reason without its numbers, which differ between failures of the same kind.

    >>> _pattern("ConnectionError: 10.0.0.1:5432 refused, try 17")
    'ConnectionError: #.#.#.#:# refused, try #'
    """
    return re.sub(r"\d+", "#", reason)
