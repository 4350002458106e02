"""Arguments of a Kafka spout: checks them.

Which question it answers: is an argument valid, and what does it mean?
Rule: an invalid argument is refused when the spout is created, with the argument's name.

Read before: ``sources``, ``executor.decoding``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from sparkbolt.core.model import arguments
from sparkbolt.errors import ConfigError
from sparkbolt.spouts.kafka.driver.cluster import Topics
from sparkbolt.spouts.kafka.executor.decoding import DEFAULT_FIELDS, Translator
from sparkbolt.spouts.kafka.sources import is_topic


def topics_of(topics: Any) -> Topics:
    """Return the topics that ``topics`` names.

    Raises:
        ConfigError: It names no topic, or an invalid one.
    """
    if isinstance(topics, re.Pattern):
        return topics
    names = (topics,) if isinstance(topics, str) or not isinstance(topics, Iterable) else tuple(topics)
    if not names or not all(is_topic(name) for name in names):
        raise ConfigError(
            f"topics={topics!r}: expected the name of a topic, a list of names, or a compiled pattern for whole names"
        )
    return tuple(dict.fromkeys(names))


def fields_of(outputs: Any, translate: Translator | None) -> list[str]:
    """Return the fields that ``outputs`` declares.

    Raises:
        ConfigError: ``outputs`` is not a list of names, or is missing although ``translate`` is given.
    """
    if outputs is None:
        if translate is not None:
            raise ConfigError("translate= needs outputs=, the fields of the tuples that it makes")
        return list(DEFAULT_FIELDS)
    return arguments.fields("outputs", outputs)
