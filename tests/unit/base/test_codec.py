"""Records are written as JSON and read back, and what does not fit is named with its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict

import pytest

from sparkbolt.api.causes import MessageOutcome
from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.base.codec import SPARSE, Coder, MismatchError, decode, encode, salvage
from sparkbolt.observe.histogram import Histogram
from sparkbolt.observe.history import Bucket


class Inner(TypedDict):
    name: str


class Outer(TypedDict, total=False):
    inner: Inner
    pairs: list[tuple[str, float]]
    anything: Any


@dataclass(frozen=True)
class Part:
    number: int
    share: float = 0.5


@dataclass
class Whole:
    JSON = SPARSE

    parts: tuple[Part, ...]
    best: Part | None = None
    by_name: Mapping[str, Part] = field(default_factory=dict)
    times: Histogram = field(default_factory=Histogram)
    hexadecimal: Annotated[int, Coder(hex, lambda text: int(text, 16))] = 0


def test_a_record_with_records_comes_back_from_json() -> None:
    whole = Whole((Part(1), Part(2, 0.25)), Part(3), {"a": Part(4)}, hexadecimal=31)
    whole.times.add(2.5, 3)
    again = decode(Whole, json.loads(json.dumps(encode(whole))))
    assert (again.parts, again.best, again.by_name) == (whole.parts, whole.best, whole.by_name)
    assert again.hexadecimal == 31
    assert again.times.percentiles() == whole.times.percentiles()


def test_a_sparse_record_has_no_field_that_equals_its_default() -> None:
    times = Histogram()
    times.add(1.0, 1)
    assert encode(Whole((Part(1),), times=times)).keys() == {"parts", "times"}
    assert encode(Part(1)) == {"number": 1, "share": 0.5}, "the others have all fields"


@pytest.mark.parametrize(
    ("kind", "value", "wrong"),
    [
        (Outer, {}, None),
        (Outer, {"inner": {}}, "inner has no name"),
        (Outer, {"inner": {"name": 1}}, "inner.name is not a string"),
        (Outer, {"pairs": {}}, "pairs is not an array"),
        (Outer, [], "the value is not an object"),
        (Whole, {"parts": [{"number": 1}, {"number": True}]}, "parts[1].number is not an integer"),
        (Whole, {"best": None}, "the value has no parts"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_position(kind: Any, value: Any, wrong: str | None) -> None:
    if wrong is None:
        decode(kind, value)
    else:
        with pytest.raises(MismatchError) as raised:
            decode(kind, value)
        assert str(raised.value) == wrong


def test_stored_fields_and_words_are_read_by_their_earlier_names() -> None:
    counts = ComponentMetrics(acked=2, given_up=1)
    assert decode(ComponentMetrics, {"acked": 2, "set_aside": 1}) == counts
    assert decode(ComponentMetrics, encode(counts)) == counts
    assert decode(MessageOutcome, "set_aside") is MessageOutcome.GIVEN_UP
    bucket = Bucket(components={"set_aside": {"acked": 2, "given_up": 1}})
    assert decode(Bucket, {"components": {"set_aside": {"acked": 2, "set_aside": 1}}}) == bucket


class Entry(TypedDict):
    id: str
    count: int
    why: str | None
    names: list[str]
    inner: Inner


def test_salvage_reads_what_it_can_and_leaves_the_rest_empty() -> None:
    empty = {"id": "", "count": 0, "why": None, "names": [], "inner": {"name": ""}}
    assert salvage(Entry, {}) == empty
    assert salvage(Entry, {"id": "a", "count": "x", "why": 1, "names": [1], "inner": 5, "new": 2}) == {
        **empty,
        "id": "a",
    }


class Late(TypedDict):
    at: NotRequired[set[int]]


def test_a_type_without_a_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="has no form in JSON"):
        decode(Late, {})
