"""The campaign of kills without its kills: the plan, and books that see what is wrong."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.books import WORDS_A_LINE, DiamondBooks, Seen
from tests.chaos.plan import DELAY_SECS_MAX, plan


def test_a_seed_always_gives_the_same_kills_and_twenty_kills_cover_every_victim() -> None:
    kills = list(plan(3, 20))
    assert kills == list(plan(3, 20))
    assert kills != list(plan(4, 20))
    assert [kill.number for kill in kills] == list(range(1, 21))
    at_random = Counter(kill.victim for kill in kills if kill.moment is None)
    assert at_random == {"worker": 10, "daemon": 2, "planner": 2, "driver": 1, "jvm": 1}
    assert all(0 <= kill.delay_s <= DELAY_SECS_MAX for kill in kills)


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


def test_counters_that_decrease_or_do_not_add_up_are_detected(books: DiamondBooks) -> None:
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


def test_a_word_counted_too_seldom_too_often_or_twice_is_detected(books: DiamondBooks) -> None:
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


def test_a_line_not_joined_or_joined_twice_is_detected(books: DiamondBooks) -> None:
    file = books.directory / "joined" / "part-0.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    write(file, rows[:-1])
    assert books.check() == ["line 9 was joined 0 times"]
    write(file, [*rows, rows[0]])
    assert books.check()[0] == "line 0 was joined 2 times"


def test_counts_may_exceed_the_input_after_a_failed_tree_and_never_fall_short(books: DiamondBooks) -> None:
    books.see(Seen(1, emitted=11, acked=10, failed=1))
    word, true = books.words.most_common(1)[0]
    file = books.directory / "counts" / "part-0.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    write(file, [*rows, {"word": word, "count": true + 1}])
    assert books.check() == []
    write(file, rows[1:])
    assert books.check() != []
