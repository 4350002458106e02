"""NUL bytes before a line, and a byte order mark: neither is part of a line, and no line is lost to them."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest

from sparkbolt.api.ranges import Range
from sparkbolt.spouts import TextSpout
from tests.unit.connectors.files.tails import Tail
from tests.unit.connectors.files.test_text import by_columns, by_rows, drain

HOLE = 17 << 20
"""Longer than the longest line that is allowed."""


def write_behind_hole(path: Path, hole: int, text: bytes) -> None:
    with path.open("wb") as file:
        file.seek(hole)
        file.write(text)


@pytest.mark.parametrize("budget", [1 << 20, 100 << 20])
def test_a_hole_before_a_line_loses_no_line_and_uses_no_memory(tmp_path: Path, budget: int) -> None:
    path = tmp_path / "a.log"
    write_behind_hole(path, 0, b"one\n")
    drain(TextSpout(path), budget, 2)  # imports what it needs
    write_behind_hole(path, HOLE, b"one\ntwo\n")
    tracemalloc.start()
    found, _ = drain(TextSpout(path), budget, 2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [(0, "one"), (HOLE + 4, "two")]
    assert peak < HOLE / 2


@pytest.mark.slow
def test_a_hole_in_a_compressed_copy_costs_no_line(tmp_path: Path) -> None:
    path = tmp_path / "a.log.1.gz"
    path.write_bytes(gzip.compress(bytes(HOLE) + b"one\ntwo\n"))
    assert drain(TextSpout(path), 1 << 20, 2)[0] == [(0, "one"), (HOLE + 4, "two")]


def test_nul_bytes_at_the_start_of_any_line_are_skipped_and_others_are_kept(tmp_path: Path) -> None:
    path, data = tmp_path / "a.log", b"\0\0one\n\0\0\n\0t\0wo\n\0\0\0"
    path.write_bytes(data)
    for read in (by_rows, by_columns):
        assert read(TextSpout(path), [Range(0, str(path), 0, len(data))]) == [(0, "one"), (6, ""), (9, "t\0wo")]


@pytest.mark.parametrize("is_down", [False, True])
def test_a_log_that_is_emptied_under_its_writer_loses_no_line(tmp_path: Path, is_down: bool) -> None:
    log = tmp_path / "a.log"
    tail = Tail(log)
    with log.open("wb", buffering=0) as writer:  # not opened to append: it goes on at its old offset
        for turn in range(4):
            writer.write(f"line {turn}\n".encode())
            assert tail.read() == [f"line {turn}"]
            os.truncate(log, 0)
            if is_down:
                writer.write(b"first\n")
                tail.start()
                assert tail.read() == ["first"]
    assert tail.failed == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "UTF8", "utf_8_sig", "gb18030"])
def test_a_byte_order_mark_at_the_start_is_dropped_and_offsets_stay(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.txt"
    data = "\ufeffé\n\ufeffto be\n".encode(encoding.lower().replace("_", "-").removesuffix("-sig"))
    path.write_bytes(data)
    found = by_columns(TextSpout(path, encoding=encoding), [Range(0, str(path), 0, len(data))])
    assert [line for _, line in found] == ["é", "\ufeffto be"]
    assert [offset for offset, _ in found] == [0, data.index(b"\n") + 1]
