"""The campaign of kills without its kills: the plan, and books that see what is wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.__main__ import line_of, summary_of
from tests.chaos.books import WORDS_A_LINE, DiamondBooks, Seen
from tests.chaos.campaign import Outcome
from tests.chaos.moments import MOMENTS
from tests.chaos.plan import DELAY_SECS_MAX, plan


def test_a_seed_gives_the_same_kills_and_twenty_have_every_victim() -> None:
    kills = list(plan(3, 20))
    assert kills == list(plan(3, 20))
    assert kills != list(plan(4, 20))
    assert [kill.number for kill in kills] == list(range(1, 21))
    at_random = Counter(kill.victim for kill in kills if kill.moment is None)
    assert at_random == {"worker": 10, "daemon": 2, "planner": 2, "driver": 1, "jvm": 1}
    assert all(0 <= kill.delay_s <= DELAY_SECS_MAX for kill in kills)


def test_sixty_kills_have_each_moment_with_the_driver_and_with_the_jvm() -> None:
    aimed = Counter((kill.moment, kill.victim) for kill in plan(1, 60) if kill.moment is not None)
    assert aimed == {(moment, victim): 1 for moment in MOMENTS for victim in ("driver", "jvm")}


def test_a_campaign_may_kill_the_driver_alone_at_random_moments_and_at_each_that_is_aimed() -> None:
    kills = list(plan(5, 18, driver_only=True))
    assert {kill.victim for kill in kills} == {"driver"}
    assert sorted(kill.moment for kill in kills if kill.moment is not None) == sorted(MOMENTS)


@pytest.fixture
def books(tmp_path: Path) -> DiamondBooks:
    """Books of ten lines, and files that say that all went well."""
    books = DiamondBooks(tmp_path, seed=1)
    books.feed(10)
    rows = [{"word": word, "count": n} for word, total in books.words.items() for n in range(1, total + 1)]
    write(tmp_path / "counts" / "part-0.jsonl", rows)
    write(tmp_path / "joined" / "part-0.jsonl", [{"key": f"line{n}", "words": WORDS_A_LINE} for n in range(10)])
    return books


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_what_was_fed_is_what_the_files_say(books: DiamondBooks) -> None:
    text = "".join(path.read_text() for path in (books.directory / "text").iterdir())
    words = [line.split() for line in text.splitlines()]
    assert {key for key, *_ in words} == {f"line{n}" for n in range(10)}
    assert Counter(word for _, *rest in words for word in rest) == books.words
    assert books.check() == []


def test_counters_that_go_back_or_do_not_add_up_are_seen(books: DiamondBooks) -> None:
    assert books.see(Seen(3, emitted=8, acked=5, failed=1, open=2)) == []
    assert not books.settled
    assert books.see(Seen(3, emitted=8, acked=4, failed=1, open=3)) == [
        "acked went back from 5 to 4",
        "micro-batch 3 is promoted after 3",
    ]
    assert books.see(Seen(4, emitted=12, acked=11, failed=1, open=1)) == [
        "11 lines are acked, but only 10 were fed",
        "12 emitted are not 11 acked, 1 failed, 1 open",
    ]
    books.see(Seen(5, emitted=10, acked=10))
    assert books.settled


def test_a_word_counted_too_seldom_too_often_or_twice_is_seen(books: DiamondBooks) -> None:
    word, true = books.words.most_common(1)[0]
    file = books.directory / "counts" / "part-0.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    write(file, [row for row in rows if row != {"word": word, "count": true}])
    assert books.check() == [f"word {word!r} was fed {true} times and counted {true - 1} times"]
    write(file, [*rows, {"word": word, "count": true + 1}])
    assert books.check() == [f"word {word!r} was fed {true} times and counted {true + 1} times"]
    write(file, [*rows, {"word": word, "count": 1}])
    assert books.check() == [f"word {word!r}: its counts [1] were written twice"]
    write(file, [row for row in rows if row != {"word": word, "count": 1}])
    assert books.check() == [f"word {word!r}: its counts [1] were never written"]
    write(file, [*rows, {"word": "ghost", "count": 1}])
    assert books.check() == ["word 'ghost' was never fed"]


def test_a_line_that_was_not_joined_or_joined_twice_is_seen(books: DiamondBooks) -> None:
    file = books.directory / "joined" / "part-0.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    write(file, rows[:-1])
    assert books.check() == ["line 9 was joined 0 times"]
    write(file, [*rows, rows[0]])
    assert books.check()[0] == "line 0 was joined 2 times"


def test_more_than_was_fed_is_fine_where_a_tree_failed_and_less_never_is(books: DiamondBooks) -> None:
    books.see(Seen(1, emitted=11, acked=10, failed=1))
    word, true = books.words.most_common(1)[0]
    file = books.directory / "counts" / "part-0.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    write(file, [*rows, {"word": word, "count": true + 1}])
    assert books.check() == []
    write(file, rows[1:])
    assert books.check() != []


def test_lines_and_the_summary_are_plain() -> None:
    kill = {
        "event": "kill",
        "number": 7,
        "at_s": 41.3,
        "what": "planner, 0.84 s after lines came",
        "where": "after micro-batch 12, pid 17",
        "new_drivers": 0,
        "survived_s": 3.1,
        "acked": 1200,
        "fed": 1400,
        "failed": 0,
        "open": 200,
        "wrong": [],
    }
    assert line_of(kill) == (
        "kill   7    41.3 s  planner, 0.84 s after lines came (after micro-batch 12, pid 17): two micro-batches later "
        "after 3.1 s; 1,200 of 1,400 lines acked, 0 failed, 200 open; nothing wrong"
    )
    outcome = Outcome(seed=5, kills=2, victims=Counter(jvm=2), elapsed_s=60.0, wrong=["line 9 was joined 0 times"])
    said = summary_of(outcome, "a/folder")
    assert said[0].startswith("2 kills in 60 s (2.0 a minute), seed 5: 2 jvm")
    assert said[-2:] == ["WRONG: line 9 was joined 0 times", "kept for a look: a/folder"]
    assert json.loads(json.dumps(outcome.to_json()))["kills_per_minute"] == 2.0
