"""The beat: a topology's entry, whatever becomes of the home."""

from __future__ import annotations

import logging
import shutil
import threading
from pathlib import Path

import pytest

from sparkbolt.control.documents import TopologyState
from sparkbolt.control.home import Home
from sparkbolt.control.registration import News, Registration, first_entry
from tests.unit.control.test_home import wait_for
from tests.unit.control.topologies import entry_of


def begun(home: Home, tell: object = None, beat_secs: float = 0.01) -> Registration:
    entry = first_entry(home, "words", checkpoint="/state", command=[], now_ms=5000)
    registration = Registration(home, entry, tell or (lambda: News(state="active")), beat_secs=beat_secs)  # type: ignore[arg-type]
    registration.begin()
    return registration


def test_an_entry_follows_the_state_reported_by_the_topology(home: Path) -> None:
    registry = Home(str(home))
    registration = begun(registry)
    assert wait_for(lambda: [entry["state"] for entry in registry.entries()] == [TopologyState.ACTIVE])
    registration.end(TopologyState.ENDED, "killed by alice")
    [entry] = registry.entries()
    assert (entry["state"], entry["why"], entry["exit_code"], entry["control"]) == (
        "ended",
        "killed by alice",
        None,
        None,
    )
    ended_ms = entry["ended_ms"]
    assert ended_ms is not None
    registration.end(TopologyState.ENDED, "killed by alice", 4)
    assert wait_for(lambda: registry.entries()[0]["exit_code"] == 4)
    assert registry.entries()[0]["ended_ms"] == ended_ms


def test_a_temporarily_missing_home_is_logged_once_and_recovers(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    registry = Home(str(home))
    with caplog.at_level(logging.WARNING, "sparkbolt"):
        registration = begun(registry)
        assert wait_for(lambda: registry.entries() != [])
        shutil.rmtree(home, ignore_errors=True)
        blocked = make_file(home)
        assert wait_for(lambda: registration.trouble is not None)
        for _ in range(5):
            registration.beat_now()
        blocked.unlink()
        assert wait_for(lambda: registry.entries() != [] and registration.trouble is None)
    registration.end(TopologyState.ENDED, None)
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "cannot be registered" in line]) == 1
    assert len([line for line in said if "is registered in" in line and "again" in line]) == 1


def make_file(home: Path) -> Path:
    """A file where the home was: nothing can be written below it. The beat may make the folder again meanwhile."""
    while True:
        try:
            home.write_text("in the way")
            return home
        except IsADirectoryError:
            shutil.rmtree(home, ignore_errors=True)


def test_topology_ends_without_waiting_for_a_hanging_home(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr("sparkbolt.control.registration.LAST_SECS", 0.05)
    hangs = threading.Event()

    class Hanging(Home):
        def write(self, entry: object, *, durable: bool = False) -> None:
            hangs.wait()

    registration = Registration(Hanging(str(home)), entry_of(), News, beat_secs=0.01)
    registration.begin()
    registration.end(TopologyState.ENDED, None)  # comes back
    hangs.set()
