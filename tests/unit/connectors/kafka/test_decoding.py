"""What messages become: columns, rows, and records that cannot be read; without a broker."""

from __future__ import annotations

import json
import threading
import traceback
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from sparkbolt.api.ranges import BadRecord
from sparkbolt.connectors.kafka.message_decoder import Schemas, Shaper
from sparkbolt.errors import ConfigError, SourceUnavailable, Unavailable
from sparkbolt.spouts import KafkaSpout

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "customer", "type": "string"}, {"name": "amount", "type": "int"}],
}


class Message:
    """As the client gives one."""

    def __init__(self, value: bytes | None, offset: int = 0, key: bytes | None = None, time_ms: int | None = 5) -> None:
        self._value, self._offset, self._key, self._time_ms = value, offset, key, time_ms

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def offset(self) -> int:
        return self._offset

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (0, 0) if self._time_ms is None else (1, self._time_ms)


def shaped(spout: KafkaSpout, messages: list[Message]) -> list[Any]:
    """Rows as (offset, values), and records that cannot be read."""
    spout.prepare(None)
    assert isinstance(spout._shaper, Shaper)
    found: list[Any] = []
    for item in spout._shaper.shape(messages, [message.offset() for message in messages]):
        if isinstance(item, BadRecord):
            found.append(item)
        else:
            positions, columns = item
            plain = [column.to_pylist() if hasattr(column, "to_pylist") else column for column in columns]
            found += zip(positions, map(list, zip(*plain, strict=True)), strict=True)
    return found


def spout(**options: Any) -> KafkaSpout:
    return KafkaSpout("localhost:9092", "orders", group="g", **options)


def test_default_fields_without_outputs_equal_those_of_storm():
    assert spout().outputs == ["topic", "partition", "offset", "key", "value"]
    assert shaped(spout(), [Message(b"x", 7, b"k"), Message(None, 8)]) == [
        (7, ["orders", 3, 7, b"k", b"x"]),
        (8, ["orders", 3, 8, None, None]),
    ]


def test_one_message_that_is_not_text_does_not_fail_its_chunk():
    found = shaped(spout(value="text", outputs=["line"]), [Message(b"a", 1), Message(b"\xff", 2), Message(b"b", 4)])
    assert [found[0], found[2]] == [(1, ["a"]), (4, ["b"])]
    assert found[1].position == 2
    assert "orders/3@2: UnicodeDecodeError" in found[1].reason


def test_a_function_decodes_to_an_object_or_to_the_one_field():
    assert shaped(spout(value=int, outputs=["number"]), [Message(b"17", 1), Message(None, 2)]) == [
        (1, [17]),
        (2, [None]),
    ]
    by_name = spout(value=lambda data: {"a": data[:1], "b": data[1:]}, outputs=["b", "c"])
    assert shaped(by_name, [Message(b"xyz", 1)]) == [(1, [b"yz", None])]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One registry for whoever asks; the client's own, in memory, belongs to the object that it is asked by."""
    client = Schemas("mock://decoding").client()
    monkeypatch.setattr(Schemas, "client", lambda _: client)
    return client


def test_avro_is_decoded_by_the_registrys_schema(registry):
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    serialize = AvroSerializer(registry, json.dumps(ORDER))
    data = serialize({"customer": "ann", "amount": 3}, SerializationContext("orders", MessageField.VALUE))
    own = spout(value="avro", schema_registry="mock://decoding", outputs=["amount", "customer"])
    found = shaped(own, [Message(data, 1), Message(b"none", 2)])
    assert found[0] == (1, [3, "ann"])
    assert isinstance(found[1], BadRecord)


def test_protobuf_is_decoded_into_its_class(registry):
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="orders_of_tests.proto", package="orders", syntax="proto3")
    fields = file.message_type.add(name="Order").field
    fields.add(name="customer", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    fields.add(name="amount", number=2, type="TYPE_INT32", label="LABEL_OPTIONAL")
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    order = message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName("orders.Order"))
    serialize = ProtobufSerializer(order, registry, {"use.deprecated.format": False})
    data = serialize(order(customer="ann", amount=3), SerializationContext("orders", MessageField.VALUE))
    own = spout(
        value="protobuf", protobuf_type=order, schema_registry="mock://decoding", outputs=["amount", "customer"]
    )
    assert shaped(own, [Message(data, 1)]) == [(1, [3, "ann"])]


