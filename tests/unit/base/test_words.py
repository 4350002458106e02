"""Words: enums that are their texts for everybody else."""

from __future__ import annotations

import copy
import json
import pickle

import cloudpickle
import pytest

from sparkbolt.api.causes import AWAY, EXHAUSTED, FINAL, NOT_READ, RAISED, STOPPING, Cause, MessageOutcome
from sparkbolt.api.reports import Fail, FailedTree
from sparkbolt.api.story import Story
from sparkbolt.api.tree_life import TreeState
from sparkbolt.base.hashing import hash_value
from sparkbolt.base.words import Word
from sparkbolt.driver.ledger.log import State, dump_snapshot, load_snapshot
from sparkbolt.driver.ledger.messages import MessagesState
from sparkbolt.driver.ledger.story_store import StoriesState
from sparkbolt.wire.acker import Partials, decode_partials, encode_partials

EVERY: list[Word] = [*Cause, *MessageOutcome]


@pytest.mark.parametrize("word", EVERY, ids=str)
def test_a_word_is_its_text_wherever_it_is_seen(word: Word) -> None:
    text = word.value
    assert type(text) is str
    assert word == text
    assert hash(word) == hash(text)
    assert (repr(word), str(word), f"{word:>12}", json.dumps({word: word})) == (
        *(repr(text), text, f"{text:>12}"),
        json.dumps({text: text}),
    )
    assert (copy.copy(word), copy.deepcopy(word)) == (text, text)
    assert hash_value(word) == hash_value(text)


@pytest.mark.parametrize("dump", [pickle.dumps, cloudpickle.dumps])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_holds_the_text_alone_so_every_version_reads_it(dump, protocol) -> None:
    data = dump([Cause.TIMEOUT, Cause.of("later")], protocol=protocol)
    assert b"sparkbolt" not in data
    assert [(type(word), word) for word in pickle.loads(data)] == [(str, "timeout"), (str, "later")]


def test_a_word_of_a_later_version_is_read_and_belongs_to_nothing() -> None:
    later = Cause.of("quarrelled")
    assert isinstance(later, Cause)
    assert (later, str(later), repr(later), json.dumps([later])) == (
        *["quarrelled"] * 2,
        "'quarrelled'",
        '["quarrelled"]',
    )
    assert not any(later in causes for causes in (AWAY, FINAL, NOT_READ, RAISED, STOPPING))
    assert MessageOutcome.of("sold") not in EXHAUSTED
    assert later not in list(Cause)
    with pytest.raises(ValueError, match="quarrelled"):
        Cause("quarrelled")


def test_fails_travel_as_texts_and_come_back_with_their_causes() -> None:
    fails = [Fail(7, "count", 1, cause, "no", 3) for cause in (*Cause, Cause.of("quarrelled"))]
    data = encode_partials(Partials(fails=fails))
    assert b'"dead letter"' in data
    found = decode_partials(data).fails
    assert found == fails
    assert all(isinstance(fail.cause, Cause) for fail in found)


def test_a_snapshot_holds_texts_and_is_read_with_words_that_a_later_version_wrote() -> None:
    fail = Fail(7, "count", 1, Cause.of("quarrelled"), "no", 3)
    outcome = MessageOutcome.of("sold")
    tree = FailedTree(7, "lines", 0, None, None, 1, fail, outcome, "root 7", ended_in=3, ended_ms=5)
    acked = Story(8, "lines", 0, TreeState.ACKED)
    before = State(messages=MessagesState(set_aside=[tree]), stories=StoriesState(failed=[tree], acked=[acked]))
    after = load_snapshot(dump_snapshot(before), "0.snapshot")
    assert (after.messages.set_aside, after.stories.failed, after.stories.acked) == ([tree], [tree], [acked])
    (again,) = after.stories.failed
    assert (type(again.fail.cause), type(again.outcome)) == (Cause, MessageOutcome)
    assert after.stories.acked[0].state is TreeState.ACKED
    assert "then" not in "".join(again.to_story().lines())
