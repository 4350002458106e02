"""Windows on Spark that change their settings, and the number of their tasks, from start to start."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, Topology, TopologyBuilder
from sparkbolt.bolts import JsonLinesBolt
from sparkbolt.spouts import TextSpout
from tests.windows.books import rows_of
from tests.windows.changing import Story, shapes_of, told_of, wrong_in
from tests.windows.shapes import Shape

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LINES = 60
LAG_MS = 300


class Timed(BasicBolt):
    outputs = ("n", "key", "at")
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        number, key, at = tup["line"].split()
        collector.emit([int(number), key, int(at)])


def topology(directory: Path, shape: Shape, tasks: int) -> Topology:
    builder = TopologyBuilder("changed", Config(message_timeout_secs=600))
    builder.set_spout("lines", TextSpout(str(directory / "text"), in_order=True))
    builder.set_bolt("timed", Timed()).shuffle_grouping("lines")
    builder.set_bolt("told", told_of(shape), parallelism=tasks).fields_grouping("timed", ["key"])
    builder.set_bolt("out", JsonLinesBolt(str(directory / "out"))).global_grouping("told")
    return builder.build()


def test_windows_by_key_change_and_move_between_two_runs_on_spark(spark: Any, tmp_path: Path) -> None:
    shapes = shapes_of(LAG_MS, keyed=True)
    story, chance, at = Story({shape.name: shape for shape in shapes}), random.Random(1), 1_000_000
    (tmp_path / "text").mkdir()
    for start, (place, tasks) in enumerate(((1, 2), (2, 4), (5, 5))):
        lines = []
        story.changed_ms.append(at)
        for number in range(start * LINES, (start + 1) * LINES):
            at += chance.randrange(100)
            story.fed[number] = f"k{chance.randrange(4)}", at - chance.randrange(LAG_MS - 50)
            lines.append(f"{number} {story.fed[number][0]} {story.fed[number][1]}\n")
        (tmp_path / f"text/{start}.txt").write_text("".join(lines))
        topology(tmp_path, shapes[place], tasks).run(spark=spark, checkpoint=str(tmp_path / "checkpoint"), apply=True)
    columns = ("shape", "key", "start", "end", "of", "new", "expired")
    story.windows = [[row[name] for name in columns] for row in rows_of(tmp_path / "out")]
    assert len({window[0] for window in story.windows}) == 3, "each run has shown windows"
    assert list(wrong_in(story)) == []
