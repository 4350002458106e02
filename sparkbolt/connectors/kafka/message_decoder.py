"""Shaper: turns messages into decoded values and the tuples' fields.

A message that cannot be decoded fails alone. If the schema registry does not answer, or a decoder raises
``Unavailable``, no message is at fault: the range is read again later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, cast, get_args

import pyarrow as pa

from sparkbolt.api.arguments import function, verify
from sparkbolt.api.ranges import BadRecord
from sparkbolt.base.ids import I64
from sparkbolt.connectors.decoder import NAMED
from sparkbolt.connectors.kafka.client_settings import client_library, scrubbed
from sparkbolt.errors import ConfigError, SourceUnavailable, Unavailable

DecodingName = Literal["bytes", "text", "json", "avro", "protobuf"]
Decoding: TypeAlias = DecodingName | Callable[[bytes], Any]
Decode: TypeAlias = Callable[[bytes | None, str], Any]
"""Takes (data of a key or value, topic) and returns the decoded value; None stays None."""

_ABOUT_SCHEMAS = (404, 422)
"""A registry's error codes that begin so, such as 40403, are about the schema: it does not exist, or is invalid."""
DEFAULT_FIELDS = ["topic", "partition", "offset", "key", "value"]
PARTS = frozenset({*DEFAULT_FIELDS, "timestamp", "headers"})
"""Parts of every message; they can be fields if the value has no fields of its own."""
PLAIN = frozenset({"bytes", "text"})


@dataclass(frozen=True, slots=True)
class KafkaMessage:
    """A message as a translator receives it."""

    topic: str
    kafka_partition: int
    offset: int
    timestamp_ms: int | None
    """Milliseconds since the epoch; None if the message has no timestamp."""
    key: Any
    """Decoded according to ``key=``; None if the message has no key."""
    value: Any
    """Decoded according to ``value=``; None if the message has no value."""
    headers: Sequence[tuple[str, bytes | None]]


Translator: TypeAlias = Callable[[KafkaMessage], Iterable[Sequence[Any]] | None]
"""Returns a list of values for each tuple of a message; an empty iterable or None if there is no tuple."""


@dataclass(frozen=True, repr=False)
class Schemas:
    """The source of the schemas for Avro and Protobuf.

    >>> Schemas({"url": "http://ann:x4!@registry:8081", "basic.auth.user.info": "ann:x4!"})
    Schemas({'url': 'http://***@registry:8081', 'basic.auth.user.info': '***'})
    """

    registry: str | Mapping[str, Any] | None = None
    """The registry's URL, or the properties of its client."""
    protobuf_type: Any = None
    """The generated class of the messages."""

    @property
    def _options(self) -> dict[str, Any]:
        return {"url": self.registry} if isinstance(self.registry, str) else dict(self.registry or {})

    def __repr__(self) -> str:
        """Return the attributes with secrets masked."""
        return self.scrub(f"Schemas({self.registry!r})")

    def scrub(self, text: object) -> str:
        """Return a text with the secrets of the registry's client masked."""
        return scrubbed(text, self._options)

    def client(self) -> Any:
        """Return the registry's client.

        Raises:
            ConfigError: No registry is given, its client is not installed, or it refuses its properties.
        """
        if self.registry is None:
            raise ConfigError("value='avro' and 'protobuf' need schema_registry='http://host:8081'")
        library = client_library("confluent_kafka.schema_registry")
        try:
            return library.SchemaRegistryClient.new_client(self._options)
        except Exception as error:  # noqa: BLE001  the library raises ValueError, TypeError and others
            raise ConfigError(f"the schema registry's client refuses its properties: {self.scrub(error)}") from None


def check_decoding(what: str, decoding: Any, schemas: Schemas) -> None:
    """Refuse an invalid decoding when the spout is created.

    Raises:
        ConfigError: It is not a decoding, or something that it needs is missing, such as a part of the client library.
    """
    if not isinstance(decoding, str) or decoding not in get_args(DecodingName):
        verify(what, decoding, function(f"{', '.join(map(repr, get_args(DecodingName)))} or a function"))
    if decoding in ("avro", "protobuf") and schemas.registry is None:
        raise ConfigError(f"{what}={decoding!r} needs schema_registry='http://host:8081'")
    if decoding == "protobuf" and schemas.protobuf_type is None:
        raise ConfigError(f"{what}='protobuf' needs protobuf_type=, the generated class of the messages")
    if decoding in ("avro", "protobuf"):
        client_library(f"confluent_kafka.schema_registry.{decoding}")


