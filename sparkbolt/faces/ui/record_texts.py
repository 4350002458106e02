"""Record texts: the values of messages as people read and type them, by field; texts are shown without quotes."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any

from sparkbolt.control.documents import StateEntry
from sparkbolt.faces.ui.answers import readable

VALUE_CHARACTERS_MAX = 160
"""A longer value is cut in a list."""

Pairs = list[tuple[str, str]]
"""(field, text) of a record; the field is empty if it is unknown, or the record has only one."""


def value_text(value: Any) -> str:
    """A value of a letter as a person types it: a text as it is, another value as JSON.

    >>> value_text("a"), value_text(None), value_text({"$bytes": "YQ=="})
    ('a', 'null', '{"$bytes": "YQ=="}')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def entry_key(entry: StateEntry) -> str:
    """The key of an entry of state, as a person types it to look it up."""
    return cut_text(readable(json.dumps(entry["key"], ensure_ascii=False)))


def entry_value(entry: StateEntry) -> str:
    """The value of an entry of state as JSON; a value that is cut has dots at its end."""
    if entry["cut"]:
        return readable(f"{entry['value']}\N{HORIZONTAL ELLIPSIS}")
    return readable(json.dumps(entry["value"], ensure_ascii=False))


def brief_value(entry: StateEntry) -> str:
    """The same, as short as a list shows it."""
    return cut_text(entry_value(entry))


def value_typed(text: str, before: Any) -> Any:
    """The value that a person typed in the place of ``before``; browsers send the ends of lines as ``CR LF``.

    Raises:
        ValueError: the place is not that of a text, and ``text`` is not JSON.

    >>> value_typed("7", "a"), value_typed("7", 6), value_typed('"a"', None)
    ('7', 7, 'a')
    """
    if not isinstance(before, str):
        return json.loads(text)
    unix = text.replace("\r\n", "\n")
    return before if unix == before.replace("\r\n", "\n") else unix


def pairs_of(values: Mapping[str, Any]) -> Pairs:
    """The fields of a record.

    >>> pairs_of({"customer": "c-1", "sku": None}), pairs_of({"line": "GET /"})
    ([('customer', 'c-1'), ('sku', 'null')], [('', 'GET /')])
    """
    found = [(name, cut_text(value_text(value))) for name, value in values.items()]
    return [("", found[0][1])] if len(found) == 1 else found


def pairs_in(values: str) -> Pairs:
    """The fields of a hop's ``values``, which are a dict of Python; one text if they are cut, or no dict of literals.

    >>> pairs_in("{'customer': 'c-1', 'n': 2}"), pairs_in("{'at': datetime(2026, 1, 1)}"), pairs_in("")
    ([('customer', 'c-1'), ('n', '2')], [('', "{'at': datetime(2026, 1, 1)}")], [])
    """
    try:
        found = ast.literal_eval(values)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        found = None
    if not isinstance(found, dict):
        return [("", values)] if values else []
    return pairs_of({str(name): value if isinstance(value, str) else repr(value) for name, value in found.items()})


def pairs_of_story(story: Mapping[str, Any]) -> Pairs:
    """The record of a tree: of the hop that failed or holds it, otherwise of the first one that is recorded."""
    hops = [hop for hop in story["hops"] if hop.get("values")]
    found = [hop for hop in hops if hop.get("failed")] or [hop for hop in hops[::-1] if hop.get("held")] or hops
    return pairs_in(found[0]["values"]) if found else []


def cut_text(text: str) -> str:
    """A text, cut at the end if it is too long for a list."""
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[: VALUE_CHARACTERS_MAX - 1]}\N{HORIZONTAL ELLIPSIS}"
