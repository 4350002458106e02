"""A module that is edited between two starts in one session is imported again by the workers that Spark keeps."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkbolt import TopologyBuilder
from sparkbolt.spouts import GeneratorSpout
from tests.patience import PATIENCE_SECS

pytestmark = [pytest.mark.spark, pytest.mark.slow]
NAME = "edited_between_two_starts"
SOURCE = """
from sparkbolt import BasicBolt
class Say(BasicBolt):
    def __init__(self, path):
        self.path = path
    def execute(self, tup, collector):
        with open(self.path, "a") as file:
            file.write("VERSION ")
def numbers():
    return ([n] for n in range(3))
"""


def test_workers_run_the_module_as_it_is_now(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # its time has whole seconds
    said = tmp_path / "said"
    try:
        for version in ("first", "second"):
            (tmp_path / f"{NAME}.py").write_text(SOURCE.replace("VERSION", version))
            module = importlib.import_module(NAME)
            importlib.reload(module)
            builder = TopologyBuilder(f"edited-{version}")
            builder.set_spout("numbers", GeneratorSpout(module.numbers, ["n"]))
            builder.set_bolt("say", module.Say(str(said))).global_grouping("numbers")
            running = builder.build().start(spark=spark)
            try:
                assert running.await_finished(PATIENCE_SECS)
            finally:
                running.stop()
    finally:
        sys.modules.pop(NAME, None)
    assert said.read_text().split() == ["first"] * 3 + ["second"] * 3
