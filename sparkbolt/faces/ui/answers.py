"""Answers: JSON that every reader can parse, whatever users put into their tuples.

NaN and infinities become null, and lone surrogates, as in file names that are not UTF-8, stay escaped.
"""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import JSONResponse


class JsonAnswer(JSONResponse):
    """As ``JSONResponse``, of any value that Python can write as JSON."""

    def render(self, content: Any) -> bytes:
        """The body."""
        try:
            text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        except ValueError:
            text = json.dumps(finite(content), separators=(",", ":"), allow_nan=False)
        return text.encode("ascii")


def finite(value: Any) -> Any:
    """A value of JSON without the numbers that JSON has not.

    >>> finite({"a": [1.5, float("nan")]})
    {'a': [1.5, None]}
    """
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def readable(text: str) -> str:
    r"""A text that UTF-8 can encode: anything that is not a character becomes a question mark.

    >>> readable("a\udce4b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode()
