"""``sparkbolt ui``: what is served, and what is said if it cannot be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from sparkbolt.cli import main


def test_ui_serves_pages_beside_the_interfaces(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    apps: list[Any] = []
    import sparkbolt.ui  # noqa: F401  so that its module can be found by its name

    monkeypatch.setattr(sys.modules["sparkbolt.ui.serve"], "run", lambda app, *_: apps.append(app))
    assert main(["ui", "--port", "0"]) == 0
    client = TestClient(apps[0], base_url="http://localhost", raise_server_exceptions=False)
    for path in ("/", "/login"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    missing = client.get("/topologies/none")
    assert missing.status_code == 404
    assert "No topology has the id or name" in missing.text
    assert client.get("/api/v1/cluster/summary").status_code == 200
