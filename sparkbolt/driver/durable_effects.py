"""The effects of the driver machine that change files of a checkpoint, on any file system."""

from __future__ import annotations

from sparkbolt.base.file_access import Files
from sparkbolt.driver.effects import Compact, DropLetters, Effect, Fence, Remove, Write, WriteEntry, WriteLetters
from sparkbolt.driver.ledger.ledger_files import (
    Tenure,
    compact,
    drop_uncommitted_letters,
    write_entry,
    write_letters,
)


def perform_on_files(effect: Effect, files: Files, letters: Files, tenure: Tenure) -> None:
    """Perform an effect on the files of a checkpoint.

    Args:
        effect: one of those that change files, or ``Fence``.
        files: the checkpoint's.
        letters: where the dead letters are.
        tenure: the lives of this driver.

    Raises:
        FencedError: another driver has taken the checkpoint over.
        TypeError: the effect changes no files.
    """
    match effect:
        case Fence(life):
            tenure.check(life)
        case Write(name, data):
            files.write(name, data)
        case Remove(name):
            files.remove(name)
        case WriteLetters(micro_batch_id, lines):
            write_letters(letters, micro_batch_id, lines)
        case WriteEntry(micro_batch_id, entry):
            write_entry(files, micro_batch_id, entry)
        case DropLetters(last_commit):
            drop_uncommitted_letters(letters, last_commit)
        case Compact(micro_batch_id, snapshot):
            compact(files, micro_batch_id, snapshot())
        case _:
            raise TypeError(f"{effect} changes no files")
