"""A stream of changes tells each change once, goes on after an interruption, and ends with its reader or topology."""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from starlette.applications import Starlette

from sparkbolt.control.documents import EventDocument
from sparkbolt.faces.ui import event_stream as module
from sparkbolt.faces.ui import make_app
from sparkbolt.faces.ui.event_stream import Cursor, Reader
from tests.unit.control.fake import TOKEN, FakeOperator
from tests.unit.control.shop import NASTY, NOW_MS
from tests.unit.faces.ui.serving import Serving, until


def parsed(events: list[str]) -> list[tuple[str, Any, str]]:
    """(name, data, id) of each."""
    found = []
    for text in events:
        assert text.endswith("\n\n")
        lines = dict(line.partition(": ")[::2] for line in text.strip().split("\n"))
        found.append((lines["event"], json.loads(lines["data"]), lines.get("id", "")))
    return found


def happened(time_ms: int, text: str) -> EventDocument:
    return EventDocument(time_ms=time_ms, kind="set", text=text, by=None)


@pytest.fixture
def orders(operator: FakeOperator) -> Any:
    return copy.deepcopy(operator.documents[operator.known[0]["id"]])


def test_change_stream_starts_with_the_current_state_and_numbers_and_not_with_past_events(orders: Any) -> None:
    assert [name for name, _, _ in parsed(Reader(None).events(orders))] == ["state", "numbers"]


def test_unchanged_data_is_not_sent_again(orders: Any) -> None:
    reader = Reader(None)
    reader.events(orders)
    assert reader.events(copy.deepcopy(orders)) == []


def test_each_change_is_reported_once(orders: Any) -> None:
    reader = Reader(None)
    reader.events(orders)
    orders["entry"]["state"] = "inactive"
    orders["events"].append(happened(NOW_MS, "spouts emit nothing"))
    orders["errors"][-1] = {**orders["errors"][-1], "time_ms": NOW_MS, "text": f"{NASTY}\n\ndata: forged"}
    orders["now"]["open_trees"] += 1
    found = parsed(reader.events(orders))
    assert [name for name, _, _ in found] == ["state", "happened", "error-reported", "numbers"]
    assert found[1][1]["text"] == "spouts emit nothing"
    assert found[2][1]["text"] == f"{NASTY}\n\ndata: forged"  # and it is one event
    assert found[3][1]["now"]["open_trees"] == 5_481
    assert reader.events(orders) == []


def test_a_reader_resumes_where_it_was_interrupted_even_in_another_process(orders: Any) -> None:
    last_id = parsed(Reader(None).events(orders))[-1][2]
    orders["events"] += [happened(NOW_MS + 1, "while it was away"), happened(NOW_MS + 2, "too")]
    again = parsed(Reader(Cursor.of_text(last_id)).events(orders))
    assert [data["text"] for name, data, _ in again if name == "happened"] == ["while it was away", "too"]
    newest = parsed(Reader(Cursor.of_text(again[-1][2])).events(orders))
    assert [name for name, _, _ in newest] == ["state", "numbers"]


# ---- over HTTP


class Stream:
    """One reader of a stream, as a browser reads it."""

    def __init__(self, server: Serving, topology: str = "orders", last_id: str = "") -> None:
        self.socket = server.raw()
        again = f"Last-Event-ID: {last_id}\r\n" if last_id else ""
        head = f"GET /api/v2/topologies/{topology}/changes HTTP/1.1\r\nHost: localhost:{server.port}\r\n{again}\r\n"
        self.socket.sendall(head.encode())
        self.text = ""

    def read_until(self, text: str) -> str:
        while text not in self.text:
            data = self.socket.recv(65536)
            assert data, f"the stream ended: {self.text[-500:]}"
            self.text += data.decode()
        return self.text

    def read_to_end(self) -> str:
        while not self.text.endswith("0\r\n\r\n"):
            data = self.socket.recv(65536)
            assert data
            self.text += data.decode()
        return self.text

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@pytest.fixture
def app(operator: FakeOperator, monkeypatch: pytest.MonkeyPatch) -> Starlette:
    monkeypatch.setattr(module, "LOOK_SECS", 0.05)
    return make_app(operator, token=TOKEN)  # type: ignore[arg-type]  # a fake


@pytest.fixture
def server(app: Starlette) -> Iterator[Serving]:
    with Serving(app) as server:
        yield server


def test_twenty_readers_see_a_change_and_cost_as_much_as_one(
    server: Serving, app: Starlette, operator: FakeOperator
) -> None:
    streams = [Stream(server) for _ in range(20)]
    for stream in streams:
        head = stream.read_until("event: numbers")
        assert "text/event-stream" in head
        assert "retry: 3000" in head
    document = operator.documents[operator.known[0]["id"]]
    document["events"].append(happened(NOW_MS, "a change for all"))
    for stream in streams:
        assert stream.read_until("a change for all").count("a change for all") == 1
    # Each looked more than twice, and an answer serves all for a second.
    asked = len([call for call in operator.calls if call[0] == "document"])
    assert asked < 2 * len(streams)
    for stream in streams:
        stream.close()
    until(lambda: not app.state.streams)


@pytest.mark.slow
def test_an_unresponsive_topology_is_reported_and_the_stream_continues(server: Serving, operator: FakeOperator) -> None:
    stream = Stream(server)
    stream.read_until("event: numbers")
    operator.raises = OSError("the directory is away")
    stream.read_until("the directory is away")
    operator.raises = None
    operator.documents[operator.known[0]["id"]]["events"].append(happened(NOW_MS, "it is back"))
    stream.read_until("it is back")
    stream.close()


def test_a_stream_ends_with_its_topology_and_is_not_restarted(server: Serving, operator: FakeOperator) -> None:
    stream = Stream(server, "nightly")
    text = stream.read_to_end()
    assert '"state":"ended"' in text
    last_id = text.rpartition("id: ")[2].partition("\n")[0]
    again = Stream(server, "nightly", last_id)
    assert again.read_until("\r\n\r\n").startswith("HTTP/1.1 204")
    for each in (stream, again):
        each.close()


def test_streams_are_bounded(server: Serving, app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STREAMS_MAX", 1)
    one = Stream(server)
    one.read_until("event: numbers")
    status, _, body = server.get("/api/v2/topologies/orders/changes")
    assert status == 503
    assert "close some pages" in body.decode()
    one.close()
    until(lambda: not app.state.streams)


def test_the_server_ends_although_streams_are_open(app: Starlette, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("sparkbolt.faces.ui.serve"), "STOP_SECS_MAX", 0.05)
    with Serving(app) as server:
        stream = Stream(server)
        stream.read_until("event: numbers")
    stream.socket.close()
