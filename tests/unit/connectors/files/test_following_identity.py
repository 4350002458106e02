"""Which file is the same and which is new: in doubt it is new, so lines may come twice and none is lost."""

from __future__ import annotations

import gzip
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt.connectors.files import file_identity as identity
from sparkbolt.connectors.files import unpacked_file as unpacking
from tests.hypotheses import examples
from tests.unit.connectors.files.tails import Tail, append, rotate

HEADER = 60 * "# a comment\n"
"""Longer than what identifies a file."""


@pytest.mark.parametrize("names", [["1.json", "2.json", "3.json"], ["a.json"] * 3, ["a.json", "a.json.1", "a.json-2"]])
@pytest.mark.parametrize("content", ["same\n", HEADER])
@pytest.mark.parametrize("is_kept", [True, False])
def test_files_with_the_same_content_are_all_read(
    tmp_path: Path, names: list[str], content: str, is_kept: bool
) -> None:
    (tmp_path / "in").mkdir()
    tail = Tail(tmp_path / "in")
    for number, name in enumerate(names):
        source = tmp_path / str(number)
        source.write_text(content)
        source.rename(tmp_path / "in" / name)
        assert tail.read() == content.splitlines(), name
        if is_kept:
            (tmp_path / "in" / name).rename(source)
        else:  # its inode is used again
            (tmp_path / "in" / name).unlink()


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("name", ["a.json", "b.json", "a.json.1"])
@pytest.mark.parametrize("added", ["", "more\n"])
def test_a_new_file_with_the_same_beginning_is_read_completely_after_a_restart(
    tmp_path: Path, suffix: str, name: str, added: str
) -> None:
    folder, pack = tmp_path / "in", gzip.compress if suffix else bytes
    folder.mkdir()
    old, new = folder / f"a.json{suffix}", folder / f"{name}{suffix}"
    old.write_bytes(pack(HEADER.encode()))
    tail = Tail(folder)
    assert len(tail.read()) == 60
    for _ in range(2):
        old.unlink()
        new.write_bytes(pack((HEADER + added).encode()))
        tail.start()
        assert tail.read() == (HEADER + added).splitlines()
        old = new


