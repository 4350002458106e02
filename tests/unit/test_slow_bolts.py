"""A bolt that takes a fifth of a second for each tuple: the first micro-batch is so small that it ends soon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, PartitionedSpout, TopologyBuilder
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import GeneratorSpout, JsonLinesSpout, TextSpout

TUPLES_MAX = 300
"""With a fifth of a second for each, the first micro-batch takes less than a minute."""


class Count(BasicBolt):
    """Does nothing: how many tuples it got is what matters."""

    def execute(self, tup: Any, collector: Any) -> None: ...


def spouts(directory: Path) -> dict[str, PartitionedSpout]:
    lines, rows = directory / "lines.txt", directory / "rows.jsonl"
    lines.write_text("".join(f"{number}\n" for number in range(100_000)))
    rows.write_text("".join(f'{{"n": {number}}}\n' for number in range(20_000)))
    return {
        "lines": TextSpout(lines),
        "rows": JsonLinesSpout(rows, outputs=["n"]),
        "numbers": GeneratorSpout(lambda: ([number] for number in range(100_000)), outputs=["n"]),
    }


@pytest.mark.parametrize("name", ["lines", "rows", "numbers"])
def test_first_micro_batch_reads_few_messages_whatever_a_bolt_does_with_them(name: str, tmp_path: Path) -> None:
    builder = TopologyBuilder("slow", Config())
    builder.set_spout("spout", spouts(tmp_path)[name])
    builder.set_bolt("count", Count()).shuffle_grouping("spout")
    engine = LocalEngine(builder.build())
    while not engine.ledger.metrics.of("count").executed:
        engine.step()
    assert engine.ledger.metrics.of("count").executed <= TUPLES_MAX
    engine.close()
