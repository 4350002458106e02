"""Tailing: ``sparkbolt tail``, the log of a topology.

Each line is shown exactly once, also while files are rotated, and nothing in a line can control the terminal.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Annotated, Any, cast

from rich.console import Console
from rich.text import Text

from sparkbolt.control.documents import TopologyEntry
from sparkbolt.control.log_reading import LogFollower
from sparkbolt.control.logs import LogLine, as_text
from sparkbolt.control.operator import Operator
from sparkbolt.control.parameters import Parameter
from sparkbolt.faces.cli.command_arguments import Count
from sparkbolt.faces.cli.operate.operator_access import as_json, operator_of
from sparkbolt.faces.cli.operate.overview import runs
from sparkbolt.faces.cli.operate.statistics import component_of
from sparkbolt.faces.cli.program import EXIT_FAILED, EXIT_FINISHED
from sparkbolt.faces.cli.resolver import entry_of
from sparkbolt.faces.cli.texts import plain

POLL_SECS = 0.3
ASKED_LINES = 2_000
"""How many lines are asked for at a time if the files are on another machine."""
ALIVE_EVERY = 20
"""After so many looks without a line it is looked whether the topology still runs."""
_STYLES = {"ERROR": "red", "CRITICAL": "bold red", "WARNING": "yellow", "DEBUG": "dim", "PRINT": "cyan"}


def tail(
    topology: str,
    component: str | None = None,
    *,
    home: str | None = None,
    is_followed: Annotated[bool, Parameter(options=("-f", "--follow"))] = False,
    last: Count = 20,
    search: str = "",
    json: bool = False,
) -> int:
    """Show the log of a topology or a component.

    Args:
        topology: its name or id, as list shows it; or its checkpoint; or its code, such as word_count.py.
        component: only show lines of this spout or bolt.
        home: the directory in which topologies are registered (default: SPARKBOLT_HOME, or ~/.local/state/sparkbolt).
        is_followed: print new lines until Ctrl-C.
        last: the number of lines at the start (default: 20).
        search: only show lines that contain this text.
        json: print one JSON object per line.
    """
    operator = operator_of(home)
    entry = entry_of(operator, topology)
    if component is not None:
        component_of(operator.document(entry["id"]), component)
    show = Shown(as_json=json)
    source = Newest(operator, entry, component, search)
    with suppress(KeyboardInterrupt) if is_followed else nullcontext():  # Ctrl-C is how one ends to follow
        lines = source.first(last)
        if not lines and entry["log_directory"] is None:
            print(
                f"sparkbolt: topology {entry['name']!r} writes no log files: start it with --log-dir DIR or "
                "--detach. Its log goes to its standard error",
                file=sys.stderr,
            )
            return EXIT_FAILED
        show(lines)
        if is_followed:
            follow(operator, entry["id"], source, show)
    source.close()
    return EXIT_FINISHED


def follow(
    operator: Operator,
    topology: str,
    source: Newest,
    show: Callable[[Sequence[LogLine]], None],
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Show new lines, until the topology has ended."""
    quiet = 0
    while True:
        lines = source.more()
        show(lines)
        quiet = 0 if lines else quiet + 1
        if quiet and quiet % ALIVE_EVERY == 0 and not runs(operator.find(topology)):
            return
        sleep(POLL_SECS)


class Newest:
    """The lines of a log: the newest, and then new ones."""

    def __init__(self, operator: Operator, entry: TopologyEntry, component: str | None, search: str) -> None:
        """Follow the files if they are on this machine, otherwise ask again and again."""
        self._operator = operator
        self._id = entry["id"]
        self._wanted = {"component": component, "search": search}
        directory = entry["log_directory"]
        self._follower: LogFollower | None = None
        if directory is not None and os.path.isdir(directory):
            self._follower = LogFollower(directory, entry["name"], component=component, search=search)
        self._known: list[LogLine] = []

    def first(self, last: int) -> list[LogLine]:
        """The newest ``last`` lines."""
        asked = self._ask(max(last, 1 if self._follower else ASKED_LINES))
        self._known = asked
        return asked[-last:]

    def more(self) -> list[LogLine]:
        """The lines since the last call."""
        if self._follower is None:
            asked = self._ask(ASKED_LINES)
            new = without_known(self._known, asked, whole=True)
            self._known = asked or self._known
            return new
        new = without_known(self._known, self._follower.lines(), whole=False)
        self._known = []
        return new

    def close(self) -> None:
        """Close the files."""
        if self._follower is not None:
            self._follower.close()

    def _ask(self, last: int) -> list[LogLine]:
        found: list[dict[str, Any]] = self._operator.log(self._id, last=last, **self._wanted)  # type: ignore[arg-type]
        return [_whole(line) for line in found]


def without_known(known: Sequence[LogLine], new: Sequence[LogLine], *, whole: bool) -> list[LogLine]:
    """New lines without those at their beginning that are the last of the known ones.

    Args:
        known: lines that were shown.
        new: lines that were read later.
        whole: whether ``new`` may also begin before the end of ``known`` by any number of lines; otherwise it begins
            with the lines that were written while ``known`` was read.
    """
    for count in range(min(len(known), len(new)), 0, -1):
        if list(known[-count:]) == list(new[:count]):
            return list(new[count:])
    if whole and known:  # the window has moved: look for the last known line
        for place in range(len(new) - 1, -1, -1):
            if new[place] == known[-1]:
                return list(new[place + 1 :])
    return list(new)


def _whole(line: Mapping[str, Any]) -> LogLine:
    fields = {name: line.get(name) for name in LogLine.__annotations__}
    fields["topology"] = fields["topology"] or ""
    return cast(LogLine, fields)


class Shown:
    """Shows lines: on a terminal in colours, elsewhere as plain text, or as JSON."""

    def __init__(self, *, as_json: bool) -> None:
        """Decide by the standard output that is there now."""
        self._as_json = as_json
        self._console = Console(highlight=False) if sys.stdout.isatty() and not as_json else None

    def __call__(self, lines: Sequence[LogLine]) -> None:
        """Show lines."""
        for line in lines:
            if self._as_json:
                print(as_json(line))
                continue
            text = plain(as_text(line) if line["time_ms"] else line["text"])
            if self._console is None:
                print(text)
            else:
                self._console.print(Text(text, style=_STYLES.get(line["level"], "")), soft_wrap=True)
        if lines:
            sys.stdout.flush()
