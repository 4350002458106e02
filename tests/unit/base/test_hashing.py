"""Numbers of values: the same in every process, for equal values, and for every form of a column."""

import enum
import os
import pickle
import subprocess
import sys
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
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


@given(st.lists(values, max_size=20))
def test_a_list_column_is_its_values_one_by_one(column: list[Any]) -> None:
    try:
        expected = [hash_value(value) for value in column]
    except TypeError:  # a number of more than 4000 digits
        return
    assert hash_column(column).tolist() == expected


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [
        (st.text(), pa.string()),
        (st.text(max_size=9), pa.large_string()),
        (st.text(), pa.string_view()),
        (st.text(alphabet="ab\0", max_size=300), pa.string()),
        (st.binary(max_size=20), pa.binary()),
        (st.integers(-(1 << 63), (1 << 63) - 1), pa.int64()),
        (st.integers(0, (1 << 64) - 1), pa.uint64()),
        (st.integers(-100, 100), pa.int8()),
        (st.floats(), pa.float64()),
        (st.floats(width=32), pa.float32()),
        (st.booleans(), pa.bool_()),
        (st.dates(), pa.date32()),
        (st.datetimes(), pa.timestamp("us")),
        (st.datetimes(timezones=st.just(UTC)), pa.timestamp("us", "UTC")),
        (st.decimals(-1000, 1000, places=2), pa.decimal128(12, 2)),
        (st.lists(st.integers(0, 5)), pa.list_(pa.int64())),
        (st.none(), pa.null()),
    ],
)
@given(data=st.data())
def test_an_arrow_column_is_its_values_one_by_one_in_whatever_form(
    data: st.DataObject, strategy: Any, kind: Any
) -> None:
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


def test_a_long_column_that_repeats_is_its_values_one_by_one_too() -> None:
    column = [None if n % 97 == 0 else f"word {n % 300}" for n in range(5000)]
    expected = [hash_value(value) for value in column]
    assert hash_column(pa.array(column)).tolist() == expected == hash_column(column).tolist()


MOMENTS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"]
LAPSES = ["W", "D", "h", "m", "s", "ms", "us", "ns"]


@pytest.mark.parametrize(
    "equal",
    [
        [1, 1.0, True, Decimal(1), Decimal("1.00"), Level.LOW, np.int32(1), np.float32(1)],
        [0, 0.0, -0.0, False, Decimal("-0"), Decimal("0E+5")],
        [0.5, Decimal("0.5"), Decimal("0.500")],
        [Decimal("0.1"), Decimal("0.10")],
        [2**63, float(2**63), Decimal(2**63), np.uint64(2**63)],
        [-(2**63), float(-(2**63))],
        [10**30, Decimal("1E+30")],
        [2**200, float(2**200)],
        [float("inf"), Decimal("Infinity")],
        ["to", Word.TO, np.str_("to")],
        [b"to", bytearray(b"to"), memoryview(b"to")],
        [(1, 2), [1.0, 2]],
        [{1, 2, 3}, frozenset([3, 2, 1])],
        [{"a": 1, "b": 2}, {"b": 2.0, "a": True}],
        [datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(2024, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))],
        [time(12, tzinfo=UTC), time(14, tzinfo=timezone(timedelta(hours=2)))],
        [datetime(2015, 1, 1), pd.Timestamp("2015-01-01"), *(np.datetime64("2015-01-01", unit) for unit in MOMENTS)],
        [datetime(2015, 1, 1, 5), *(np.datetime64("2015-01-01T05", unit) for unit in MOMENTS[4:])],
        [np.datetime64(-12_000, "Y"), np.datetime64(-144_000, "M"), np.datetime64(-4_382_910, "D")],
        [timedelta(days=7), pd.Timedelta(7, "D"), *(np.timedelta64(7, "D").astype(f"m8[{unit}]") for unit in LAPSES)],
        [None, *GENERIC_NAT, np.datetime64("NaT", "ns"), np.timedelta64("NaT", "D")],
    ],
)
def test_values_that_are_equal_have_the_same_number(equal: list[Any]) -> None:
    assert len({hash_value(value) for value in equal}) == 1
    assert len(set(hash_column(equal).tolist())) == 1


