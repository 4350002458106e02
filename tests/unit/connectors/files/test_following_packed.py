"""Compressed files that are followed: whole, growing, damaged and written anew."""

from __future__ import annotations

import gzip
from pathlib import Path

from tests.unit.connectors.files.tails import Tail


def extend(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def packed_lines(first: int, last: int) -> bytes:
    return gzip.compress("".join(f"{n} {n * 7919}\n" for n in range(first, last)).encode())


def test_a_compressed_file_that_is_being_written_is_read_as_it_grows(tmp_path: Path) -> None:
    path, data = tmp_path / "a.gz", packed_lines(0, 3000)
    tail = Tail(tmp_path)
    found = []
    for end in (0, 5, 300, 6000, 9000, len(data)):
        extend(path, data[path.stat().st_size if path.exists() else 0 : end])
        found += tail.read()
    extend(path, packed_lines(3000, 4000))
    tail.start()
    found += tail.read()
    assert [int(line.split()[0]) for line in found] == list(range(4000))
    assert tail.failed == []


def test_a_truncated_file_unchanged_for_a_minute_counts_as_damaged_and_is_resumed_when_it_grows(
    tmp_path: Path,
) -> None:
    path, data = tmp_path / "a.gz", packed_lines(0, 3000)
    path.write_bytes(data[:9000])
    tail = Tail(tmp_path)
    found = tail.read()
    assert tail.failed == []
    found += [line for _ in range(61) for line in tail.read()]
    assert len(tail.failed) == 1
    extend(path, data[9000:])
    found += tail.read()
    assert [int(line.split()[0]) for line in found] == list(range(3000))
    tail.start()
    assert [line for _ in range(70) for line in tail.read()] == []
    assert len(tail.failed) == 1


def test_a_rewritten_compressed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    tail = Tail(tmp_path)
    for first, last in [(0, 100), (0, 90), (500, 600), (0, 200), (0, 300)]:
        path.write_bytes(packed_lines(first, last))
        assert [int(line.split()[0]) for line in tail.read()] == list(range(first, last))
    path.write_bytes(packed_lines(0, 100))
    tail.start()
    assert tail.read() == []
    assert len(tail.read()) == 100
