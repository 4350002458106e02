"""``sparkbolt ui``: what the server is told, and what is said if it cannot start."""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import urlopen

import pytest
from starlette.testclient import TestClient

from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli import main, run_command
from sparkbolt.faces.cli.operate import serving
from sparkbolt.faces.cli.program import RunEnd, RunOutcome


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a user interface that is installed was told."""
    told: list[dict[str, Any]] = []
    module = ModuleType("sparkbolt.faces.ui")
    module.serve = lambda **given: told.append(given)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sparkbolt.faces.ui", module)
    return told


def test_server_receives_its_address_and_what_to_show(served: list[dict[str, Any]]) -> None:
    assert main(["ui"]) == 0
    assert served[0]["open_files"]
    assert served[0]["read_state"]
    known = [
        {name: value for name, value in given.items() if name not in ("open_files", "read_state")} for given in served
    ]
    nothing: dict[str, Any] = {"home": None, "checkpoints": [], "private": False, "allowed_hosts": []}
    assert known == [{"host": "127.0.0.1", "port": 8088, **nothing}]
    arguments = ["--port", "0", "--host", "::1", "--home", "h", "--checkpoint", "a", "--checkpoint", "b", "--private"]
    assert main(["ui", *arguments, "--allow-host", "bolts.example.org"]) == 0
    given = served[1]
    assert (given["port"], given["host"], given["home"], given["checkpoints"]) == (0, "::1", "h", ["a", "b"])
    assert (given["private"], given["allowed_hosts"]) == (True, ["bolts.example.org"])


def test_ui_without_its_packages_says_how_to_install_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'starlette'", name="starlette")

    monkeypatch.setattr("sparkbolt.faces.cli.operate.serving.import_module", missing)
    assert main(["ui"]) == 1
    said = "sparkbolt ui needs the package 'starlette', which is not installed: pip install starlette"
    assert said in capsys.readouterr().err


def test_an_occupied_port_is_reported_in_one_sentence(
    served: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def taken(**given: Any) -> None:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    monkeypatch.setattr(sys.modules["sparkbolt.faces.ui"], "serve", taken)
    assert main(["ui", "--port", "80"]) == 2
    said = "the user interface cannot listen at 127.0.0.1:80: Address already in use; use another --port or --host"
    assert said in capsys.readouterr().err


def test_ctrl_c_ends_it_well(served: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(**given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["sparkbolt.faces.ui"], "serve", stopped)
    assert main(["ui"]) == 0


def test_ui_serves_pages_beside_the_interfaces(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    apps: list[Any] = []
    import sparkbolt.faces.ui  # noqa: F401  so that its module can be found by its name

    monkeypatch.setattr(sys.modules["sparkbolt.faces.ui.serve"], "run", lambda app, *_: apps.append(app))
    assert main(["ui", "--port", "0"]) == 0
    client = TestClient(apps[0], base_url="http://localhost", raise_server_exceptions=False)
    for path in ("/", "/login"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    missing = client.get("/topologies/none")
    assert missing.status_code == 404
    assert "No topology has the id or name" in missing.text
    assert client.get("/api/v1/cluster/summary").status_code == 200


def test_a_run_with_ui_serves_it_at_a_free_port_if_the_usual_one_is_taken(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(serving, "PORT", taken.getsockname()[1])
        said: list[str] = []
        serving.serve_beside(said.append)
    [text] = said
    found = re.search(r"UI is at (http://\S+/)\nTo make changes, open (http://\S+/login#token=\S+)", text)
    assert found is not None
    with urlopen(found[1]) as answer:
        assert b"Sparkbolt" in answer.read()


def test_a_ui_that_cannot_be_served_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: Any) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(serving, "_serve", lambda: refused)
    with pytest.raises(WrongUseError, match="the user interface cannot be served"):
        serving.serve_beside(print)


def test_a_detached_run_serves_no_ui(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "tests.unit.faces.cli.words:build", "--ui", "--detach"]) == 2
    assert "start `sparkbolt ui` beside" in capsys.readouterr().err


def test_a_run_prints_the_login_link(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(run_command, "serve_beside", lambda say: say("the link"))
    monkeypatch.setattr(run_command, "perform", lambda *_, **__: RunOutcome(RunEnd.FINISHED, 1.0))
    assert main(["run", "tests.unit.faces.cli.words:build", "--ui", "--json"]) == 0
    assert capsys.readouterr().err == "the link\n"
