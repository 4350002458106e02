"""The registry: what is told of topologies that run, have ended, or have died without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.control import home as home_module
from sparkbolt.control.documents import TopologyState
from sparkbolt.control.home import (
    AmbiguousTopologyError,
    Home,
    UnknownTopologyError,
    default_home,
)
from sparkbolt.files.arrow import ArrowFiles
from sparkbolt.files.local import LocalFiles
from tests.unit.control.topologies import entry_of


def stored(place: Path, *entries: Any) -> Home:
    home = Home(str(place))
    for entry in entries:
        home.write(entry)
    return home


def test_the_home_is_taken_from_the_environment_or_defaults_to_that_of_the_user(
    monkeypatch: pytest.MonkeyPatch, home: Path, tmp_path: Path
) -> None:
    assert default_home() == str(home)
    monkeypatch.setenv("SPARKBOLT_HOME", "")
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert default_home() == "/var/state/sparkbolt"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_home() == str(tmp_path / ".local/state/sparkbolt")


def test_an_entry_is_read_back_unchanged_and_is_readable_only_by_its_user(home: Path) -> None:
    entry = entry_of()
    registry = stored(home, entry)
    assert registry.entries() == [entry]
    assert oct(home.stat().st_mode)[-3:] == "700"
    assert oct((home / "topologies" / "words-1-100.json").stat().st_mode)[-3:] == "600"


def test_running_topologies_are_listed_first_followed_by_the_newest_ended_ones(home: Path) -> None:
    ended = {"state": TopologyState.ENDED, "ended_ms": 9}
    old, new = entry_of("a-1-1", started_ms=1, **ended), entry_of("a-2-2", started_ms=2, **ended)
    registry = stored(home, old, new, entry_of("b-1-0", started_ms=0))
    assert [entry["id"] for entry in registry.entries()] == ["b-1-0", "a-2-2", "a-1-1"]


def test_file_that_is_not_an_entry_is_skipped(home: Path) -> None:
    registry = stored(home, entry_of())
    folder = home / "topologies"
    (folder / "half.json").write_bytes(b'{"id": "half", "na')
    (folder / "empty.json").write_bytes(b"")
    (folder / "list.json").write_bytes(b"[1]")
    (folder / "other.json").write_text(json.dumps(entry_of("another-id")))
    (folder / "notes.txt").write_text("mine")
    (folder / "deep.json").write_bytes(b"[" * 100_000)
    assert [entry["id"] for entry in registry.entries()] == ["words-1-100"]


# Who has died.


def ended_process() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process


def test_a_topology_without_its_process_is_dead(home: Path) -> None:
    registry = stored(home, entry_of(pid=ended_process().pid, beat_ms=77, control="unix:/x"))
    [entry] = registry.entries()
    assert entry["state"] == TopologyState.DEAD
    assert "is gone and has not reported how it ended" in str(entry["why"])
    assert (entry["ended_ms"], entry["control"]) == (77, None)


def test_a_process_that_waits_to_be_buried_is_gone(home: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read()  # it has closed its output; nobody has waited for it yet
        registry = stored(home, entry_of(pid=process.pid))
        assert wait_for(lambda: registry.entries()[0]["state"] == TopologyState.DEAD)


def wait_for(condition: Any, secs: float = 30.0) -> bool:
    until, pause = time.monotonic() + secs, threading.Event()
    while not condition():
        if time.monotonic() > until:
            return False
        pause.wait(0.01)
    return True


def test_a_process_id_reused_by_another_process_does_not_keep_a_topology_alive(home: Path) -> None:
    registry = stored(home, entry_of(pid_started=entry_of()["pid_started"] - 1000))
    assert registry.entries()[0]["state"] == TopologyState.DEAD


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def elsewhere(**fields: Any) -> Any:
    return entry_of(host="far-away", pid_space="another-boot/1", **fields)


def test_a_remote_topology_is_alive_while_its_entry_changes_whatever_its_clock_shows(home: Path) -> None:
    clock = Clock()
    registry = Home(str(home), mono=clock)
    for beat in range(1, 6):
        registry.write(elsewhere(beat_ms=beat))  # its clock is decades behind
        clock.now_s += 10
        assert registry.entries()[0]["state"] == TopologyState.ACTIVE
    clock.now_s += 31
    [entry] = registry.entries()
    assert entry["state"] == TopologyState.DEAD
    assert entry["why"] == "far-away has sent no heartbeat for 31 s"


def test_a_process_that_is_there_but_stands_still_is_not_shown_as_if_all_were_well(home: Path) -> None:
    clock = Clock()
    registry = Home(str(home), mono=clock)
    registry.write(entry_of(beat_ms=int(time.time() * 1000)))
    assert registry.entries()[0]["why"] is None
    clock.now_s += 31
    [entry] = registry.entries()
    assert entry["state"] == TopologyState.ACTIVE
    assert entry["why"] == f"its process ({os.getpid()}) is running, but has sent no heartbeat for 31 s"


def test_another_process_namespace_says_nothing_about_a_number_here(home: Path) -> None:
    registry = stored(home, entry_of(pid=ended_process().pid, pid_space="container/2", beat_ms=int(time.time() * 1000)))
    assert registry.entries()[0]["state"] == TopologyState.ACTIVE


# Names.


def test_a_name_refers_to_the_running_one_or_else_to_the_newest(home: Path) -> None:
    ended = {"state": TopologyState.ENDED, "ended_ms": 9}
    registry = stored(
        home, entry_of("a-1-1", name="a", started_ms=1), entry_of("a-2-2", name="a", started_ms=2, **ended)
    )
    assert registry.find("a")["id"] == "a-1-1"
    assert registry.find("a-2-2")["id"] == "a-2-2"
    registry.write(entry_of("a-1-1", name="a", started_ms=1, **ended))
    assert registry.find("a")["id"] == "a-2-2"


def test_a_trial_without_a_checkpoint_hides_no_topology_that_can_go_on(home: Path) -> None:
    ended = {"state": TopologyState.ENDED, "ended_ms": 9}
    registry = stored(
        home,
        entry_of("a-1-1", name="a", started_ms=1, checkpoint="/data/a", **ended),
        entry_of("a-2-2", name="a", started_ms=2, checkpoint=None, **ended),
    )
    assert registry.find("a")["id"] == "a-1-1"
    assert registry.find("a-2-2")["id"] == "a-2-2"


def test_two_running_topologies_with_one_name_are_both_listed_and_must_be_distinguished(home: Path) -> None:
    registry = stored(home, entry_of("a-1-1", name="a"), entry_of("a-2-1", name="a"))
    assert len(registry.entries()) == 2
    with pytest.raises(AmbiguousTopologyError, match=r"2 topologies named 'a' run: use the id of .*\(a-1-1, a-2-1\)"):
        registry.find("a")


def test_an_unknown_name_gets_the_most_similar_one(home: Path) -> None:
    with pytest.raises(UnknownTopologyError, match=r"no topology 'wrods' is registered in .*: did you mean 'words'\?"):
        stored(home, entry_of()).find("wrods")
    (home / "empty").mkdir()
    with pytest.raises(UnknownTopologyError, match="it has no topologies"):
        Home(str(home / "empty")).find("words")


# A home in trouble.


class Stuck(LocalFiles):
    """A file system that does not answer for a while."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.answers = threading.Event()
        self.answers.set()

    def listing(self, folder: str) -> Any:
        self.answers.wait()
        return super().listing(folder)


