"""Charts: gaps where nothing was measured, few points, events with their text, and nothing that breaks out of HTML."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from itertools import pairwise
from typing import Any

import pytest

from sparkbolt.faces.ui.charts import POINTS_MAX, Chart, Line, drawn, nice_ticks
from tests.unit.control.shop import NASTY


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


def test_a_line_has_a_gap_where_the_topology_did_not_run() -> None:
    times = [*range(0, 100_000, 10_000), *range(900_000, 1_000_000, 10_000)]
    one = Chart("Lag", "count", times, [Line("lag", "a", [1.0] * 20)])
    assert line_of(drawn(one)).count("M") == 2
    slow = replace(one, times_ms=[30_000 * number for number in range(20)])
    assert line_of(drawn(slow)).count("M") == 1  # long micro-batches


def test_a_chart_of_zeros_says_that_none_failed_unless_nothing_was_measured() -> None:
    assert "No tuple failed." in drawn(chart([0.0, None, 0.0], all_zero="No tuple failed."))
    assert "There are no measurements" in drawn(chart([None, None], all_zero="No tuple failed."))
    assert "No tuple failed." not in drawn(chart([0.0, 1.0], all_zero="No tuple failed."))


@pytest.mark.parametrize(
    ("unit", "highest"),
    [("rate", 12_400.0), ("rate", 61_000.0), ("count", 3.0), ("share", 0.012), ("size", 13.1 * 2**30), ("ms", 1_730.0)],
)
def test_the_labels_of_an_axis_are_exact_and_have_room(unit: Any, highest: float) -> None:
    html = drawn(replace(chart([highest, 0.0]), unit=unit))
    labels = re.findall(r'<text class="tick" x="([0-9.]+)" y="[0-9.]+" text-anchor="end">([^<]*)<', html)
    texts = [text for _, text in labels]
    assert len(set(texts)) == len(texts) > 2
    values = [float(text.replace(",", "").split()[0]) * (1000 if "k" in text else 1) for text in texts]
    steps = {round(b - a, 9) for a, b in pairwise(values)}
    assert len(steps) == 1
    assert all(float(x) > 6 * len(text) for x, text in labels)


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
