"""The ledger's files: which of them count, and which may be removed.

    ledger/n.entry      the staged results of micro-batch n; replaced when it is staged again
    ledger/n.snapshot   the ledger after the promotion of n; compaction writes it from the entries up to n
    format              the format of all files of the checkpoint; written before any other of them
    lives/n             the owner of life n; created before anything else of that life happens, by one driver only
    looped/n            the tuples that micro-batch n feeds back; written before its entry, replaced with it
    dead-letters/n.jsonl  the dead letters of micro-batch n; written before its entry, replaced with it

Rule 1: an entry counts only if its micro-batch is committed. A snapshot is always of a committed micro-batch.
Rule 2: a snapshot is written completely before any entry that it replaces is removed, so a crash in between loses
nothing. The previous snapshot and the entries since it are kept: if the log of commits has lost its end, because the
last commits were not on disk when the power failed, the ledger of the remaining commits can still be loaded.
Rule 3: a life takes its number exclusively and durably before it reads or plans anything, so no two lives have the same
number, even if no lock separates two drivers.
Rule 4: a life whose number is no longer the newest writes nothing that counts.
Rule 5: dead letters count with the entry of their micro-batch. If the micro-batch was not committed, they are removed
when a life begins; the micro-batch runs again and writes those dead letters that are still due.

The location of the files is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sparkbolt.base.file_access import Files
from sparkbolt.driver.ledger.changed_shape import changed, gone_tasks
from sparkbolt.driver.ledger.generations import Generation
from sparkbolt.driver.ledger.ledger import Ledger
from sparkbolt.driver.ledger.ledger_log import State, load_entry, load_snapshot
from sparkbolt.driver.ledger.origin import ORIGIN_FILE
from sparkbolt.errors import CheckpointError, FencedError

FORMAT = 2
"""The format of a checkpoint. Raise it with each change after which an older checkpoint can no longer be read right."""
FORMAT_FILE = "format"
LIVES_KEPT = 16
"""How many of the last lives keep their files in ``lives/``."""
_VERIFY = "have `sparkbolt checkpoint verify` say what can be repaired without them"
"""The advice for missing files."""
_NUMBERED = re.compile(r"^(\d+)(\.entry|\.snapshot|)$")


def check_format(files: Files, where: str) -> bool:
    """Check that a checkpoint has the format of this version; call it before anything is read or written.

    Returns:
        False if there is no checkpoint yet.

    Raises:
        CheckpointError: it has another format, or no format number.
    """
    found = files.read(FORMAT_FILE)
    if found is None and not any(
        (files.read(ORIGIN_FILE), *(files.names(folder) for folder in ("spark/offsets", "ledger", "lives")))
    ):
        return False
    if found is None and files.read(ORIGIN_FILE) is not None:
        raise CheckpointError(f"{where} is a copy that was broken off: make it again, which replaces it")
    if found != str(FORMAT).encode():
        has = "no format number" if found is None else f"format {found.decode(errors='replace')[:20]}"
        raise CheckpointError(
            f"{where} has {has}, and this version of Sparkbolt reads format {FORMAT}: continue with the version of "
            "Sparkbolt that made it, or start with a new checkpoint directory"
        )
    return True


def last_life(files: Files) -> int:
    """The number of the last life that has begun, by ``lives/``; -1 if it holds none."""
    return max((int(name) for name in files.names("lives") if name.isdigit()), default=-1)


def lives_missing(known: int, last: int) -> str:
    """A sentence: files of lives are missing, because the ledger or a plan mentions a later life.

    >>> lives_missing(3, -1)
    'the ledger knows life 3, but lives/ tells of none: files were removed'
    """
    told = f"of none later than {last}" if last >= 0 else "of none"
    return f"the ledger knows life {known}, but lives/ tells {told}: files were removed"


def check_number(life: int, known: int, *, where: str = "the checkpoint") -> None:
    """Check, before a life continues from a ledger, that its number is later than all lives in the ledger.

    Raises:
        CheckpointError: it is not later; the files of earlier lives are missing.
    """
    if life <= known:
        raise CheckpointError(
            f"{where}: {lives_missing(known, life - 1)}; restore them, or have them made again with `sparkbolt "
            "checkpoint repair`"
        )


def begin_life(files: Files, owner: str, *, after: int = -1) -> int:
    """Take the number of the life that begins now: one more than the last number.

    Args:
        files: the checkpoint's.
        owner: a name of this life that no other life has, in this or another process.
        after: the new number is greater than this one, even if this life has no file.
    """
    taken = [int(name) for name in files.names("lives") if name.isdigit()]
    life = max([after, *taken]) + 1
    while not files.create(f"lives/{life}", owner.encode()):
        life += 1
    for old in taken:
        if old <= life - LIVES_KEPT:
            files.remove(f"lives/{old}")
    return life


def check_life(files: Files, life: int, owner: str, *, where: str = "the checkpoint") -> None:
    """Check, before a life writes anything that counts, that no other life has begun since.

    On a local disk a lock ensures this. Elsewhere there is no lock, and this check stops a driver that seemed to be
    dead.

    Raises:
        FencedError: another driver has taken the checkpoint over.
    """
    mine = files.read(f"lives/{life}")
    if mine is None and not files.names("lives"):
        raise FencedError(f"{where} was removed while its topology ran: what this one does from now on cannot count")
    if files.read(f"lives/{life + 1}") is not None:
        began = f"life {life + 1} began"
    elif mine != owner.encode():
        began = "a later life began" if mine is None else f"another driver has begun life {life}, too"
    else:
        return
    raise FencedError(
        f"{where} was taken over by another driver ({began}, this one is {life}): this one ends without counting what "
        "it does"
    )


class Tenure:
    """The lives that one driver has begun on a checkpoint, in sequence."""

    def __init__(self, files: Files, *, where: str = "the checkpoint") -> None:
        """Begin without a life."""
        self._files, self._where = files, where
        self.life: int | None = None
        """The number of the life that began last; None before the first."""
        self._owner = ""

    def begin(self, owner: str) -> int:
        """Take a number, as ``begin_life`` does."""
        self.life, self._owner = begin_life(self._files, owner), owner
        return self.life

    def check(self, life: int | None = None) -> None:
        """Check that no other driver has begun a life since this driver's last one, even if that life read nothing.

        Args:
            life: a life of this driver; then a later life of this same driver is an error, too.

        Raises:
            FencedError: another driver has taken the checkpoint over.
        """
        life = self.life if life is None else life
        assert life is not None, "a life begins before it is checked"
        check_life(self._files, life, self._owner, where=self._where)


def write_entry(files: Files, micro_batch_id: int, entry: bytes) -> None:
    """Make an entry durable; it replaces an earlier one of the same micro-batch."""
    files.write(f"ledger/{micro_batch_id}.entry", entry)


KEPT_LETTERS = "dead-letters-of-"
"""The beginning of the name of a directory with the letters of a run without a checkpoint."""
LETTERS_FOLDER = "dead-letters"
LOOPED_FOLDER = "looped"
"""The folder of the tuples that micro-batches feed back (``driver.looped_tuples``)."""


def write_letters(files: Files, micro_batch_id: int, letters: Sequence[bytes]) -> None:
    """Make the dead letters of a micro-batch durable; they replace those of an earlier run of it."""
    if letters:
        files.write(f"{LETTERS_FOLDER}/{micro_batch_id:09d}.jsonl", b"".join(letters))


def drop_uncommitted_letters(files: Files, last_commit: int) -> None:
    """Remove, when a life begins, the dead letters of micro-batches that are not committed."""
    for name in files.names(LETTERS_FOLDER):
        number = name.removesuffix(".jsonl")
        if name != number and number.isdigit() and int(number) > last_commit:
            files.remove(f"{LETTERS_FOLDER}/{name}")


def load_ledger(
    files: Files,
    last_commit: int,
    make: Callable[[Generation | None, State], Ledger],
    generations: Sequence[Generation] = (),
    *,
    where: str = "the checkpoint",
) -> Ledger:
    """Load the ledger after the last commit.

    Args:
        files: the checkpoint's.
        last_commit: the last micro-batch that is committed; -1 if none is.
        make: makes the ledger of a generation from a state; None: of the newest one.
        generations: the checkpoint's, oldest first; the entries of each are replayed by its own ledger.
        where: names the checkpoint in errors.

    Raises:
        CheckpointError: an entry that counts is missing or damaged.
    """
    snapshots, _ = _sorted_out(files, last_commit, where)

    def must_read(name: str) -> bytes:
        data = files.read(name)
        if data is None:
            raise CheckpointError(
                f"{where}: {name} is missing, though Spark has committed its micro-batch: files were removed by "
                f"hand, or only a part was copied; restore them, {_VERIFY}, or start with a new checkpoint"
            )
        return data

    state = State()
    if snapshots:
        name = f"ledger/{snapshots[-1]}.snapshot"
        state = load_snapshot(must_read(name), name)
    later = [one for one in generations if one.base > max(0, state.last_promoted)]
    before = generations[len(generations) - len(later) - 1] if later else None
    ledger = make(before, state)
    for following in (*later, None):
        end = last_commit + 1 if following is None else following.base
        for number in range(ledger.last_promoted + 1, end):
            name = f"ledger/{number}.entry"
            ledger.replay(must_read(name), name)
        if following is not None:
            replayed, is_newest = ledger.replayed, following is later[-1]
            ledger = make(None if is_newest else following, changed(ledger.state(), following))
            ledger.release(gone_tasks(following))
            ledger.replayed = replayed
    return ledger


def _snapshots(files: Files) -> list[int]:
    """The micro-batches of all snapshots, ascending."""
    matches = (_NUMBERED.match(name) for name in files.names("ledger"))
    return sorted(int(match[1]) for match in matches if match and match[2] == ".snapshot")


def _sorted_out(files: Files, last_commit: int, where: str) -> tuple[list[int], list[int]]:
    """The micro-batches of the snapshots that count, and of those whose commits are missing.

    Raises:
        CheckpointError: none counts, and the entries from the beginning are missing.
    """
    snapshots = _snapshots(files)
    counting = [number for number in snapshots if number <= last_commit]
    if snapshots and not counting and files.read("ledger/0.entry") is None:
        raise CheckpointError(
            f"{where}: the last commit of Spark's is that of micro-batch {last_commit}, and the oldest thing that the "
            f"ledger knows is what was after micro-batch {snapshots[0]}: the files are not of one time; restore those "
            f"that are missing, {_VERIFY}, or start with a new checkpoint"
        )
    return counting, snapshots[len(counting) :]


def cut_back(files: Files, last_commit: int, *, where: str = "the checkpoint") -> list[int]:
    """Remove, before a life begins, the snapshots of micro-batches whose commits are missing.

    Their numbers are used again for other micro-batches. Entries need no removal: new ones replace them.

    Returns:
        The micro-batches whose snapshots were removed; none unless the log of commits has lost its end.

    Raises:
        CheckpointError: the log of commits has lost more than the ledger can undo; nothing was removed.
    """
    _, gone = _sorted_out(files, last_commit, where)
    for number in gone:
        files.remove(f"ledger/{number}.snapshot")
    return gone


@dataclass(frozen=True)
class Undone:
    """Promoted micro-batches whose commits are missing now: they run again."""

    first: int
    last: int
    acked: int
    """How many trees were acked in the micro-batch in which they began, counted from the entries that exist."""
    failed: int
    forgotten: int
    """How many of their records are not emitted again: records of a ``Spout``, or records that are read at most
    once."""

    def __str__(self) -> str:
        """A sentence with these numbers."""
        count = self.last - self.first + 1
        which = f"micro-batch {self.first}" if count == 1 else f"{count} micro-batches, {self.first} to {self.last},"
        have, run = ("has", "it runs") if count == 1 else ("have", "they run")
        text = (
            f"{which} {have} been counted, with at least {self.acked} acked and {self.failed} failed tree(s), and "
            f"{have} no commit any more: {run} again, and what was told of them comes again"
        )
        return text + (
            f"; {self.forgotten} record(s) of a Spout, or read at most once, are not given again, and what bolts had "
            "made of them is lost"
            if self.forgotten
            else ""
        )


def undone(files: Files, last_commit: int, last_offset: int) -> Undone | None:
    """The micro-batches that were promoted after the last remaining commit; None if none was.

    Call it before ``cut_back``.

    A micro-batch is promoted before the next one is planned. Later entries belong to the same history only as long as
    the numbers of their lives do not fall; other entries are old ones that have not been replaced yet.

    Args:
        files: the checkpoint's.
        last_commit: the last micro-batch whose commit remains.
        last_offset: the last micro-batch that Spark has planned.
    """
    entries = []
    life = -1
    for number in range(last_commit, last_commit + 1 + len(files.names("ledger"))):
        name = f"ledger/{number}.entry"
        try:
            own_life, plan, feedback, _ = load_entry(files.read(name) or b"", name)
        except CheckpointError:
            if number == last_commit:  # a snapshot replaced it
                continue
            break
        if own_life < life:
            break
        life = own_life
        if number > last_commit:
            entries.append((plan, feedback.verdicts))
    promoted = max([last_commit + len(entries) - 1, last_offset - 1, *_snapshots(files)])
    if promoted <= last_commit:
        return None
    del entries[promoted - last_commit :]
    read = [entry for plan, _ in entries for entry in plan.entries]
    return Undone(
        last_commit + 1,
        promoted,
        acked=sum(int(verdicts.done_counts.sum()) for _, verdicts in entries),
        failed=sum(len(verdicts.failed) for _, verdicts in entries),
        forgotten=sum(entry.reserved for entry in read if not entry.lasting),
    )


def compact(files: Files, micro_batch_id: int, snapshot: bytes) -> None:
    """Write the snapshot taken after a promoted micro-batch, and remove the files that the previous one replaces."""
    files.write(f"ledger/{micro_batch_id}.snapshot", snapshot)
    before = max((number for number in _snapshots(files) if number < micro_batch_id), default=-1)
    for name in files.names("ledger"):
        match = _NUMBERED.match(name)
        if match and int(match[1]) < before + (match[2] == ".entry"):
            files.remove(f"ledger/{name}")
    for name in files.names(LOOPED_FOLDER):
        if name.isdigit() and int(name) < before:
            files.remove(f"{LOOPED_FOLDER}/{name}")
    for name in files.names("plans"):
        if name.split("-")[0].isdigit() and int(name.split("-")[0]) < before:
            files.remove(f"plans/{name}")
