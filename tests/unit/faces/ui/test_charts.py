"""Charts: gaps where nothing was measured, few points, events with their text, and nothing that breaks out of HTML."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest

from sparkbolt.faces.ui.charts import POINTS_MAX, Chart, Line, drawn, nice_ticks
from tests.unit.faces.ui.shop import NASTY


def chart(values: list[float | None], **given: Any) -> Chart:
    times = [10_000 * number for number in range(len(values))]
    return Chart("Lag", "count", times, [Line("lag", "a", values, given.pop("peaks", False))], **given)


def line_of(html: str) -> str:
    found = re.search(r'<path class="line line-a" d="([^"]*)"', html)
    assert found
    return found[1]


def test_a_line_has_a_gap_where_nothing_was_measured() -> None:
    d = line_of(drawn(chart([1.0, 2.0, None, None, 3.0, 4.0])))
    assert (d.count("M"), d.count("L")) == (2, 2)


def test_a_chart_of_nothing_says_so() -> None:
    assert "There are no measurements" in drawn(chart([None, None, None]))
    assert "There are no measurements" in drawn(chart([]))
    assert "There are no measurements" in drawn(Chart("Lag", "count", [], []))


@pytest.mark.parametrize(("peaks", "highest"), [(True, 999.0), (False, 499.5)])
def test_a_long_series_is_thinned_out_and_keeps_its_peaks_where_requested(peaks: bool, highest: float) -> None:
    html = drawn(chart([float(999 * (number % 2)) for number in range(4 * POINTS_MAX)], peaks=peaks))
    data = json.loads(unescape(re.search(r'data-chart="([^"]*)"', html)[1]))  # type: ignore[index]
    assert len(data["times"]) == POINTS_MAX
    assert max(data["lines"][0]["values"]) == highest


def test_events_within_the_time_are_marked_with_their_text_escaped() -> None:
    events: Any = [
        {"time_ms": 15_000, "kind": "restarted", "text": NASTY, "by": None},
        {"time_ms": 10**9, "kind": "killed", "text": "later", "by": None},
    ]
    html = drawn(chart([1.0, 2.0, 3.0], events=events))
    assert html.count('class="event loud"') == 1
    assert NASTY not in html
    assert "later" not in html


@pytest.mark.parametrize("highest", [0.0, 1e-9, 0.3, 1.0, 87.0, 1e6, 1e18, float("nan"), float("inf")])
def test_ticks_begin_at_0_and_reach_the_highest_value(highest: float) -> None:
    ticks = nice_ticks(highest)
    assert ticks[0] == 0
    assert 2 <= len(ticks) <= 6
    if highest < float("inf"):
        assert ticks[-1] >= highest * 0.999
