"""Arrow columns of Python values: a value is there as it was, or it alone is refused, whatever its neighbours are."""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt.base.arrow_values import array_of, inferred_array
from tests.hypotheses import examples

DAY, NOON = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 0, 0, 1)
ZONED = NOON.replace(tzinfo=dt.UTC)
EAST = dt.datetime(2024, 2, 29, 14, 0, 0, 1, dt.timezone(dt.timedelta(hours=2)))


class Color(enum.IntEnum):
    RED = 1


class Point(NamedTuple):
    a: Any
    b: Any


class Name(str):
    pass


VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 300, 1 << 24, (1 << 24) + 1, 1 << 53, -(1 << 53), (1 << 53) + 1, 1 << 63, 1 << 70),
    *(0.0, -0.0, 1.0, 0.1, 1.5, 1.239, 1e39, 1e-50, math.nan, math.inf, Color.RED, Name("x"), "", "a", "1", "\ud800"),
    *(b"", b"a", b"\xff", bytearray(b"a"), UUID(int=7), DAY, NOON, NOON.replace(microsecond=0), ZONED, EAST),
    *(dt.time(1, 2, 3, 4), dt.time(1), dt.time(1, tzinfo=dt.UTC), dt.timedelta(1), dt.timedelta(microseconds=1)),
    *(Decimal("1.20"), Decimal("1.234"), Decimal("NaN"), Decimal(10**20), Decimal("0.1"), pd.NaT, pd.NA),
    *(pd.Timestamp(NOON), pd.Timestamp("2024-02-29T12:00:00.123456789"), pd.Timedelta(1), pd.Timedelta(1000)),
    *(np.int64(7), np.int8(7), np.float64(1.5), np.float32(0.1), np.bool_(True), np.str_("a"), np.bytes_(b"a")),
    *(
        np.datetime64("2024-02-29"),
        np.datetime64("2024-02-29T12:00:00"),
        np.datetime64("2024-02-29T12:00:00.000000001"),
    ),
    *(np.datetime64("NaT"), np.timedelta64(1, "ms"), np.timedelta64(1, "ns"), object()),
]
KINDS: list[Any] = [
    *(pa.bool_(), pa.int8(), pa.int64(), pa.uint8(), pa.float16(), pa.float32(), pa.float64(), pa.decimal128(10, 2)),
    *(pa.decimal128(38, 0), pa.string(), pa.large_string(), pa.binary(), pa.binary(1), pa.date32(), pa.time32("s")),
    *(pa.time64("us"), pa.duration("s"), pa.duration("us"), pa.duration("ns"), pa.timestamp("s"), pa.timestamp("us")),
    *(pa.timestamp("ns"), pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.null(), pa.uuid()),
]
leaf = st.sampled_from(VALUES)
safe = st.sampled_from([value for value in VALUES if not isinstance(value, np.datetime64)])
"""Arrow kills the process when it infers a type from times and numbers of NumPy in one column."""
kinds = st.recursive(
    st.sampled_from(KINDS),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        inner.map(lambda kind: pa.list_(kind, 2)),
        inner.map(lambda kind: pa.list_(pa.field("item", kind, nullable=pa.types.is_null(kind)))),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
        st.tuples(inner, inner, st.booleans()).map(
            lambda of: pa.struct(
                [pa.field("a", of[0], nullable=of[2] or pa.types.is_null(of[0])), pa.field("b", of[1])]
            )
        ),
    ),
    max_leaves=3,
)


def values_of(kind: Any) -> Any:
    """Mostly values that have the shape of the type."""
    if pa.types.is_struct(kind):
        a, b = (values_of(field.type) for field in kind)
        shaped = st.fixed_dictionaries({}, optional={"a": a, "b": b, "c": leaf}) | st.builds(Point, a, b)
    elif pa.types.is_map(kind):
        shaped = st.dictionaries(st.sampled_from(["k", "l", None, 1]), values_of(kind.item_type), max_size=2)
    elif pa.types.is_nested(kind):
        shaped = st.lists(values_of(kind.value_type), max_size=3)
        shaped |= shaped.map(tuple)
    else:
        return leaf
    return st.one_of(shaped, shaped, shaped, st.none(), leaf)


