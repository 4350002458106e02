"""Decoding: what a message of a queue says.

Which question it answers: how do the bytes of a message become the values of a tuple?
Rule: a message that cannot be decoded is a ``ValueError`` that says why and shows its beginning; it concerns that
message alone.

Read before: ``core.model.components``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparkbolt.core.model import arguments
from sparkbolt.core.model.config import did_you_mean
from sparkbolt.errors import ConfigError

Decode = Callable[[bytes], Any]
SHOWN_BYTES = 80


def _text(body: bytes) -> str:
    return body.decode("utf-8")


NAMED: Mapping[str, Decode] = {"bytes": bytes, "text": _text, "json": json.loads}
"""The decoders that have a name."""


class Decoder:
    """Makes the values of stream ``default`` of a message's bytes.

    A decoded dict gives the values under the names of the fields, None where one is missing; a list or a tuple gives
    the values themselves; anything else is the value of the only field.

    >>> Decoder("json", ["id", "task"])(b'{"id": 7, "task": "count", "by": "ann"}')
    [7, 'count']
    >>> Decoder("text", ["line"])(b"to be")
    ['to be']
    """

    def __init__(self, value: str | Decode, outputs: Sequence[str]) -> None:
        """Check what was given.

        Args:
            value: ``"bytes"``, ``"text"`` (UTF-8), ``"json"``, or a function of the bytes; what it raises makes the
                message one that cannot be decoded.
            outputs: the names of the fields.

        Raises:
            ConfigError: ``value`` is neither, or ``outputs`` is not a list of names.
        """
        known = f"{', '.join(map(repr, NAMED))} or a function"
        if isinstance(value, str) and value not in NAMED:
            raise ConfigError(f"value={value!r}: expected {known}{did_you_mean(value, NAMED)}")
        self.value = value if isinstance(value, str) else arguments.function("value", value, known)
        self.fields = arguments.fields("outputs", outputs, "['id', 'task']")

    def __call__(self, body: bytes) -> list[Any]:
        """The values of one message.

        Raises:
            ValueError: it cannot be decoded, or does not fit the fields.
        """
        decode = self.value if callable(self.value) else NAMED[self.value]
        try:
            value = decode(body)
        except Exception as error:  # a user's function may raise anything
            raise ValueError(
                f"not {self._expected}: {type(error).__name__}: {error}: {body[:SHOWN_BYTES]!r}"
            ) from error
        if isinstance(value, Mapping):
            return [value.get(field) for field in self.fields]
        values = list(value) if isinstance(value, list | tuple) else [value]
        if len(values) != len(self.fields):
            raise ValueError(
                f"expected {len(self.fields)} value(s) for {self.fields}, got {len(values)}: {body[:SHOWN_BYTES]!r}"
            )
        return values

    @property
    def _expected(self) -> str:
        return "decodable" if callable(self.value) else self.value
