"""Copies of a real checkpoint: what they take, when they count, and what is missed in one that is not whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.driver.ledger.agreement import examine
from sparkbolt.driver.ledger.generations import SparkLog
from sparkbolt.driver.ledger.ledger_files import check_format
from sparkbolt.driver.ledger.origin import CopyRole, origin_of
from sparkbolt.errors import CheckpointError, WrongUseError
from sparkbolt.files.local import LocalFiles
from sparkbolt.spark.checkpoint import identity_in
from sparkbolt.spark.checkpoint_copy import Copying, Place, savepoint_place
from sparkbolt.spark.checkpoint_files import open_files
from tests.archives import unpack

LAST = 3
"""The last micro-batch of the stored checkpoint."""


def no_session() -> Any:
    raise AssertionError("a local checkpoint is copied without Spark")


@pytest.fixture
def place(tmp_path: Path) -> Callable[[str], Place]:
    (stored,) = Path("tests/checkpoints").glob("format-*.tar.gz")
    unpack(stored, tmp_path)
    return lambda name: Place(str(tmp_path / name), no_session)


def test_a_copy_has_everything_and_an_id_of_its_own(place: Callable[[str], Place]) -> None:
    source, target = place("checkpoint"), place("copy")
    origin = Copying(source, target).run()
    assert (origin.place, origin.micro_batch_id, origin.role) == (source.directory, LAST, None)
    assert origin.checkpoint_id == identity_in(source.files) != identity_in(target.files)
    files = open_files(target.directory)
    assert origin_of(files, "it") == origin
    assert SparkLog(files).last_commit == LAST
    assert examine(files).mistakes == ()
    ours = {name for name, _ in target.sizes()} - {"origin"}
    assert {name for name, _ in source.sizes()} - ours <= {"lock", "owner"}
    assert files.read("spark/metadata") != source.files.read("spark/metadata"), "Spark runs each query once"


def test_a_copy_up_to_a_micro_batch_has_nothing_of_later_ones(place: Callable[[str], Place]) -> None:
    source, target = place("checkpoint"), place("copy")
    Copying(source, target, CopyRole.SAVEPOINT, LAST - 1).run()
    files = open_files(target.directory)
    assert SparkLog(files).numbers("offsets")[-1] == SparkLog(files).last_commit == LAST - 1
    assert examine(files).mistakes == ()
    assert not [name for name, _ in target.sizes() if f"/{LAST + 1}_" in name or f"{LAST}.entry" in name]


def test_a_copy_of_a_savepoint_is_one_of_its_topology(place: Callable[[str], Place]) -> None:
    source, kept, again = place("checkpoint"), place("checkpoint/savepoints/mid"), place("again")
    Copying(source, kept, CopyRole.SAVEPOINT).run()
    origin = Copying(kept, again).run()
    assert (origin.checkpoint_id, origin.place) == (identity_in(source.files), source.directory)
    assert origin.copied_from == kept.directory
    copied = Copying(source, place("without savepoints")).target
    Copying(source, copied).run()
    assert not os.path.exists(f"{copied.directory}/savepoints")


@pytest.mark.parametrize("after", [0, 1, 5, 20])
def test_a_copy_that_is_broken_off_never_counts_and_can_be_made_again(
    place: Callable[[str], Place], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    source, target, left = place("checkpoint"), place("copy"), after

    def take(self: Place, name: str, from_: Place) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError("the machine is off")
        whole(self, name, from_)

    whole = Place.take
    with monkeypatch.context() as patched:
        patched.setattr(Place, "take", take)
        with pytest.raises(OSError, match="off"):
            Copying(source, target).run()
    with pytest.raises(CheckpointError, match="is a copy that was broken off: make it again"):
        check_format(target.files, "checkpoint copy")
    Copying(source, target).run()
    assert examine(open_files(target.directory)).mistakes == ()


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        (f"spark/state/0/1/{LAST + 1}_*.changelog", f"state of|changes of version {LAST + 1}"),
        ("spark/state/0/0/SSTs/*", "a table of version 1 is missing"),
        ("spark/state/1/1/3_*.changelog", "changes of version 3 are missing"),
        ("ledger/2.entry", "2.entry"),
    ],
)
def test_a_copy_that_is_not_whole_is_no_checkpoint(place: Callable[[str], Place], gone: str, why: str) -> None:
    source, target = place("checkpoint"), place("copy")
    found = list(Path(source.directory).glob(gone))
    assert found
    for path in found:
        path.unlink()
    with pytest.raises(CheckpointError, match=why):
        Copying(source, target).run()
    assert target.files.read("format") is None


def test_nothing_is_overwritten_and_a_name_stays_in_its_folder(place: Callable[[str], Place], tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "letter").write_text("dear")
    with pytest.raises(WrongUseError, match="is not empty"):
        Copying(place("checkpoint"), place("taken")).run()
    assert (tmp_path / "taken" / "letter").read_text() == "dear"
    for name in ("", "..", "a/b", ".hidden"):
        with pytest.raises(WrongUseError, match="cannot have the name"):
            savepoint_place("/state", name)


def test_a_change_in_the_copy_does_not_reach_the_original(place: Callable[[str], Place]) -> None:
    source, target = place("checkpoint"), place("copy")
    before = {name: LocalFiles(source.directory).read(name) for name, _ in source.sizes()}
    Copying(source, target).run()
    for name, _ in target.sizes():
        target.files.write(name, b"changed")
    assert {name: LocalFiles(source.directory).read(name) for name, _ in source.sizes()} == before
