"""Values for people: they are cut at their ends, and the field that an error names is the last one to be cut."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sparkbolt.api.story import VALUES_CHARACTERS_MAX, short_values
from sparkbolt.base.shown_values import NAMED_CHARACTERS_MAX

LINE = '198.51.100.7 - - [27/Nov/2026:14:02:11 +0000] "GET /cart?' + "x=1&" * 100 + 'size=XXL HTTP/1.1" 200 n/a'


@pytest.mark.parametrize(
    ("why", "code"),
    [
        ("ValueError: price is no number", None),
        ("ValueError: could not convert string to float: '12,50'", None),
        (
            "InvalidOperation: [<class 'decimal.ConversionSyntax'>]",
            'File "shop.py"\n    Decimal(tup["price"])\nInvalid',
        ),
        ("DataError: value 12,50 is out of range", None),
    ],
)
def test_the_field_that_an_error_names_is_whole_and_the_others_are_cut(why: str, code: str | None) -> None:
    fields = ["id", "note", "address", "more", "price"]
    text = short_values(fields, [7, "n" * 900, "a" * 900, "m" * 900, "12,50"], why, code)
    assert text.startswith("{'id': 7, 'note': 'nnn")
    assert text.endswith("'price': '12,50'}")
    assert len(text) < VALUES_CHARACTERS_MAX + 30


def test_of_a_long_value_the_part_that_the_error_quotes_is_shown() -> None:
    assert "200 n/a" in short_values(["line"], [LINE * 9], "ValueError: invalid literal for int() with base 10: 'n/a'")
    text = short_values(["line"], ["a" * 5000 + LINE + "b" * 5000], "KeyError: 'XXL'")
    assert "size=XXL HTTP/1.1" in text
    assert len(text) < NAMED_CHARACTERS_MAX + 30


def test_a_value_is_cut_at_its_end_and_never_in_its_middle() -> None:
    assert short_values(["line"], [LINE]).startswith(f"{{'line': {LINE[:100]!r}"[:100])
    assert short_values(["line"], [LINE]).endswith("'...}")
    assert len(short_values(["line"], [LINE])) <= VALUES_CHARACTERS_MAX


def test_fields_within_a_record_count_too() -> None:
    record = {"id": 7, "note": "n" * 900, "size": {"unit": "eu", "value": "XXL"}}
    text = short_values(["order"], [record], "KeyError: 'XXL'")
    assert "'size': {'unit': 'eu', 'value': 'XXL'}" in text


@pytest.mark.parametrize("value", [Decimal("12.50"), [1] * 1000, {"a": 1}, b"x" * 999, "\0" * 999, object(), 10**500])
def test_any_value_has_a_short_text_without_addresses(value: object) -> None:
    text = short_values(["a", "b"], [value, 1])
    assert "'b': 1" in text
    assert " at 0x" not in text
    assert len(text) <= VALUES_CHARACTERS_MAX
