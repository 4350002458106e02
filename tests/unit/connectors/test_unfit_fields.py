"""What a bolt of ours could never write is a mistake of the topology: it is told at build, not by dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbolt import TopologyBuilder
from sparkbolt.bolts import DeltaBolt, ParquetBolt, SparkSink, SqlBolt
from sparkbolt.errors import InvalidTopology
from sparkbolt.spouts import GeneratorSpout


def built(bolt: Any) -> Any:
    builder = TopologyBuilder("shop")
    builder.set_spout("orders", GeneratorSpout(list, outputs=["id", "amount"]))
    declarer = builder.set_bolt("out", bolt)
    if not isinstance(bolt, SparkSink):
        declarer.shuffle_grouping("orders")
    return builder.build()


class Doubled(SqlBolt):
    """Fills columns of its own."""

    def row(self, tup: Any) -> dict[str, Any]:
        return {"key": tup["id"], "twice": 2 * tup["amount"]}


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda url: ParquetBolt("out", schema="id long, amuont double"),
            "'amount' is none of .*did you mean 'amuont'",
        ),
        (lambda url: DeltaBolt("out", schema="id long"), "'amount' is none of the columns of its schema"),
        (
            lambda url: SparkSink("orders", print, schema="id long, amount double, day string not null"),
            "none of them fills the column 'day' of its schema, which is not null",
        ),
        (
            lambda url: SqlBolt(url, "orders", columns={"id": "id", "total": "amuont"}),
            "column 'total' is to be filled by 'amuont', which is none of them: did you mean 'amount'",
        ),
        (
            lambda url: SqlBolt(url, "orders", mode="upsert", keys=["key"]),
            "its keys names the column 'key', which none of them fills",
        ),
        (
            lambda url: SqlBolt(url, "orders", mode="merge", keys=["id"], combine={"amounts": "add"}),
            "its combine names the column 'amounts', which none of them fills: did you mean 'amount'",
        ),
    ],
)
def test_fields_that_do_not_fit_are_reported_at_build(make: Any, why: str, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidTopology, match=rf"bolt 'out': it gets stream 'default' of 'orders' .*\['id', 'amount'\].*{why}"
    ):
        built(make(f"sqlite:///{tmp_path}/shop.db"))


def test_fields_that_fit_pass(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    built(ParquetBolt(tmp_path / "out", schema="id long not null, amount double, day string"))
    built(SqlBolt(url, "orders", mode="upsert", keys=["key"], columns={"key": "id", "amount": lambda tup: 1}))
    built(Doubled(url, "orders", mode="upsert", keys=["key"]))
