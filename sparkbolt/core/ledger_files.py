"""The ledger's files: which of them count, and which may go.

Which question it answers: given the files beside a checkpoint and the last commit, what is the ledger?

    ledger/n.entry      what micro-batch n staged; replaced when it is staged again
    ledger/n.snapshot   the ledger after the promotion of n; what compaction made of the entries up to n
    life                the number of the last life; raised before anything else of a life happens
    dead-letters/n.jsonl  the dead letters of micro-batch n; written before its entry, replaced with it

Rule 1: an entry counts only if its micro-batch is committed; a snapshot is of a committed one always.
Rule 2: a snapshot is written whole before any entry that it replaces is removed, so a death in between costs nothing.
Rule 3: a life number is durable before the life reads or plans anything, so no two lives have one number.

Rule 4: dead letters count with the entry of their micro-batch. Those of one that was not committed are removed when a
life begins: it runs again, and writes those of its letters that are still to be written.

Where the files are is an argument. Read before: ``ledger_log``, ``ledger``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from sparkbolt.core.ledger import Ledger
from sparkbolt.errors import CheckpointError

_NUMBERED = re.compile(r"^(\d+)(\.entry|\.snapshot|)$")


class Files(Protocol):
    """The few things that a checkpoint does with files; names are relative to it."""

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole, replacing it atomically."""

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it does not exist."""

    def remove(self, name: str) -> None:
        """Remove a file that may or may not be there."""


def begin_life(files: Files) -> int:
    """The number of the life that begins now: one more than ever before."""
    before = files.read("life")
    life = int(before) + 1 if before else 0
    files.write("life", str(life).encode())
    return life


def write_entry(files: Files, micro_batch_id: int, entry: bytes) -> None:
    """Make an entry durable, replacing an earlier one of the same micro-batch."""
    files.write(f"ledger/{micro_batch_id}.entry", entry)


LETTERS_FOLDER = "dead-letters"


def write_letters(files: Files, micro_batch_id: int, letters: Sequence[bytes]) -> None:
    """Make the dead letters of a micro-batch durable, replacing those of an earlier run of it."""
    if letters:
        files.write(f"{LETTERS_FOLDER}/{micro_batch_id:09d}.jsonl", b"".join(letters))


def drop_uncommitted_letters(files: Files, last_commit: int) -> None:
    """A life begins: what no committed micro-batch has written is no letter."""
    for name in files.names(LETTERS_FOLDER):
        number = name.removesuffix(".jsonl")
        if name != number and number.isdigit() and int(number) > last_commit:
            files.remove(f"{LETTERS_FOLDER}/{name}")


def load_ledger(
    files: Files,
    last_commit: int,
    make: Callable[[], Ledger],
    restore: Callable[[bytes, str], Ledger],
    *,
    where: str = "the checkpoint",
) -> Ledger:
    """The ledger as of the last commit.

    Args:
        files: the checkpoint's.
        last_commit: the last micro-batch that is committed; -1 if none is.
        make: an empty ledger.
        restore: the ledger of a snapshot's bytes and its name.
        where: names the checkpoint in errors.

    Raises:
        CheckpointError: an entry that counts is missing or damaged.
    """
    numbered = [(int(match[1]), match[2]) for name in files.names("ledger") if (match := _NUMBERED.match(name))]
    snapshots = sorted(number for number, kind in numbered if kind == ".snapshot" and number <= last_commit)

    def must_read(name: str) -> bytes:
        data = files.read(name)
        if data is None:
            raise CheckpointError(
                f"{where}: {name} is missing, though Spark has committed its micro-batch: files were removed by "
                "hand, or only a part was copied; restore them, or start with a new checkpoint"
            )
        return data

    ledger = make()
    if snapshots:
        name = f"ledger/{snapshots[-1]}.snapshot"
        ledger = restore(must_read(name), name)
    for number in range(ledger.last_promoted + 1, last_commit + 1):
        name = f"ledger/{number}.entry"
        ledger.replay(must_read(name), name)
    return ledger


def compact(files: Files, micro_batch_id: int, snapshot: bytes) -> None:
    """Replace all entries up to a promoted micro-batch by a snapshot of the ledger."""
    files.write(f"ledger/{micro_batch_id}.snapshot", snapshot)
    for name in files.names("ledger"):
        match = _NUMBERED.match(name)
        if match and int(match[1]) < micro_batch_id + (match[2] == ".entry"):
            files.remove(f"ledger/{name}")
    for name in files.names("plans"):
        if name.split("-")[0].isdigit() and int(name.split("-")[0]) < micro_batch_id:
            files.remove(f"plans/{name}")
