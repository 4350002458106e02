"""The benchmarks' own arithmetic: the text, the steady middle of a run, ratios and aims. Nothing is measured."""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import since, words
from benchmarks.__main__ import count, main
from benchmarks.figures import Aim, Figure, Printer, machine, ratios
from benchmarks.runs import Mark, Options, in_turn, steady_marks, steady_rate
from benchmarks.spouts import Numbers
from benchmarks.text import WORDS_A_LINE, Text, spelling, zipf_text
from sparkbolt import Range
from sparkbolt.observe.history import MicroBatchRecord
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


def test_the_steps_of_a_micro_batch_follow_one_another_and_add_up_to_it():
    budget = pytest.importorskip("benchmarks.budget", exc_type=ImportError)
    ends = {"plan": 10, "read": 40, "level 1": 90, "acker": 110, "stage": 112, "commit": 118, "promotion": 120}
    parts = [(part, float(end) - 1, float(end)) for part, end in ends.items()]
    record = MicroBatchRecord(7, began_ms=1000, elapsed_ms=120.0, parts=parts, busy_ms={})
    steps = budget.steps_of(record, [{"submitted": 1030, "completed": 1050}, {"submitted": 1052, "completed": 1100}])
    assert steps.pop("all") == sum(steps.values()) == 120.0
    assert (steps["source: until a worker reads"], steps["level: until a worker works"]) == (9.0, 39.0)


def test_time_of_an_inner_part_does_not_count_for_the_outer_one(monkeypatch, tmp_path):
    budget = pytest.importorskip("benchmarks.budget", exc_type=ImportError)
    now = iter([0.0, 1.0, 3.0, 6.0, 10.0])
    monkeypatch.setattr(budget.time, "process_time", lambda: next(now))
    monkeypatch.setattr(budget, "PARTS", tmp_path)

    class Work:
        def outer(self):
            self.inner()

        def inner(self):
            pass

    watch = budget.Stopwatch()
    watch.time(Work, "outer", "level")
    watch.time(Work, "inner", "state")
    Work().outer()
    assert watch.spent == {"rest": 1.0, "level": 2.0 + 4.0, "state": 3.0}
    assert [json.loads(path.read_text()) for path in tmp_path.iterdir()] == [watch.spent]


def test_a_latency_begins_when_the_sentence_is_due_and_those_of_the_first_seconds_do_not_count():
    latency = pytest.importorskip("benchmarks.latency", exc_type=ImportError)
    warm = 10 * latency.WARM_SECS
    seen = latency.Seen(latency.Clock(10, 1, start_s=100.0), [(0, warm, 190.0), (warm, warm + 10, 121.0)])
    assert seen.latencies_ms().tolist() == pytest.approx([1000.0 - 100 * i for i in range(10)])


def test_a_run_in_which_a_sentence_was_not_done_has_no_latency():
    latency = pytest.importorskip("benchmarks.latency", exc_type=ImportError)
    with pytest.raises(RuntimeError, match="5 sentences were done, 210 were due"):
        latency.Seen(latency.Clock(10, 1, start_s=0.0), [(0, 5, 1.0)]).latencies_ms()


def test_the_growth_of_a_cost_is_that_of_its_least_samples_over_the_last_decade():
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


def test_a_contender_that_fails_is_not_called_again_and_says_why():
    peers = pytest.importorskip("benchmarks.peers", exc_type=ImportError)
    calls = []

    def measure():
        calls.append(1)
        raise RuntimeError("does not install:\n  no wheel")

    guarded = peers.Guarded(measure)
    assert np.isnan([guarded(), guarded()]).all()
    assert (len(calls), guarded.reason) == (1, "does not install: no wheel")


def test_a_line_without_a_figure_gives_the_reason(capsys):
    peers = pytest.importorskip("benchmarks.peers", exc_type=ImportError)
    missing = peers.NoFigure("peers", "storm", (), "words/s", reason="there is no javac")
    Printer(as_json=False).figure(missing)
    Printer(as_json=True).figure(missing)
    for_people, as_json = capsys.readouterr().out.splitlines()
    assert for_people.endswith("no figure: there is no javac")
    assert json.loads(as_json)["reason"] == "there is no javac"


def test_the_pieces_of_a_text_are_its_first_words_in_order(tmp_path, monkeypatch):
    peers = pytest.importorskip("benchmarks.peers", exc_type=ImportError)
    monkeypatch.setattr(peers, "CACHE", tmp_path)
    text = zipf_text(2_000, directory=tmp_path)
    pieces = sorted(peers.parts(text, 1_500).iterdir())
    assert len(pieces) == peers.PIECES
    assert text.path.read_text().startswith(together := "".join(piece.read_text() for piece in pieces))
    assert len(together.split()) == 1_500


