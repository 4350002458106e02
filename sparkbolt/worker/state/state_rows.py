"""State rows: what a task keeps as JSON, and keys as people write them.

Rule 1: a key is shown as it is written: the JSON of a key that a person types names that key.
Rule 2: whoever asks for a part gets a part: the functions here return the entries that are asked for, with values of at
most a given size, however much the task keeps.
"""

from __future__ import annotations

import difflib
import heapq
import itertools
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, NamedTuple

from sparkbolt.worker.state.task_view import TaskView

NEAREST_SEARCHED_MAX = 20_000
"""Among how many keys of a task similar ones are looked for."""
_MEANINGS_MAX = 16
"""How many keys one text may mean."""
_MISSING: Any = object()
_encoded = json.JSONEncoder(ensure_ascii=False).encode


class StateRow(NamedTuple):
    """A key with its value, or an attribute."""

    attribute: str | None
    """None: it is a key of the ``KeyValueState``."""
    key: str | None
    """JSON; None: it is an attribute."""
    value: str
    """JSON."""


def plain_json(value: Any) -> Any:
    """A value as JSON can have it: dates and times in ISO format, and what JSON does not know as its ``repr``.

    >>> plain_json({"a": (1, {2.5}), "b": b"x"}), plain_json({1: date(2026, 1, 2)})
    ({'a': [1, [2.5]], 'b': "b'x'"}, {'1': '2026-01-02'})
    """
    if value is None or type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value)):
        return value
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name if type(name) is str else repr(name): plain_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [plain_json(one) for one in value]
    return repr(value)


def json_text(value: Any) -> str:
    """The JSON of a value, as ``plain_json`` makes it; it is always text that UTF-8 can hold."""
    return str(value) if type(value) is int else _dumped(plain_json(value))


def _dumped(plain: Any) -> str:
    text = _encoded(plain)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(plain)
    return text


def keys_named(text: str) -> list[Any]:
    """The keys that a text can mean: it is JSON, where a list stands for a tuple; a text that is no JSON means itself.

    A text in ISO format, also one within a list, can mean a date or a time as well.

    >>> keys_named("be"), keys_named("7"), keys_named('"7"'), keys_named('["be", 7]')
    (['be'], [7], ['7'], [('be', 7)])
    >>> keys_named("2026-01-02"), keys_named('"2026-01-02"')
    (['2026-01-02', datetime.date(2026, 1, 2)], ['2026-01-02'])
    """
    try:
        read = json.loads(text, parse_constant=_no_constant)
        keys = [read] if isinstance(read, str) else list(itertools.islice(_meanings(read), _MEANINGS_MAX))
        hash(keys[0])
    except (ValueError, RecursionError, TypeError):  # no JSON, or a list with an object of JSON, which no key has
        return _meanings_of_text(text)
    return keys


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _meanings_of_text(text: str) -> list[Any]:
    for kind in (date, datetime):
        try:
            return [text, kind.fromisoformat(text)]
        except ValueError:
            continue
    return [text]


def _meanings(read: Any) -> Iterator[Any]:
    if isinstance(read, list):
        return itertools.product(*(list(itertools.islice(_meanings(one), _MEANINGS_MAX)) for one in read))
    return iter(_meanings_of_text(read) if isinstance(read, str) else [read])


def spelled(key: Any) -> str:
    """The text that names a key.

    >>> spelled("be"), spelled("7"), spelled(7), spelled(("be", 7))
    ('be', '"7"', '7', '["be", 7]')
    """
    return key if type(key) is str and keys_named(key)[0] == key else json_text(key)


def rows_of(view: TaskView) -> Iterator[StateRow]:
    """All attributes, and then all keys, in order."""
    for name, value in sorted(view.attributes().items()):
        yield StateRow(name, None, json_text(value))
    keys = view.keys()
    for key in sorted(keys, key=_order_of(keys)):
        yield StateRow(None, json_text(key), json_text(view.get(key)))


def _order_of(keys: Iterable[Any]) -> Callable[[Any], Any] | None:
    """By what keys are sorted; None: by themselves, which takes a tenth of the time."""
    return None if set(map(type, keys)) in ({str}, {int}) else _order


def _order(key: Any) -> tuple[int, float, str]:
    """Numbers first, by their value, then texts, then all others."""
    if type(key) in (int, float):
        return (0, key, "")
    return (1, 0, key) if type(key) is str else (2, 0, repr(key))


def sizes_of(view: TaskView) -> dict[str, Any]:
    """How much it keeps: fields of ``TaskStateDocument``."""
    attributes = sorted(view.attributes())
    return {"keys": len(view), "attributes": attributes, "bytes": view.bytes, "other_bytes": view.others()}


def first_of(view: TaskView, first: int, characters_max: int | None) -> dict[str, Any]:
    """The first ``entries``, and ``count``: how many it has."""
    attributes = sorted(view.attributes().items())
    every = view.keys()
    keys = heapq.nsmallest(max(0, first - len(attributes)), every, key=_order_of(every))
    entries = [_entry(name, None, value, characters_max) for name, value in attributes[:first]]
    entries += [_entry(None, key, view.get(key), characters_max) for key in keys]
    return {"entries": entries, "count": len(attributes) + len(view)}


def named_in(view: TaskView, text: str, characters_max: int | None) -> dict[str, Any]:
    """The ``entries`` of the keys that a text names; if there are none, the spellings of the ``nearest`` keys."""
    wanted = keys_named(text)
    found = [(key, value) for key in wanted if (value := view.get(key, _MISSING)) is not _MISSING]
    entries = [_entry(None, key, value, characters_max) for key, value in found]
    return {"entries": entries, "nearest": [] if entries else nearest_in(view, text)}


def nearest_in(view: TaskView, text: str) -> list[str]:
    """The spellings of the keys that are similar to a text: first those that differ in the kind alone, as 7 and "7"."""
    read = keys_named(text)[0]
    others = [text] if type(read) is not str else [key for key in keys_named(read) if type(key) is not str]
    alike = [spelled(key) for key in others if view.get(key, _MISSING) is not _MISSING]
    some = itertools.islice(view.keys(), NEAREST_SEARCHED_MAX)
    return alike or difflib.get_close_matches(text, [spelled(key) for key in some])


def _entry(attribute: str | None, key: Any, value: Any, characters_max: int | None) -> dict[str, Any]:
    """The fields of a ``StateEntry`` without its task."""
    shown_key, _ = _bounded(key, characters_max)
    shown, cut = _bounded(value, characters_max)
    return {"attribute": attribute, "key": shown_key, "value": shown, "cut": cut}


def _bounded(value: Any, characters_max: int | None) -> tuple[Any, bool]:
    plain = plain_json(value)
    if characters_max is None:
        return plain, False
    text = _dumped(plain)
    return (plain, False) if len(text) <= characters_max else (text[:characters_max], True)


def first_entries(by_task: Mapping[int, Mapping[str, Any]], first: int) -> list[dict[str, Any]]:
    """The first entries of all tasks: those of the first task, then those of the second, and so on.

    Args:
        by_task: by index of a task: what ``first_of`` or ``named_in`` returns for it.
        first: how many entries at most.
    """
    entries = ({"task": task, **one} for task, part in sorted(by_task.items()) for one in part["entries"])
    return list(itertools.islice(entries, first))


def likely(texts: Sequence[str]) -> str:
    """The end of a sentence that says which key may be meant; empty if there is none.

    >>> likely(["be"]), likely([])
    (": did you mean 'be'?", '')
    """
    return f": did you mean {texts[0]!r}?" if texts else ""
