"""When a bolt is out, how it is probed, and how long there is patience: the machine alone."""

from __future__ import annotations

import pytest

from sparkbolt.api.outage import PROBE_TUPLES, Health, Outage, Phase
from tests.unit.outages import HOUR_MS

pytestmark = pytest.mark.slow


def after(*healths: Health, of: Outage | None = None, every_ms: int = 1000, patience_ms: int = HOUR_MS) -> Outage:
    known = of or Outage()
    start_ms = known.next_probe_ms
    for place, health in enumerate(healths):
        known = known.after(health, start_ms + place * every_ms, patience_ms)
    return known


BROKEN = Health(got=40, raised=40, trailing=40)
AWAY = Health(got=10, raised=5, unavailable=5)
FINE = Health(got=40, raised=10)


@pytest.mark.parametrize(
    ("healths", "phase"),
    [
        ([AWAY], Phase.OUT),
        ([Health(got=10, raised=4, unavailable=4)], Phase.WELL),
        ([BROKEN, BROKEN], Phase.WELL),
        ([BROKEN, BROKEN, BROKEN], Phase.OUT),
        ([BROKEN, BROKEN, FINE, BROKEN], Phase.WELL),
        ([BROKEN, BROKEN, Health(0), BROKEN], Phase.OUT),
        ([Health(got=1000, raised=1000, trailing=1000)] * 2, Phase.WELL),
        ([Health(got=20, raised=20, trailing=20)] * 4, Phase.WELL),
        ([Health(got=20, raised=20, trailing=20)] * 5, Phase.OUT),
        ([Health(got=1000, raised=950, trailing=100)] * 3, Phase.OUT),
        ([Health(got=1000, raised=949, trailing=100)] * 3, Phase.WELL),
        ([Health(got=1000, raised=1000)] * 9, Phase.WELL),  # what had failed before, and nothing else
        ([Health(got=1000, raised=300, trailing=120), *[Health(got=120, raised=120)] * 3], Phase.OUT),
    ],
)
def test_a_bolt_is_out_when_it_raises_unavailable_or_fails_nearly_everything_for_long_enough(
    healths: list[Health], phase: Phase
) -> None:
    assert after(*healths).phase is phase


def test_a_bolt_that_is_out_is_probed_less_and_less_often_until_it_accepts_a_tuple() -> None:
    out = after(AWAY)
    waits = []
    for _ in range(10):
        known = out.after(AWAY, out.next_probe_ms, HOUR_MS)
        waits.append(known.next_probe_ms - out.next_probe_ms)
        out = known
    assert waits == [1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000, 30000]
    assert out.after(Health(got=10, raised=9), out.next_probe_ms, HOUR_MS).phase is Phase.WELL


def test_a_probe_that_does_not_reach_the_bolt_is_followed_by_a_larger_one_at_once() -> None:
    out = after(AWAY)
    at_ms = out.next_probe_ms
    assert out.after(Health(0), at_ms, HOUR_MS, probed=False) == out
    larger = out.after(Health(0), at_ms, HOUR_MS)
    assert (larger.probe_tuples, larger.next_probe_ms) == (2 * PROBE_TUPLES, at_ms)


def test_patience_is_used_by_probes_and_not_by_the_time_between_two_drivers() -> None:
    out = after(BROKEN, BROKEN, BROKEN)
    long = out.after(BROKEN, out.next_probe_ms + 10 * HOUR_MS, HOUR_MS)
    assert (long.phase, long.probed_ms) == (Phase.OUT, 60_000)
    known = out
    while known.phase is Phase.OUT:
        known = known.after(BROKEN, known.next_probe_ms, HOUR_MS)
    assert HOUR_MS <= known.seen_ms - out.since_ms < HOUR_MS + 60_000
    assert known.after(BROKEN, known.seen_ms + 1000, HOUR_MS).phase is Phase.SPENT
    assert known.after(AWAY, known.seen_ms + 1000, HOUR_MS).phase is Phase.OUT
    assert known.after(FINE, known.seen_ms + 1000, HOUR_MS).phase is Phase.WELL