def test_an_unresponsive_home_shows_what_was_last_seen(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(home_module, "READ_SECS", 0.05)
    files = Stuck(str(home))
    registry = Home(str(home), files=files)
    registry.write(entry_of())
    assert wait_for(lambda: registry.entries() != [])
    files.answers.clear()
    assert [entry["id"] for entry in registry.entries()] == ["words-1-100"]
    assert registry.trouble == f"the home {home} does not answer"
    files.answers.set()
    assert wait_for(lambda: registry.entries() != [] and registry.trouble is None)


def test_a_missing_home_is_not_treated_as_an_empty_one(home: Path) -> None:
    registry = stored(home, entry_of())
    assert registry.entries() == [entry_of()]
    home.rename(home.with_name("away"))
    assert registry.entries() == [entry_of()]
    assert registry.trouble == f"the home {home} cannot be read: its content is gone"
    assert registry.find("words") == entry_of()
    with pytest.raises(UnknownTopologyError, match=r"no topology 'others' was found: the home .* its content is gone"):
        registry.find("others")
    home.with_name("away").rename(home)
    assert registry.entries() == [entry_of()]
    assert registry.trouble is None


def test_topologies_are_not_considered_dead_while_the_home_is_missing(home: Path) -> None:
    clock = Clock()
    registry = Home(str(home), mono=clock)
    for beat in (1, 2):
        registry.write(elsewhere(beat_ms=beat))
        assert registry.entries()[0]["state"] == TopologyState.ACTIVE
    home.rename(home.with_name("away"))
    clock.now_s += 3600
    assert registry.entries()[0]["state"] == TopologyState.ACTIVE
    home.with_name("away").rename(home)
    assert registry.entries()[0]["state"] == TopologyState.DEAD


# What is kept.


def test_only_the_newest_ended_topologies_are_kept(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(home_module, "ENDED_MAX", 3)
    now_ms = int(time.time() * 1000)
    ended = [
        entry_of(f"a-{number}-1", state=TopologyState.ENDED, ended_ms=now_ms - number * 1000) for number in range(5)
    ]
    ancient = entry_of("b-1-1", state=TopologyState.FAILED, ended_ms=now_ms - 40 * 86_400_000)
    registry = stored(home, *ended, ancient, entry_of("c-1-1", started_ms=0))
    registry.write_token("a-4-1")
    registry.prune()
    assert {entry["id"] for entry in Home(str(home)).entries()} == {"a-0-1", "a-1-1", "a-2-1", "c-1-1"}
    assert not (home / "tokens" / "a-4-1").exists()


def test_a_token_is_random_private_and_readable_only_by_those_allowed(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    registry = Home(str(home))
    token = registry.write_token("words-1-100")
    assert len(token) > 40
    assert registry.token("words-1-100") == token
    assert oct((home / "tokens" / "words-1-100").stat().st_mode)[-3:] == "600"
    assert registry.token("other") is None
    monkeypatch.setenv("SPARKBOLT_TOKEN", "given")
    assert registry.token("other") == "given"
    assert registry.token("../words") == "given"


# Writing.


def test_a_home_on_another_file_system_works_alike(tmp_path: Path) -> None:
    from pyarrow import fs

    files = ArrowFiles(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), "shared/home")
    registry = Home("mock://home", files=files)
    id_ = registry.new_id("words", 5000)
    assert id_ == "words-1-5"
    registry.write(entry_of(id_))
    assert [entry["id"] for entry in registry.entries()] == [id_]
    assert registry.new_id("words", 5000) == "words-2-5"
    token = registry.write_token(id_)
    assert registry.token(id_) == token
    registry.remove_token(id_)
    assert registry.token(id_) is None
