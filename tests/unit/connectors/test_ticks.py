"""Tick tuples are for your bolts: no bolt that ships gets them."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparkbolt.bolts
from sparkbolt import BasicBolt, Config, TopologyBuilder, bolt
from sparkbolt.api.components import BoltBase
from sparkbolt.api.tuples import tick
from sparkbolt.bolts import (
    DeltaBolt,
    IcebergBolt,
    JsonLinesBolt,
    KafkaBolt,
    ParquetBolt,
    PrintBolt,
    RabbitMQBolt,
    SparkSink,
    SqlBolt,
)
from sparkbolt.errors import UnknownNameError
from sparkbolt.spouts import GeneratorSpout
from sparkbolt.testing import TopologyTestDriver

SHIPPED: dict[type, Callable[[Path], Any]] = {
    DeltaBolt: lambda path: DeltaBolt(path / "table"),
    IcebergBolt: lambda path: IcebergBolt("shop.orders"),
    JsonLinesBolt: JsonLinesBolt,
    KafkaBolt: lambda path: KafkaBolt("localhost:9092", topic="words"),
    ParquetBolt: ParquetBolt,
    PrintBolt: lambda path: PrintBolt(),
    RabbitMQBolt: lambda path: RabbitMQBolt("amqp://localhost", routing_key="words"),
    SparkSink: lambda path: SparkSink("words", print),
    SqlBolt: lambda path: SqlBolt(f"sqlite:///{path}/words.db", "words"),
}


class Mine(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        assert tup.is_tick or tup["word"] == "be"


def executed(bolt: Any) -> int:
    """How many tuples a bolt gets in ten seconds with one word and a tick every second."""
    builder = TopologyBuilder("ticks", Config(tick_tuple_freq_secs=1))
    builder.set_spout("words", GeneratorSpout(list, outputs=["word"]))
    declarer = builder.set_bolt("out", bolt)
    if not isinstance(bolt, SparkSink):
        declarer.shuffle_grouping("words")
    with TopologyTestDriver(builder.build()) as driver:
        driver.feed("words", {"word": "be"})
        driver.advance(dt.timedelta(seconds=10))
        return driver.executed("out")


@pytest.mark.parametrize("kind", SHIPPED)
def test_a_built_in_bolt_gets_no_ticks(kind: type, tmp_path: Path) -> None:
    assert executed(SHIPPED[kind](tmp_path)) == 1


def test_every_shipped_bolt_is_tested() -> None:
    exported = {getattr(sparkbolt.bolts, name) for name in sparkbolt.bolts.__all__}
    assert {one for one in exported if inspect.isclass(one) and issubclass(one, BoltBase)} == set(SHIPPED)


def test_user_bolts_get_ticks() -> None:
    assert executed(Mine()) > 5
    assert executed(bolt()(lambda tup: None)) > 5


def test_a_field_missing_from_a_tick_tuple_is_reported_with_the_fix() -> None:
    with pytest.raises(UnknownNameError, match=r"look at tup\.is_tick first, or set ignores_ticks = True"):
        tick(5)["line"]
