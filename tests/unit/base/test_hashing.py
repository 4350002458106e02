"""Numbers of values: the same in every process, for equal values, and for every form of a column."""

import enum
import os
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.base.hashing import UnroutableError, hash_column, hash_value
from sparkbolt.base.ids import mix64

GENERIC_NAT = [np.datetime64("NaT")] if np.lib.NumpyVersion(np.__version__) < "2.5.0" else []
"""Not a time without a unit, which numpy 2.5 warns of."""
scalars = st.one_of(
    st.none(),
    st.text(),
    st.binary(max_size=300),
    st.integers(),
    st.booleans(),
    st.floats(),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.dates(),
    st.decimals(min_value=-(10**30), max_value=10**30, places=6) | st.decimals(),
    st.uuids(),
    st.timedeltas(),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    TO = "to"


@pytest.mark.slow
@given(st.lists(values, max_size=20))
def test_a_list_column_is_its_values_one_by_one(column: list[Any]) -> None:
    try:
        expected = [hash_value(value) for value in column]
    except TypeError:  # a number of more than 4000 digits
        return
    assert hash_column(column).tolist() == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "kind"),
    [
        (st.text(), pa.string()),
        (st.text(), pa.string_view()),
        (st.binary(max_size=20), pa.binary()),
        (st.integers(0, (1 << 64) - 1), pa.uint64()),
        (st.floats(), pa.float64()),
        (st.booleans(), pa.bool_()),
        (st.datetimes(), pa.timestamp("us")),
        (st.decimals(-1000, 1000, places=2), pa.decimal128(12, 2)),
        (st.none(), pa.null()),
    ],
)
@given(data=st.data())
def test_an_arrow_column_of_any_form_is_its_values_one_by_one(data: st.DataObject, strategy: Any, kind: Any) -> None:
    column = data.draw(st.lists(st.none() | strategy, max_size=12))
    array = pa.array(column, kind)
    expected = [hash_value(value) for value in column]
    assert hash_column(array).tolist() == expected
    assert hash_column(column).tolist() == expected
    assert hash_column(pa.array([None, *column], kind).slice(1)).tolist() == expected
    assert hash_column(pa.chunked_array([array], kind)).tolist() == expected
    if not pa.types.is_nested(kind) and not pa.types.is_null(kind) and kind != pa.string_view():
        assert hash_column(array.dictionary_encode()).tolist() == expected
        assert hash_column(array.dictionary_encode("encode")).tolist() == expected


MOMENTS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"]
LAPSES = ["W", "D", "h", "m", "s", "ms", "us", "ns"]


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, True, Decimal(1), Decimal("1.00"), Level.LOW, np.int32(1), np.float32(1)],
        [0.5, Decimal("0.5"), Decimal("0.500")],
        [-(2**63), float(-(2**63))],
        [2**200, float(2**200)],
        ["to", Word.TO, np.str_("to")],
        [{1, 2, 3}, frozenset([3, 2, 1])],
        [datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))],
        [datetime(2015, 1, 1, 5), *(np.datetime64("2015-01-01T05", unit) for unit in MOMENTS[4:])],
        [np.datetime64(-12_000, "Y"), np.datetime64(-144_000, "M"), np.datetime64(-4_382_910, "D")],
        [None, *GENERIC_NAT, np.datetime64("NaT", "ns"), np.timedelta64("NaT", "D")],
    ],
)
def test_values_that_are_equal_have_the_same_number(equal: list[Any]) -> None:
    assert len({hash_value(value) for value in equal}) == 1
    assert len(set(hash_column(equal).tolist())) == 1


@given(values, values)
def test_equal_values_have_the_same_number_and_others_do_not(one: Any, other: Any) -> None:
    try:
        numbers = hash_value(one), hash_value(other)
    except TypeError:
        return
    try:
        same = one == other
    except ArithmeticError:  # a signalling NaN cannot be compared
        return
    if same:
        assert numbers[0] == numbers[1]


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Colour,
        len,
        pytest.param(1 << 20_000, id="huge"),
    ],
)
def test_a_value_without_a_stable_identity_is_refused_by_field_and_type(value: object) -> None:
    with pytest.raises(UnroutableError, match=r"field 'user' cannot choose a task: .*emit an id") as caught:
        hash_column(["ann", value, "bob"], "user")
    assert caught.value.row == 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.row, str(again)) == (1, str(caught.value))


SUBPROCESS = """
from sparkbolt.base.hashing import hash_column
print(hash_column(["to", b"be", 1, 2.5, None, ("a", 1), frozenset("abc"), {"k": "v"}, "x" * 300]).tolist())
"""


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_with_another_hash_seed_gives_the_same_numbers(seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", SUBPROCESS], env=environment, capture_output=True, text=True, check=True
    )
    column = ["to", b"be", 1, 2.5, None, ("a", 1), frozenset("abc"), {"k": "v"}, "x" * 300]
    assert ran.stdout.strip() == str(hash_column(column).tolist())


def test_numbers_never_change() -> None:
    assert hash_value(0) == mix64(mix64(3))
    assert [hash_value(value) for value in ("word", b"word", 7, 0.5)] == FIXED


FIXED = [10128874078468575823, 7337493614753737953, 8670951357300865476, 9993062656235191310]


def test_numbers_of_adjacent_keys_spread_evenly() -> None:
    for column in (np.arange(64_000), [f"user-{n}" for n in range(64_000)], np.arange(64_000) / 8):
        counts = np.bincount((hash_column(column) >> np.uint64(58)).astype(np.int64), minlength=64)
        assert 800 < counts.min() <= counts.max() < 1200
    assert all(a != b for a, b in pairwise(sorted(hash_column(np.arange(1000)).tolist())))
