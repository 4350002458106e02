"""Stories: ``sparkbolt errors`` and ``sparkbolt explain`` show trees from the ledger's log.

They only read, and start neither Spark nor Java for a local directory; the topology may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json import dumps
from typing import Annotated

from sparkbolt.api.causes import outcome_words
from sparkbolt.api.story import Story, message_text, time_text
from sparkbolt.api.tree_life import TreeState
from sparkbolt.base.source_names import short_sources
from sparkbolt.control.parameters import Parameter
from sparkbolt.driver.ledger.reader import LedgerReader, UnknownTreeError, attempt_lines, read_ledger
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.command_arguments import AnyTopology, Count
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.faces.cli.resolver import checkpoint_of
from sparkbolt.faces.cli.texts import show
from sparkbolt.spark.checkpoint_files import open_files


def open_ledger(directory: str) -> LedgerReader:
    """The ledger of a checkpoint.

    Raises:
        WrongUseError: there is no such directory.
        CheckpointError: the directory is not a checkpoint, or the checkpoint is damaged.
    """
    return read_ledger(open_files(directory), f"checkpoint {directory}")


def errors(
    checkpoint: AnyTopology,
    *,
    state: Annotated[str, Parameter(choices=(TreeState.FAILED, TreeState.OPEN, TreeState.ACKED))] = TreeState.FAILED,
    last: Count = 20,
    json: bool = False,
) -> int:
    """List failed trees, also after the topology has ended.

    The newest failed or acked trees are listed, the newest last; of open trees, the oldest.

    Args:
        checkpoint: the checkpoint, the name or the code of the topology.
        state: list failed trees, open trees, or acked trees that were traced.
        last: the maximum number of entries (default: 20).
        json: print one JSON object per line.
    """
    reader = open_ledger(checkpoint_of(checkpoint))
    kinds: dict[str, Callable[[], list[Story]]] = {
        TreeState.FAILED: lambda: reader.failed()[-last:],
        TreeState.ACKED: lambda: reader.traced()[-last:],
        TreeState.OPEN: lambda: reader.open(last),
    }
    stories = kinds[state]()
    if json:
        show(dumps(story.to_json()) for story in stories)
    else:
        names = short_sources(story.source for story in stories if story.source is not None)
        show([*(line for story in stories for line in _two_lines(story, names)), _closing(reader, state, len(stories))])
    return EXIT_FINISHED


def _two_lines(story: Story, names: Mapping[str, str]) -> list[str]:
    source = names[story.source] if story.source is not None else None
    message = message_text(story.component, story.task, source, story.position, story.message_id)
    when = story.ended_ms if story.ended_ms is not None else story.started_ms
    attempt = f", attempt {story.attempt}" if story.attempt is not None else ""
    then = f"; {words}" if (words := outcome_words(story.outcome)) else ""
    why = f" {story.why}" if story.why else f" in micro-batch {story.ended_in}"
    return [f"{time_text(when)}  root {story.root}  {message}{attempt}", f"    {story.state}{why}{then}"]


def _closing(reader: LedgerReader, state: str, shown: int) -> str:
    """The last line: how many trees there are, and how many of them are shown."""
    name = f"topology {reader.topology!r}"
    if state == TreeState.ACKED:
        return f"{name}: {shown} acked and traced tree(s) shown"
    return (
        f"{name}: {reader.counts[state]} tree(s) {'failed' if state == TreeState.FAILED else 'are open'}, {shown} shown"
    )


def explain(root: str, *, checkpoint: AnyTopology, json: bool = False) -> int:
    """Show the path of one tree, and why it failed.

    Args:
        root: 16 hexadecimal digits, as errors and the log show them; or task and sequence (lines[0]:40); or
            SOURCE@POSITION, where you can shorten SOURCE to the end of its path.
        checkpoint: the checkpoint, the name or the code of the topology.
        json: print one JSON object per line.

    Raises:
        WrongUseError: the text names no tree.
        CheckpointError: as in ``open_ledger``.
    """
    reader = open_ledger(checkpoint_of(checkpoint))
    try:
        stories = reader.find(root)
    except UnknownTreeError as error:
        raise WrongUseError(str(error)) from error
    lines: list[str] = []
    for story in stories:
        others = [] if len(stories) > 1 else reader.other_attempts(story)
        if json:
            attempts = [{"root": one.root, "attempt": one.attempt, "state": one.state} for one in others]
            lines.append(dumps({**story.to_json(), "other_attempts": attempts}))
        else:
            lines += [*([""] if lines else []), *story.lines(), *attempt_lines(others)]
    show(lines)
    return EXIT_FINISHED
