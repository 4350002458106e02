"""The classes of Spark are written down once, and mapped into the memory of the JVMs that start after that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_SECS
from tests.unit.control.test_home import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.campaign]
PROGRAM = """
from pathlib import Path
from pyspark import SparkContext
from sparkbolt.spark.session import make_session

session = make_session("mapped", "local[1]")
assert session.range(3).count() == 3
maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()
print(next((line[line.index("/") :] for line in maps.splitlines() if "/classes-" in line), None))
"""


def mapped(cache: str) -> str:
    """The archive that the JVM of a new process has mapped; ``None`` if it has none."""
    environment = {**os.environ, "SPARKBOLT_CACHE": cache}
    environment.pop("SPARK_SUBMIT_OPTS", None)
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_SECS,
        check=True,
    )
    return result.stdout.strip()


def test_spark_classes_are_archived_once_and_mapped_afterwards(tmp_path: Path) -> None:
    cache = tmp_path / "a cache"
    assert mapped(str(cache)) == "None"
    assert wait_for(lambda: [path.suffix for path in cache.iterdir()] == [".jsa"], PATIENCE_SECS)
    [archive] = cache.iterdir()
    assert mapped(str(cache)) == str(archive)
    assert list(cache.iterdir()) == [archive]
