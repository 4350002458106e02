"""The books of the campaign on Kafka see what is wrong; nothing is started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sparkbolt.api.dead_letters import Attempt, DeadLetter, RawMessage
from tests.chaos.kafka import KAFKA_PARTITIONS, MAX_RETRIES
from tests.chaos.kafka_books import KafkaBooks, Offset

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


def test_check_accepts_correctly_processed_and_committed_messages(books: KafkaBooks) -> None:
    assert books.processed == MESSAGES - 1
    assert books.check(DONE, ENDS, [letter_of(POISON)]) == []
    assert books.repeats() == (0, [])


def test_an_offset_beyond_an_unfinished_message_is_wrong(books: KafkaBooks) -> None:
    part, offset = POISON % KAFKA_PARTITIONS, POISON // KAFKA_PARTITIONS
    assert books.committed({part: Offset(offset)}) == []
    told = f"the committed offsets pass messages that are not finished: {part}@{offset}"
    assert books.committed({part: Offset(offset + 1)}) == [told]
    assert books.committed({part: Offset(offset + 1)}, [letter_of(POISON)]) == []


def test_an_offset_that_moves_backwards_is_wrong(books: KafkaBooks) -> None:
    assert books.committed({0: Offset(5)}) == []
    assert books.committed({0: Offset(4)}) == ["the committed offset of messages/0 went back from 5 to 4"]


def test_check_detects_lost_messages_and_offsets_that_are_not_at_the_end(books: KafkaBooks) -> None:
    write(books.directory / "out-0" / "part-000001-work-0.int64", [79])
    books.look()
    wrong = books.check({**DONE, 2: Offset(3)}, ENDS, [letter_of(POISON)])
    assert any("38 messages were never processed" in text for text in wrong)
    assert "the group's offset of messages/2 is 3, and the end 10" in wrong


def test_only_uncommitted_messages_may_be_repeated_after_a_kill(books: KafkaBooks) -> None:
    write(books.directory / "given" / "001-78-0.int64", [72, 79])
    books.begins(1, {0: Offset(9), 7: Offset(4, [(8, 9)])})
    assert books.repeats() == (2, [])
    books.begins(1, {0: Offset(10), 7: Offset(4, [(9, 10)])})
    assert books.repeats() == (2, ["driver 1 was given what was committed before it: 0@9, 7@9"])


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
