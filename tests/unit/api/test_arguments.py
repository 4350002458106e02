"""What is given to the constructors of spouts and bolts: of a wrong type it is refused, by its name."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import NoneType, UnionType
from typing import Any

import pytest

from sparkbolt import windows
from sparkbolt.bolts import (
    DeltaBolt,
    JsonLinesBolt,
    KafkaBolt,
    Lookup,
    ParquetBolt,
    PrintBolt,
    RabbitMQBolt,
    SparkSink,
    SqlBolt,
)
from sparkbolt.errors import ConfigError
from sparkbolt.spouts import (
    GeneratorSpout,
    JsonLinesSpout,
    KafkaSpout,
    KestrelSpout,
    RabbitMQSpout,
    SocketSpout,
    TextSpout,
)
from sparkbolt.spouts.kafka import KafkaDeadLetters, ZooKeeperOffsets

AMQP = "amqp://localhost/"
GOOD: dict[type, dict[str, Any]] = {
    KafkaSpout: {"brokers": "b:9092", "topics": "t", "group": "g"},
    KafkaBolt: {"brokers": "b:9092", "topic": "t"},
    KafkaDeadLetters: {"brokers": "b:9092", "topic": "t"},
    ZooKeeperOffsets: {"hosts": "z:2181"},
    RabbitMQSpout: {"url": AMQP, "queue": "q"},
    RabbitMQBolt: {"url": AMQP, "routing_key": "q"},
    KestrelSpout: {"servers": "localhost", "queue": "q"},
    SocketSpout: {"host": "localhost", "port": 9999},
    TextSpout: {"paths": "a.txt"},
    JsonLinesSpout: {"paths": "a.jsonl", "outputs": ["a"]},
    GeneratorSpout: {"make": list, "outputs": ["a"]},
    JsonLinesBolt: {"path": "out"},
    ParquetBolt: {"path": "out"},
    PrintBolt: {},
    DeltaBolt: {"table": "out"},
    SparkSink: {"stream": "count", "function": print},
    SqlBolt: {"url": "sqlite:////tmp/none/x.db", "table": "t"},
    Lookup: {"fetch": dict},
    windows.CountEvictionPolicy: {"threshold": 3},
    windows.TimeEvictionPolicy: {"length_ms": 3},
    windows.WatermarkCountEvictionPolicy: {"threshold": 3},
    windows.WatermarkTimeEvictionPolicy: {"length_ms": 3},
    windows.CountTriggerPolicy: {"count": 3},
    windows.TimeTriggerPolicy: {"interval_ms": 3},
    windows.WatermarkCountTriggerPolicy: {"count": 3},
    windows.WatermarkTimeTriggerPolicy: {"interval_ms": 3},
}


async def soon(*arguments: object) -> None:
    """A coroutine function, which nobody awaits."""


ODD = (None, True, 0, -1, 2.5, "", b"x", [], {5: 5}, soon)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type as it is annotated; what is not understood may be anything."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, UnionType):
        return any(fits(value, one) for one in inner)
    if origin is typing.Literal:
        return value in inner
    if hint in (None, NoneType):
        return value is None
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    if hint is str:
        return isinstance(value, str)
    if hint is bool:
        return isinstance(value, bool)
    if origin is re.Pattern:
        return isinstance(value, re.Pattern)
    if hint in (Path, datetime):
        return isinstance(value, hint)
    if origin is Callable:
        return callable(value) and value is not soon
    if origin in (Sequence, Iterable):
        several = isinstance(value, origin) and not isinstance(value, str | bytes)
        return several and all(fits(one, inner[0]) for one in value)
    if origin is Mapping:
        return isinstance(value, Mapping) and all(fits(key, inner[0]) for key in value)
    return True


CASES = [
    pytest.param(kind, name, hint, id=f"{kind.__name__}-{name}")
    for kind in GOOD
    for name, hint in typing.get_type_hints(kind.__init__).items()
    if name != "return"
]


@pytest.mark.parametrize(("kind", "name", "hint"), CASES)
def test_argument_of_a_wrong_type_is_refused_by_name(kind: type, name: str, hint: Any) -> None:
    for odd in ODD:
        refused = None
        try:
            kind(**{**GOOD[kind], name: odd})
        except ConfigError as error:
            refused = str(error)
        if refused is None:
            assert fits(odd, hint), f"{name}={odd!r} was taken, which is no {hint}"
        else:
            assert name in refused or name.rstrip("s") in refused, f"{odd!r}: {refused}"


@pytest.mark.parametrize("kind", GOOD)
def test_every_argument_is_covered_by_this_test(kind: type) -> None:
    assert set(GOOD[kind]) <= set(inspect.signature(kind).parameters)
    kind(**GOOD[kind])