def test_a_file_with_a_reused_inode_is_a_different_file(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    append(log, "first", *range(50))
    tail = Tail(log)
    tail.read()
    for again in range(3):
        before = log.stat()
        log.unlink()
        append(log, "first", *range(50), *range(50 * again))
        os.utime(log, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert len(tail.read()) == 51 + 50 * again


def test_a_file_is_recognized_in_any_folder_and_under_any_link(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    log = tmp_path / "a" / "a.log"
    append(log, "one")
    tail = Tail(tmp_path)
    assert tail.read() == ["one"]
    log.rename(tmp_path / "b" / "b.log")
    append(tmp_path / "b" / "b.log", "two")
    assert tail.read() == ["two"]
    os.link(tmp_path / "b" / "b.log", tmp_path / "hard.log")
    (tmp_path / "soft.log").symlink_to(tmp_path / "hard.log")
    append(tmp_path / "soft.log", "three")
    assert tail.read() == ["three"]
    (tmp_path / "b" / "b.log").unlink()
    append(tmp_path / "soft.log", "four")
    tail.start()
    assert tail.read() == ["four"]


def test_a_restart_goes_on_in_the_last_content_of_a_file_that_was_emptied(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    append(log, HEADER, *range(1000))
    tail = Tail(log)
    tail.read()
    log.write_text("# a comment\n")
    assert tail.read() == ["# a comment"]
    append(log, HEADER.removeprefix("# a comment\n"), *range(2000))
    tail.start()
    assert len(tail.read()) == 59 + 1 + 2000


@settings(deadline=None, max_examples=examples(60))
@given(seed=st.integers(0, 1 << 30))
def test_each_line_of_equal_files_is_read_once_wherever_the_files_are_moved(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    root, chance = tmp_path_factory.mktemp("equal"), random.Random(seed)
    for folder in ("in", "in/sub", "away"):
        (root / folder).mkdir()
    names = [root / "in" / name for name in ("a.log", "a.log.1", "b", "sub/a.log")]
    tail, written, seen = Tail(root / "in"), 0, 0
    for step in range(chance.randrange(3, 15)):
        there = [path for path in names if path.exists()]
        what = chance.choice(["create", "append", "delete", "move", "away", "back", "restart"])
        if what == "create" or (what == "append" and there):
            path, lines = (root / "away" / "new", 1) if what == "create" else (chance.choice(there), 60)
            append(path, *["same"] * lines)
            written += lines
            if what == "create":
                path.rename(chance.choice(names))
        elif what == "delete" and there:
            chance.choice(there).unlink()
        elif what in ("move", "away") and there:
            chance.choice(there).rename(chance.choice(names) if what == "move" else root / "away" / str(step))
        elif what == "back" and (away := sorted((root / "away").iterdir())):
            away[0].rename(chance.choice(names))
        elif what == "restart":
            tail.start()
        seen += sum(len(tail.read()) for _ in range(5))
        assert seen == written, what
    assert not tail.failed


def test_a_moved_file_is_not_continued_by_its_unfinished_copy(tmp_path: Path) -> None:
    log, packed = tmp_path / "a.log", tmp_path / "a.log.1.gz"
    append(log, *range(1000))
    tail = Tail(tmp_path / "a.log*")
    assert len(tail.read()) == 1000
    append(log, "unread")
    rotate(log)
    data = gzip.compress(Path(f"{log}.1").read_bytes())
    packed.write_bytes(data[:-8])
    assert tail.read() == ["unread"]
    append(Path(f"{log}.1"), "late")
    assert tail.read() == ["late"]


@pytest.mark.parametrize("suffix", [".gz", ".copy"])
def test_a_copy_beside_a_remaining_file_is_read_once_it_stops_changing(tmp_path: Path, suffix: str) -> None:
    log, copy = tmp_path / "a.log", tmp_path / f"a.log{suffix}"
    append(log, HEADER)
    tail = Tail(tmp_path)
    tail.read()
    copy.write_bytes(gzip.compress(log.read_bytes()) if suffix == ".gz" else log.read_bytes())
    assert tail.read() == []
    found = [line for _ in range(61) for line in tail.read()]
    assert len(found) == 61


def test_a_file_that_is_replaced_by_a_copy_is_read_again(tmp_path: Path) -> None:
    log, new = tmp_path / "a.log", tmp_path / ".a.log.tmp"
    append(log, *range(50))
    tail = Tail(log)
    tail.read()
    shutil.copy(log, new)  # as editors and rsync do
    append(new, 50, 51)
    new.rename(log)
    assert tail.read() == [*map(str, range(52))]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("budget", [1, 7, 50])
def test_nothing_of_a_line_that_was_read_is_planned_when_its_file_is_gone(
    tmp_path: Path, suffix: str, budget: int
) -> None:
    path, lines = tmp_path / f"a{suffix}", ["a line", "another", "x" * 100, "the last line"]
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if suffix else data)
    tail = Tail(path)
    found: list[str] = []
    while len(found) < len(lines):
        tail.now += 1
        found += tail.lines_of(tail.plan(budget))
    assert found == lines
    assert tail.plan(budget) == []


def test_a_system_without_file_creation_times_identifies_files_by_inode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (identity.PlainFile, unpacking.UnpackedFile):
        monkeypatch.setattr(module, "birth", 0)
    log = tmp_path / "a.log"
    append(log, "one")
    tail = Tail(tmp_path)
    assert tail.read() == ["one"]
    log.rename(f"{log}.1")
    append(Path(f"{log}.1"), "two")
    append(log, "three")
    tail.start()
    assert sorted(tail.read()) == ["three", "two"]
    assert not any(identity.FileId.parse(source).birth for source in tail.progress)  # type: ignore[union-attr]
