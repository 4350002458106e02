"""The benchmarks' own arithmetic: the text, the steady middle of a run, ratios and aims. Nothing is measured."""

from __future__ import annotations

import argparse
import importlib
import json
from collections import Counter

import pytest

from benchmarks.__main__ import count
from benchmarks.figures import Aim, Figure, Printer, ratios
from benchmarks.runs import Mark, steady_rate
from benchmarks.text import spelling, zipf_text
from tests.tidy.repo import ROOT


def marks(*done_at: tuple[float, int]) -> list[Mark]:
    return [Mark(at_s, done, done, 0) for at_s, done in done_at]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")))
def test_a_benchmark_runs_as_far_as_its_imports(name):
    pytest.importorskip("pyspark")
    importlib.import_module(f"benchmarks.{name}")


def test_the_frequency_of_a_word_falls_as_its_rank_rises(tmp_path):
    text = zipf_text(50_000, ranks=1_000, directory=tmp_path)
    counts = Counter(text.path.read_text().split())
    assert counts[spelling(0)] > 1.5 * counts[spelling(1)] > 1.5 * counts[spelling(3)]


def test_a_steady_rate_leaves_out_the_start_and_the_last_micro_batch():
    assert steady_rate(marks((0, 10), (10, 50), (11, 150), (12, 250), (12.5, 260))) == 100.0


def test_a_ratio_is_taken_turn_by_turn():
    assert ratios([2.0, 9.0], [1.0, 3.0]) == (2.0, 3.0)


@pytest.mark.parametrize(
    ("aim", "value", "reached"),
    [
        (Aim("at least", 5), 5.0, True),
        (Aim("at least", 5), 4.9, False),
        (Aim("at most", 5), 5.0, True),
        (Aim("at most", 5), 5.1, False),
    ],
)
def test_an_aim_is_reached_at_its_limit(aim, value, reached):
    assert aim.reached(value) is reached
    assert Figure("b", "f", (value,), "times", aim).to_json()["reached"] is reached


def test_a_figure_is_one_json_object_per_line_with_the_median_of_its_samples(capsys):
    Printer(as_json=True).figure(Figure("b", "f", (1.0, 9.0, 2.0), "s", notes={"words": 3}))
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "benchmark": "b",
        "figure": "f",
        "value": 2.0,
        "unit": "s",
        "samples": [1.0, 9.0, 2.0],
        "words": 3,
    }


def test_a_count_may_end_in_k_or_m_and_nothing_else():
    assert (count("20M"), count("300k"), count("17")) == (20_000_000, 300_000, 17)
    with pytest.raises(argparse.ArgumentTypeError, match="20m"):
        count("20m")


def test_a_run_with_an_unfinished_sentence_has_no_latency():
    latency = pytest.importorskip("benchmarks.latency", exc_type=ImportError)
    with pytest.raises(RuntimeError, match="5 sentences were done, 210 were due"):
        latency.Seen(latency.Clock(10, 1, start_s=0.0), [(0, 5, 1.0)]).latencies_ms()


@pytest.mark.slow
def test_growth_of_a_cost_is_measured_from_its_least_samples_over_the_last_decade():
    from benchmarks.scale_growth import Axis, Cost

    noise = iter([1.0, 1.0, 1.0, 9.0, 1.0, 5.0])
    axis = Axis("sources", (1, 100, 1000), lambda size: {"a poll": Cost(size * next(noise))}, rounds=2)
    *sizes, growth = axis.figures(rounds=3)
    assert [(figure.name, figure.samples) for figure in sizes] == [
        ("a poll, 1 sources", (1.0, 9.0)),
        ("a poll, 100 sources", (100.0, 100.0)),
        ("a poll, 1,000 sources", (1000.0, 5000.0)),
    ]
    assert (growth.name, growth.value, growth.aim.reached(growth.value)) == ("a poll, growth by sources", 1.0, True)