def decode_of(decoding: Decoding, part: str, schemas: Schemas) -> Decode:
    """Return the function that decodes the keys or values (``part``) of messages."""
    function = decoding if callable(decoding) else NAMED.get(decoding)
    if function is not None:
        return lambda data, _: None if data is None else function(data)
    serialization = client_library("confluent_kafka.serialization")
    field = serialization.MessageField.KEY if part == "key" else serialization.MessageField.VALUE
    context = serialization.SerializationContext
    if decoding == "avro":
        deserializer = client_library("confluent_kafka.schema_registry.avro").AvroDeserializer(_Registry(schemas))
    else:
        module = client_library("confluent_kafka.schema_registry.protobuf")
        deserializer = module.ProtobufDeserializer(
            schemas.protobuf_type, {"use.deprecated.format": False}, _Registry(schemas)
        )

    return lambda data, topic: None if data is None else deserializer(data, context(topic, field))


class _Registry:
    """The registry's client, for deserializers; every answer of the registry passes ``_answer``."""

    def __init__(self, schemas: Schemas) -> None:
        self._scrub = schemas.scrub
        self._client = schemas.client()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        return partial(self._answer, attribute) if callable(attribute) else attribute

    def _answer(self, question: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Ask the registry.

        Raises:
            SchemaRegistryError: The registry does not have the schema.
            SourceUnavailable: It gives any other answer, such as 401, 429 or 503, or none.
        """
        try:
            return question(*arguments, **options)
        except Exception as error:
            if int(getattr(error, "error_code", None) or 0) // 100 in _ABOUT_SCHEMAS:
                raise
            text = self._scrub(f"{type(error).__name__}: {error}")
            raise SourceUnavailable(f"the schema registry is unavailable: {text}") from None


class Shaper:
    """Turns the messages of one kafka_partition into columns."""

    def __init__(
        self,
        fields: Sequence[str],
        *,
        key: Decoding,
        value: Decoding,
        schemas: Schemas,
        translate: Translator | None,
        whole: bool,
    ) -> None:
        """Create the decoders, which may connect to a schema registry.

        Args:
            fields: The fields of the tuple.
            key: The decoding of keys.
            value: The decoding of values.
            schemas: The schemas for Avro and Protobuf.
            translate: Creates the tuples, if given.
            whole: Whether the fields are parts of the message, not of its value.
        """
        self._fields = list(fields)
        self._width = len(self._fields)
        self._key = decode_of(key, "key", schemas)
        self._value = decode_of(value, "value", schemas)
        self._types = {"key": _plain_type(key), "value": _plain_type(value)}
        self._scrub = schemas.scrub
        self._translate = translate
        self._whole = whole
        self._own = value if callable(value) else None

    def shape(
        self, messages: Sequence[Any], offsets: I64
    ) -> Iterable[tuple[Sequence[int] | I64, list[Any]] | BadRecord]:
        """Return the columns and the records that cannot be decoded, in the order of the messages.

        Args:
            messages: Messages of the client library.
            offsets: Their offsets: ``int64[messages]``, ascending.
        """
        if self._whole and self._translate is None:
            columns = self._fast(messages, offsets)
            if columns is not None:
                return [(offsets, columns)]
        return self._one_by_one(messages)

    def _fast(self, messages: Sequence[Any], offsets: I64) -> list[Any] | None:
        """Return all columns at once; None if a message needs to be decoded alone or cannot be decoded this way."""
        columns: list[Any] = []
        count = len(messages)
        for field in self._fields:
            if field == "topic":
                columns.append(_repeated(messages[0].topic(), count))
            elif field == "partition":
                columns.append(pa.array([messages[0].partition()] * count, pa.int64()))
            elif field == "offset":
                columns.append(pa.array(offsets, pa.int64()))
            elif field == "timestamp":
                columns.append(pa.array([timestamp_of(message) for message in messages], pa.int64()))
            elif field == "headers":
                columns.append([message.headers() or [] for message in messages])
            else:
                part = "key" if field == "key" else "value"
                arrow_type = self._types[part]
                if arrow_type is None:
                    return None
                try:  # decoding bytes columns takes half the time, and it checks the text as well
                    columns.append(pa.array(list(all_of(messages, part)), pa.binary()).cast(arrow_type))
                except (pa.ArrowInvalid, UnicodeDecodeError):
                    return None
        return columns

    def _one_by_one(self, messages: Sequence[Any]) -> Iterable[tuple[Sequence[int], list[Any]] | BadRecord]:
        positions: list[int] = []
        rows: list[Sequence[Any]] = []
        for message in messages:
            offset = message.offset()
            try:
                made = self._rows(message)
            except (SourceUnavailable, Unavailable) as error:
                if rows:  # messages that were decoded before it count
                    yield positions, list(zip(*rows, strict=True))
                raise error if isinstance(error, SourceUnavailable) else SourceUnavailable(str(error)) from error
            except Exception as error:  # noqa: BLE001  a decoder or translator may raise anything
                if rows:
                    yield positions, list(zip(*rows, strict=True))
                    positions, rows = [], []
                why = self._scrub(_reason(error))
                yield BadRecord(offset, f"{message.topic()}/{message.partition()}@{offset}: {why}")
                continue
            positions.extend([offset] * len(made))
            rows.extend(made)
        if rows:
            yield positions, list(zip(*rows, strict=True))

    def _rows(self, message: Any) -> list[Sequence[Any]]:
        topic = message.topic()
        value = self._value(message.value(), topic)
        if self._translate is not None:
            key = self._key(message.key(), topic)
            seen = KafkaMessage(
                topic,
                message.partition(),
                message.offset(),
                timestamp_of(message),
                key,
                value,
                message.headers() or [],
            )
            return [self._checked(row) for row in self._translate(seen) or ()]
        if self._whole:
            parts = {
                "topic": topic,
                "partition": message.partition(),
                "offset": message.offset(),
                "key": self._key(message.key(), topic),
                "timestamp": timestamp_of(message),
                "headers": message.headers() or [],
            }
            return [[parts.get(field, value) for field in self._fields]]
        return [[None] * self._width if message.value() is None else self._taken(value)]

    def _checked(self, row: Any) -> Sequence[Any]:
        if isinstance(row, (str, bytes)) or not hasattr(row, "__len__") or len(row) != self._width:
            raise ValueError(
                f"the translator gave {row!r:.60}, expected lists of {self._width} value(s) for {self._fields}"
            )
        return cast("Sequence[Any]", row)

    def _taken(self, value: Any) -> Sequence[Any]:
        """Return the fields of a decoded value: of a mapping by key, of a Protobuf message by name."""
        if isinstance(value, Mapping):
            return [value.get(field) for field in self._fields]
        if hasattr(value, "DESCRIPTOR"):
            return [getattr(value, field, None) for field in self._fields]
        if self._own is not None and self._width == 1:
            return [value]
        raise ValueError(f"expected an object with the fields {self._fields}, got {value!r:.80}")


def _plain_type(decoding: Decoding) -> Any:
    return {"bytes": pa.binary(), "text": pa.string()}.get(decoding) if isinstance(decoding, str) else None


def _repeated(text: str, count: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text], pa.string()))


def all_of(messages: Sequence[Any], part: str) -> Iterator[Any]:
    """Return a part of each message, by the method of that name; there must be a message, and all of one class.

    Mapping the class's method takes a quarter of the time of ``operator.methodcaller``.
    """
    return map(getattr(type(messages[0]), part), messages)


def timestamp_of(message: Any) -> int | None:
    """Return the timestamp in milliseconds since the epoch; None if the message has none."""
    kind, milliseconds = message.timestamp()
    return int(milliseconds) if kind else None


def _reason(error: Exception) -> str:
    text = str(error).strip().split("\n", 1)[0]
    return (
        text
        if isinstance(error, ValueError) and text.startswith(("expected", "the translator"))
        else (f"{type(error).__name__}: {text}")
    )
