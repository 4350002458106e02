"""Files of any name and kind that are followed: odd names, pipes, links to nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkbolt.connectors.files.file_identity import FileId, path_of
from sparkbolt.connectors.files.plain_file import escape
from tests.unit.connectors.files.tails import Tail, append, rotate
from tests.unit.connectors.files.test_text import odd_files


def test_names_of_files_survive_any_path() -> None:
    odd = ("/caf\udce9", "/caf%E9", "/\udce9#1-2-0123456789abcdef", "/\udce9\n:@4")
    for path in ("/a#b#1-2-0123456789abcdef", "/with space", "/new\nline", "/ünï", *odd):
        for generation in (1, 2, 17):
            id_ = FileId.of_head(path, 1 << 63, generation - 1, os.urandom(9), generation)
            assert FileId.parse(id_.source) == id_
            assert id_.source.encode().startswith(b"file:///" if "\udce9" in path else path.encode())


def test_a_pipe_and_a_link_to_nothing_are_passed_over_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.gz")
    (tmp_path / "late").symlink_to("target")
    (tmp_path / "loop").symlink_to("loop")
    append(tmp_path / "a.log", "one")
    tail = Tail(tmp_path)
    assert tail.read() == ["one"]
    append(tmp_path / "a.log", "two")
    rotate(tmp_path / "a.log")
    os.mkfifo(tmp_path / "a.log")
    assert tail.read() == ["two"]
    append(tmp_path / "a.log.1", "three")
    assert tail.read() == ["three"]
    for name in ("pipe", "pipe.gz", "a.log"):
        assert caplog.text.count(f"{tmp_path / name} is no regular file (a named pipe) and is passed over") == 1
    assert caplog.text.count("late is a link to target, which does not exist and is passed over") == 1
    (tmp_path / "target").write_bytes(b"four\n")
    assert tail.read() == ["four"]
    assert tail.failed == []


def test_files_are_followed_whatever_their_names_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    paths = [Path(path) for path in odd_files(tmp_path, b"one\n")]
    tail = Tail(tmp_path)
    assert tail.read() == ["one"] * len(paths)
    assert sorted(map(path_of, tail.progress)) == sorted(escape(str(path)) for path in paths)
    "".join(tail.progress).encode()
    for path in paths:
        append(path, "two")
    tail.start()
    assert tail.read() == ["two"] * len(paths)
    for path in paths:
        append(path, "three")
        path.rename(f"{path}.1")
        append(path, "one", "more")
    assert sorted(tail.read()) == ["more"] * len(paths) + ["one"] * len(paths) + ["three"] * len(paths)
    tail.start()
    assert tail.read() == []
    for path in paths:
        Path(f"{path}.1").unlink()
        path.write_bytes(b"")
    assert tail.read() == []
    for path in paths:
        assert f"{escape(f'{path}.1')} is gone" in caplog.text
        assert f"{escape(str(path))} was emptied" in caplog.text
    caplog.text.encode()
    tail.start()
    assert tail.read() == []
    caplog.text.encode()