def test_what_storm_is_made_of_is_made_anew_if_its_source_changes(tmp_path):
    storm = importlib.import_module("benchmarks.storm")
    source = tmp_path / "Words.java"
    source.write_text("one")
    first = storm._folder("classes", source)
    assert storm._folder("classes", source) == first
    source.write_text("two")
    assert storm._folder("classes", source) != first


def test_storms_latencies_have_the_names_of_their_shares(monkeypatch, tmp_path):
    storm = importlib.import_module("benchmarks.storm")
    said = [["latency", "1", "2", "3", "4"], ["since_due", "5", "6", "7", "8"], ["ended", "100", "0"]]
    monkeypatch.setattr(storm, "run", lambda *_: said)
    monkeypatch.setattr(storm, "zipf_text", lambda words: zipf_text(100, directory=tmp_path))
    told = storm.latency(1000, 5)
    assert (told["p50"], told["p99.9"], told["max"], told["due_max"]) == (1, 3, 4, 8)
    assert (told["acked"], told["failed"]) == (100, 0)


def test_the_report_of_a_scale_has_a_row_and_a_line_for_each_cost(tmp_path):
    from benchmarks.scale_report import report

    aim = Aim("at most", 1.1)
    figures = [
        Figure("scale", "a poll, without news, 1,000 sources", (5e-5,), "s"),
        Figure("scale", "a poll, without news, 100,000 sources", (6e-3,), "s"),
        Figure("scale", "a poll, without news, growth by sources", (1.25,), "", aim),
        Figure("scale", "their columns, 1,000 sources", (236e3,), "bytes"),
        Figure("scale", "their columns, 100,000 sources", (23.6e6,), "bytes"),
        Figure("scale", "their columns, growth by sources", (1.0,), "", aim),
        Figure("scale", "a small micro-batch, 2 executors, Spark", (0.8,), "s"),
        Figure("scale", "a small micro-batch, 8 executors, Spark", (0.9,), "s"),
        Figure("scale", "a small micro-batch, growth by executors, Spark", (0.02,), "", aim),
        Figure("scale", "a small micro-batch, two threads of one JVM", (0.3,), "s"),
    ]
    report(figures, tmp_path / "new")
    rows = [line for line in (tmp_path / "new/scale.md").read_text().splitlines() if line[:3] not in ("", "| -", "| b")]
    assert rows == [
        "| sources | a poll, without news | 1,000: 50 us | 100,000: 6 ms | 0.06 us | 1.25, above the aim |",
        "| sources | their columns | 1,000: 236 KB | 100,000: 23.6 MB | 236 bytes | 1.00 |",
        "| executors | a small micro-batch | 2: 800 ms | 8: 900 ms |  | 0.02 |",
    ]
    drawn = (tmp_path / "new/scale.svg").read_text()
    for text in ("a poll, without news (1.25)", "their columns (1.00)", "by executors (on Spark, by the clock)"):
        assert text in drawn


def test_too_few_words_for_turns_are_refused_before_anything_is_measured():
    with pytest.raises(ValueError, match="give 20,000,000 at least"):
        next(words.figures(Options(words=4_000_000)))


def test_an_earlier_commit_is_taken_from_the_repository_as_it_was_then(tmp_path, monkeypatch):
    def git(*arguments):
        names = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    monkeypatch.setattr(since, "ROOT", tmp_path)
    monkeypatch.setattr(since, "CHECKOUTS", tmp_path / "checkouts")
    package = tmp_path / "sparkbolt" / "__init__.py"
    package.parent.mkdir()
    git("init", "-q")
    for text in ("then", "now"):
        package.write_text(text)
        git("add", "sparkbolt")
        git("commit", "-q", "-m", text)
    for _ in range(2):
        assert (since.package_of("HEAD~1") / "sparkbolt/__init__.py").read_text() == "then"
    with pytest.raises(RuntimeError, match=r"0123abc.*git fetch --unshallow"):
        since.package_of("0123abc")


def test_what_an_earlier_commit_raises_is_told(tmp_path):
    (tmp_path / "sparkbolt").mkdir()
    (tmp_path / "sparkbolt/__init__.py").write_text("raise SystemError('as it was then')")
    with pytest.raises(RuntimeError, match=r"words of .* failed:(.|\n)*as it was then"):
        since.rate(tmp_path, "words", Text(tmp_path / "text", 1_000, 100))
