"""Log tail: the newest lines of a topology's log files.

Which question it answers: what was logged last, by which component?
Rule 1: only the end of a file is read, ``TAIL_BYTES_MAX`` at most of all files together, however large they are.
Rule 2: a line is a JSON object with ``text``, or plain text; a line that is neither whole nor valid is shown as it is.

Read before: nothing.
"""

from __future__ import annotations

import json
import os
from typing import Any

TAIL_BYTES_MAX = 8 << 20
FILES_MAX = 50
LINE_CHARACTERS_MAX = 10_000
_FIELDS = ("time_ms", "level", "component", "task", "micro_batch", "root", "text")


def tail(directory: str, *, component: str | None = None, search: str = "", last: int = 200) -> list[dict[str, Any]]:
    """The newest lines, the newest last; see ``Operator.log``."""
    found: list[dict[str, Any]] = []
    left = TAIL_BYTES_MAX
    for path in _newest_files(directory):
        lines = _end_of(path, left)
        left -= sum(map(len, lines))
        fitting = (entry for entry in map(entry_of, lines) if _matches(entry, component, search))
        found = [*fitting, *found]
        if left <= 0:
            break
    if all(isinstance(entry["time_ms"], int | float) for entry in found):
        found.sort(key=lambda entry: entry["time_ms"])
    return found[-last:] if last > 0 else []


def _newest_files(directory: str) -> list[str]:
    """The files of a folder that may be logs, the newest first."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                compressed = entry.name.endswith((".gz", ".zip", ".xz", ".tmp"))
                if entry.is_file() and not entry.name.startswith(".") and not compressed:
                    found.append((entry.stat().st_mtime, entry.path))
    except OSError:
        return []
    return [path for _, path in sorted(found, reverse=True)[:FILES_MAX]]


def _end_of(path: str, most: int) -> list[bytes]:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            data = file.read(most)
    except OSError:
        return []
    if size > most:  # the first line is not whole
        data = data.partition(b"\n")[2]
    return data.splitlines()


def entry_of(line: bytes) -> dict[str, Any]:
    """A line of a log as an object with all fields; those that are unknown are None.

    >>> entry_of(b'{"time_ms": 5, "level": "INFO", "text": "up"}')["level"], entry_of(b"Killed")["text"]
    ('INFO', 'Killed')
    """
    text = line.decode(errors="replace")[:LINE_CHARACTERS_MAX]
    try:
        body = json.loads(line) if line.startswith(b"{") else None
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        return {name: text if name == "text" else None for name in _FIELDS}
    return {name: body.get(name) for name in _FIELDS} | {"text": str(body.get("text", text))}


def _matches(entry: dict[str, Any], component: str | None, search: str) -> bool:
    if component is not None and entry["component"] != component:
        return False
    return not search or any(search.lower() in str(value).lower() for value in entry.values() if value is not None)
