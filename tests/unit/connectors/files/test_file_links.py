"""Files with several names: each is read once, and what becomes of the file behind a link is read too."""

from __future__ import annotations

import gzip
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.spouts import TextSpout
from tests.unit.connectors.files.tails import Tail, append


def sources_of(paths: Path | list[Path]) -> list[str]:
    spout = TextSpout(paths)
    spout.open(TopologyContext("t", "lines", 0, 1, 1, Config()))
    return [range_.source for range_ in spout.next_ranges({}, 1 << 20)]


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("names", ["ab", "ba"])
def test_a_file_with_two_names_is_read_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, link: Callable[[Path, Path], None], names: str
) -> None:
    file, other = (tmp_path / name for name in names)
    append(file, "one")
    link(file, other)
    best, worse = (file, other) if link is os.symlink else (tmp_path / "a", tmp_path / "b")
    caplog.set_level(logging.INFO)
    for paths in (tmp_path, tmp_path / "*", [other, file]):
        caplog.clear()
        assert sources_of(paths) == [str(best)]
        assert f"{worse} is another name of {best} and is passed over" in caplog.text


def test_a_directory_linked_into_itself_yields_each_line_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "up").symlink_to("..")
    append(tmp_path / "z.log", "one")
    assert sources_of(tmp_path / "**" / "*.log") == [str(tmp_path / "z.log")]


def linked(tmp_path: Path) -> tuple[Path, Path]:
    """As Kubernetes has it: a log, and a link to it in another directory and under another name."""
    log, link = tmp_path / "pods" / "id-json.log", tmp_path / "containers" / "x.log"
    log.parent.mkdir()
    link.parent.mkdir()
    link.symlink_to(Path("..", "pods", "id-json.log"))
    return log, link


@pytest.mark.parametrize("is_down", [True, False])
def test_a_linked_log_renamed_before_its_first_line_is_read(tmp_path: Path, is_down: bool) -> None:
    log, link = linked(tmp_path)
    log.touch()
    tail = Tail(link)
    tail.read()
    append(log, "one")
    log.rename(f"{log}.1")
    if is_down:
        tail.start()
    assert tail.read() == ["one"]


def test_a_linked_log_that_gets_compressed_is_resumed_in_its_copy(tmp_path: Path) -> None:
    log, link = linked(tmp_path)
    append(log, "one")
    tail = Tail(link.parent / "*.log")
    tail.read()
    append(log, "two")
    Path(f"{log}.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    append(log, "three")
    assert sorted(tail.read()) == ["three", "two"]
    assert not tail.failed


def test_a_linked_log_that_is_copied_and_truncated_is_resumed_in_its_copy(tmp_path: Path) -> None:
    log, link = linked(tmp_path)
    append(log, "one")
    tail = Tail(link)
    tail.read()
    append(log, "two")
    shutil.copy2(log, f"{log}.1")
    log.write_text("three\n")
    assert sorted(tail.read()) == ["three", "two"]
    assert not tail.failed
