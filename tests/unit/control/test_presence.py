"""What begins and ends with a topology: its entry, its socket, and what it was asked for."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from sparkbolt.control.client import ask
from sparkbolt.control.documents import TopologyState
from sparkbolt.control.home import Home
from sparkbolt.control.presence import Presence
from tests.unit.control.test_home import wait_for
from tests.unit.control.topologies import FakeRunning


def entry(home: Path) -> dict[str, object]:
    """The entry of the one topology; it is written from a thread, so it may not be there yet."""
    assert wait_for(lambda: Home(str(home)).entries() != [])
    [one] = Home(str(home)).entries()
    return dict(one)


def test_a_topology_is_seen_from_its_start_to_its_exit_code(home: Path) -> None:
    presence = Presence("words", "/state")
    assert wait_for(lambda: Home(str(home)).entries() != [])
    assert (entry(home)["state"], entry(home)["control"]) == ("starting", None)
    presence.attach(FakeRunning())
    assert wait_for(lambda: entry(home)["control"] is not None)
    address = str(entry(home)["control"])
    assert ask(address, "document")["entry"]["id"] == entry(home)["id"]
    assert ask(address, "deactivate", by="alice")["done"]
    assert wait_for(lambda: entry(home)["state"] == "inactive")
    assert entry(home)["why"] == "deactivated by alice"
    presence.ended(TopologyState.ENDED, "killed by alice")
    presence.exits(4)
    assert (entry(home)["state"], entry(home)["why"], entry(home)["exit_code"]) == ("ended", "killed by alice", 4)
    assert entry(home)["gist"]["acked"] == 3  # type: ignore[index]
    assert not os.path.exists(address.removeprefix("unix:"))


def test_a_topology_that_cannot_start_says_why(home: Path) -> None:
    Presence("words", "/state").ended(TopologyState.FAILED, "spout 'lines' could not be opened")
    assert (entry(home)["state"], entry(home)["why"]) == ("failed", "spout 'lines' could not be opened")


def test_tcp_server_creates_and_removes_a_token(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("SPARKBOLT_CONTROL", "tcp://:0")
    presence = Presence("words", "/state")
    presence.attach(FakeRunning())
    assert wait_for(lambda: entry(home)["control"] is not None)
    address, id_ = str(entry(home)["control"]), str(entry(home)["id"])
    assert address.startswith("tcp://127.0.0.1:")
    token = Home(str(home)).token(id_)
    assert ask(address, "document", token=token)["entry"]["id"] == id_
    presence.ended(TopologyState.ENDED, None)
    assert Home(str(home)).token(id_) is None


def test_a_home_that_cannot_be_used_at_all_stops_no_topology(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SPARKBOLT_HOME", "gopher://x")
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        presence = Presence("words", "/state")
    assert "topology 'words' is not registered: SPARKBOLT_HOME is 'gopher://x'" in caplog.text
    steering = presence.attach(FakeRunning())
    assert steering.document()["entry"]["name"] == "words"
    presence.ended(TopologyState.ENDED, None)
    presence.exits(0)
