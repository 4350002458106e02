"""The benchmarks' own arithmetic: the text, the steady middle of a run, ratios and aims. Nothing is measured."""

from __future__ import annotations

import argparse
import importlib
import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.__main__ import count, main
from benchmarks.figures import Aim, Figure, Printer, machine, ratios
from benchmarks.runs import Mark, in_turn, steady_marks, steady_rate
from benchmarks.spouts import Numbers
from benchmarks.text import WORDS_A_LINE, spelling, zipf_text
from sparkbolt import Range
from tests.tidy.repo import ROOT


def marks(*done_at: tuple[float, int]) -> list[Mark]:
    return [Mark(at_s, done, done, 0) for at_s, done in done_at]


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")))
def test_a_benchmark_can_be_run_as_far_as_its_imports_go(name):
    pytest.importorskip("pyspark")
    importlib.import_module(f"benchmarks.{name}")


def test_a_text_has_the_words_that_were_asked_for_and_says_how_many_are_distinct(tmp_path):
    text = zipf_text(20_000, ranks=500, directory=tmp_path)
    lines = text.path.read_text().splitlines()
    words = [word for line in lines for word in line.split(" ")]
    assert {len(line.split(" ")) for line in lines} == {WORDS_A_LINE}
    assert (len(words), len(set(words))) == (text.words, text.distinct) == (20_000, text.distinct)


def test_a_text_is_the_same_each_time_it_is_made(tmp_path):
    one, other = (zipf_text(1_000, directory=tmp_path / name) for name in ("one", "other"))
    assert one.path.read_bytes() == other.path.read_bytes()


def test_a_text_that_is_there_is_not_made_again(tmp_path):
    text = zipf_text(1_000, directory=tmp_path)
    text.path.write_text("kept")
    assert zipf_text(1_000, directory=tmp_path).path.read_text() == "kept"


def test_the_frequency_of_a_word_falls_as_its_rank_rises(tmp_path):
    text = zipf_text(50_000, ranks=1_000, directory=tmp_path)
    counts = Counter(text.path.read_text().split())
    assert counts[spelling(0)] > 1.5 * counts[spelling(1)] > 1.5 * counts[spelling(3)]


@given(st.sets(st.integers(0, 10**9)))
def test_no_two_ranks_are_spelled_alike(ranks):
    assert len({spelling(rank) for rank in ranks}) == len(ranks)


def test_a_steady_rate_leaves_out_the_start_and_the_last_micro_batch():
    assert steady_rate(marks((0, 10), (10, 50), (11, 150), (12, 250), (12.5, 260))) == 100.0


def test_micro_batches_that_did_nothing_do_not_end_the_steady_middle():
    assert steady_rate(marks((0, 50), (1, 100), (2, 200), (2.5, 210), (9, 210))) == 100.0


def test_a_run_that_is_too_short_has_no_steady_middle():
    with pytest.raises(ValueError, match="too few"):
        steady_marks(marks((0, 10), (1, 20)))


@given(st.integers(1, 100), st.integers(3, 50))
def test_an_even_run_has_its_even_rate(rate, micro_batches):
    assert steady_rate(marks(*((float(i), rate * (i + 1)) for i in range(micro_batches)))) == rate


def test_contenders_take_turns():
    calls: list[str] = []
    in_turn(2, lambda: calls.append("a") or 0.0, lambda: calls.append("b") or 0.0)
    assert calls == ["a", "b", "a", "b"]


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


def test_a_figure_is_one_json_object_a_line_with_the_median_of_its_samples(capsys):
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


def test_a_figure_for_people_says_whether_its_aim_is_reached(capsys):
    Printer(as_json=False).figure(Figure("b", "f", (1.0,), "s", Aim("at most", 0.5)))
    assert "1 s  aim: at most 0.5 s: NOT REACHED" in capsys.readouterr().out


def test_a_run_says_what_machine_it_was_on():
    assert {"cores", "load", "python", "pyspark", "commit"} <= machine().keys()


def test_without_a_name_the_names_are_listed(capsys):
    assert main([]) == 0
    assert "words" in capsys.readouterr().out


def test_a_count_may_end_in_k_or_m_and_nothing_else():
    assert (count("20M"), count("300k"), count("17")) == (20_000_000, 300_000, 17)
    with pytest.raises(argparse.ArgumentTypeError, match="20m"):
        count("20m")


@given(st.integers(1, 300).filter(lambda keys: np.gcd(keys, 7919) == 1))
def test_a_fill_of_numbers_has_every_key_once(keys):
    spout = Numbers(keys, fill=keys)
    assert sorted(values[0] for _, values in spout.read(Range(0, "numbers", 0, keys))) == list(range(keys))


@given(st.integers(0, 50), st.lists(st.integers(1, 9), min_size=1), st.integers(0, 4), st.integers(1, 20))
def test_numbers_are_filled_within_the_budget_and_then_come_in_steps(fill, steps, cycles, budget):
    spout = Numbers(10, fill=fill, steps=tuple(steps), cycles=cycles)
    progress: dict[str, int] = {}
    sizes = []
    while not spout.finished(progress):
        (planned,) = spout.next_ranges(progress, budget)
        assert planned.start == progress.get("numbers", 0)
        progress["numbers"] = planned.end
        sizes.append(planned.end - planned.start)
    assert list(spout.next_ranges(progress, budget)) == []
    after = sizes[-(-fill // budget) :]
    assert (sum(sizes) - sum(after), after) == (fill, steps * cycles)
