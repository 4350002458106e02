"""The columns of a table, and the conversion of tuples' values to them.

A value is converted only if nothing of it is lost, whatever its neighbours are: an int becomes a double, 1.5 never
becomes an int, and only text becomes text. A value that does not fit is a ``TypeError`` that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from sparkbolt.api.arguments import field_names, text, verify
from sparkbolt.api.config import did_you_mean
from sparkbolt.base.arrow_values import field_of, widens
from sparkbolt.base.exceptions import printed
from sparkbolt.errors import ConfigError

SchemaLike: TypeAlias = str | pa.Schema | None
"""Columns as users give them: as Spark writes them (``"number long, name string"``), as Arrow's schema, or not."""

_TYPES: dict[str, Any] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ltz": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_EXAMPLE = '"number long, name string"'
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|[A-Za-z_][A-Za-z_0-9]*|[0-9]+|[<>(),:])")
_NOTHING = pa.schema([])
_EXACT_MAX = 1 << 53
"""Up to here a double holds each integer."""
_DIGITS_MAX = 38
"""Spark, Delta and Iceberg have no longer decimals."""

_is = pa.types


class TableSchema:
    """The columns of a table; ``fit`` brings tuples into them.

    >>> TableSchema("number long not null, tags array<string>")
    TableSchema(number: int64 not null, tags: list<item: string>)
    """

    def __init__(self, given: str | pa.Schema) -> None:
        """Read the columns.

        Raises:
            ConfigError: it is not a schema, or has a type that is not supported.
        """
        if isinstance(given, pa.Schema):
            fields = [field.with_type(_with_room(field.type)) for field in given]
            self.arrow = pa.schema(fields, given.metadata)
        elif isinstance(given, str):
            self.arrow = _Reader(given).schema()
        else:
            raise ConfigError(f"schema={printed(given):.80}, expected columns such as {_EXAMPLE}, or a pyarrow.Schema")
        names = self.arrow.names
        self.kinds = dict(zip(names, self.arrow.types, strict=True))
        """The type of each column."""
        twice = next((name for name in names if names.count(name) > 1), None)
        if not names or twice is not None:
            what = "no column" if not names else f"column {twice!r} twice"
            raise ConfigError(f"schema={printed(given):.200} has {what}, expected columns such as {_EXAMPLE}")

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Bring a frame into the columns; a column without a field is null.

        Raises:
            TypeError: a field is not a column, a value does not fit its column, or a null is not allowed.
        """
        for name in batch.schema.names:
            if self.arrow.get_field_index(name) < 0:
                raise TypeError(f"field {name!r} is none of the columns {self.arrow.names}: name it in schema=, too")
        columns = []
        for field in self.arrow:
            index = batch.schema.get_field_index(field.name)
            given = batch.column(index) if index >= 0 else pa.nulls(batch.num_rows)
            column = field_of(field.name, given, field.type)
            if not field.nullable and column.null_count:
                raise TypeError(f"field {field.name!r} is None, and its column is declared as not null")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow)

    def unfit(self, fields: Sequence[str]) -> str | None:
        """Why no tuple with these fields fits the columns; None if one may."""
        names = self.arrow.names
        for name in fields:
            if name not in names:
                hint = did_you_mean(name, [column for column in names if column not in fields])
                return f"{name!r} is none of the columns of its schema, {names}{hint}"
        for column in self.arrow:
            if not column.nullable and column.name not in fields:
                return f"none of them fills the column {column.name!r} of its schema, which is not null"
        return None

    def __repr__(self) -> str:
        return f"TableSchema({types_of(self.arrow)})"


def schema_of(given: SchemaLike) -> TableSchema | None:
    """Return the columns that a user has given, or None.

    Raises:
        ConfigError: as for ``TableSchema``.
    """
    return None if given is None else TableSchema(given)


def columns_of(what: str, given: str | Sequence[str] | None) -> list[str]:
    """Return names of columns that a user has given, one or several.

    Raises:
        ConfigError: they are not names.
    """
    if given is None:
        return []
    if isinstance(given, str):
        return [verify(what, given, text("the name of a column"))]
    return field_names(what, given, "['day']")


def types_of(schema: pa.Schema) -> str:
    """Return the columns of a schema in words."""
    return ", ".join(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema)


Lacks: TypeAlias = Sequence[Callable[[Any], bool]]
"""Which types a table does not have, such as ``pa.types.is_duration``."""


def plain(batch: pa.RecordBatch, lacks: Lacks = ()) -> pa.RecordBatch:
    """Return a frame with types that tables have: no dictionaries, no unsigned ints, and one time zone, UTC.

    Raises:
        TypeError: an unsigned int is too large, or the table has no such type.
    """
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            kind = _plain(field.type, lacks)
        except TypeError as error:
            raise TypeError(f"field {field.name!r}: {error}; give the sink a schema=, or emit another type") from None
        columns.append(field_of(field.name, column, kind))
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _plain(kind: Any, lacks: Lacks = ()) -> Any:
    """Return the type that a table has for a type.

    Raises:
        TypeError: it has none.

    >>> _plain(pa.struct([("at", pa.timestamp("us", "+02:00")), ("sizes", pa.list_(pa.uint8()))]))
    StructType(struct<at: timestamp[us, tz=UTC], sizes: list<item: int64>>)
    """
    if any(is_lacking(kind) for is_lacking in lacks):
        raise TypeError(f"the table has no type {kind}")
    if _is.is_dictionary(kind):
        return _plain(kind.value_type, lacks)
    if _is.is_unsigned_integer(kind):
        return pa.int64()
    if _is.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    if _is.is_struct(kind) and not kind.num_fields:
        raise TypeError("an empty dict has no columns")
    return with_parts(kind, lambda part: _plain(part, lacks))


def _with_room(kind: Any) -> Any:
    """Return a type whose dictionaries have room for as many values as a file may hold, and not only for 128.

    >>> _with_room(pa.list_(pa.dictionary(pa.int8(), pa.string())))
    ListType(list<item: dictionary<values=string, indices=int32, ordered=0>>)
    """
    if _is.is_dictionary(kind):
        return pa.dictionary(pa.int32(), kind.value_type, kind.ordered)
    return with_parts(kind, _with_room)


def with_parts(kind: Any, convert: Callable[[Any], Any]) -> Any:
    """Return a type with other types within it, if it is a struct, a list or a map."""
    if _is.is_struct(kind):
        return pa.struct([field.with_type(convert(field.type)) for field in kind])
    if _is.is_list(kind):
        return pa.list_(kind.value_field.with_type(convert(kind.value_type)))
    if _is.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(convert(kind.value_type)))
    if _is.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(convert(kind.value_type)), kind.list_size)
    if _is.is_map(kind):
        return pa.map_(convert(kind.key_type), kind.item_field.with_type(convert(kind.item_type)), kind.keys_sorted)
    return kind


def known(kind: Any) -> Any:
    """Return a type with text in place of columns that have only None.

    >>> known(pa.list_(pa.null()))
    ListType(list<item: string>)
    """
    return pa.string() if _is.is_null(kind) else with_parts(kind, known)


@dataclass(frozen=True)
class CommonColumns:
    """Columns that follow the values of frames: all names so far, each with the widest of its types."""

    schema: pa.Schema = _NOTHING
    large: frozenset[str] = frozenset()
    """Those with an integer that no float holds, such as ``amount``, or ``order.amount`` within a struct."""

    def widened(self, more: pa.RecordBatch | pa.Table) -> CommonColumns:
        """Return the columns of both.

        Raises:
            TypeError: a column's values have no type in common that holds them all.
        """
        try:
            schema = pa.unify_schemas([self.schema, more.schema], promote_options="permissive")
        except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
            raise self._refusal(more, str(error)) from None
        before = {name: column.type for name, column in _leaves(self.schema.empty_table())}
        added = list(_leaves(more))
        large = self.large | {name for name, column in added if _is_beyond_floats(column)}
        types = {name: column.type for name, column in added}
        for name, column in _leaves(schema.empty_table()):
            kind = column.type
            for one in (before.get(name, kind), types.get(name, kind)):
                if not widens(one, kind):
                    raise self._refusal(more, f"field {name!r}: {kind} does not hold every {one}")
            if name in large and _is.is_floating(kind):
                raise TypeError(
                    f"field {name!r} has floats, and integers beyond 2**53, which no float holds: emit values of one "
                    "type, or give the sink a schema= with a type that holds them all, such as string"
                )
            if _is.is_decimal(kind) and kind.precision > _DIGITS_MAX:
                raise self._refusal(more, f"field {name!r}: a table has decimals of up to {_DIGITS_MAX} digits")
        return CommonColumns(schema, large)

    def _refusal(self, more: pa.RecordBatch | pa.Table, why: str) -> TypeError:
        return TypeError(
            f"a column has one type: so far there are {types_of(self.schema)}, and now come "
            f"{types_of(more.schema)}: emit values of one type, or give the sink a schema= ({why})"
        )


def _leaves(batch: pa.RecordBatch | pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Yield the columns of a batch, and those within lists, structs and maps instead of these themselves."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        yield from _leaves_of(name, column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)


def _leaves_of(name: str, column: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = column.type
    if _is.is_struct(kind):
        for index, field in enumerate(kind):
            yield from _leaves_of(f"{name}.{field.name}", column.field(index))
    elif _is.is_map(kind):
        yield from _leaves_of(f"{name}.key", column.keys)
        yield from _leaves_of(f"{name}.value", column.items)
    elif _is.is_list(kind) or _is.is_large_list(kind) or _is.is_fixed_size_list(kind):
        yield from _leaves_of(f"{name}.item", column.flatten())
    else:
        yield name, column


def _is_beyond_floats(column: pa.Array) -> bool:
    if column.type != pa.int64():
        return False
    least, greatest = pc.min_max(column).as_py().values()
    return least is not None and (least < -_EXACT_MAX or greatest > _EXACT_MAX)


class _Reader:
    """Reads columns as Spark writes them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def schema(self) -> pa.Schema:
        rest = _TOKEN.sub("", self._text).strip()
        if rest:
            raise self._wrong(f"at {rest[:20]!r}")
        fields = self._several(self._field) if self._tokens else []
        if self._at < len(self._tokens):
            raise self._wrong(f"expected ',' before {self._tokens[self._at]!r}")
        return pa.schema(fields)

    def _field(self) -> pa.Field:
        name = self._next("a name")
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not re.match("[A-Za-z_]", name):
            raise self._wrong(f"{name!r} is no name of a column")
        self._skips(":")
        kind = self._type()
        if not self._skips("not"):
            return pa.field(name, kind)
        if not self._skips("null"):
            raise self._wrong("after not comes null")
        return pa.field(name, kind, nullable=False)

    def _type(self) -> Any:
        word = self._next("a type").lower()
        if word in ("decimal", "dec", "numeric"):
            return pa.decimal128(*self._within("()", self._number, 1, 2)) if self._peek() == "(" else pa.decimal128(10)
        if word in ("varchar", "char") and self._peek() == "(":
            self._within("()", self._number, 1, 1)
            return pa.string()
        if word == "array":
            return pa.list_(*self._within("<>", self._type, 1, 1))
        if word == "map":
            return pa.map_(*self._within("<>", self._type, 2, 2))
        if word == "struct":
            return pa.struct(self._within("<>", self._field, 1, len(self._tokens)))
        if word not in _TYPES:
            types = sorted({*_TYPES, "decimal(p, s)", "array<>", "map<>", "struct<>"})
            raise self._wrong(f"{word!r} is none of the types {types}")
        return _TYPES[word]

    def _number(self) -> int:
        digits = self._next("a number")
        if not digits.isdigit():
            raise self._wrong(f"{digits!r} is no number")
        return int(digits)

    def _several(self, read: Callable[[], Any]) -> list[Any]:
        """Read parts with commas between."""
        parts = [read()]
        while self._skips(","):
            parts.append(read())
        return parts

    def _within(self, signs: str, read: Callable[[], Any], least: int, most: int) -> list[Any]:
        """Read parts with commas between, within a pair of signs."""
        self._take(signs[0])
        parts = self._several(read)
        self._take(signs[1])
        if not least <= len(parts) <= most:
            raise self._wrong(f"{len(parts)} parts are before {signs[1]!r}, expected {least}")
        return parts

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _skips(self, word: str) -> bool:
        """Move past a word if it is the next one."""
        is_next = self._peek().lower() == word
        self._at += is_next
        return is_next

    def _next(self, expected: str) -> str:
        token = self._peek()
        if not token:
            raise self._wrong(f"it ends where {expected} is expected")
        self._at += 1
        return str(token)

    def _take(self, sign: str) -> None:
        token = self._next(sign)
        if token != sign:
            raise self._wrong(f"expected {sign!r} before {token!r}")

    def _wrong(self, why: str) -> ConfigError:
        return ConfigError(f"schema={self._text!r:.200}: {why}; expected columns such as {_EXAMPLE}")
