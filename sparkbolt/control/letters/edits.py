"""Edits: changes of a dead letter's record before a replay.

An edit changes a field of the letter's only tuple and, if the letter has its original message, that message too: as a
whole (``$value``), if the field is the message's text, or if the message is a JSON object that has the field with the
same value. Any other edit is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.dead_letters import DeadLetter, RawMessage, restored
from sparkbolt.errors import WrongUseError

RAW_VALUE, RAW_KEY = "$value", "$key"
"""Names in ``values`` that mean the original message's value and key, as text."""


def edited(letter: DeadLetter, values: Mapping[str, Any]) -> DeadLetter:
    """A letter in which fields have other values.

    Args:
        letter: the letter.
        values: by field, in the form of ``DeadLetter.to_json``; ``$value`` and ``$key`` are the original message's.

    Raises:
        WrongUseError: the letter has no such field, or the edit of its message is ambiguous.
    """
    raw = letter.raw
    fields = {name: restored(value) for name, value in values.items() if name not in (RAW_VALUE, RAW_KEY)}
    for name in (RAW_VALUE, RAW_KEY):
        if name in values:
            raw = _with_raw(letter, raw, name, values[name])
    if not fields:
        return replace(letter, raw=raw)
    for name in fields:
        if name not in letter.fields:
            hint = did_you_mean(name, letter.fields) or f": its fields are {', '.join(letter.fields) or 'not known'}"
            raise WrongUseError(f"dead letter {letter.id} has no field {name!r}{hint}")
    if len(letter.tuples) != 1:
        raise WrongUseError(
            f"dead letter {letter.id} has {len(letter.tuples)} tuples; you can edit fields only in a letter "
            "with one tuple" + (f"; edit its message ({RAW_VALUE}) instead" if raw is not None else "")
        )
    before = letter.values()[0]
    if raw is not None and RAW_VALUE not in values:
        for name, value in fields.items():
            raw = _with_field(letter, raw, name, before[name], value)
    return replace(letter, raw=raw, tuples=(tuple({**before, **fields}.values()),), note=letter.note)


def _with_raw(letter: DeadLetter, raw: RawMessage | None, name: str, value: object) -> RawMessage:
    if raw is None:
        raise WrongUseError(f"dead letter {letter.id} has no original message: edit its fields instead")
    if value is not None and not isinstance(value, str | bytes):
        raise WrongUseError(f"{name} of a message must be text, got {type(value).__name__}")
    data = value.encode() if isinstance(value, str) else value
    return replace(raw, value=data) if name == RAW_VALUE else replace(raw, key=data)


def _with_field(letter: DeadLetter, raw: RawMessage, name: str, before: Any, value: Any) -> RawMessage:
    """The original message in which a field has another value."""
    if before == value:
        return raw
    if isinstance(value, str):
        if raw.value is not None and _text(raw.value) == before and (name == "value" or _text(raw.key) != before):
            return replace(raw, value=value.encode())
        if name == "key" and raw.key is not None and _text(raw.key) == before:
            return replace(raw, key=value.encode())
    try:
        body = json.loads(raw.value or b"")
    except ValueError:
        body = None
    if isinstance(body, dict) and name in body and body[name] == before:
        return replace(raw, value=json.dumps({**body, name: value}, ensure_ascii=False).encode())
    raise WrongUseError(
        f"field {name!r} of dead letter {letter.id} cannot be changed, because its message is not a JSON object "
        f"with that field: edit the message ({RAW_VALUE})"
    )


def _text(data: bytes | None) -> str | None:
    try:
        return data.decode() if data is not None else None
    except UnicodeDecodeError:
        return None
