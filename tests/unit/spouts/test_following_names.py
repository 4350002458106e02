"""Files of any name and kind that are followed: odd names, pipes, links to nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkbolt import RetryPolicy, TopologyBuilder, bolt
from sparkbolt.faces.cli import main
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import TextSpout
from sparkbolt.spouts.files import escape
from sparkbolt.spouts.identity import FileId, path_of
from tests.unit.spouts.tails import Tail, append, rotate
from tests.unit.spouts.test_text import odd_files


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


def test_a_link_to_nothing_that_is_followed_is_told_and_read_when_its_file_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    link = tmp_path / "current.log"
    link.symlink_to("of-today.log")
    tail = Tail(link)
    assert tail.read() == []
    assert "current.log is a link to of-today.log, which does not exist" in caplog.text
    append(tmp_path / "of-today.log", "one")
    assert tail.read() == ["one"]


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


def test_a_checkpoint_in_which_the_name_of_a_followed_file_is_no_uri_goes_on(tmp_path: Path) -> None:
    log = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"caf\xe9.log")))
    append(log, "one", "two")
    tail = Tail(tmp_path)
    assert tail.read() == ["one", "two"]
    ((source, end),) = tail.progress.items()
    before = {source.replace(escape(str(log)), str(log)): end}
    append(log, "three")
    tail = Tail(tmp_path, before)
    assert tail.read() == ["three"]
    append(log, "four")
    tail.start()
    assert tail.read() == ["four"]
    assert set(tail.progress) == {*before, source}


def test_a_failed_line_of_a_file_of_any_name_is_told_and_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    odd_files(tmp_path / "in", b"good\nbad\n")
    letters, seen = tmp_path / "letters.jsonl", tmp_path / "seen"

    @bolt(outputs=[])
    def picky(tup):  # type: ignore[no-untyped-def]
        append(seen, ascii(tup["path"]))
        assert tup["line"] == "good"

    for follow in (False, True):
        letters.unlink(missing_ok=True)
        builder = TopologyBuilder("t")
        policy = RetryPolicy(max_retries=1)
        spout = TextSpout(tmp_path / "in", follow=follow)
        builder.set_spout("lines", spout, retry=policy, dead_letters=f"file:{letters}")
        builder.set_bolt("picky", picky).shuffle_grouping("lines")
        engine = LocalEngine(builder.build())
        engine.step()
        engine.restart()
        while engine.step() is not None or engine.coordinator.retries:
            engine.now_ms = max(engine.next_due_ms() or 0, engine.now_ms + 1)
        count = len(os.listdir(tmp_path / "in"))
        metrics = engine.ledger.metrics.of("lines")
        assert (metrics.acked, metrics.dead_letters) == (count, count)
        engine.close()
        assert main(["dlq", "list", str(letters)]) == 0
        out = capsys.readouterr().out
        out.encode()
        assert "/in/caf%E9.txt" in out
        assert "'file:///" in seen.read_text()
