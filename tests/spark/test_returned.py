"""Dead letters of a ``TextSpout`` on Spark: listed, grouped by kind, and given back to their spout."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import BasicBolt, Config, Topology, TopologyBuilder
from sparkbolt.faces.cli import main
from sparkbolt.spouts import TextSpout

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
    assert summary["set_aside"] == BROKEN
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
