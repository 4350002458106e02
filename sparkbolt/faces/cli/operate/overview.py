"""``sparkbolt list``, and the table of ``sparkbolt top``.

A topology that has ended is shown only if it failed or died and was not started again, or if the user asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparkbolt.api.story import time_text
from sparkbolt.control.documents import TopologyEntry, TopologyState
from sparkbolt.control.home import standing
from sparkbolt.control.lags import lags_text
from sparkbolt.faces.cli.tables import Cell, Sheet
from sparkbolt.faces.cli.texts import ago_text, plain, sentence, wrapped

INDENT = "    "
_TITLES = ("name", "state", "since", "batches", "trees/s", "lag", "open", "errors")
_DROPPABLE = ("lag", "open", "trees/s", "errors", "batches")
_TOP_TITLES = ("name", "state", "since", "trees/s", "lag", "open", "acked", "failed attempts", "errors", "retries")
_TOP_DROPPABLE = ("lag", "open", "trees/s", "failed attempts", "acked", "errors", "retries")
NEEDS_A_LOOK = (TopologyState.DEAD, TopologyState.FAILED)


def worth_showing(entries: Iterable[TopologyEntry]) -> list[TopologyEntry]:
    """The running ones, and of each other name the run that stands for it, if it failed or died."""
    known = list(entries)
    by_name: dict[str, list[TopologyEntry]] = {}
    for entry in known:
        by_name.setdefault(entry["name"], []).append(entry)
    meant = {name: standing(named)["id"] for name, named in by_name.items()}
    return [
        entry
        for entry in known
        if runs(entry) or (entry["state"] in NEEDS_A_LOOK and meant[entry["name"]] == entry["id"])
    ]


def runs(entry: TopologyEntry) -> bool:
    """Whether a process works on it."""
    return TopologyState.of(entry["state"]).runs


def list_lines(entries: Sequence[TopologyEntry], now_ms: int, width: int) -> list[str]:
    """The lines of ``sparkbolt list``: a row for each topology, and below it its place and its verdict."""
    doubled = _names_that_are_doubled(entries)
    rows: list[tuple[Cell, ...]] = []
    for entry in entries:
        gist = entry["gist"]
        counts = (gist["micro_batches"], round(gist["rate"])), (gist["open_trees"], gist["errors"])
        numbers = (*map(_cell, counts[0]), lags_text(gist["lags"]), *map(_cell, counts[1]))
        rows.append((plain(entry["name"]), entry["state"], _since(entry, now_ms), *numbers))
    header, *lines = Sheet(_TITLES, tuple(rows), _DROPPABLE, right=("lag",)).lines(width)
    found = [header]
    for entry, line in zip(entries, lines, strict=True):
        found.append(line)
        places = [f"id {plain(entry['id'])}", *_places(entry)] if entry["name"] in doubled else _places(entry)
        found += [f"{INDENT}{part}" for part in wrapped(places, width - len(INDENT), ", ")]
        if entry["checkpoint"] is not None:
            found.append(plain(f"{INDENT}checkpoint {entry['checkpoint']}"))
        found += [f"{INDENT}{part}" for part in sentence(entry["verdict"]["text"], width - len(INDENT))]
    return found


def _since(entry: TopologyEntry, now_ms: int) -> str:
    if entry["ended_ms"] is not None and not runs(entry):
        return f"{ago_text(entry['ended_ms'], now_ms)} ago"
    return ago_text(entry["started_ms"], now_ms)


def _names_that_are_doubled(entries: Iterable[TopologyEntry]) -> set[str]:
    """Ambiguous names: more than one topology of that name is shown."""
    names = [entry["name"] for entry in entries]
    return {name for name in names if names.count(name) > 1}


def _places(entry: TopologyEntry) -> list[str]:
    process = f"pid {entry['pid']} on {entry['host']}"
    parts = [process if runs(entry) else f"{entry['host']}, {time_text(entry['started_ms'])[:16]}Z"]
    if entry["exit_code"] is not None:
        parts.append(f"exit code {entry['exit_code']}")
    if entry["checkpoint"] is None:
        parts.append("no checkpoint")
    if entry["spark_ui"] and runs(entry):
        parts.append(f"Spark {entry['spark_ui']}")
    return [plain(part) for part in parts]


def _cell(number: float | None) -> Cell:
    return None if number is None else float(number)


def top_sheet(entries: Sequence[TopologyEntry], now_ms: int) -> Sheet:
    """The table of ``sparkbolt top``."""
    doubled = _names_that_are_doubled(entries)
    rows: list[tuple[Cell, ...]] = []
    for entry in entries:
        gist = entry["gist"]
        counts = (gist["open_trees"], gist["acked"], gist["failed"], gist["errors"], gist["retries"])
        name = entry["id"] if entry["name"] in doubled else entry["name"]
        numbers = (_cell(gist["rate"]), lags_text(gist["lags"]), *map(_cell, counts))
        rows.append((plain(name), entry["state"], _since(entry, now_ms), *numbers))
    return Sheet(_TOP_TITLES, tuple(rows), _TOP_DROPPABLE, right=("lag",))


def top_line(entry: TopologyEntry, now_ms: int) -> str:
    """One topology as a plain line, for output that is not a terminal."""
    gist = entry["gist"]
    lag = lags_text(gist["lags"]) or "unknown"
    return (
        f"{time_text(now_ms)}  {plain(entry['id'])}  {entry['state']}  {gist['rate']:,.0f} trees/s  "
        f"lag {lag}  open {gist['open_trees']:,}  acked {gist['acked']:,}  failed attempts {gist['failed']:,}  "
        f"errors {gist['errors']:,}  retries {gist['retries']:,}"
    )
