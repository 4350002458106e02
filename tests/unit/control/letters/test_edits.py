"""Edited dead letters: what becomes of the message, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from sparkbolt.api.dead_letters import RawMessage
from sparkbolt.control.letters.edits import edited
from sparkbolt.errors import WrongUseError
from tests.unit.api.test_dead_letters import letter


def of_kafka(value: bytes | None, fields: tuple[str, ...], values: tuple[Any, ...], key: bytes | None = b"k") -> Any:
    return letter(fields=fields, tuples=(values,), raw=RawMessage(value, key))


def test_an_edit_of_the_field_that_holds_the_message_text_edits_the_message() -> None:
    found = edited(of_kafka(b"be", ("line", "offset"), ("be", 17)), {"line": "to be"})
    assert (found.raw.value, found.raw.key, found.tuples) == (b"to be", b"k", (("to be", 17),))


def test_a_field_of_a_json_object_is_edited_within_the_object() -> None:
    found = edited(of_kafka(b'{"id": 7, "amount": "1O"}', ("id", "amount"), (7, "1O")), {"amount": 10})
    assert found.raw.value == b'{"id": 7, "amount": 10}'
    assert found.tuples == ((7, 10),)


def test_the_message_itself_may_be_replaced() -> None:
    broken = letter(tuples=(), raw=RawMessage(b"{", b"k"), note="not JSON")
    assert edited(broken, {"$value": '{"id": 1}'}).raw == RawMessage(b'{"id": 1}', b"k")
    assert edited(broken, {"$value": None, "$key": "x"}).raw == RawMessage(None, b"x")


@pytest.mark.parametrize(
    ("value", "fields", "values", "edit", "text"),
    [
        (b"\x00\x01", ("n",), (1,), {"n": 2}, r"edit the message \(\$value\)"),
        (b'{"n": 2}', ("n",), (1,), {"n": 3}, "not a JSON object with that field"),
        (b"be", ("line",), ("be",), {"lines": "x"}, "has no field 'lines': did you mean 'line'"),
        (b"be", ("line",), ("be",), {"$value": 3}, r"\$value of a message must be text, got int"),
    ],
)
def test_an_ambiguous_edit_is_refused(value: bytes, fields: Any, values: Any, edit: Any, text: str) -> None:
    with pytest.raises(WrongUseError, match=text):
        edited(of_kafka(value, fields, values), edit)
