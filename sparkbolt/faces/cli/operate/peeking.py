"""Peeking: ``sparkbolt peek``, some of the tuples of a running topology, as they are emitted."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

from sparkbolt.api.story import clock_text
from sparkbolt.control.documents import PeekedDocument
from sparkbolt.control.operator import Operator
from sparkbolt.control.parameters import Parameter
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.command_arguments import Secs
from sparkbolt.faces.cli.operate.operator_access import as_json, operator_of
from sparkbolt.faces.cli.operate.overview import runs
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.faces.cli.resolver import entry_of
from sparkbolt.faces.cli.texts import show

POLL_SECS = 0.3


def peek(
    topology: str,
    component: Annotated[str, Parameter(metavar="COMPONENT[.STREAM]")],
    *,
    home: str | None = None,
    count: Annotated[int, Parameter(lowest=1, options=("-n", "--count"))] = 10,
    match: str = "",
    for_: Secs = None,
    json: bool = False,
) -> int:
    """Show tuples that a component of a running topology emits.

    It shows a sample: a few tuples of each task and micro-batch, shortened. A component without output streams shows
    the tuples that it gets.

    Args:
        topology: its name or id, as list shows it; or its checkpoint; or its code, such as word_count.py.
        component: the spout or bolt, such as split; or one of its streams, such as split.odd.
        home: the directory in which topologies are registered (default: SPARKBOLT_HOME, or ~/.local/state/sparkbolt).
        count: the number of tuples after which the command ends (default: 10).
        match: only show tuples with this text in one of their values.
        for_: end after this time, such as 30s, even if there were fewer tuples (default: wait for them).
        json: print one JSON object per line.
    """
    operator = operator_of(home)
    entry = entry_of(operator, topology)
    with suppress(KeyboardInterrupt):
        watch(operator, entry["id"], component, count, match, for_, as_json if json else line_of_tuple)
    return EXIT_FINISHED


def watch(
    operator: Operator,
    topology: str,
    component: str,
    count: int,
    match: str,
    for_secs: float | None,
    form: Callable[[PeekedDocument], str],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show ``count`` tuples as they are seen, or those until the topology has ended or the time has expired.

    Raises:
        WrongUseError: there is no such component or stream, or the topology cannot be reached.
    """
    name, _, stream = component.partition(".")
    until = None if for_secs is None else clock() + for_secs
    after, left, seen = 0, count, False
    while left > 0 and (until is None or clock() < until):
        try:
            found = operator.peek(topology, name, stream=stream or None, match=match, after=after)
        except WrongUseError:
            if seen and not runs(operator.find(topology)):
                return
            raise
        seen = True
        show(form(one) for one in found[:left])
        left -= len(found[:left])
        after = found[-1]["serial"] if found else after
        if left > 0:
            sleep(POLL_SECS)


def line_of_tuple(one: PeekedDocument) -> str:
    """A tuple as a line: ``12:00:01.500Z split[0]  {'word': 'be'}``."""
    stream = "" if one["stream"] == "default" else f" {one['stream']}"
    sender = f" from {one['sender']}" if one["sender"] else ""
    return f"{clock_text(one['time_ms'])} {one['component']}[{one['task']}]{stream}{sender}  {one['values']}"
