"""TextSpout: each line once, in order, with its offset, however the file is split, packed or grown."""

from __future__ import annotations

import bz2
import codecs
import gzip
import itertools
import lzma
import os
import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.api.ranges import BadRecord, Range
from sparkbolt.connectors.files import file_planner as planning
from sparkbolt.connectors.files import lines
from sparkbolt.connectors.files import unpacked_file as unpacking
from sparkbolt.connectors.files.file_follower import Follower
from sparkbolt.connectors.files.file_identity import path_of
from sparkbolt.connectors.files.plain_file import escape, unescape
from sparkbolt.errors import ConfigError
from sparkbolt.spouts import TextSpout
from tests.hypotheses import examples

PACKERS = {".txt": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def context(parallelism: int = 1) -> TopologyContext:
    return TopologyContext("t", "lines", 0, parallelism, 1, Config())


def naive(data: bytes, line_bytes_max: int = 1 << 20) -> list[tuple[int, str | None]]:
    """(offset, line) of every line; None for a line that is too long."""
    found: list[tuple[int, str | None]] = []
    offset = 0
    for raw in data.split(b"\n"):
        line = raw.removeprefix(codecs.BOM_UTF8 if offset == 0 else b"").lstrip(b"\0")
        if line or offset + len(raw) < len(data):
            text = line.removesuffix(b"\r").decode(errors="replace")
            found.append((offset, text if len(line) <= line_bytes_max else None))
        offset += len(raw) + 1
    return found


def by_rows(spout: TextSpout, ranges: list[Range]) -> list[tuple[int, str | None]]:
    found: list[tuple[int, str | None]] = []
    for range_ in ranges:
        for record in spout.read(range_):
            if isinstance(record, BadRecord):
                found.append((record.position, None))
            else:
                position, (line, path, offset) = record
                assert (path, offset) == (spout.path_of(range_), position)
                assert range_.start <= position < range_.end
                found.append((position, line))
    return found


def by_columns(spout: TextSpout, ranges: list[Range]) -> list[tuple[int, str | None]]:
    found: list[tuple[int, str | None]] = []
    for range_ in ranges:
        for chunk in spout.read_columns(range_):
            if isinstance(chunk, BadRecord):
                found.append((chunk.position, None))
                continue
            positions, columns = chunk
            for column in columns:
                assert isinstance(column, pa.Array)
                column.validate(full=True)
            assert columns[1].to_pylist() == [spout.path_of(range_)] * len(positions)
            assert columns[2].to_pylist() == positions.tolist()
            found.extend(zip(positions.tolist(), columns[0].to_pylist(), strict=True))
    return found


PIECES = [
    b"\n",
    b"\r\n",
    b"\r",
    b"\0\0",
    codecs.BOM_UTF8,
    b"a",
    b"to be",
    b"\xff",
    b"\xe2\x82",
    "né€".encode(),
    b"x" * 40,
]

texts = st.lists(
    st.one_of(
        st.sampled_from(PIECES),
        st.binary(max_size=4),
        st.text(max_size=6).map(lambda text: text.encode()),
    ),
    max_size=30,
).map(b"".join)


@settings(deadline=None, max_examples=examples(300))
@given(
    data=texts,
    cuts=st.sets(st.integers(1, 400), max_size=8),
    suffix=st.sampled_from(sorted(PACKERS)),
    block=st.sampled_from([1, 2, 7, 64, 1 << 20]),
    line_bytes_max=st.sampled_from([1, 5, 30, 1 << 20]),
)
def test_any_split_yields_each_line_once_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    data: bytes,
    cuts: set[int],
    suffix: str,
    block: int,
    line_bytes_max: int,
) -> None:
    path = tmp_path_factory.mktemp("any") / f"f{suffix}"
    path.write_bytes(PACKERS[suffix](data))
    edges = sorted({0, *(cut for cut in cuts if cut < len(data)), len(data)})
    ranges = [Range(0, str(path), a, b) for a, b in itertools.pairwise(edges)]
    expected = naive(data, line_bytes_max)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block)
        patch.setattr(lines, "SCAN_BYTES", max(1, block // 2))
        patch.setattr(unpacking, "UNPACK_BYTES", block)
        spout = TextSpout(path, line_bytes_max=line_bytes_max)
        assert by_rows(spout, ranges) == expected
        assert by_columns(spout, ranges) == expected
        assert by_columns(spout, ranges[::-1]) == [
            record for range_ in ranges[::-1] for record in expected if range_.start <= record[0] < range_.end
        ]
        for position, line in expected:
            if position < len(data):
                assert by_columns(spout, [Range(0, str(path), position, position + 1)]) == [(position, line)]
        spout.cleanup()


def follower_of(spout: TextSpout) -> Follower:
    assert spout._planner is not None
    assert spout._planner._follower is not None
    return spout._planner._follower


def drain(spout: TextSpout, budget: int, parallelism: int) -> tuple[list[tuple[int, str | None]], int]:
    """Plan and read to the end; what was read, and how many plans it took."""
    spout.open(context(parallelism))
    reader = pickle.loads(pickle.dumps(spout))
    reader.prepare(context(parallelism))
    progress: dict[str, int] = {}
    found: list[tuple[int, str | None]] = []
    plans = 0
    while not spout.finished(progress):
        ranges = list(spout.next_ranges(progress, budget))
        assert sum(range_.end - range_.start for range_ in ranges) <= budget
        for range_ in ranges:
            assert range_.start == progress.get(range_.source, 0)
            assert 0 <= range_.task < parallelism
            progress[range_.source] = range_.end
        found += by_columns(reader, ranges)
        plans += 1
        assert plans < 1000
    assert spout.next_ranges(progress, budget) == []
    reader.cleanup()
    spout.close()
    return found, plans


@settings(deadline=None, max_examples=examples(80))
@given(
    data=texts,
    budget=st.integers(1, 200),
    parallelism=st.integers(1, 4),
    suffix=st.sampled_from(sorted(PACKERS)),
)
def test_plans_cover_a_file_within_their_budget(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, budget: int, parallelism: int, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("plan") / f"f{suffix}"
    path.write_bytes(PACKERS[suffix](data))
    assert drain(TextSpout(str(path)), budget, parallelism)[0] == naive(data)


def test_a_large_file_is_split_across_all_tasks_and_small_ones_are_grouped(tmp_path: Path) -> None:
    large, small = tmp_path / "a.txt", [tmp_path / f"b{n:03d}.txt" for n in range(200)]
    large.write_bytes(b"0123456789\n" * 100_000)
    for path in small:
        path.write_bytes(b"one\n")
    spout = TextSpout(tmp_path, in_order=True)
    spout.open(context(4))
    ranges = spout.next_ranges({}, 400_000)
    assert [(range_.task, range_.end - range_.start) for range_ in ranges] == [(n, 100_000) for n in range(4)]
    ranges = spout.next_ranges({str(large): 1_100_000}, 400_000)
    assert [range_.source for range_ in ranges] == list(map(str, small))
    assert max(sum(range_.task == task for range_ in ranges) for task in range(4)) <= 64


@pytest.mark.slow
def test_a_worker_unpacks_a_compressed_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(b"line %d\n" % n for n in range(200_000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(data))
    unpacked = 0
    advance = unpacking.UnpackedFile.advance

    def counted(file: unpacking.UnpackedFile) -> bytes:
        nonlocal unpacked
        piece = advance(file)
        unpacked += len(piece)
        return piece

    monkeypatch.setattr(unpacking.UnpackedFile, "advance", counted)
    found, plans = drain(TextSpout(tmp_path / "a.gz"), 100_000, 1)
    assert (found, plans > 10) == (naive(data), True)
    assert unpacked == 2 * len(data), "once in the driver, once in the worker"


@pytest.mark.slow
def test_all_frames_of_a_zstandard_file_are_read(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    data = b"".join(b"line %d\n" % n for n in range(100_000))
    path = tmp_path / "a.zst"
    path.write_bytes(b"".join(zstandard.compress(part) for part in (data[:500_000], data[500_000:])))
    assert drain(TextSpout(path), 300_000, 2)[0] == naive(data)


def test_an_error_of_the_system_is_not_taken_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\n"))

    def stale(*arguments: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(unpacking.UnpackedFile, "_read", stale)
    with pytest.raises(OSError, match="Input/output"):
        list(TextSpout(path).read_columns(Range(0, str(path), 0, 4)))


def test_a_followed_file_yields_a_line_once_it_has_its_newline(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    spout = TextSpout(path, follow=True)
    spout.open(context(2))
    assert spout.next_ranges({}, 1000) == []
    progress: dict[str, int] = {}
    for piece, expected in [(b"to be", []), (b"\nor", [(0, "to be")]), (b" not\nto", [(6, "or not")]),
                            (b"", []), (b" be\n", [(13, "to be")])]:  # fmt: skip
        with path.open("ab") as file:
            file.write(piece)
        follower_of(spout)._next_look = 0.0
        ranges = list(spout.next_ranges(progress, 1000))
        progress.update({range_.source: range_.end for range_ in ranges})
        found = by_columns(spout, ranges)
        assert found == expected
        assert not spout.finished(progress)


@settings(deadline=None, max_examples=examples(60))
@given(pieces=st.lists(texts, max_size=5), budget=st.integers(1, 60))
def test_file_growth_between_plans_loses_and_repeats_nothing(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], budget: int
) -> None:
    path = tmp_path_factory.mktemp("grow") / "log.txt"
    path.touch()
    spout = TextSpout(path, follow=True)
    spout.open(context(2))
    progress: dict[str, int] = {}
    found = []
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        while ranges := list(spout.next_ranges(progress, budget)):
            progress.update({range_.source: range_.end for range_ in ranges})
            found += by_columns(spout, ranges)
    data = b"".join(pieces)
    assert found == naive(data[: data.rfind(b"\n") + 1])


def test_files_are_read_side_by_side_with_the_same_share(tmp_path: Path) -> None:
    sizes = {"a": 1000, "b": 10, "c": 1000, **{f"d{number:02}": 1000 for number in range(planning.SIDE_BY_SIDE)}}
    for name, size in sizes.items():
        (tmp_path / name).write_bytes(b"x" * size)
    spout = TextSpout(tmp_path)
    spout.open(context())
    ranges = spout.next_ranges({}, 1600)
    read = {Path(range_.source).name: range_.end for range_ in ranges}
    assert list(read) == sorted(sizes)[: planning.SIDE_BY_SIDE]
    assert (read["b"], sum(read.values())) == (10, 1600)
    assert all(100 <= size <= 106 for name, size in read.items() if name != "b")


def test_ordered_reading_starts_a_file_after_the_previous_one_is_read(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"x" * 100)
    a, b, c = (str(tmp_path / name) for name in "abc")
    spout = TextSpout(tmp_path, in_order=True)
    spout.open(context())
    assert spout.next_ranges({}, 150) == [Range(0, a, 0, 100), Range(0, b, 0, 50)]
    assert spout.unread({a: 50}) == {a: True, b: False}
    assert spout.next_ranges({a: 100, b: 50}, 20) == [Range(0, b, 50, 70)]
    assert (spout.unread({a: 100, b: 100}), spout.unread({a: 100, b: 100, c: 100})) == ({c: False}, {})
    with pytest.raises(ConfigError, match="expected one of the two"):
        TextSpout(tmp_path, in_order=True, follow=True)


def test_a_file_is_unread_until_planned_to_its_end_and_a_followed_one_while_lines_wait(
    tmp_path: Path,
) -> None:
    path, packed = tmp_path / "a.txt", tmp_path / "b.gz"
    path.write_bytes(b"one\ntwo")
    packed.write_bytes(gzip.compress(b"one\n"))
    spout = TextSpout(tmp_path)
    spout.open(context())
    assert spout.unread({}) == {str(path): True, str(packed): True}
    progress = {range_.source: range_.end for range_ in spout.next_ranges({}, 100)}
    assert spout.unread(progress) == {}
    followed = TextSpout(path, follow=True)
    followed.open(context())
    (range_,) = followed.next_ranges({}, 100)
    assert followed.unread({}) == {range_.source: True}
    assert followed.unread({range_.source: 4}) == {range_.source: False}


def test_new_files_are_looked_for_once_a_second(tmp_path: Path) -> None:
    now = [0.0]
    spout = TextSpout(tmp_path / "**" / "*.txt", follow=True)
    spout.open(context())
    follower_of(spout)._clock = lambda: now[0]
    assert spout.next_ranges({}, 100) == []
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "new.txt").write_bytes(b"one\n")
    assert spout.next_ranges({}, 100) == []
    now[0] = 1.0
    (range_,) = spout.next_ranges({}, 100)
    assert (path_of(range_.source), range_.start, range_.end) == (str(tmp_path / "sub" / "new.txt"), 0, 4)


@pytest.mark.parametrize("name", ["log.txt", "log.gz"])
def test_a_deleted_file_fails_its_planned_records(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    spout = TextSpout(path)
    spout.open(context())
    (range_,) = spout.next_ranges({}, 4)
    path.unlink()
    for _ in range(2):
        (record,) = spout.read_columns(range_)
        assert isinstance(record, BadRecord)
        assert "deleted or renamed" in record.reason
    assert caplog.text.count("does not exist any more") == 1
    spout.close()


def test_a_path_that_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "there.txt").touch()
    with pytest.raises(ConfigError, match=r"nowhere/\*\.txt"):
        TextSpout([tmp_path, f"{tmp_path}/nowhere/*.txt"]).open(context())
    TextSpout(f"{tmp_path}/nowhere/*.txt", follow=True).open(context())


def test_a_directory_is_read_recursively_except_for_hidden_files(tmp_path: Path) -> None:
    for name in ("a.txt", "sub/b.txt", ".hidden", "_SUCCESS", "sub/.c", "_tmp/d.txt", "empty.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("" if "empty" in name else "x\n")
    spout = TextSpout([tmp_path, tmp_path / "a.txt"])
    spout.open(context())
    ranges = spout.next_ranges({}, 100)
    assert [Path(range_.source).relative_to(tmp_path).as_posix() for range_ in ranges] == [
        "a.txt",
        "sub/b.txt",
    ]
    assert not spout.finished({})
    assert spout.finished({range_.source: 2 for range_ in ranges})


ODD_NAMES = [
    *(b"caf\xe9.txt", b"\xff\xfe", b"caf%E9.txt", b"100%", b"new\nline", b"caf\xe9\nline", b"a:b@40", b"file:\xe9@3"),
    *("caf\u00e9.txt".encode(), b"x#17-5-4fd786f4855f5fa2", b"\xe9#17-5-4fd786f4855f5fa2", b"with space\xe9"),
]


def odd_files(directory: Path, data: bytes) -> list[str]:
    """Files whose names are not all valid UTF-8; their paths as the system gives them."""
    paths = sorted(os.fsdecode(os.path.join(os.fsencode(directory), name)) for name in ODD_NAMES)
    for path in paths:
        Path(path).write_bytes(data)
    return paths


def test_files_are_read_whatever_their_names_are(tmp_path: Path) -> None:
    paths = odd_files(tmp_path, b"one\ntwo\n")
    spout = TextSpout(tmp_path)
    for progress in ({}, {escape(path): 4 for path in paths}):
        spout.open(context(2))  # again: as a restart does
        ranges = list(spout.next_ranges(progress, 1 << 20))
        assert sorted(range_.source for range_ in ranges) == sorted(map(escape, paths))
        worker = pickle.loads(pickle.dumps(spout))
        expected = [(4, "two")] if progress else [(0, "one"), (4, "two")]
        for range_ in ranges:
            assert by_rows(worker, [range_]) == by_columns(worker, [range_]) == expected
            assert unescape(worker.path_of(range_)) in paths
        assert spout.finished(dict.fromkeys(map(escape, paths), 8))
        assert not spout.finished(progress)


def test_other_encodings_are_decoded_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("né\r\nça\n".encode("latin-1"))
    assert by_columns(TextSpout(path, encoding="latin-1"), [Range(0, str(path), 0, 7)]) == [
        (0, "né"),
        (4, "ça"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"paths": []}, "paths is empty"),
        ({"paths": b"x"}, "paths is b'x', of type bytes"),
        ({"paths": "a\ud800"}, r"paths holds 'a\\ud800', which can be the name of no file"),
        ({"paths": "x", "line_bytes_max": 0}, "line_bytes_max=0"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_given(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TextSpout(**arguments)  # type: ignore[arg-type]
