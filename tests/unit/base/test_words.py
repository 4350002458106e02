"""Words: enums that are their texts for everybody else."""

from __future__ import annotations

import copy
import json

import pytest

from sparkbolt.api.causes import Cause, MessageOutcome
from sparkbolt.api.reports import Fail
from sparkbolt.base.hashing import hash_value
from sparkbolt.base.words import Word
from sparkbolt.wire.acker import Partials, decode_partials, encode_partials

EVERY: list[Word] = [*Cause, *MessageOutcome]


@pytest.mark.parametrize("word", EVERY, ids=str)
def test_a_word_behaves_as_its_text_everywhere(word: Word) -> None:
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


def test_failures_are_sent_as_text_and_restored_with_their_causes() -> None:
    fails = [Fail(7, "count", 1, cause, "no", 3) for cause in (*Cause, Cause.of("quarrelled"))]
    data = encode_partials(Partials(fails=fails))
    assert b'"dead letter"' in data
    found = decode_partials(data).fails
    assert found == fails
    assert all(isinstance(fail.cause, Cause) for fail in found)
