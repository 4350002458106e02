"""``sparkbolt errors`` and ``sparkbolt explain``: what the ledger's log says of trees.

Which question it answers: which trees failed, and what was the way of this one?
Rule: it only reads, and for a local directory starts neither Spark nor Java; the topology may be running or not.

Read before: ``core.driver.ledger.reader``.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from sparkbolt.cli.checkpoint_files import open_files
from sparkbolt.cli.locate import WrongUseError
from sparkbolt.core.base.files import Files
from sparkbolt.core.driver.ledger.reader import LedgerReader, UnknownTreeError, attempt_lines
from sparkbolt.core.model.causes import outcome_words
from sparkbolt.core.model.story import Story, TreeState, time_text
from sparkbolt.errors import CheckpointError, InvariantError

READS_MAX = 5
"""How often a log that changes while it is read is read again."""


def open_ledger(directory: str) -> LedgerReader:
    """The ledger of a checkpoint.

    Raises:
        WrongUseError: there is no such directory.
        CheckpointError: it is no checkpoint, or it is damaged.
    """
    where = f"checkpoint {directory}"
    files = open_files(directory)
    for attempt in range(READS_MAX):
        try:
            return LedgerReader(files, _last_commit(files), where)
        except CheckpointError:
            # A topology that runs may have compacted its log between our looking and our reading.
            if attempt == READS_MAX - 1 or files.read("tasks") is None:
                raise
    raise InvariantError("the last attempt at reading a ledger returns or raises")


def _last_commit(files: Files) -> int:
    return max((int(name) for name in files.names("spark/commits") if name.isdigit()), default=-1)


def list_trees(directory: str, state: str, limit: int, *, as_json: bool) -> list[str]:
    """The trees of a state, the newest last, as lines; a list of open trees begins with the oldest."""
    reader = open_ledger(directory)
    kinds: dict[str, Callable[[], list[Story]]] = {
        TreeState.FAILED: lambda: reader.failed()[-limit:],
        TreeState.ACKED: lambda: reader.traced()[-limit:],
        TreeState.OPEN: lambda: reader.open(limit),
    }
    stories = kinds[state]()
    if as_json:
        return [json.dumps(story.to_json()) for story in stories]
    return [line for story in stories for line in _two_lines(story)] + [_closing(reader, state, len(stories))]


def _two_lines(story: Story) -> list[str]:
    when = story.ended_ms if story.ended_ms is not None else story.started_ms
    attempt = f", attempt {story.attempt}" if story.attempt is not None else ""
    then = f"; {words}" if (words := outcome_words(story.fate)) else ""
    why = f" {story.why}" if story.why else f" in micro-batch {story.ended_in}"
    return [f"{time_text(when)}  root {story.root}  {story.message}{attempt}", f"    {story.state}{why}{then}"]


def _closing(reader: LedgerReader, state: str, shown: int) -> str:
    """How many there are beside those that are shown."""
    name = f"topology {reader.topology!r}"
    if state == TreeState.ACKED:
        return f"{name}: {shown} traced tree(s) that were acked are shown"
    return (
        f"{name}: {reader.counts[state]} tree(s) {'failed' if state == TreeState.FAILED else 'are open'}, {shown} shown"
    )


def explain_tree(directory: str, text: str, *, as_json: bool) -> list[str]:
    """The stories of the trees that ``text`` names, as lines.

    Raises:
        WrongUseError: the text names no tree.
        CheckpointError: as of ``open_ledger``.
    """
    reader = open_ledger(directory)
    try:
        stories = reader.find(text)
    except UnknownTreeError as error:
        raise WrongUseError(str(error)) from error
    lines: list[str] = []
    for story in stories:
        others = [] if len(stories) > 1 else reader.other_attempts(story)
        if as_json:
            attempts = [{"root": one.root, "attempt": one.attempt, "state": one.state} for one in others]
            lines.append(json.dumps({**story.to_json(), "other_attempts": attempts}))
        else:
            lines += [*([""] if lines else []), *story.lines(), *attempt_lines(others)]
    return lines
