"""The control socket: who may ask, and how little a stranger can take."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from sparkbolt.control import control
from sparkbolt.control.client import NoAnswerError, NotAllowedError, WrongRequestError, ask
from sparkbolt.control.control import ControlServer
from sparkbolt.errors import ConfigError
from tests.unit.control.test_home import wait_for


class Asked:
    """Answers with what it was asked."""

    def __init__(self) -> None:
        self.waits = threading.Event()
        self.waits.set()
        self.verbs: list[str] = []

    def __call__(self, verb: str, arguments: Mapping[str, Any], by: str) -> Any:
        self.verbs.append(verb)
        if verb == "wait":
            self.waits.wait()
        if verb == "wrong":
            raise ConfigError("a topology knows no request 'wrong'")
        if verb == "breaks":
            raise ZeroDivisionError("a defect")
        return {"verb": verb, "arguments": dict(arguments), "by": by}


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def server(asked: Asked) -> Iterator[ControlServer]:
    one = ControlServer(asked)
    yield one
    asked.waits.set()
    one.close()


def test_a_request_is_answered_over_a_private_socket(server: ControlServer) -> None:
    answer = ask(server.address, "set", {"key": "x"}, by="alice")
    assert answer == {"verb": "set", "arguments": {"key": "x"}, "by": "alice"}
    path = server.address.removeprefix("unix:")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700


def test_errors_are_returned_as_sentences_and_the_server_keeps_running(server: ControlServer) -> None:
    with pytest.raises(WrongRequestError, match="knows no request 'wrong'"):
        ask(server.address, "wrong")
    with pytest.raises(WrongRequestError, match="ZeroDivisionError: a defect"):
        ask(server.address, "breaks")
    assert ask(server.address, "ping")["verb"] == "ping"


def test_an_answer_that_is_late_is_not_waited_for(server: ControlServer, asked: Asked) -> None:
    asked.waits.clear()
    began = time.monotonic()
    with pytest.raises(NoAnswerError, match=r"has not answered within 0\.2 s"):
        ask(server.address, "wait", secs=0.2)
    assert time.monotonic() - began < 10
    asked.waits.set()


def connected(server: ControlServer) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(server.address.removeprefix("unix:"))
    return connection


def said(connection: socket.socket) -> Any:
    with connection.makefile("rb") as file:
        return json.loads(file.readline())


@pytest.mark.parametrize(
    "line",
    [b"GET / HTTP/1.1", b"[]", b'{"verb": 3}', b"[" * 50_000, b"\xff\xfe", b'{"verb": "x", "arguments": []}',
     b'{"verb": "x", "arguments": {"by": "root"}}', b"cos\nsystem\n(S'true'\ntR."],
)  # fmt: skip
def test_invalid_request_is_answered_with_a_sentence(server: ControlServer, line: bytes) -> None:
    with connected(server) as connection:
        connection.sendall(line + b"\n")
        assert said(connection)["kind"] == "wrong"


def test_connection_without_a_complete_request_gets_a_timeout_error(
    monkeypatch: pytest.MonkeyPatch, server: ControlServer
) -> None:
    monkeypatch.setattr(control, "REQUEST_SECS", 0.1)
    with connected(server) as connection:
        connection.sendall(b'{"verb": ')
        assert "did not arrive within" in said(connection)["error"]


# TCP.


@pytest.fixture
def tcp(asked: Asked) -> Iterator[ControlServer]:
    one = ControlServer(asked, tcp=("127.0.0.1", 0), token="geheim")
    yield one
    one.close()


def test_tcp_connection_requires_the_token(tcp: ControlServer) -> None:
    assert tcp.address.startswith("tcp://127.0.0.1:")
    assert ask(tcp.address, "ping", token="geheim")["verb"] == "ping"
    for wrong in (None, "", "Geheim", "geheim ", "gehei"):
        with pytest.raises(NotAllowedError, match="the token is missing or wrong"):
            ask(tcp.address, "ping", token=wrong)


def test_tcp_server_always_has_a_token(asked: Asked) -> None:
    with pytest.raises(ConfigError, match="needs a token"):
        ControlServer(asked, tcp=("127.0.0.1", 0), token="")


@pytest.mark.parametrize("gone", ["closed", "half closed"])
def test_a_request_from_a_disconnected_operator_is_not_carried_out(
    server: ControlServer, asked: Asked, gone: str
) -> None:
    asked.waits.clear()
    with connected(server) as operator:
        operator.sendall(b'{"verb": "wait"}\n')
        assert wait_for(lambda: asked.verbs == ["wait"])
        operator.sendall(b'{"verb": "kill"}\n')
        if gone == "half closed":  # the answer to the first can be sent, so that the second is read
            operator.shutdown(socket.SHUT_WR)
        else:
            operator.close()
        asked.waits.set()
        assert wait_for(lambda: not server._connections)
    assert asked.verbs == ["wait"]
