"""``sparkbolt list``, ``stats`` and ``top``, once or repeatedly.

On a terminal a picture is redrawn in place; elsewhere lines are written one after the other. Ctrl-C ends it, with exit
code 0.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated

from rich.console import Console
from rich.live import Live
from rich.text import Text

from sparkbolt.api.story import time_text
from sparkbolt.control.documents import ALL_TIME, WINDOWS_SECS, TopologyDocument, TopologyEntry
from sparkbolt.control.operator import Operator
from sparkbolt.control.parameters import Parameter
from sparkbolt.errors import SparkboltError
from sparkbolt.faces.cli.command_arguments import Secs
from sparkbolt.faces.cli.operate.operator_access import as_json, now_ms, operator_of
from sparkbolt.faces.cli.operate.overview import list_lines, top_line, top_sheet, worth_showing
from sparkbolt.faces.cli.operate.statistics import component_lines, stats_json, stats_lines
from sparkbolt.faces.cli.program import EXIT_FINISHED
from sparkbolt.faces.cli.resolver import entry_of, is_code
from sparkbolt.faces.cli.tables import terminal_width
from sparkbolt.faces.cli.texts import show

LIVE_EVERY_SECS = 2.0
PLAIN_EVERY_SECS = 5.0
FIRST_WINDOW = "600"
"""The window of ``stats`` if none is named."""


def list_(*, home: str | None = None, all_: bool = False, json: bool = False) -> int:
    """List running topologies.

    Args:
        home: the directory in which topologies are registered (default: SPARKBOLT_HOME, or ~/.local/state/sparkbolt).
        all_: also list topologies that have ended, with the reason.
        json: print one JSON object per line.
    """
    operator = operator_of(home)
    entries = operator.topologies()
    shown = entries if all_ else worth_showing(entries)
    if json:
        show([as_json(entry) for entry in shown])
        if operator.home.trouble:
            print(f"sparkbolt: {nothing_runs(operator, 0)}", file=sys.stderr)
    elif shown:
        show(list_lines(shown, now_ms(), terminal_width()))
    else:
        print(nothing_runs(operator, len(entries)))
    return EXIT_FINISHED


def nothing_runs(operator: Operator, ended: int) -> str:
    """The sentence if there is nothing to show."""
    if operator.home.trouble:
        return f"no topology is registered: {operator.home.trouble}"
    more = f"; `sparkbolt list --all` shows {ended:,} that have ended" if ended else ""
    return f"no topology is running (home: {operator.home.place}){more}"


def stats(
    topology: str,
    component: str | None = None,
    *,
    home: str | None = None,
    window: Annotated[str | None, Parameter(choices=(*WINDOWS_SECS, "all"))] = None,
    watch: bool = False,
    every: Secs = None,
    json: bool = False,
) -> int:
    """Show the numbers of a topology or a component.

    Args:
        topology: its name or id, as list shows it; or its checkpoint; or its code, such as word_count.py.
        component: show this spout or bolt, with its tasks and streams.
        home: the directory in which topologies are registered (default: SPARKBOLT_HOME, or ~/.local/state/sparkbolt).
        window: show the sums of this number of seconds, or since the first start (default: 600 if it was measured).
        watch: refresh until Ctrl-C.
        every: the time between refreshes (default: 2s on a terminal, otherwise 5s).
        json: print one JSON object.
    """
    operator = operator_of(home)
    entry = entry_of(operator, topology)
    name = entry["name"] if is_code(topology) else topology

    def look() -> list[str]:
        document: TopologyDocument = operator.document(name)
        over = window_name(document, window)
        if json:
            return [as_json(stats_json(document, component, over))]
        if component is not None:
            return component_lines(document, component, over, now_ms(), terminal_width())
        return stats_lines(document, over, now_ms(), terminal_width())

    if not watch:
        show(look())
        return EXIT_FINISHED
    first = look()  # a wrong name is reported before anything is drawn
    return again_and_again(first, look, every, headed=not json)


def window_name(document: TopologyDocument, given: str | None) -> str:
    """The name of the requested window; by default the last ten minutes, if they were measured."""
    if given is None:
        return FIRST_WINDOW if FIRST_WINDOW in document["windows"] else ALL_TIME
    return ALL_TIME if given == "all" else given


def top(*, home: str | None = None, every: Secs = None) -> int:
    """Show all topologies live.

    Args:
        home: the directory in which topologies are registered (default: SPARKBOLT_HOME, or ~/.local/state/sparkbolt).
        every: the time between refreshes (default: 2s on a terminal, otherwise 5s).
    """
    operator = operator_of(home)

    def look() -> list[str]:
        entries = worth_showing(operator.topologies())
        trouble = [f"{operator.home.trouble}: this is the last known state"] if operator.home.trouble else []
        return trouble + (_top_lines(entries) if entries else [nothing_runs(operator, 0)])

    return again_and_again(look(), look, every)


def _top_lines(entries: list[TopologyEntry]) -> list[str]:
    now = now_ms()
    if sys.stdout.isatty():
        return [f"sparkbolt top  {time_text(now)[:19]}Z", *top_sheet(entries, now).lines(terminal_width())]
    return [top_line(entry, now) for entry in entries]


def again_and_again(
    first: list[str],
    look: Callable[[], list[str]],
    every_secs: float | None,
    *,
    headed: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Show the result of ``look`` repeatedly, until Ctrl-C.

    Args:
        first: its first result.
        look: returns the lines to show; an error of it is shown instead, and it is called again.
        every_secs: the time between two looks; None for the default.
        headed: whether plain output gets the time as a line above each picture.
        sleep: waits so many seconds.
    """
    try:
        if sys.stdout.isatty():
            _redrawn(first, look, every_secs or LIVE_EVERY_SECS, sleep)
        lines = first
        while True:
            show([time_text(now_ms()), *lines, ""] if headed else lines)
            sleep(every_secs or PLAIN_EVERY_SECS)
            lines = _looked(look)
    except KeyboardInterrupt:
        return EXIT_FINISHED


def _redrawn(
    first: list[str], look: Callable[[], list[str]], every_secs: float, sleep: Callable[[float], None]
) -> None:
    console = Console(highlight=False)
    with Live(Text("\n".join(first)), console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            sleep(every_secs)
            live.update(Text("\n".join(_looked(look))), refresh=True)


def _looked(look: Callable[[], list[str]]) -> list[str]:
    try:
        return look()
    except SparkboltError as error:
        return [f"{error}"]
