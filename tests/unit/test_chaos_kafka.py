"""The books of the campaign on Kafka see what is wrong; nothing is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparkbolt.api.dead_letters import Attempt, DeadLetter, RawMessage
from tests.chaos.__main__ import count_of, kafka_line_of, kafka_summary_of
from tests.chaos.kafka import KAFKA_PARTITIONS, MAX_RETRIES
from tests.chaos.kafka_books import KafkaBooks, Offset
from tests.chaos.kafka_campaign import Outcome

MESSAGES = 80
POISON = 21
ENDS = dict.fromkeys(range(KAFKA_PARTITIONS), MESSAGES // KAFKA_PARTITIONS)
DONE = {part: Offset(end) for part, end in ENDS.items()}


def letter_of(number: int) -> DeadLetter:
    attempts = tuple(
        Attempt(n, "5f", "exception", "ValueError: no", "work", 0, 7, 1000, 1500, traceback="ValueError: no")
        for n in range(1, MAX_RETRIES + 2)
    )
    source, position = f"messages/{number % KAFKA_PARTITIONS}", number // KAFKA_PARTITIONS
    raw = RawMessage(f"poison {number}".encode())
    return DeadLetter("5f", "campaign", "a1", "lines", 0, attempts, source=source, position=position, raw=raw)


def write(path: Path, numbers: list[int]) -> None:
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(".new")
    new.write_bytes(np.array(numbers, np.int64).tobytes())
    new.replace(path)


@pytest.fixture
def books(tmp_path: Path) -> KafkaBooks:
    """Books of messages that were all processed but for the poison, by two micro-batches of one driver."""
    books = KafkaBooks(tmp_path, MESSAGES, [POISON])
    good = [number for number in range(MESSAGES) if number != POISON]
    write(tmp_path / "out-0" / "part-000000-work-0.int64", good[:40])
    write(tmp_path / "out-0" / "part-000001-work-0.int64", good[40:])
    write(tmp_path / "given" / "000-77-0.int64", good)
    books.begins(0, {})
    books.look()
    return books


def test_what_was_processed_and_committed_is_right(books: KafkaBooks) -> None:
    assert books.processed == MESSAGES - 1
    assert books.check(DONE, ENDS, [letter_of(POISON)]) == []
    assert books.repeats() == (0, [])


def test_an_offset_that_passes_what_is_not_finished_is_wrong(books: KafkaBooks) -> None:
    part, offset = POISON % KAFKA_PARTITIONS, POISON // KAFKA_PARTITIONS
    assert books.committed({part: Offset(offset)}) == []
    told = f"the committed offsets pass messages that are not finished: {part}@{offset}"
    assert books.committed({part: Offset(offset + 1)}) == [told]
    assert books.committed({part: Offset(offset + 1)}, [letter_of(POISON)]) == []


def test_a_finished_interval_beyond_the_offset_is_believed_no_more_than_the_offset(books: KafkaBooks) -> None:
    part, offset = POISON % KAFKA_PARTITIONS, POISON // KAFKA_PARTITIONS
    assert books.committed({part: Offset(0, [(offset + 1, offset + 3)])}) == []
    (told,) = books.committed({part: Offset(0, [(offset, offset + 3)])})
    assert told.endswith(f"{part}@{offset}")


def test_a_file_that_was_replaced_counts_as_it_is_now(books: KafkaBooks) -> None:
    write(books.directory / "out-0" / "part-000000-work-0.int64", [0, 1])
    books.look()
    assert books.processed == MESSAGES - 1 - 38
    (told,) = books.committed({3: Offset(2)})
    assert told.endswith("3@0, 3@1")


def test_an_offset_that_goes_back_is_wrong(books: KafkaBooks) -> None:
    assert books.committed({0: Offset(5)}) == []
    assert books.committed({0: Offset(4)}) == ["the committed offset of messages/0 went back from 5 to 4"]


def test_messages_that_were_lost_and_offsets_that_are_not_at_the_end_are_wrong(books: KafkaBooks) -> None:
    write(books.directory / "out-0" / "part-000001-work-0.int64", [79])
    books.look()
    wrong = books.check({**DONE, 2: Offset(3)}, ENDS, [letter_of(POISON)])
    assert any("38 messages were never processed" in text for text in wrong)
    assert "the group's offset of messages/2 is 3, and the end 10" in wrong


def test_after_a_kill_only_what_was_not_committed_may_come_again(books: KafkaBooks) -> None:
    write(books.directory / "given" / "001-78-0.int64", [72, 79])
    books.begins(1, {0: Offset(9), 7: Offset(4, [(8, 9)])})
    assert books.repeats() == (2, [])
    books.begins(1, {0: Offset(10), 7: Offset(4, [(9, 10)])})
    assert books.repeats() == (2, ["driver 1 was given what was committed before it: 0@9, 7@9"])


def test_after_a_clean_stop_nothing_may_come_again(books: KafkaBooks) -> None:
    write(books.directory / "given" / "001-78-0.int64", [72])
    books.begins(1, {}, clean=True)
    assert books.repeats() == (1, ["driver 1 repeats after a clean stop: 0@9"])


def test_each_poison_has_one_letter_with_its_story(books: KafkaBooks) -> None:
    good = letter_of(POISON)
    assert books.check(DONE, ENDS, [good, letter_of(5)])[0] == "dead letters are 5@0, 5@2, and poison is 5@2"
    for bad in (
        replace(good, attempts=good.attempts[:-1]),
        replace(good, attempts_left_out=1),
        replace(good, raw=None),
        replace(good, attempts=(*good.attempts[:-1], replace(good.attempts[-1], traceback=None))),
    ):
        (told,) = books.check(DONE, ENDS, [bad])
        assert told.startswith("the dead letter of 5@2 says")


def test_events_and_the_summary_say_what_is_wrong() -> None:
    event = {"at_s": 1.0, "processed": 5, "committed": 4, "messages": MESSAGES, "wrong": []}
    line = kafka_line_of({**event, "event": "driver", "number": 3, "where": "at a random moment", "took_s": 8.0})
    assert line.endswith(" 3 driver killed at a random moment; it went on after 8.0 s; wrong: []")
    assert kafka_summary_of(Outcome(1, MESSAGES), "/x")[-1] == "wrong: []"
    assert kafka_summary_of(Outcome(1, MESSAGES, wrong=["all"]), "/x")[-2:] == ["wrong: ['all']", "kept for a look: /x"]
    assert [count_of(text) for text in ("2M", "1.5k", "16")] == [2_000_000, 1500, 16]
