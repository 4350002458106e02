"""Shown values: shortens values for people, such that the part that an error mentions stays.

Rule 1: a text is cut at its ends only. If an error quotes a part of it, the text around that part stays.
Rule 2: a field that an error names, by its name or by its value, is the last one to be shortened.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from sparkbolt.base.exceptions import pass_on

FIELD_CHARACTERS_MAX = 60
"""How much of a field is shown beside many others."""
GAP_CHARACTERS = 20
"""The room for the name of a field and what surrounds it."""
NAMED_CHARACTERS_MAX = 800
"""The same for the fields that an error names, all together."""
_ADDRESS = re.compile(" at 0x[0-9a-f]+")
_QUOTED = re.compile(r"'([^'\n]{2,})'|\"([^\"\n]{2,})\"")
_WHOLE = reprlib.Repr()
_WHOLE.maxother = _WHOLE.maxstring = _WHOLE.maxlong = NAMED_CHARACTERS_MAX
_WHOLE.maxlist = _WHOLE.maxtuple = _WHOLE.maxset = _WHOLE.maxdict = 50


def cut(text: str, limit: int, at: int = 0) -> str:
    """Return at most ``limit`` characters of a text, with dots at each end where something is missing.

    Args:
        text: what is cut.
        limit: the number of characters, without the dots.
        at: a position whose surroundings stay.

    >>> cut("abcdefghij", 4), cut("abcdefghij", 4, at=6), cut("abcdefghij", 4, at=9), cut("abc", 4)
    ('abcd...', '...efgh...', '...ghij', 'abc')
    """
    start = max(0, min(at - limit // 2, len(text) - limit))
    return f"{'...' if start else ''}{text[start : start + limit]}{'...' if start + limit < len(text) else ''}"


class Mention:
    """Which fields an error names."""

    def __init__(self, why: str) -> None:
        """Store what the error says, perhaps with the line of code that raised it; "" names nothing."""
        self._why = why
        self._quoted = [one or other for one, other in _QUOTED.findall(why)]

    def names(self, field: str, value: Any) -> bool:
        """Whether the error names a field, by its name or by its value or a part of it.

        >>> one = Mention("ValueError: could not convert string to float: '12,50'")
        >>> one.names("price", "12,50"), one.names("line", "id=4 price=12,50"), one.names("size", "12")
        (True, True, False)
        >>> Mention("price is missing").names("price", None), Mention("prices").names("price", None)
        (True, False)
        """
        if not self._why:
            return False
        if re.search(rf"(?<!\w){re.escape(field)}(?!\w)", self._why):
            return True
        if type(value) is str and self.place(value) is not None:
            return True
        text = str(value) if type(value) in (str, int, float, Decimal) else ""
        return len(text) > 2 and text in self._why

    def place(self, text: str) -> int | None:
        """Where in a text the longest part is that the error quotes; None if it quotes no part."""
        parts = [part for part in self._quoted if part in text]
        part = max(parts, key=len, default=None)
        return text.index(part) + len(part) // 2 if part is not None else None


def value_text(value: Any, limit: int, mention: Mention) -> str:
    """Return the ``repr`` of a value, cut at its ends to about ``limit`` characters, and without addresses.

    A dict with names as keys is shortened as the fields of a tuple are. If the ``repr`` raises, that is described.

    >>> value_text("GET /cart?size=XXL HTTP/1.1", 12, Mention("no such size: 'XXL'"))
    "...'size=XXL HTT'..."
    """
    if type(value) in (str, bytes):
        at = mention.place(value) if isinstance(value, str) else None
        return _repr_around(value, limit, at or 0)
    if type(value) is dict and all(type(name) is str for name in value) and len(value) <= _WHOLE.maxdict:
        return fields_text(list(value), value.values(), limit, mention)
    try:
        text = _WHOLE.repr(value)
    except BaseException as error:  # noqa: BLE001  user code may raise anything
        pass_on(error)
        return f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return cut(_ADDRESS.sub("", text), limit)


def _repr_around(value: str | bytes, limit: int, at: int) -> str:
    """The ``repr`` of the part around a position, with dots outside the quotes where something is missing."""
    start = max(0, min(at - limit // 2, len(value) - limit))
    part = value[start : start + limit]
    text = repr(part)
    if len(text) > 2 * limit:  # most of it is escaped
        part = part[: limit * len(part) // len(text)]
        text = repr(part)
    return f"{'...' if start else ''}{text}{'...' if start + len(part) < len(value) else ''}"


def fields_text(fields: Sequence[str], values: Iterable[Any], limit: int, mention: Mention) -> str:
    """Return values by field as text: in at most ``limit`` characters those that the error does not name.

    Fields that do not fit are left out. Those that the error names stay, in ``NAMED_CHARACTERS_MAX`` characters.

    >>> fields_text(["id", "note", "price"], [7, "a" * 99, "12,50"], 20, Mention("bad price"))
    "{'id': 7, ..., 'price': '12,50'}"
    """
    pairs = list(zip(fields, values, strict=False))
    named = [mention.names(name, value) for name, value in pairs]
    named_max = NAMED_CHARACTERS_MAX // max(1, sum(named))
    others_max = max(FIELD_CHARACTERS_MAX, limit // max(1, len(pairs)) - GAP_CHARACTERS)
    parts: list[str] = []
    room = limit - len("{..., }")
    for (name, value), stays in zip(pairs, named, strict=True):
        characters = named_max if stays else min(others_max, max(1, room - len(name) - GAP_CHARACTERS))
        text = f"{name!r}: {value_text(value, characters, mention)}"
        cost = 0 if stays else len(text) + len(", ") + (len("..., ") if parts[-1:] == ["..."] else 0)
        if cost > room:
            parts += ["..."] if parts[-1:] != ["..."] else []
            continue
        room -= cost
        parts.append(text)
    return f"{{{', '.join(parts)}}}"
