"""Bare columns come out as they went in; what is not plain is left to Arrow."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkbolt.base.arrow_buffers import all_to_buffers, from_buffers, to_buffers
from sparkbolt.errors import InvariantError
from sparkbolt.wire.frames import Frame, Moment, decode, encode

TEXTS = st.lists(st.text(max_size=9), min_size=1, max_size=20)
INTS = st.lists(st.integers(-128, 127), min_size=1, max_size=20)
SMALL = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]


def there_and_back(column, before=b""):
    shapes, buffers = all_to_buffers([column])
    data = b"".join([before, *buffers])
    back, end = from_buffers(shapes[0], pa.py_buffer(data), len(before))
    assert end == len(data)
    back.validate(full=True)
    return back


@given(INTS, st.sampled_from(SMALL), st.sampled_from([b"", b"12345678"]))
def test_numbers_keep_their_type(values, kind, before):
    column = pa.array(values, kind)
    assert there_and_back(column, before).equals(column)


@given(TEXTS, st.sampled_from([pa.string(), pa.large_string()]))
def test_texts_survive_a_round_trip(values, kind):
    column = pa.array(values, kind)
    back = there_and_back(column)
    assert back.equals(column)
    assert back.type == kind


@given(TEXTS)
def test_dictionaries_come_back_with_their_indices_and_values(values):
    column = pa.array(values).dictionary_encode()
    back = there_and_back(column)
    assert back.equals(column)
    assert back.type == column.type


@given(st.lists(st.booleans(), min_size=1, max_size=20))
def test_booleans_are_restored(values):
    assert there_and_back(pa.array(values)).to_pylist() == values


def test_only_data_that_the_rows_need_is_sent():
    text = pa.py_buffer(b"to be or not to be")
    offsets = pa.py_buffer(np.array([0, 2, 5, 5, 5], dtype=np.int32))
    column = pa.StringArray.from_buffers(2, offsets, text)
    assert column.to_pylist() == ["to", " be"]
    assert [len(buffer) for buffer in to_buffers(column)[1]] == [12, 5]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None]),
        pa.array(["to", "be", "or"])[1:],
        pa.array(["to", "be", "or"]).dictionary_encode()[1:],
        pa.array([{"a": 1}]),
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["a"]), ordered=True),
    ],
    ids=str,
)
def test_columns_that_are_not_plain_are_left_to_arrow(column):
    assert to_buffers(column) is None
    frame = decode(encode(Frame(1, 0, 0, 0, len(column), [column, ["x"] * len(column), column]), Moment(0, 0)))
    assert frame.columns[0].equals(column)
    assert frame.columns[2].type == column.type


def test_plain_pickled_and_other_columns_of_a_frame_keep_their_positions():
    columns = [pa.array([1, None]), ["a", 2], pa.array(["b", "c"]), pa.array([[1], []]), (None, b"")]
    frame = decode(encode(Frame(1, 0, 0, 0, 2, columns), Moment(0, 0)))
    assert [list(map(str, column)) for column in frame.columns] == [list(map(str, column)) for column in columns]


def test_a_truncated_column_is_refused():
    shapes, buffers = all_to_buffers([pa.array(["to be", "or not"])])
    data = b"".join(buffers)
    with pytest.raises(InvariantError, match="cut off"):
        from_buffers(shapes[0], pa.py_buffer(data[:-8]), 0)
