"""SocketSpout: lines over TCP, kept until they are acked."""

from __future__ import annotations

import pickle
import select
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.connectors.sockets import socket_spout as tcp
from sparkbolt.spouts import SocketSpout


class Collector:
    room = 1000

    def __init__(self) -> None:
        self.emitted: list[tuple[int, str]] = []

    def emit(self, values: list[str], message_id: Any) -> None:
        self.emitted.append((message_id, values[0]))


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)
        yield listening


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [0.0]
    monkeypatch.setattr(tcp, "monotonic", lambda: time[0])
    return time


def opened(server: socket.socket, **arguments: Any) -> SocketSpout:
    spout = pickle.loads(pickle.dumps(SocketSpout("127.0.0.1", server.getsockname()[1], **arguments)))
    spout.open(TopologyContext("t", "lines", 0, 1, 1, Config()))
    return spout


def call(spout: SocketSpout, collector: Collector) -> None:
    """One call, once there is something to be read."""
    if spout._socket is not None:
        select.select([spout._socket], [], [], 10)
    spout.next_tuple(collector)  # type: ignore[arg-type]


def connect(spout: SocketSpout, server: socket.socket) -> socket.socket:
    spout.next_tuple(Collector())  # type: ignore[arg-type]
    return server.accept()[0]


def test_lines_are_emitted_whole_and_the_last_one_when_the_server_closes(server: socket.socket) -> None:
    spout, collector = opened(server, reconnect=False), Collector()
    with connect(spout, server) as peer:
        peer.sendall("to be\r\nor n\u00e9".encode())
        call(spout, collector)
        assert collector.emitted == [(0, "to be")]
        peer.sendall(b"t\nto")
        call(spout, collector)
    call(spout, collector)
    assert [line for _, line in collector.emitted] == ["to be", "or n\u00e9t", "to"]
    assert not spout.exhausted
    for message_id, _ in collector.emitted:
        spout.ack(message_id)
    assert spout.exhausted
    spout.close()


def test_a_line_is_retried_up_to_max_retries_and_its_final_failure_completes_it(server: socket.socket) -> None:
    spout, collector = opened(server, max_retries=2, reconnect=False), Collector()
    assert spout.retry is not None
    assert spout.retry.max_retries == 2
    with connect(spout, server) as peer:
        peer.sendall(b"a\n")
        call(spout, collector)
    spout.next_tuple(collector)  # type: ignore[arg-type]
    assert not spout.exhausted
    spout.fail(0)
    assert spout.exhausted


def test_nothing_is_read_while_too_many_lines_are_pending(server: socket.socket) -> None:
    spout, collector = opened(server, pending_lines_max=2), Collector()
    with connect(spout, server) as peer:
        peer.sendall(b"a\nb\nc\n")
        call(spout, collector)
        spout.next_tuple(collector)  # type: ignore[arg-type]
        assert [line for _, line in collector.emitted] == ["a", "b"]
        spout.ack(0)
        spout.next_tuple(collector)  # type: ignore[arg-type]
        assert [line for _, line in collector.emitted] == ["a", "b", "c"]
    spout.close()


def test_a_closed_connection_is_reopened_after_a_pause(server: socket.socket, now: list[float]) -> None:
    spout, collector = opened(server), Collector()
    connect(spout, server).close()
    call(spout, collector)
    spout.next_tuple(collector)  # type: ignore[arg-type]
    assert spout._socket is None
    now[0] += 0.2
    with connect(spout, server) as peer:
        peer.sendall(b"again\n")
        call(spout, collector)
    assert collector.emitted == [(0, "again")]
    assert not spout.exhausted
    spout.close()


def test_a_refused_connection_is_retried_with_growing_pauses(now: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    spout = SocketSpout("127.0.0.1", port, backoff_max_secs=1.0)
    spout.open(TopologyContext("t", "lines", 0, 1, 1, Config()))
    pauses = []
    for _ in range(6):
        spout.next_tuple(Collector())  # type: ignore[arg-type]
        assert spout._socket is None
        pauses.append(round(spout._deadline - now[0], 3))
        now[0] = spout._deadline
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_a_line_that_is_too_long_is_dropped_and_the_next_one_is_not(
    server: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    spout, collector = opened(server, line_bytes_max=4), Collector()
    with connect(spout, server) as peer:
        for piece in (b"ab\n12345", b"6789", b"0\ncd\nxxxxxx\nef\n"):
            peer.sendall(piece)
            call(spout, collector)
    assert [line for _, line in collector.emitted] == ["ab", "cd", "ef"]
    assert caplog.text.count("is dropped") == 2
    spout.close()
