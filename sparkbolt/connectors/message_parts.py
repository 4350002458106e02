"""Makes the parts of a message from a tuple, as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from sparkbolt.api.tuples import Tuple
from sparkbolt.connectors.json_values import json_of, refusal

Part: TypeAlias = str | Callable[[Tuple], Any] | None
"""A part of a message: the name of a field, or a function of the tuple."""


def part_of(part: Part, tup: Tuple) -> Any:
    """Return a part of a tuple's message; None if the message does not have it."""
    if part is None:
        return None
    return tup[part] if isinstance(part, str) else part(tup)


def encoded_part(part: Part, tup: Tuple) -> bytes | None:
    """Return a part of a tuple's message as bytes.

    Raises:
        TypeError: As of ``json_of``; the text names the field.
        ValueError: In the same way.
    """
    value = part_of(part, tup)
    try:
        return encoded(value)
    except (TypeError, ValueError) as error:
        raise refusal(part if isinstance(part, str) else None, error) from None


def encoded(value: Any) -> bytes | None:
    r"""Return a value as the bytes of a message: bytes as they are, a str in UTF-8, anything else as JSON.

    >>> encoded("né"), encoded({"n": 1}), encoded(None)
    (b'n\xc3\xa9', b'{"n":1}', None)
    """
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return json_of(value)
