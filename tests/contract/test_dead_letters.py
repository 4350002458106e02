"""What becomes of messages that are given up, on both engines: a file, a stream of the topology, a sink that fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.bolts.dead_letter_files import LettersRead, read_letters
from sparkbolt.core.model.dead_letters import RawMessage
from sparkbolt.core.model.story import root_text
from tests.contract.conftest import Begin
from tests.contract.engines import Engine
from tests.contract.lettered import NOT_A_NUMBER, NUMBERS, POISON, lettered

GIVEN_UP = {*POISON, 9, NOT_A_NUMBER}


@pytest.fixture(scope="module")
def ended(begin: Begin) -> Iterator[Engine]:
    with begin(lettered) as engine:
        engine.until_finished()
        yield engine


def filed(engine: Engine) -> LettersRead:
    return read_letters(Path(engine.directory, "dead.jsonl"))


def failures(engine: Engine, spout: str) -> dict[int | None, list[str]]:
    """The roots of the failed attempts at each position, in order."""
    found: dict[int | None, list[str]] = {}
    for tree in engine.failed:
        if tree.component == spout and not tree.letter:
            found.setdefault(tree.position, []).append(root_text(tree.key))
    return found


def test_every_message_that_is_given_up_is_in_the_file_and_no_other(ended: Engine) -> None:
    read = filed(ended)
    assert {letter.position for letter in read.letters} == GIVEN_UP
    assert (read.repeated, read.damaged) == (0, [])
    taken = Counter(n for spout, n in ended.notes("taken") if spout == "filed")
    assert taken == dict.fromkeys(set(range(NUMBERS)) - GIVEN_UP, 1)


def test_a_letter_tells_the_message_and_each_attempt(ended: Engine) -> None:
    [letter] = [letter for letter in filed(ended).letters if letter.position == POISON[0]]
    assert letter.where == f"filed[0] numbers@{POISON[0]}"
    assert (letter.topology, letter.version) == ("lettered", ended.topology.version)
    assert letter.values() == [{"n": POISON[0]}]
    assert letter.raw == RawMessage(str(POISON[0]).encode(), key=b"\xff")
    assert letter.note == ""
    assert [attempt.number for attempt in letter.attempts] == [1, 2]
    assert [attempt.root for attempt in letter.attempts] == failures(ended, "filed")[POISON[0]]
    for attempt in letter.attempts:
        assert (attempt.component, attempt.cause, attempt.reason) == (
            "picky",
            "exception",
            f"ValueError: no {POISON[0]}",
        )
        assert attempt.traceback is not None
        assert "raise ValueError" in attempt.traceback
        assert attempt.started_ms is not None
        assert attempt.started_ms <= attempt.ended_ms


def test_what_cannot_be_read_is_a_letter_after_one_attempt_with_what_came(ended: Engine) -> None:
    [letter] = [letter for letter in filed(ended).letters if letter.position == NOT_A_NUMBER]
    assert [(attempt.cause, attempt.reason) for attempt in letter.attempts] == [("unreadable", "not a number")]
    assert (letter.tuples, letter.note) == ((), "not a number")
    assert letter.raw == RawMessage(str(NOT_A_NUMBER).encode(), key=b"\xff")


def test_letters_are_counted_and_are_no_acks(ended: Engine) -> None:
    counts = ended.of("filed")
    assert (counts.set_aside, counts.dead_letters) == (len(GIVEN_UP), len(GIVEN_UP))
    assert counts.acked == NUMBERS - len(GIVEN_UP)
    assert counts.failed == 2 * (len(GIVEN_UP) - 1) + 1
    assert (counts.pending, counts.waiting) == (0, 0)


def test_a_letter_is_a_tuple_of_the_stream_with_values_and_story(ended: Engine) -> None:
    buried = [values for attempt, values in ended.notes("buried") if attempt == 1]
    assert sorted(values["story"]["position"] for values in buried) == sorted(GIVEN_UP)
    for values in buried:
        position = values["story"]["position"]
        assert values["n"] == (position if position != NOT_A_NUMBER else None)
        assert [one["root"] for one in values["story"]["attempts"]] == failures(ended, "streamed")[position]


def test_a_letter_that_bolts_refuse_comes_again_and_the_checkpoint_takes_it_in_the_end(ended: Engine) -> None:
    tried = Counter(values["n"] for _, values in ended.notes("buried"))
    assert (tried[5], tried[6], tried[31]) == (1, 2, 2)
    assert [tree for tree in ended.failed if tree.letter] == []
    [kept] = ended.letters()
    assert (kept.component, kept.position, kept.values()) == ("streamed", 31, [{"n": 31}])
    counts = ended.of("streamed")
    assert (counts.set_aside, counts.dead_letters) == (len(GIVEN_UP), len(GIVEN_UP))


def test_a_sink_that_fails_is_tried_again_and_the_letters_keep_their_ids(ended: Engine) -> None:
    broke = [count for [count] in ended.notes("broke")]
    letters = [body for _, body in ended.notes("letters")]
    assert Counter(letter["id"] for letter in letters).total() == 3 + broke[0], "each again that was in the failed try"
    assert {letter["message_id"] for letter in letters} == {"'job-5'", "'job-6'", "'job-9'"}
    assert len({letter["id"] for letter in letters}) == 3
    assert any("dead letters could not be written" in report.text for report in ended.reports)
    assert ended.of("jobs").dead_letters == 3


def test_a_spout_hears_that_a_message_is_done_when_its_letter_is_written(ended: Engine) -> None:
    heard: dict[str, Any] = {name: (what, *written) for what, name, *written in ended.notes("jobs")}
    assert len(ended.notes("jobs")) == 10
    assert {name for name, (_, written) in heard.items() if written} == {"job-5", "job-6", "job-9"}
    assert {what for what, _ in heard.values()} == {"ack"}
    [letter] = [body for name, body in ended.notes("letters") if name == "'job-9'"][-1:]
    assert (letter["stream"], letter["fields"], letter["tuples"]) == ("other", ["n", "why"], [[9, "other"]])


def test_nothing_is_written_again_after_a_restart(ended: Engine) -> None:
    before = Path(ended.directory, "dead.jsonl").read_bytes(), len(ended.notes("buried"))
    assert ended.of("filed").dead_letters == len(GIVEN_UP)
    ended.restart()
    assert ended.of("filed").dead_letters == len(GIVEN_UP)
    assert (Path(ended.directory, "dead.jsonl").read_bytes(), len(ended.notes("buried"))) == before
