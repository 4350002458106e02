"""What may be given to a Kafka spout.

Which question it answers: is an argument one that can be meant, and what is it then?
Rule: what cannot be meant is refused where the spout is made, by the name of the argument.

Read before: ``sources``, ``decoding``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sparkbolt.core.tuples import DEFAULT_STREAM, parse_outputs
from sparkbolt.errors import ConfigError
from sparkbolt.spouts.kafka.cluster import Topics
from sparkbolt.spouts.kafka.decoding import DEFAULT_FIELDS, Translator
from sparkbolt.spouts.kafka.sources import is_topic


def topics_of(topics: Any) -> Topics:
    """The topics that ``topics`` names.

    Raises:
        ConfigError: it names none.
    """
    if isinstance(topics, re.Pattern):
        return topics
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names or not all(isinstance(name, str) and is_topic(name) for name in names):
        raise ConfigError(
            f"topics={topics!r}: expected the name of a topic, a list of names, or a compiled pattern for whole names"
        )
    return tuple(dict.fromkeys(names))


def fields_of(outputs: Any, translate: Translator | None) -> list[str]:
    """The fields that ``outputs`` declares.

    Raises:
        ConfigError: they are not those of one stream, or a translator has none.
    """
    if outputs is None:
        if translate is not None:
            raise ConfigError("translate= needs outputs=, the fields of the tuples that it makes")
        return list(DEFAULT_FIELDS)
    try:
        streams = parse_outputs(outputs)
    except ValueError as error:
        raise ConfigError(f"outputs={outputs!r}: {error}") from None
    if len(streams) != 1 or streams[0].name != DEFAULT_STREAM or not streams[0].fields:
        raise ConfigError(f"outputs={outputs!r}: expected a list of field names, such as ['customer', 'amount']")
    return list(streams[0].fields)


def one_of(what: str, value: Any, choices: Sequence[str]) -> Any:
    """The value, if it is one of the choices.

    Raises:
        ConfigError: it is not; ``what`` names the argument.
    """
    if value not in choices:
        raise ConfigError(f"{what}={value!r}: expected {' or '.join(map(repr, choices))}")
    return value


def whole(what: str, value: Any) -> Any:
    """The value, if it is a whole number above 0 or None.

    Raises:
        ConfigError: it is neither.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value <= 0):
        raise ConfigError(f"{what}={value!r}: expected a whole number above 0, or None")
    return value


def positive(what: str, value: Any) -> Any:
    """The value, if it is a number above 0 or None.

    Raises:
        ConfigError: it is neither.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0):
        raise ConfigError(f"{what}={value!r}: expected a number above 0, or None")
    return value
