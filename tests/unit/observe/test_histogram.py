"""Histograms of durations: they add up, and their percentiles are as near as they promise."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.observe.histogram import ERROR_MAX, LEAST_MS, Histogram

DURATIONS = st.lists(st.floats(LEAST_MS, 1e8), min_size=1, max_size=200)


def histogram_of(durations: list[float]) -> Histogram:
    made = Histogram()
    for duration in durations:
        made.add(duration)
    return made


@given(DURATIONS, st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0]))
def test_a_percentile_is_as_accurate_as_promised(durations: list[float], share: float) -> None:
    exact = sorted(durations)[math.ceil(len(durations) * share) - 1]
    found = histogram_of(durations).percentile(share)
    assert found is not None
    assert abs(found - exact) <= ERROR_MAX * exact * 1.000001


@given(DURATIONS, DURATIONS)
def test_two_histograms_add_up_to_that_of_all_durations(some: list[float], others: list[float]) -> None:
    both = histogram_of(some)
    both.merge(histogram_of(others))
    expected = histogram_of(some + others)
    assert both.counts == expected.counts
    assert both.max_ms == expected.max_ms
    assert math.isclose(both.sum_ms, expected.sum_ms)


def test_empty_measurement_has_no_percentile() -> None:
    assert Histogram().percentiles() == {"p50": None, "p99": None, "p999": None, "max": None}
    assert Histogram().mean_ms is None


def test_the_maximum_bounds_every_percentile() -> None:
    one = histogram_of([1.0])
    assert one.percentile(0.999) == 1.0
