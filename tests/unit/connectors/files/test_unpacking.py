"""Compressed files that are damaged, padded or in members: each line before the damage, then one bad record."""

from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt import TopologyBuilder, bolt
from sparkbolt.api.components import TopologyContext
from sparkbolt.api.config import Config
from sparkbolt.api.ranges import Range
from sparkbolt.connectors.files import unpacked_file as unpacking
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import JsonLinesSpout, TextSpout
from tests.hypotheses import examples
from tests.unit.connectors.files.test_text import by_columns, by_rows, drain, naive

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
every_format = pytest.mark.parametrize("suffix", sorted(PACKERS))

DATA = b"".join(b"%d %d\n" % (n, n * 7919 % 100_003) for n in range(40_000))


def lines_and_damage(path: Path, budget: int = 100_000) -> tuple[list[tuple[int, str | None]], int]:
    """The lines with their offsets, and the position of the only bad record, which is behind them."""
    found, _ = drain(TextSpout(path), budget, 2)
    assert [line for _, line in found].count(None) == 1
    assert found[-1][1] is None
    return found[:-1], found[-1][0]


@pytest.mark.slow
@every_format
@pytest.mark.parametrize("lost", [1, 9, 50_000])
def test_a_cut_file_gives_its_whole_lines_and_one_bad_record(tmp_path: Path, suffix: str, lost: int) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACKERS[suffix](DATA)[:-lost])
    found, damage = lines_and_damage(path)
    assert found == naive(DATA[:damage])
    assert damage == len(DATA) or lost > (4 if suffix in (".bz2", ".zst") else 9), "those two unpack whole blocks"


@every_format
def test_a_wrong_checksum_at_the_end_is_one_bad_record_after_all_lines(tmp_path: Path, suffix: str) -> None:
    packed = bytearray(PACKERS[suffix](DATA))
    packed[{".gz": -6, ".bz2": -4, ".xz": -8, ".zst": -2}[suffix]] ^= 0x55
    path = tmp_path / f"a{suffix}"
    path.write_bytes(packed)
    assert lines_and_damage(path) == (naive(DATA), len(DATA))


@every_format
@pytest.mark.parametrize("content", [b"", b"one\ntwo\n", DATA])
def test_an_uncompressed_file_with_a_compressed_suffix_is_one_bad_record(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    assert lines_and_damage(path) == ([], 0)


@every_format
@pytest.mark.parametrize("between", [b"", bytes(12), bytes(20_000)])
def test_members_are_read_one_after_another_up_to_the_damaged_one(tmp_path: Path, suffix: str, between: bytes) -> None:
    pack, path = PACKERS[suffix], tmp_path / f"a{suffix}"
    path.write_bytes(between.join([pack(DATA[:1000]), pack(b""), pack(DATA[1000:])]))
    assert drain(TextSpout(path), 100_000, 2)[0] == naive(DATA)
    path.write_bytes(between.join([pack(DATA[:1000]), pack(b"one\ntwo")[:-2]]))
    found, damage = lines_and_damage(path)
    assert found == naive(DATA[:1000] + b"one\n")[: len(found)]
    assert damage <= 1004


@settings(deadline=None, max_examples=examples(60))
@given(
    suffix=st.sampled_from(sorted(PACKERS)),
    lines=st.lists(st.binary(max_size=12).map(lambda text: text.replace(b"\n", b"") + b"\n"), min_size=1, max_size=60),
    damage=st.tuples(st.floats(0, 1), st.integers(0, 255)),
    is_cut=st.booleans(),
    cuts=st.sets(st.integers(1, 800), max_size=6),
    piece=st.sampled_from([1, 7, 1 << 18]),
)
def test_any_damage_ends_at_the_same_position_for_every_reader(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    lines: list[bytes],
    damage: tuple[float, int],
    is_cut: bool,
    cuts: set[int],
    piece: int,
) -> None:
    packed = bytearray(PACKERS[suffix](b"".join(lines)))
    place = int(damage[0] * (len(packed) - 1))
    if is_cut:
        del packed[place:]
    else:
        packed[place] = damage[1]
    path = tmp_path_factory.mktemp("damaged") / f"a{suffix}"
    path.write_bytes(packed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpacking, "UNPACK_BYTES", piece)
        expected, _ = drain(TextSpout(path), 1 << 20, 1)
        assert not is_cut or expected[:-1] == naive(b"".join(lines))[: len(expected) - 1]
        assert not is_cut or expected[-1][1] is None
        length = unpacking.UnpackedEnd(str(path)).reach(0, 1 << 30)
        edges = sorted({0, *(cut for cut in cuts if cut < length), length})
        ranges = [Range(0, str(path), a, b) for a, b in itertools.pairwise(edges)]
        spout = TextSpout(path)
        assert by_rows(spout, ranges) == by_columns(spout, ranges) == expected
        for position, line in expected:
            assert by_columns(spout, [Range(0, str(path), position, position + 1)]) == [(position, line)]
        spout.cleanup()


def test_a_damaged_file_of_json_lines_is_one_dead_letter_and_no_number_is_cut(tmp_path: Path) -> None:
    path, seen = tmp_path / "a.gz", []
    packer = zlib.compressobj(wbits=31)
    cut = packer.compress(b'{"n": 1}\n{"n": 2}\n1234') + packer.flush(zlib.Z_SYNC_FLUSH)
    path.write_bytes(cut)

    @bolt(outputs=[])
    def look(tup):  # type: ignore[no-untyped-def]
        seen.append(tup["n"])

    builder = TopologyBuilder("t")
    builder.set_spout("rows", JsonLinesSpout(path, ["n"]))
    builder.set_bolt("look", look).shuffle_grouping("rows")
    engine = LocalEngine(builder.build())
    while engine.step() is not None:
        pass
    metrics = engine.ledger.metrics.of("rows")
    assert (metrics.acked, metrics.dead_letters) == (2, 1)
    engine.close()


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"one\n") + b"\n", bz2.compress(b"") + b"\n", b"PK\x03\x04\n", "one\n".encode("utf-16")],
    ids=["gzip", "bzip2", "zip", "utf-16"],
)
def test_a_compressed_file_under_another_name_is_read_as_is_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, follow: bool
) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(content)
    spout = TextSpout(path, follow=follow)
    spout.open(TopologyContext("t", "lines", 0, 1, 1, Config()))
    spout.next_ranges({}, 100)
    said = "a compressed file" if content[:1] != b"\xff" else "text in UTF-16"
    assert caplog.text.count(f"{path} begins as {said}") == 1


@every_format
@pytest.mark.parametrize("behind", [b"\n", b"\0", bytes(100_000), b"\0\0garbage", b"x" * 100_000])
def test_padding_after_the_end_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str, behind: bytes
) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(PACKERS[suffix](DATA[:3000]) + behind)
    assert drain(TextSpout(path), 100_000, 2)[0] == naive(DATA[:3000])
    assert ("has other bytes behind its compressed content" in caplog.text) == bool(behind.strip(b"\0"))
