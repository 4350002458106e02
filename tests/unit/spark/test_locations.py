"""Where a checkpoint is, whether anybody answers, and which sessions may be used: told before anything begins."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt.base.locations import local_directory, scheme_of
from sparkbolt.errors import CheckpointError, EngineError, WrongUseError
from sparkbolt.faces.cli.stories import open_ledger
from sparkbolt.spark.location_checks import answer_within, check_directory, check_hdfs, check_master

pytest.importorskip("pyspark")

from sparkbolt.spark import session as session_module
from sparkbolt.spark.session import given_session, make_session


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("/var/state", "/var/state"),
        ("~/state", "{home}/state"),
        ("a:b", "{here}/a:b"),
        ("file:///var/a b#c?d%20e", "/var/a b#c?d%20e"),
        ("file://localhost/var/state", "/var/state"),
        ("s3a://bucket/state", None),
    ],
)
def test_a_checkpoint_with_no_scheme_or_the_file_scheme_is_a_local_directory(
    place: str, path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/var/ann")
    expected = path and path.format(home="/var/ann", here=os.getcwd())
    assert local_directory(place) == expected
    assert (scheme_of(place) in (None, "file")) == (path is not None)


def test_tools_find_the_checkpoint_at_the_location_chosen_by_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(WrongUseError, match=f"there is no directory {tmp_path}/state"):
        open_ledger("~/state")
    (tmp_path / "state").mkdir()
    for place in ("~/state", (tmp_path / "state").as_uri()):
        with pytest.raises(CheckpointError, match="has no file 'topology'"):
            open_ledger(place)


@pytest.fixture
def port() -> Iterator[int]:
    """Somebody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port that is taken, so that nobody else comes to listen there, and at which nobody does."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_an_unresponsive_master_is_reported_and_one_responsive_master_of_several_is_enough(
    port: int, nobody: int
) -> None:
    there, away = f"127.0.0.1:{port}", f"127.0.0.1:{nobody}"
    for master in (f"spark://{there}", f"spark://{away},{there}", f"k8s://https://{there}", "local[2]", "yarn"):
        check_master(master)
    for master in (f"spark://{away}", f"k8s://http://{away}", f"k8s://{away}"):
        said = f"the master {master} does not answer \\(127.0.0.1:{nobody}: Connection refused\\): is it running"
        with pytest.raises(EngineError, match=said):
            check_master(master)


def test_a_location_that_cannot_hold_a_checkpoint_is_refused_and_nothing_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    check_directory(None)
    check_directory("s3a://bucket/state")
    check_directory(f"file://{tmp_path}/new/state")
    for place in ("file", "file/state", "nowhere", "nowhere/state"):
        with pytest.raises(CheckpointError, match=r"/(file|nowhere) is no directory; name another place"):
            check_directory(str(tmp_path / place))
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != tmp_path)  # root may write anywhere
    with pytest.raises(CheckpointError, match=f"may not write to {tmp_path}; run as the user"):
        check_directory(str(tmp_path / "new" / "state"))
    assert not (tmp_path / "new").exists()


def test_no_jvm_is_started_for_a_master_that_does_not_answer(nobody: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session_module, "_new_session", lambda *_: pytest.fail("Spark was started"))
    with pytest.raises(EngineError, match="does not answer"):
        make_session("t", f"spark://127.0.0.1:{nobody}")


def test_an_unresponsive_name_node_is_reported(port: int, nobody: int) -> None:
    check_hdfs(f"hdfs://127.0.0.1:{port}/state")
    check_hdfs("hdfs://a-service/state", ["a-service"])
    check_hdfs("s3a://bucket/state")
    with pytest.raises(CheckpointError, match=r"no name node answers there .*Connection refused"):
        check_hdfs(f"hdfs://127.0.0.1:{nobody}/state")


def test_an_unresponsive_file_system_is_waited_for_only_until_the_limit() -> None:
    assert answer_within(30.0, lambda: 7, "s3a://bucket") == 7
    with pytest.raises(ZeroDivisionError):
        answer_within(30.0, lambda: 1 / 0, "s3a://bucket")
    hangs = threading.Event()
    with pytest.raises(CheckpointError, match=r"s3a://bucket: its file system has not answered within 0.01 s"):
        answer_within(0.01, hangs.wait, "s3a://bucket")
    hangs.set()


# Sessions that somebody else has made.


def session(master: str, **settings: str) -> Any:
    configuration = SimpleNamespace(get=lambda key, default=None: settings.get(key, default))
    context = SimpleNamespace(master=master, getConf=lambda: configuration)
    return SimpleNamespace(sparkContext=context, conf=configuration, version="4.3.0")


@pytest.mark.parametrize(
    ("master", "settings", "cure"),
    [
        ("local[2]", {}, "Make the session with master 'local\\[2,4\\]'"),
        ("local", {}, "Make the session with master 'local\\[1,4\\]'"),
        ("local[*,1]", {}, "Make the session with master"),
        ("spark://host:7077", {"spark.task.maxFailures": "1"}, "Make the session with spark.task.maxFailures=4"),
        ("local[2,4]", {"spark.speculation": "true"}, "Start Spark with spark.speculation=false"),
    ],
)
def test_a_session_with_settings_that_endanger_tuples_is_refused(
    master: str, settings: Mapping[str, str], cure: str
) -> None:
    with pytest.raises(EngineError, match=cure):
        given_session(session(master, **settings), "a session was given")


def test_a_master_or_setting_given_with_a_session_must_match_the_session() -> None:
    own = session("local[2,4]", **{"spark.driver.memory": "2g"})
    assert given_session(own, "x", "local[2]", {"spark.driver.memory": "2g"}) is own
    with pytest.raises(
        EngineError, match=r"a session was given, whose master is 'local\[2,4\]', and master='local\[4\]'"
    ):
        given_session(own, "a session was given", "local[4]")
    with pytest.raises(EngineError, match=r"where spark.driver.memory is '2g', and '8g' was given for it"):
        given_session(own, "a session was given", None, {"spark.driver.memory": "8g"})
