"""Checkpoints: ``sparkbolt checkpoint verify``, ``sparkbolt checkpoint repair`` and ``sparkbolt checkpoint copy``.

``verify`` only reads. ``repair`` first takes a new life number, so that no driver that still uses the checkpoint counts
any more, and it copies each file that it removes to ``repairs/n`` of the checkpoint. For a local directory neither
Spark nor Java starts.
"""

from __future__ import annotations

import fcntl
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sparkbolt.base.file_access import Files
from sparkbolt.base.locations import local_directory
from sparkbolt.driver.commits import waiting_rows
from sparkbolt.driver.ledger import agreement
from sparkbolt.driver.ledger.ledger_files import begin_life
from sparkbolt.driver.looped_tuples import looped_mistakes
from sparkbolt.driver.transaction import aborts_mistakes
from sparkbolt.errors import CheckpointError
from sparkbolt.faces.cli.command_arguments import AnyTopology
from sparkbolt.faces.cli.program import EXIT_FAILED, EXIT_FINISHED
from sparkbolt.faces.cli.resolver import checkpoint_of
from sparkbolt.faces.cli.texts import show
from sparkbolt.spark.checkpoint_files import open_files

NOT_AGAIN = "this file has no other copy"


def verify(directory: AnyTopology) -> int:
    """Check whether a checkpoint is consistent.

    Spark and Sparkbolt both write each micro-batch to the checkpoint. It is consistent if their records agree.

    Args:
        directory: the checkpoint, the name or the code of the topology.

    Raises:
        WrongUseError: there is no such directory.
        CheckpointError: the directory is not a checkpoint.
    """
    directory = checkpoint_of(directory)
    return _told(directory, _examine(open_files(directory), directory))


def repair(directory: AnyTopology, *, dry_run: bool = False) -> int:
    """Bring a checkpoint back to its last consistent micro-batch.

    The next start runs the later micro-batches again. Files that are removed stay in the folder repairs of the
    checkpoint.

    Args:
        directory: the checkpoint, the name or the code of the topology, which must not be running.
        dry_run: only show the changes, as verify does.

    Raises:
        WrongUseError: there is no such directory.
        CheckpointError: the directory is not a checkpoint, or a driver uses it.
    """
    if dry_run:
        return verify(directory)
    directory = checkpoint_of(directory)
    with _alone(directory) as files:
        verdict = _examine(files, directory)
        if not verdict.mistakes or verdict.why_not is not None:
            return _told(directory, verdict)
        begin_life(files, uuid.uuid4().hex, after=verdict.life)
        taken = {int(name) for name in files.names("repairs") if name.isdigit()}
        folder = f"repairs/{max(taken, default=-1) + 1}"
        copies = agreement.repair(files, verdict, folder, str(uuid.uuid4()))
        after = _examine(files, directory)
    lines = [*verdict.facts, *(f"mistake: {mistake}" for mistake in verdict.mistakes)]
    lines += [f"removed: {copy.removeprefix(folder + '/')} (a copy is {copy})" for copy in copies]
    lines += [f"created: {name}" for name in verdict.made]
    show([*lines, *(f"mistake: {mistake}" for mistake in after.mistakes), _next(verdict.last)])
    return EXIT_FAILED if after.mistakes else EXIT_FINISHED


def copy(from_: AnyTopology, to: str) -> int:
    """Copy a checkpoint that is not in use, also to another file system.

    The first start with the copy needs --instead or --beside.

    Args:
        from_: the checkpoint, or the name or the code of its topology, or a savepoint.
        to: a directory or URL that does not exist yet.

    Raises:
        WrongUseError: there is something else.
        CheckpointError: the copy is not whole, or the checkpoint is in use.
    """
    from sparkbolt.spark.checkpoint_copy import Copying, Place  # imported here, since they import pyspark
    from sparkbolt.spark.session import make_session
    from sparkbolt.spark.succession import check_copied

    source = Place(checkpoint_of(from_), lambda: make_session("sparkbolt", "local[1]", None))
    check_copied(source)
    target = Place(to, lambda: make_session("sparkbolt", "local[1]", None))
    origin = Copying(source, target).run(lambda text: print(text, file=sys.stderr, flush=True))
    show(
        [
            f"{target.directory} is a copy of {source.directory} after micro-batch {origin.micro_batch_id}",
            f"its first start needs a decision: --instead of {origin.place}, which is then never started again, or "
            "--beside it",
        ]
    )
    return EXIT_FINISHED


def _examine(files: Files, directory: str) -> agreement.Agreement:
    if not any(files.names(folder) for folder in ("spark/offsets", "ledger", "lives")):
        raise CheckpointError(f"{directory} is not a checkpoint of Sparkbolt: it has no spark/offsets and no ledger")
    verdict = agreement.examine(files, f"checkpoint {directory}")
    waiting, wrong = waiting_rows(files)
    wrong += aborts_mistakes(files)
    wrong += looped_mistakes(files, verdict.last)
    facts = [f"rows wait for their commit: {', '.join(waiting)}"] if waiting else []
    verdict = replace(verdict, facts=(*verdict.facts, *facts), mistakes=(*verdict.mistakes, *wrong))
    return replace(verdict, why_not=verdict.why_not or NOT_AGAIN) if wrong else verdict


def _told(directory: str, verdict: agreement.Agreement) -> int:
    show(_lines_of(directory, verdict))
    return EXIT_FAILED if verdict.mistakes else EXIT_FINISHED


def _lines_of(directory: str, verdict: agreement.Agreement) -> list[str]:
    lines = [*verdict.facts, *(f"mistake: {mistake}" for mistake in verdict.mistakes)]
    if not verdict.mistakes:
        return [*lines, f"they agree: the next start continues with micro-batch {verdict.last + 1}"]
    if verdict.why_not is not None:
        advice = "restore the checkpoint from a copy, or start with a new one"
        return [*lines, f"a repair cannot help: {verdict.why_not}; {advice}"]
    lines += [f"a repair would remove: {name}" for name in verdict.put_aside]
    lines += [f"a repair would create: {name}" for name in verdict.made]
    return [*lines, _next(verdict.last), f"to repair it: sparkbolt checkpoint repair {directory}"]


def _next(last: int) -> str:
    before = (
        f"after micro-batch {last}, the last on which Spark and the ledger agree" if last >= 0 else "from the start"
    )
    return f"the next start continues {before}; the removed micro-batches run again, and no data is lost"


@contextmanager
def _alone(directory: str) -> Iterator[Files]:
    """The files of a checkpoint; for a local directory they are locked, and no driver may use it.

    Raises:
        CheckpointError: a driver on this machine uses the checkpoint.
    """
    files, path = open_files(directory, write=True), local_directory(directory)
    if path is None:
        yield files
        return
    with Path(path, "lock").open("a+b") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = (files.read("owner") or b"another driver").decode()
            raise CheckpointError(f"checkpoint {directory} is in use by {owner}: stop that driver first") from error
        yield files
