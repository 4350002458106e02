"""The process that listens: where, with which token, and how long it lets a client dawdle."""

from __future__ import annotations

import socket
import stat
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from sparkbolt.errors import ConfigError
from sparkbolt.faces.ui import make_app, serve
from sparkbolt.faces.ui.serve import is_loopback, kept_token, token_directory
from sparkbolt.spark.checkpoint_files import open_files
from tests.unit.control.fake import TOKEN, FakeOperator
from tests.unit.faces.ui.serving import Serving

module = sys.modules["sparkbolt.faces.ui.serve"]  # by its name it is the function


# ---- the token


def test_token_is_random_kept_and_readable_by_the_user_only(tmp_path: Path) -> None:
    token = kept_token(tmp_path / "home")
    assert len(token) >= 32
    assert kept_token(tmp_path / "home") == token
    assert kept_token(tmp_path / "other") != token
    [file] = (tmp_path / "home").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    kept_token(tmp_path)
    [file] = tmp_path.iterdir()
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="other users can read"):
        kept_token(tmp_path)


def test_token_is_new_for_each_start_without_a_local_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARKBOLT_HOME", "s3://bucket/home")
    assert token_directory(None) is None
    assert kept_token(None) != kept_token(None)
    monkeypatch.setenv("SPARKBOLT_HOME", str(tmp_path))
    assert token_directory(None) == tmp_path
    assert token_directory(f"file://{tmp_path}") == tmp_path
    monkeypatch.delenv("SPARKBOLT_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert token_directory(None) == tmp_path / "sparkbolt"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "::", "storm.example"])
def test_other_addresses_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", 200), ("192.168.1.2", 401)])
def test_server_on_a_non_loopback_address_shows_nothing_without_the_token(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, operator: FakeOperator, host: str, status: int
) -> None:
    found = []
    said: list[str] = []

    def run(app: object, *arguments: object) -> None:
        found.append(app)
        arguments[-1]("http://there/")  # type: ignore[operator]

    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(module, "Operator", lambda home, **_: operator)
    monkeypatch.setenv("SPARKBOLT_UI_TOKEN", TOKEN)
    serve(host, 0, str(tmp_path), open_files=lambda path: None, say=said.append)  # type: ignore[arg-type, return-value]
    assert said == [f"Sparkbolt's UI is at http://there/\nTo make changes, open http://there/login#token={TOKEN}"]
    assert list(tmp_path.iterdir()) == []  # a token that was given is not kept
    with TestClient(found[0], base_url=f"http://{host}:8088") as client:  # type: ignore[arg-type]
        assert client.get("/api/v2/topologies").status_code == status


def test_an_occupied_port_is_an_error(operator: FakeOperator) -> None:
    app = make_app(operator, token=TOKEN)  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(OSError, match=r"[Aa]ddress"):
        module.run(app, "127.0.0.1", other.getsockname()[1], print)


# ---- clients that dawdle, and many of them


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD_SECS_MAX", 0.2)


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: "])
@pytest.mark.usefixtures("impatient")
def test_an_unfinished_request_head_is_given_up(operator: FakeOperator, begun: bytes) -> None:
    with Serving(make_app(operator, token=TOKEN)) as server, server.raw() as client:  # type: ignore[arg-type]
        client.sendall(begun)
        assert client.recv(1000) == b""  # it is closed, not answered
        assert server.get("/metrics")[0] == 200


def test_a_hundred_silent_connections_do_not_block_others(operator: FakeOperator) -> None:
    with Serving(make_app(operator, token=TOKEN)) as server:  # type: ignore[arg-type]
        silent = [server.raw() for _ in range(100)]
        for client in silent:
            client.sendall(b"GET / HTTP/1.1\r\nX-Slow: ")
        assert server.get("/api/v2/topologies")[0] == 200
        for client in silent:
            client.close()


def test_a_path_that_is_not_a_checkpoint_is_reported_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    monkeypatch.setattr(module, "run", lambda app, host, port, ready: ready("http://there/"))
    monkeypatch.setenv("SPARKBOLT_UI_TOKEN", TOKEN)
    place = str(tmp_path / "nothing")
    serve("127.0.0.1", 0, str(tmp_path), checkpoints=[place], open_files=open_files, say=said.append)
    assert said[0].startswith(f"{place} is not a checkpoint or the name of a topology: ")
    assert said[0].endswith("; the UI shows it as soon as it exists")
    assert len(said) == 2
