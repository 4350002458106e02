"""Converts values of tuples to JSON for every sink that writes it.

A value that JSON cannot hold without loss raises a ``TypeError`` or ``ValueError`` that names its field and what to
emit instead.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any

import numpy as np

_PLAIN = frozenset({str, int, float, bool, type(None), bytes, dt.datetime, dt.date})
"""Types of values with no keys in them."""


def json_of(value: Any) -> bytes:
    """Encode a value as JSON in UTF-8.

    Bytes become base64, dates and times (NumPy's and pandas' too) ISO 8601, a ``Decimal`` and a ``UUID`` their text,
    numpy numbers numbers, and a value with ``keys``, such as a ``LateTuple``, an object.

    Raises:
        TypeError: JSON has no type for a value, or two keys of an object would be the same text. If ``value`` is a
            dict, the text names the key at fault.
        ValueError: a number is NaN or an infinity, or a text is not valid Unicode; named in the same way.

    >>> json_of({"at": np.datetime64("2024-02-29T12:00:00.000000000"), "name": "né"}).decode()
    '{"at":"2024-02-29T12:00:00","name":"né"}'
    """
    try:
        return _json_of(value)
    except (TypeError, ValueError) as error:
        raise refusal(*_at_fault(value, error)) from None


def refusal(name: str | None, error: Exception) -> Exception:
    """Return the exception for a value that cannot be encoded: it names the field, if there is one, and the mend."""
    kind = ValueError if isinstance(error, ValueError) else TypeError
    return kind(_text_of(error) if name is None else f"field {name!r:.80}: {_text_of(error)}")


def _json_of(value: Any) -> bytes:
    check_keys(value)
    return _encode(value).encode()


def _at_fault(value: Any, error: Exception) -> tuple[str | None, Exception]:
    """Return the field that cannot be encoded, and its error; None and the error itself if ``value`` has no fields."""
    for name, item in value.items() if isinstance(value, dict) else ():
        try:
            _json_of(item)
        except (TypeError, ValueError) as of_field:
            return str(name), of_field
    return None, error


def _text_of(error: Exception) -> str:
    """Return the text of an error, with what to emit instead."""
    if isinstance(error, UnicodeEncodeError):
        return (
            f"{error.object!r:.80} is not valid Unicode, because of {error.object[error.start]!r}: emit bytes instead"
        )
    text = str(error)
    if text.startswith("Out of range float"):
        return _NO_NUMBER
    return f"{text}: emit a dict whose keys are all str" if text.startswith("keys must be") else text


_NO_NUMBER = "JSON has no NaN and no infinity: emit None instead"


def _other(value: Any) -> Any:
    """Convert a value that JSON has no type for."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    converted = _python(value) if isinstance(value, np.generic) else value
    if isinstance(converted, dt.datetime | dt.date | dt.time) and converted == converted:  # NaT equals nothing
        return converted.isoformat()
    if isinstance(converted, bool | int | float):
        return converted
    if isinstance(converted, Decimal) and not converted.is_finite():
        raise ValueError(_NO_NUMBER)
    if isinstance(converted, Decimal | uuid.UUID):
        return str(converted)
    if hasattr(value, "keys"):
        converted = dict(value)
        check_keys(converted)
        return converted
    raise TypeError(
        f"JSON cannot hold {value!r:.80} of type {type(value).__name__}: "
        "emit a str, a number, a list or a dict of those"
    )


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_other).encode


def _python(value: np.generic) -> Any:
    """Return a value of NumPy as one of Python; a time without a type in Python is unchanged."""
    item = value.item()
    if not isinstance(value, np.datetime64 | np.timedelta64) or not isinstance(item, int):
        return item
    if isinstance(value, np.timedelta64):
        return value
    whole = value.astype("datetime64[us]")
    return whole.item() if whole.astype(value.dtype) == value else value


def check_keys(value: Any) -> None:
    """Refuse a value that holds a dict with keys that JSON writes as the same text, such as 1 and "1".

    Raises:
        TypeError: it does.
    """
    if isinstance(value, dict):
        if any(type(key) is not str for key in value):
            _check_texts(value)
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for item in value:
        if type(item) not in _PLAIN:
            check_keys(item)


def _check_texts(keys: dict[Any, Any]) -> None:
    seen: dict[str, Any] = {}
    for key in keys:
        text = key if isinstance(key, str) else _encode(key)
        if text in seen:
            raise TypeError(
                f"JSON cannot hold {seen[text]!r:.80} and {key!r:.80} as keys of one object, since both are written as "
                f"{text!r:.80}: emit a dict whose keys are all str"
            )
        seen[text] = key