def fits(value: Any, kind: Any) -> bool:
    try:
        array_of([value], kind)
    except TypeError:
        return False
    return True


def same(value: Any, back: Any, kind: Any) -> bool:
    """Whether what was read back is the value, as the type says it."""
    if value is None or back is None:
        return value is back
    if pa.types.is_struct(kind):
        given = value if isinstance(value, Mapping) else value._asdict()
        return given.keys() <= back.keys() and all(
            same(given.get(field.name), back[field.name], field.type) for field in kind
        )
    if pa.types.is_map(kind):
        return list(value) == [key for key, _ in back] and all(same(value[k], v, kind.item_type) for k, v in back)
    if pa.types.is_nested(kind):
        return len(value) == len(back) and all(same(v, b, kind.value_type) for v, b in zip(value, back, strict=True))
    if pa.types.is_timestamp(kind):
        return bool(pd.Timestamp(value) == pd.Timestamp(back))
    if pa.types.is_duration(kind):
        return bool(pd.Timedelta(value) == pd.Timedelta(back))
    if isinstance(value, float | np.floating | Decimal) and isinstance(back, float):
        assert math.copysign(1, value) == math.copysign(1, back)
        wide = {16: 1e-3, 32: 1e-7, 64: 0}[kind.bit_width]
        return (math.isnan(value) and math.isnan(back)) or math.isclose(value, back, rel_tol=wide)
    return bool(value == back) or (isinstance(value, float) and str(value) == str(back.normalize()))


@settings(deadline=None, max_examples=examples(200))
@given(data=st.data(), kind=kinds)
def test_a_value_is_read_back_unchanged_or_is_refused_alone(data: st.DataObject, kind: Any) -> None:
    values = data.draw(st.lists(values_of(kind), max_size=6))
    good = [value for value in values if fits(value, kind)]
    column = array_of(good, kind)
    column.validate(full=True)
    for value, back in zip(good, column.to_pylist(), strict=True):
        assert same(value, back, kind), (value, back)
    if len(good) < len(values):
        with pytest.raises(TypeError):
            array_of(values, kind)


@settings(deadline=None, max_examples=examples(200))
@given(values=st.lists(safe | st.lists(safe, max_size=2) | st.dictionaries(st.sampled_from("ab"), safe), max_size=4))
def test_a_column_with_a_type_inferred_from_its_values_holds_each_of_them(values: list[Any]) -> None:
    try:
        column = inferred_array(values)
    except TypeError:
        return
    kind = column.type
    assert all(same(value, back, kind) for value, back in zip(values, column.to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("value", "neighbour", "kind", "why"),
    [
        (NOON, DAY, pa.date32(), "is a datetime, expected a date"),
        (ZONED, NOON, pa.timestamp("us"), "expected a datetime without a time zone"),
        (1e39, 0.1, pa.float32(), r"1e\+39 is beyond the range of float"),
        ((1 << 53) + 1, 0.5, pa.float64(), "outside of the range"),
        (True, 1, pa.int64(), "True is a bool, expected an int"),
        (1.239, Decimal("1.2"), pa.decimal128(10, 2), "data loss"),
        (
            {"a": 1, "x": None},
            {"a": 1},
            pa.struct([("a", pa.int64())]),
            r"\['x'\] of .* are none of its fields \['a'\]",
        ),
        ("ab", ["a"], pa.list_(pa.string()), "'ab' is a str, expected a list"),
        ({}, None, pa.struct([pa.field("a", pa.int64(), nullable=False)]), "in 'a': None, expected a value"),
    ],
)
def test_a_value_that_would_lose_something_is_refused(value: Any, neighbour: Any, kind: Any, why: str) -> None:
    assert fits(neighbour, kind)
    for values in ([value], [neighbour, value], [value, neighbour]):
        with pytest.raises(TypeError, match=why):
            array_of(values, kind)
