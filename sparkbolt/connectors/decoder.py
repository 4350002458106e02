"""Decoder: turns the bytes of a queue's message into values; a message that cannot be decoded fails alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sparkbolt.api.arguments import checked, field_names, function, verify
from sparkbolt.api.config import did_you_mean
from sparkbolt.api.named_fields import Fields
from sparkbolt.errors import ConfigError

Decode = Callable[[bytes], Any]
SHOWN_BYTES = 80


def _text(body: bytes) -> str:
    return body.decode("utf-8")


NAMED: Mapping[str, Decode] = {"bytes": bytes, "text": _text, "json": json.loads}
"""The decoders that can be chosen by name."""


class Decoder:
    """Decodes a message's bytes into the values of stream ``default``.

    From a decoded dict each field takes the value under its name, or None if it is missing. The items of a list or
    tuple are the values. Anything else is the value of the only field.

    >>> Decoder("json", ["id", "task"])(b'{"id": 7, "task": "count", "by": "ann"}')
    [7, 'count']
    >>> Decoder("text", ["line"])(b"to be")
    ['to be']
    """

    @checked
    def __init__(self, value: str | Decode, outputs: Fields) -> None:
        """Check and store the arguments.

        Args:
            value: ``"bytes"``, ``"text"`` (UTF-8), ``"json"``, or a function of the bytes. If the function raises,
                the message counts as one that cannot be decoded.
            outputs: The names of the fields.

        Raises:
            ConfigError: ``value`` is neither a known name nor a function, or ``outputs`` is not a list of names.
        """
        known = f"{', '.join(map(repr, NAMED))} or a function"
        if isinstance(value, str) and value not in NAMED:
            raise ConfigError(f"value={value!r}: expected {known}{did_you_mean(value, NAMED)}")
        self.value = value if isinstance(value, str) else verify("value", value, function(known))
        self.fields = field_names("outputs", outputs, "['id', 'task']")

    def __call__(self, body: bytes) -> list[Any]:
        """Return the values of one message.

        Raises:
            ValueError: The message cannot be decoded, or its values do not fit the fields.
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
