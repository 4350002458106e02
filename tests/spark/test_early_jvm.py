"""Spark's JVM starts while a module is imported, and is used only if nothing has changed since."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkbolt.spark import session
from sparkbolt.spark.early_jvm import EarlyJvm, environment_of_spark
from tests.patience import PATIENCE_SECS
from tests.spark.cluster import is_alive

ROOT = Path(__file__).parents[2]
MODULE = """
import atexit, json, os, psutil
from pathlib import Path
from pyspark import SparkContext
from sparkbolt import BasicBolt, TopologyBuilder
from sparkbolt.spouts import GeneratorSpout

if not Path("early").exists():  # workers import it, too
    (EARLY,) = [child.pid for child in psutil.Process().children() if "submit" in " ".join(child.cmdline()).lower()]
    Path("early").write_text(str(EARLY))
    {0}


def noted():
    context = SparkContext._active_spark_context
    said = [SparkContext._gateway.proc.pid, psutil.pid_exists(EARLY), os.environ.get("PYSPARK_GATEWAY_PORT")]
    Path("noted").write_text(json.dumps([*said, context.getConf().get("spark.sparkbolt.tested", None)]))


class Nothing(BasicBolt):
    def execute(self, tup, collector):
        pass


def topology():
    builder = TopologyBuilder("early")
    builder.set_spout("numbers", GeneratorSpout(lambda: ([n] for n in range(10)), ["number"]))
    builder.set_bolt("nothing", Nothing()).shuffle_grouping("numbers")
    atexit.register(noted)
    return builder.build()
"""


def run(folder: Path, line: str) -> tuple[int, int, list[Any]]:
    """Run a module with one more line; its exit code, the early JVM, and what the module has noted at its end."""
    (folder / "module.py").write_text(MODULE.format(line))
    command = [sys.executable, "-m", "sparkbolt", "run", "module:topology", "--master", "local[2]"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECS, check=False
    )
    early, noted = int((folder / "early").read_text()), folder / "noted"
    print(done.stderr)
    return done.returncode, early, json.loads(noted.read_text()) if noted.exists() else []


@pytest.mark.spark
def test_the_jvm_that_was_started_early_is_the_one_that_is_used(tmp_path: Path) -> None:
    code, early, noted = run(tmp_path, "pass")
    assert (code, noted) == (0, [early, True, None, None])


@pytest.mark.spark
def test_what_a_module_sets_for_spark_has_its_effect(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.sparkbolt.tested yes\n")
    code, early, noted = run(tmp_path, "os.environ['SPARK_CONF_DIR'] = os.getcwd()")
    assert code == 0
    assert noted[0] != early
    assert noted[1:] == [False, None, "yes"], "the other one has ended"


@pytest.mark.spark
def test_after_a_mistake_in_the_module_no_jvm_is_left(tmp_path: Path) -> None:
    code, early, noted = run(tmp_path, "raise ValueError('a mistake')")
    assert (code, noted) == (1, [])
    assert not is_alive(early)


class Early(EarlyJvm):
    def __init__(self) -> None:
        self._environment, self.ended = environment_of_spark(), False

    def end(self) -> None:
        self.ended = True


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        (("local[2]", {"spark.a": "1"}), True),
        (("local[3]", {"spark.a": "1"}), False),
        (("local[2]", {"spark.a": "2"}), False),
        ((None, {}), False),
    ],
)
def test_who_asks_for_something_else_does_not_get_it(
    monkeypatch: pytest.MonkeyPatch, asked: tuple[str | None, dict[str, str]], used: bool
) -> None:
    early = Early()
    monkeypatch.setattr(session.SparkContext, "_gateway", None)
    monkeypatch.setattr(session, "_early", [(early, "local[2]", {"spark.a": "1"})])
    assert (session._early_for(*asked) is early, early.ended) == (used, not used)
    assert session._early_for(*asked) is None, "it is given once"


@pytest.mark.parametrize(("name", "current"), [("JAVA_HOME", False), ("SPARK_HOME", False), ("MY_OWN", True)])
def test_it_is_current_while_what_concerns_spark_is(monkeypatch: pytest.MonkeyPatch, name: str, current: bool) -> None:
    early = Early()
    monkeypatch.setenv(name, "another")
    assert early.is_current == current
