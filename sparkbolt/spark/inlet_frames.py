"""Inlets on Spark: the DataFrames of the user as further sources of the lane's query.

Rule 1: all rows of one spark_partition go to one task, in Spark's order; so a spark_task that runs again sends the same
rows to the same task. After a shuffle of the user's Spark may return them in another order; a transactional topology
leaves out failed rows by number, so it sorts them by their values.
Rule 2: a micro-batch in which only Spark's sources have something new has no plan in its offsets. Its number and time
come from the driver, with the properties of the job (``MOMENT``).
Rule 3: Python values are those of PySpark's ``collect``, except for those that cannot be compared or sent alike: a
struct is a dict, a map is a dict, and a time with a zone is in UTC.
Rule 4: a DataFrame that is not a stream is written beside the checkpoint's other files once, and read from there as a
stream of files: Spark accepts no other, and a crash must not change the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as sql

from sparkbolt.api.inlets import InletSpout
from sparkbolt.api.tuples import DEFAULT_STREAM
from sparkbolt.base.exceptions import line_of, pass_on, printed
from sparkbolt.errors import ConfigError, EngineError
from sparkbolt.layout.lane import Lane
from sparkbolt.spark.executor import batches_of, staged
from sparkbolt.spark.failure_text import explain
from sparkbolt.spark.job_bundle import SCHEMA
from sparkbolt.spark.session import make_session
from sparkbolt.wire.frames import Column, Frame, Moment, encode

MOMENT = "sparkbolt.moment"
"""The property of a job with the number and the time of its micro-batch."""
_SIMPLE = (
    sql.BooleanType,
    sql.ByteType,
    sql.ShortType,
    sql.IntegerType,
    sql.LongType,
    sql.FloatType,
    sql.DoubleType,
    sql.DecimalType,
    sql.StringType,
    sql.BinaryType,
    sql.DateType,
    sql.TimestampType,
    sql.TimestampNTZType,
    sql.DayTimeIntervalType,
    sql.NullType,
)


@dataclass(frozen=True)
class InletFrame:
    """The DataFrame that one inlet reads."""

    component: str
    frame: DataFrame
    """A stream, with the inlet's fields as its columns."""
    bounded: bool
    """Whether it ends."""


def open_inlets(lane: Lane, spark: SparkSession, tables: Mapping[str, str]) -> list[InletFrame]:
    """Make the DataFrames of all inlets, in the order of their names.

    Args:
        lane: the topology, laid out.
        spark: its session.
        tables: by inlet, the URL for its DataFrame if that is not a stream.

    Raises:
        EngineError: a DataFrame cannot be made, or lacks columns that its spout declares.
    """
    return [_opened(lane, name, spark, tables[name]) for name in lane.inlets]


def _opened(lane: Lane, name: str, spark: SparkSession, place: str) -> InletFrame:
    spec = lane.topology.components[name]
    frame = _made(spec.component, name, spark)
    chosen = _with_fields(frame, name, spec.stream(DEFAULT_STREAM).fields)
    bounded = not chosen.isStreaming
    if bounded:
        chosen = _streamed(chosen, name, spark, place)
    return InletFrame(name, chosen, bounded)


def _with_fields(frame: DataFrame, spout: str, fields: Sequence[str]) -> DataFrame:
    """The columns of a DataFrame that are the fields of a spout, in their order.

    Raises:
        EngineError: a column is missing, or has values that cannot be sent.
    """
    missing = [field for field in fields if field not in frame.columns]
    if missing:
        raise EngineError(
            f"spout {spout!r} declares the fields {list(fields)}, and its DataFrame has no column {missing[0]!r}: its "
            f"columns are {frame.columns}"
        )
    for field in fields:
        why = _unsent(frame.schema[field].dataType)
        if why is not None:
            raise EngineError(
                f"spout {spout!r}: column {field!r} has {why}, which has no Python value that can be sent: cast it in "
                "the DataFrame, or leave it out of outputs"
            )
    return frame.select(*(frame[_quoted(field)] for field in fields))


def _made(spout: Any, name: str, spark: SparkSession) -> DataFrame:
    assert isinstance(spout, InletSpout)
    try:
        frame: object = spout.frame(spark)
        if isinstance(frame, DataFrame):
            double = sorted({column for column in frame.columns if frame.columns.count(column) > 1})
            if double:
                raise EngineError(f"spout {name!r}: its DataFrame has several columns {double[0]!r}: rename one")
            return frame
    except EngineError:
        raise
    except BaseException as error:
        pass_on(error)
        text = explain(line_of(error))
        raise EngineError(f"spout {name!r}: its DataFrame could not be made: {text}") from error
    raise EngineError(
        f"spout {name!r}: its function returned {printed(frame):.80}, expected a DataFrame, such as "
        'spark.readStream.format("rate").load()'
    )


