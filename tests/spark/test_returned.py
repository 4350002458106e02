"""Dead letters on Spark: listed, grouped by kind, and given back to the spouts and bolts whose trees have failed."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, Count, RetryPolicy, Topology, TopologyBuilder, WindowedBolt
from sparkbolt.faces.cli import main
from sparkbolt.spouts import KestrelSpout, SparkSpout, TextSpout
from tests.kafka import poll
from tests.patience import PATIENCE_SECS
from tests.services.kestrel import Kestrel

pytestmark = [pytest.mark.spark, pytest.mark.slow]
LINES, BROKEN = 60, 12


class Status(BasicBolt):
    """The status of a line of a log; the mended one reads also those that end in ``ms``."""

    outputs = ["status"]
    stateless = True

    def __init__(self, *, is_mended: bool) -> None:
        self.is_mended = is_mended

    def execute(self, tup: Any, collector: Any) -> None:
        text = tup["line"].split()[-1]
        collector.emit([int(text.removesuffix("ms") if self.is_mended else text)])


def web_log() -> Topology:
    builder = TopologyBuilder("web-log", Config(max_attempts=1))
    builder.set_spout("lines", TextSpout(os.environ["WEB_LOG"]))
    builder.set_bolt("status", Status(is_mended="MENDED" in os.environ)).shuffle_grouping("lines")
    return builder.build()


@pytest.mark.usefixtures("spark")
def test_dead_letters_go_back_by_kind_and_all_are_acked_with_a_mended_bolt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, state = tmp_path / "access.log", str(tmp_path / "state")
    log.write_text("".join(f"GET /{n} {n}{'ms' if n % 5 == 0 else ''}\n" for n in range(LINES)))
    monkeypatch.setenv("WEB_LOG", str(log))
    monkeypatch.setenv("SPARKBOLT_HOME", str(tmp_path / "home"))

    def command(*arguments: str, code: int = 0) -> str:
        assert main(list(arguments)) == code
        return capsys.readouterr().out

    run = ("run", "tests.spark.test_returned:web_log", "--json", "--master", "local[2]", "--checkpoint", state)
    summary = json.loads(command(*run, code=3).splitlines()[-1])
    assert summary["given_up"] == BROKEN
    [kind] = map(json.loads, command("dlq", "list", state, "--kinds", "--json").splitlines())
    assert (kind["count"], kind["reason"]) == (
        BROKEN,
        "ValueError: invalid literal for int() with base <n>: <text>",
    )
    said = command("dlq", "replay", state, "--kind", kind["kind"])
    assert said.startswith(f"{BROKEN} letter(s) go back into lines")
    assert "they go back when it starts again with this checkpoint" in " ".join(said.split())
    again = json.loads(command(*run, code=3).splitlines()[-1])
    assert again["components"]["lines"]["acked"] == LINES - BROKEN, "the bolt is not mended"
    [worse] = map(json.loads, command("dlq", "list", "web-log", "--kinds", "--json").splitlines())
    assert worse["count"] == BROKEN, "each message is one letter again"
    shown = json.loads(command("dlq", "show", state, worse["example"], "--json"))
    assert [one["number"] for one in shown["attempts"]] == [1, 2]

    command("dlq", "replay", "web-log")
    monkeypatch.setenv("MENDED", "1")
    mended = json.loads(command(*run).splitlines()[-1])
    assert mended["components"]["lines"]["acked"] == LINES
    assert command("dlq", "list", state, "--kinds").startswith("0 kind(s) of dead letters")
    assert log.read_text().count("\n") == LINES, "no file is written in between"
    assert os.listdir(Path(state, "returned")) == []


class Pairs(WindowedBolt):
    """Emits an odd number for each window."""

    outputs = ["n"]

    def execute(self, window: Any, collector: Any) -> None:
        collector.emit([2 * sum(int(tup["n"]) for tup in window.get()) + 1])


class Picky(BasicBolt):
    """Takes odd numbers only once there is a file ``mended``; writes each number that it takes."""

    outputs = ["n"]
    stateless = True

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def execute(self, tup: Any, collector: Any) -> None:
        number = int(tup[0])
        if number % 2 and not (self.folder / "mended").exists():
            raise ValueError(f"{number} is odd")
        with (self.folder / self.name).open("a") as file:
            file.write(f"{number}\n")
        collector.emit([number])


ITEMS = 12


def test_letters_of_a_queue_a_window_and_rows_of_spark_go_back_at_once_while_the_topology_is_idle(
    spark: Any, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, folder = str(tmp_path / "state"), tmp_path / "in"
    folder.mkdir()
    (folder / "rows.csv").write_text("".join(f"{number}\n" for number in range(ITEMS)))
    with Kestrel() as server:
        server.put("numbers", *[b"%d" % number for number in range(ITEMS)])
        builder = TopologyBuilder("idle", Config(max_attempts=1))
        numbers = KestrelSpout(server.address, "numbers", outputs=["n"])
        builder.set_spout("numbers", numbers, retry=RetryPolicy(max_retries=0))
        builder.set_bolt("take", Picky("taken", tmp_path)).shuffle_grouping("numbers")
        pairs = Pairs().with_tumbling_window(Count(2)).with_ack_on_expiry()
        builder.set_bolt("pairs", pairs).global_grouping("take")
        builder.set_bolt("take_pairs", Picky("pairs", tmp_path)).shuffle_grouping("pairs")
        rows = SparkSpout(lambda spark: spark.readStream.schema("n long").csv(str(folder)), outputs=["n"])
        builder.set_spout("rows", rows)
        builder.set_bolt("take_rows", Picky("rows", tmp_path)).shuffle_grouping("rows")
        with closing(builder.build().start(spark=spark, checkpoint=state)) as running:

            def counts(what: str) -> list[int]:
                components = running.metrics().components
                return [getattr(components[name], what) for name in ("numbers", "rows")]

            def replay() -> str:
                assert main(["dlq", "replay", state]) == 0
                return " ".join(capsys.readouterr().out.split())

            poll(lambda: counts("dead_letters") == [ITEMS, ITEMS // 2])
            assert running.await_idle(PATIENCE_SECS)
            said = replay()
            assert f"{ITEMS} letter(s) go back into numbers" in said, said
            assert f"{ITEMS // 2} letter(s) go back into rows" in said
            assert "when it starts again" not in said
            poll(lambda: counts("dead_letters") == [2 * ITEMS, ITEMS])
            (tmp_path / "mended").touch()
            replay()
            poll(lambda: counts("acked") == [ITEMS - 2, ITEMS])  # the last pair has not left its window
            assert server.left("numbers") == []
            assert running.given_up_here == {}, "nothing that this run has given up still waits"
        main(["dlq", "list", state])
        assert f"{ITEMS * 3 // 2} dead letter(s)" in capsys.readouterr().out, "each message is one letter"
    lines = {name: Counter(map(int, (tmp_path / name).read_text().split())) for name in ("taken", "pairs", "rows")}
    assert lines["taken"] == {number: 1 if number % 2 else 3 for number in range(ITEMS)}
    assert lines["rows"] == dict.fromkeys(range(ITEMS), 1)
    assert (lines["pairs"].total(), sum(lines["pairs"].elements())) == (ITEMS // 2, ITEMS * (ITEMS - 1) + ITEMS // 2)