def test_a_registry_that_is_away_is_no_fault_of_the_message():
    own = spout(value="avro", outputs=["customer"], schema_registry={"url": "http://127.0.0.1:9", "max.retries": 0})
    with pytest.raises(SourceUnavailable, match="the schema registry is unavailable"):
        shaped(own, [Message(b"\0\0\0\0\1abc", 1)])


@pytest.fixture
def answering() -> Iterator[Callable[[int, Any], str]]:
    """Starts a registry that gives one answer to every question; returns its URL."""
    servers: list[HTTPServer] = []

    def start(status: int, body: Any) -> str:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        servers.append(HTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


FRAMED = b"\0\0\0\0\1\0abc"


@pytest.mark.parametrize("decoding", ["avro", "protobuf"])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((status, {"error_code": status, "message": "no"}) for status in (400, 401, 404, 408, 429, 500, 503)),
        (403, {"error_code": 40301, "message": "User is denied operation Read on Subject"}),
        (401, b""),
        (302, b""),
        (404, b"<html>no such page</html>"),
        (200, b"<html>log in</html>"),
        (200, b""),
        (200, []),
    ],
)
def test_a_registry_that_does_not_say_whether_it_has_the_schema_is_unavailable(answering, decoding, status, body):
    url = answering(status, body)
    schemas = {"schema_registry": {"url": url, "max.retries": 0}, "protobuf_type": descriptor_pb2.FileDescriptorProto}
    with pytest.raises(SourceUnavailable, match="the schema registry is unavailable"):
        shaped(spout(value=decoding, outputs=["name"], **schemas), [Message(FRAMED, 1)])


@pytest.mark.parametrize("code", [40401, 40403, 42201])
def test_a_schema_that_the_registry_does_not_have_fails_its_message_alone(answering, code):
    registry = {"url": answering(code // 100, {"error_code": code, "message": "Schema not found"}), "max.retries": 0}
    found = shaped(
        spout(value="avro", outputs=["customer"], schema_registry=registry), [Message(FRAMED, n) for n in (1, 2)]
    )
    assert [bad.position for bad in found] == [1, 2]
    assert "Schema not found" in found[0].reason


def test_a_decoder_that_is_unavailable_is_no_fault_of_the_message():
    def decode(data: bytes) -> str:
        if data == b"b":
            raise Unavailable("the key store is away")
        return data.decode()

    own = spout(value=decode, outputs=["letter"])
    own.prepare(None)
    chunks = iter(own._shaper.shape([Message(b"a", 1), Message(b"b", 2)], [1, 2]))
    assert next(chunks) == ([1], [("a",)])
    with pytest.raises(SourceUnavailable, match="the key store is away"):
        next(chunks)


@pytest.mark.parametrize(
    ("registry", "error", "said"),
    [
        ({"url": "http://ann:x4!y@127.0.0.1:9", "max.retries": 0}, SourceUnavailable, "registry is unavailable"),
        ({"url": "ht tp://ann:x4!y@127.0.0.1:9"}, ConfigError, r"Invalid url ht tp://\*\*\*@127"),
        ({"url": "http://127.0.0.1:9", "basic.auth.user.info": "ann:x4!y", "odd": 1}, ConfigError, "properties: odd"),
        ({"url": "http://127.0.0.1:9", "basic.auth.user.info": "x4!y"}, ConfigError, "must be in the form"),
    ],
)
def test_secrets_of_a_schema_registry_are_neither_printed_nor_in_a_traceback(registry, error, said):
    own = spout(value="avro", outputs=["customer"], schema_registry=registry)
    with pytest.raises(error, match=said) as raised:
        shaped(own, [Message(b"\0\0\0\0\1abc", 1)])
    told = "".join(traceback.format_exception(raised.value))
    assert "x4!y" not in told + repr(own.schemas) + repr(own)
