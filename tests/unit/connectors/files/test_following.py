"""Files that are followed: each line once, wherever its file is renamed to, and never a byte of another file."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkbolt import RetryPolicy, TopologyBuilder, bolt
from sparkbolt.connectors.files.file_identity import path_of
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import TextSpout
from tests.hypotheses import examples
from tests.unit.connectors.files.tails import Tail, append, rotate

PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def test_a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    append(log, *range(100))
    tail = Tail(log)
    assert tail.read() == list(map(str, range(100)))
    append(log, 100, 101)
    rotate(log)
    append(Path(f"{log}.1"), 102)  # whoever writes has it open for a while
    append(log, *range(103, 200))
    assert sorted(tail.read(), key=int) == list(map(str, range(100, 200)))
    append(Path(f"{log}.1"), "late")
    append(log, 200)
    assert sorted(tail.read()) == ["200", "late"]
    assert [path_of(source) for source in tail.progress] == [str(log)] * 2


@pytest.mark.parametrize("is_new_longer", [False, True])
def test_a_rotation_while_the_driver_is_down_loses_and_repeats_nothing(tmp_path: Path, is_new_longer: bool) -> None:
    log = tmp_path / "a.log"
    append(log, "first", *range(50))
    tail = Tail(log)
    assert len(tail.read()) == 51
    append(log, "before")
    rotate(log)
    append(log, "after", *range(200 if is_new_longer else 1))
    tail.start()
    again = tail.read()
    assert (again[0], again[1], len(again)) in [("before", "after", 202), ("before", "after", 3)]
    rotate(log)
    append(log, "third")
    tail.start()
    assert tail.read() == ["third"]


@settings(deadline=None, max_examples=examples(60))
@given(seed=st.integers(0, 1 << 30))
def test_each_line_is_read_once_even_if_files_are_rotated_during_reading(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    directory, chance = tmp_path_factory.mktemp("rotated"), random.Random(seed)
    log = directory / "a.log"
    tail = Tail([log, directory / "*.log.1"] if chance.random() < 0.3 else directory if chance.random() < 0.5 else log)
    written, seen, waiting = 0, [], []
    for _ in range(chance.randrange(5, 40)):
        step = chance.random()
        if step < 0.5:
            count = chance.randrange(1, 30)
            append(log, *range(written, written + count))
            written += count
        elif step < 0.65 and log.exists():
            tail.now += 1.0
            waiting += tail.plan()  # so it is known before it is renamed; what is planned may be read much later
            rotate(log, keep=20)
        elif step < 0.75:
            tail.start()
        else:
            tail.now += chance.choice([0.0, 1.0])
            waiting += tail.plan(chance.choice([5, 100, 10_000]))
        if chance.random() < 0.3:
            seen += tail.lines_of(waiting)
            waiting = []
    seen += tail.lines_of(waiting) + tail.read()
    assert sorted(map(int, seen)) == list(range(written))
    assert not tail.failed


def test_a_plan_is_read_from_the_file_that_it_was_made_for_or_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "a.log"
    append(log, "old 1", "old 2")
    tail = Tail(log)
    tail.now += 1
    ranges = tail.plan()
    rotate(log)
    append(log, "new 1", "new 2", "new 3")
    again = pickle.loads(pickle.dumps(tail.spout))
    for reader in (tail.worker, again, tail.worker):
        tail.worker = reader
        assert tail.lines_of(ranges) == ["old 1", "old 2"]
    Path(f"{log}.1").rename(tmp_path.parent / f"{tmp_path.name}-away")
    for reader in (tail.worker, pickle.loads(pickle.dumps(tail.spout))):
        tail.worker = reader
        assert tail.lines_of(ranges) == []
    assert len(tail.failed) == 2 * len(ranges)
    assert "compressed or moved to another directory" in tail.failed[0]
    assert "does not exist any more" in caplog.text


def test_a_file_that_was_emptied_before_it_was_read_fails_what_was_planned(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    header = 30 * "a comment of many words\n"
    append(log, header, "1,10", "2,20")
    tail = Tail(log)
    tail.now += 1
    ranges = tail.plan()
    log.write_text("3,30\n")
    assert tail.lines_of(ranges) == []
    log.write_text(header)
    assert tail.lines_of(ranges) == []
    assert "emptied, compressed or moved" in tail.failed[0]
    assert "was emptied before it was read" in tail.failed[-1]


@pytest.mark.parametrize("header", ["id,amount\n", 20 * "a comment of many words\n"])
@pytest.mark.parametrize("grown", [1, 500])
def test_a_truncated_file_starts_over_and_its_unread_lines_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, header: str, grown: int
) -> None:
    log = tmp_path / "a.log"
    log.write_text(header)
    tail = Tail(log)
    tail.read()
    append(log, *(f"old {n}" for n in range(20)))
    tail.read(budget=50)
    append(log, "not", "read")
    tail.spout.next_ranges(tail.progress, 1)  # seen, and not planned but for a byte
    log.write_text(header + "".join(f"new {n}\n" for n in range(grown)))
    again = tail.read()
    assert again == [*header.splitlines(), *(f"new {n}" for n in range(grown))]
    assert caplog.text.count("was emptied or written anew") == 1
    assert "at least 9 bytes were not read and are lost" in caplog.text
    append(log, "more")
    assert tail.read() == ["more"]
    tail.start()
    append(log, "and more")
    assert tail.read() == ["and more"]


def test_a_file_that_was_emptied_while_the_driver_was_down_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "a.log"
    append(log, "header", *range(100))
    tail = Tail(log)
    tail.read()
    for turn in range(2):
        log.write_text("header\nnew\n")
        tail.start()
        assert tail.read() == ["header", "new"], turn
        append(log, *range(100))
        tail.read()
    assert caplog.text.count("was emptied or written anew since") == 2
    assert f"look for them in a copy beside it, such as {log}.1" in caplog.text


def test_lines_left_by_copytruncate_are_read_from_the_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log, copy = tmp_path / "a.log", tmp_path / "a.log.1"
    append(log, *range(50))
    tail = Tail(tmp_path / "a.log*")
    assert len(tail.read()) == 50
    append(log, "unread")
    shutil.copy(log, copy)
    assert tail.read() == ["unread"], "the copy that is being made is not read beside the file"
    append(log, "also unread")
    shutil.copy(log, copy)
    log.write_text("new\n")
    assert sorted(tail.read()) == ["also unread", "new"]
    tail.start()
    append(log, "newer")
    assert tail.read() == ["newer"]
    assert "lost" not in caplog.text


@pytest.mark.parametrize("pattern", ["a.log", "a.log*"])
@pytest.mark.parametrize("suffix", sorted(PACKERS))
def test_a_file_that_gets_compressed_is_resumed_in_its_compressed_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pattern: str, suffix: str
) -> None:
    log = tmp_path / "a.log"
    append(log, *range(200))
    tail = Tail(tmp_path / pattern)
    assert len(tail.read()) == 200
    append(log, *range(200, 220))
    data = log.read_bytes()
    packed = Path(f"{log}.1{suffix}")
    log.rename(f"{log}.1")
    packed.write_bytes(PACKERS[suffix](data)[:60])  # it is being made
    append(log, "new")
    assert sorted(tail.read(budget=60)) == sorted([*map(str, range(200, 220)), "new"])
    append(Path(f"{log}.1"), "late")
    packed.write_bytes(PACKERS[suffix](data + b"late\n"))
    Path(f"{log}.1").unlink()
    assert tail.read() == ["late"]
    tail.start()
    assert tail.read() == []
    packed.rename(f"{log}.2{suffix}")
    append(log, "newer")
    tail.start()
    assert tail.read() == ["newer"]
    assert not tail.failed
    assert "gone" not in caplog.text


def test_a_file_that_was_compressed_while_the_driver_was_down_is_a_new_file(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    append(log, *range(200))
    tail = Tail(tmp_path / "a.log*")
    tail.read()
    Path(f"{log}.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()
    append(log, "new")
    for expected in (["new", *map(str, range(200))], []):
        tail.start()
        assert tail.read() == expected


def test_a_deleted_file_is_counted_and_resumed_when_it_reappears(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, away = tmp_path / "logs" / "a.log", tmp_path / "away"
    log.parent.mkdir()
    append(log, "one", "two")
    tail = Tail(log)
    assert tail.read(budget=100) == ["one", "two"]
    append(log, "three")
    tail.spout.next_ranges(tail.progress, 1)
    log.rename(away)
    append(log, "another")
    assert tail.read() == ["another"]
    assert "at least 6 bytes of it were not read" in caplog.text
    log.unlink()
    away.rename(log)
    assert tail.read() == ["three"]
    append(log, "four")
    assert tail.read() == ["four"]


def test_a_line_of_a_rotated_file_is_retried_and_given_up_with_its_bytes(tmp_path: Path) -> None:
    log, letters, attempts = tmp_path / "a.log", tmp_path / "letters.jsonl", tmp_path / "attempts"
    append(log, "good", "bad", "good too")

    @bolt(outputs=[])
    def picky(tup):  # type: ignore[no-untyped-def]
        append(attempts, tup["line"])
        if tup["line"] == "bad":
            rotate(log)
            append(log, "other", "lines", "which stand where it stood")
            raise ValueError("a bad line")

    builder = TopologyBuilder("t")
    builder.set_spout(
        "lines", TextSpout(log, follow=True), retry=RetryPolicy(max_retries=2), dead_letters=f"file:{letters}"
    )
    builder.set_bolt("picky", picky).shuffle_grouping("lines")
    engine = LocalEngine(builder.build())
    while engine.step() is not None or engine.coordinator.retries:
        engine.now_ms = max(engine.next_due_ms() or 0, engine.now_ms + 1)
    seen = attempts.read_text().splitlines()
    assert seen.count("bad") == 3
    assert sorted(line for line in seen if line != "bad") == sorted(
        ["good", "good too", *(["other", "lines", "which stand where it stood"] * 3)]
    )
    (letter,) = map(json.loads, letters.read_text().splitlines())
    assert '"bad"' in json.dumps(letter), letter
    engine.close()


def test_an_unreadable_file_blocks_no_other_and_is_read_once_it_is_readable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = Tail(tmp_path / "*.log")
    append(tmp_path / "open.log", "one")
    assert tail.read() == ["one"]
    append(tmp_path / "locked.log", "two")
    append(tmp_path / "open.log", "three")
    real = os.open

    def refusing(path: str, *arguments: int) -> int:
        if str(path).endswith("locked.log"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing)
        assert tail.read() == ["three"]
        assert tail.read() == []
    assert caplog.text.count("cannot be read") == 1
    assert tail.read() == ["two"]


def test_a_link_to_the_file_in_use_is_the_file(tmp_path: Path) -> None:
    link = tmp_path / "current.log"
    for day in range(3):
        append(tmp_path / f"{day}.log", f"day {day}", f"end of {day}")
    link.symlink_to(tmp_path / "0.log")
    every, current = Tail(tmp_path / "*.log"), Tail(link)
    assert (len(every.read()), current.read()) == (6, ["day 0", "end of 0"])
    append(tmp_path / "0.log", "late")
    link.unlink()
    link.symlink_to(tmp_path / "1.log")
    assert sorted(current.read()) == ["day 1", "end of 1", "late"]
    assert every.read() == ["late"]


def test_a_pattern_that_also_matches_rotated_files_reads_nothing_twice(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    tail = Tail(tmp_path / "a.log*")
    seen: list[str] = []
    for turn in range(12):
        append(log, *(10 * turn + n for n in range(10)))
        if turn % 3 == 2:
            seen += tail.read(budget=7)
        if turn % 4 == 3:
            tail.start()
        if turn % 2:
            rotate(log, keep=9)
    assert sorted(seen + tail.read(), key=int) == list(map(str, range(120)))
    assert not tail.failed