def _streamed(frame: DataFrame, name: str, spark: SparkSession, place: str) -> DataFrame:
    """Write a DataFrame that is not a stream once, and read it as a stream of files."""
    java: Any = spark._jvm  # pyspark has no public API for files
    done = java.org.apache.hadoop.fs.Path(f"{place}/_SUCCESS")
    if not done.getFileSystem(spark._jsc.hadoopConfiguration()).exists(done):
        try:
            frame.write.mode("overwrite").parquet(place)
        except BaseException as error:
            pass_on(error)
            text = explain(line_of(error))
            raise EngineError(f"spout {name!r}: its DataFrame could not be read: {text}") from error
    return spark.readStream.schema(frame.schema).parquet(place)


def _quoted(field: str) -> str:
    return f"`{field.replace('`', '``')}`"


def _unsent(type_: sql.DataType) -> str | None:
    """The type that has no Python value, or which holds one; None if all have one."""
    if isinstance(type_, sql.StructType):
        return next((why for why in (_unsent(field.dataType) for field in type_.fields) if why is not None), None)
    if isinstance(type_, sql.ArrayType):
        return _unsent(type_.elementType)
    if isinstance(type_, sql.MapType):
        if isinstance(type_.keyType, sql.StructType | sql.ArrayType | sql.MapType):
            return f"a map with keys of type {type_.keyType.simpleString()}"
        return _unsent(type_.valueType)
    return None if isinstance(type_, _SIMPLE) else f"type {type_.simpleString()}"


def columns_of(spout: InletSpout) -> list[str]:
    """The columns of a spout's DataFrame, from the active session, or from a new one.

    Raises:
        ConfigError: Spark cannot give them.
    """
    try:
        session = SparkSession.getActiveSession() or make_session("sparkbolt")
        return list(_made(spout, type(spout).__name__, session).columns)
    except EngineError as error:
        raise ConfigError(
            f"{error} (it was asked for its columns; with outputs=[...] it is not when the topology is built)"
        ) from error


# The rows, on executors.


def rows_of_inlets(frame: DataFrame, lane: Lane, inlets: Sequence[InletFrame]) -> DataFrame:
    """Add the rows of inlets to those of the lane's own source.

    The lane's source stays the last: the plan's offset in Spark's log is the last line, and Spark
    requests a plan only after the latest offsets of all other sources.
    """
    whole: DataFrame | None = None
    for inlet in inlets:
        part = inlet.frame.mapInArrow(_framed(lane, inlet.component), SCHEMA)
        whole = part if whole is None else whole.union(part)
    return frame if whole is None else whole.union(frame)


def _framed(lane: Lane, component: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that ``mapInArrow`` runs on the rows of an inlet."""
    tasks = [(number, lane.dests[number]) for number in lane.topology.tasks(component)]
    in_order = _sorted if lane.topology.config.transactional else iter
    stream = lane.topology.stream_index(component, DEFAULT_STREAM)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        text, piece = context.getLocalProperty(MOMENT), context.partitionId()
        assert text is not None
        number, dest = tasks[piece % len(tasks)]
        moment = Moment(*map(int, text.split(",")))
        for sequence, batch in enumerate(in_order(batches)):
            if batch.num_rows:
                with staged():
                    columns = [_column_of_arrow(column) for column in batch.columns]
                    frame = encode(Frame(number, stream, piece, sequence, batch.num_rows, columns), moment)
                yield from batches_of([(dest, frame)])

    return run


def _sorted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """All rows of a spark_partition, in an order that follows from their values; equal rows are interchangeable.

    >>> rows = [pa.record_batch({"a": [2, 1], "b": [["x"], ["y"]]}), pa.record_batch({"a": [1], "b": [["x"]]})]
    >>> [batch.to_pylist() for batch in _sorted(rows)]
    [[{'a': 1, 'b': ['x']}, {'a': 1, 'b': ['y']}], [{'a': 2, 'b': ['x']}]]
    """
    came = [batch for batch in batches if batch.num_rows]
    if not came:
        return iter(())
    table = pa.Table.from_batches(came).combine_chunks()
    keys = pa.table([_comparable(column) for column in table.columns], names=[str(n) for n in range(table.num_columns)])
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return iter(table.take(order).to_batches(max_chunksize=max(batch.num_rows for batch in came)))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """A column that Arrow can sort by, with equal values where the given one has equal values."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_interval(kind):
        return pa.array([repr(_plain(value, kind)) for value in column.to_pylist()])
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pc.cast(column, pa.large_binary())
    return column


def _column_of_arrow(column: pa.Array) -> Column:
    """A column of Spark as fields have it: Arrow if its values are of one plain Python type, else a list.

    >>> _column_of_arrow(pa.array([1, None], pa.int16())).to_pylist()
    [1, None]
    >>> _column_of_arrow(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())))
    [{'a': 1}]
    """
    kind = column.type
    if pa.types.is_integer(kind):
        return pc.cast(column, pa.int64())
    if pa.types.is_floating(kind):
        return pc.cast(column, pa.float64())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pc.cast(column, pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pc.cast(column, pa.binary())
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_boolean(kind):
        return column
    return [_plain(value, kind) for value in column.to_pylist()]


def _plain(value: Any, kind: pa.DataType) -> Any:
    """The Python value of a field, from its Arrow value."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {_plain(key, kind.key_type): _plain(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value