@given(st.sampled_from(MOMENTS), st.sampled_from(MOMENTS), st.datetimes(datetime(1970, 1, 1), datetime(1970, 3, 1)))
def test_moments_of_numpy_that_are_equal_have_the_same_number(one: str, other: str, moment: datetime) -> None:
    rough = np.datetime64(moment, "us").astype(f"M8[{one}]")
    fine = rough.astype(f"M8[{other}]")
    if {one, other} not in ({"Y", "W"}, {"M", "W"}):  # numpy compares a month and a week in weeks
        assert (hash_value(rough) == hash_value(fine)) == bool(rough == fine)


@given(st.sampled_from(["h", "m", "s", "ms", "us"]), st.datetimes(), st.timedeltas())
def test_times_of_numpy_have_the_numbers_of_those_of_python(unit: str, moment: datetime, lapse: timedelta) -> None:
    then = np.datetime64(moment).astype(f"M8[{unit}]")
    assert hash_value(then) == hash_value(then.item())
    assert hash_value(pd.Timestamp(then)) == hash_value(then)
    long = np.timedelta64(lapse).astype(f"m8[{unit}]")
    assert hash_value(long) == hash_value(long.item())


def test_a_column_of_nanoseconds_is_the_same_in_arrow() -> None:
    moments = np.array(["2020-01-01", "1960-05-06T07:08:09.123456789", "NaT"], dtype="M8[ns]")
    assert hash_column(moments).tolist() == hash_column(pa.array(moments)).tolist() == hash_column([*moments]).tolist()


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


def test_values_that_differ_have_different_numbers() -> None:
    different = [
        1, "1", b"1", None, "", b"", (), frozenset(), {}, 0, 1.5, "a", "a\0", "\0a", "ab", "ba",
        ("a", "b"), ("b", "a"), (("a",), "b"), ("a", ("b",)), {"a": "b"}, {"b": "a"}, date(2024, 1,
        1), datetime(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), time(0), timedelta(0),
        Colour.RED, Colour.BLUE, uuid.UUID(int=1), "x" * 256, "x" * 257, "x" * 258, -1, 2**64,
        "\ud800", float("nan"), float("inf"), float("-inf"), Decimal("0.1"), 0.1,
    ]  # fmt: skip
    assert len({hash_value(value) for value in different}) == len(different)


def test_a_repeated_hour_is_one_value_in_its_own_zone() -> None:
    from zoneinfo import ZoneInfo

    first = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert first == first.replace(fold=1)
    assert hash_value(first) == hash_value(first.replace(fold=1))


@pytest.mark.parametrize(
    "value",
    [
        object(),
        1j,
        Colour,
        (1, object()),
        {"a": object()},
        len,
        Decimal("1E+5000"),
        pytest.param(1 << 20_000, id="huge"),
    ],
)
def test_a_value_without_a_stable_identity_is_refused_by_field_and_type(value: object) -> None:
    with pytest.raises(UnroutableError, match=r"field 'user' cannot choose a task: .*emit an id") as caught:
        hash_column(["ann", value, "bob"], "user")
    assert caught.value.row == 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.row, str(again)) == (1, str(caught.value))


def test_a_list_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UnroutableError, match="field 'loop'"):
        hash_column([loop], "loop")


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


def test_the_numbers_are_fixed_for_ever() -> None:
    assert hash_value(0) == mix64(mix64(3))
    assert [hash_value(value) for value in ("word", b"word", 7, 0.5)] == FIXED


FIXED = [10128874078468575823, 7337493614753737953, 8670951357300865476, 9993062656235191310]


def test_numbers_of_neighbours_spread_evenly() -> None:
    for column in (np.arange(64_000), [f"user-{n}" for n in range(64_000)], np.arange(64_000) / 8):
        counts = np.bincount((hash_column(column) >> np.uint64(58)).astype(np.int64), minlength=64)
        assert 800 < counts.min() <= counts.max() < 1200
    assert all(a != b for a, b in pairwise(sorted(hash_column(np.arange(1000)).tolist())))
