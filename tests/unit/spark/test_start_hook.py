"""What is left out of the module search path of Spark's Python processes, and what is run all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparkbolt.spark.session import START_HOOK

SAID = "import json, sys; print(json.dumps([sys.path, getattr(sys.modules.get('sitecustomize'), 'ran', None)]))"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory as ``site-packages``, with Spark's pip package and py4j."""
    place = tmp_path / "site"
    for file in (
        "pyspark/__init__.py",
        "pyspark/python/lib/pyspark.zip",
        "pyspark/python/lib/py4j-0.10.9.9-src.zip",
        "pyspark/jars/spark-core.jar",
        "py4j-0.10.9.9.dist-info/METADATA",
    ):
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        (place / file).touch()
    return place


def paths(installed: Path) -> list[str]:
    """The module search path that Spark gives, before what is on it already."""
    spark = installed / "pyspark"
    libraries = [spark / "python/lib/pyspark.zip", spark / "python/lib/py4j-0.10.9.9-src.zip"]
    return [*map(str, libraries), str(spark / "jars/spark-core.jar")]


def started(*path: str) -> tuple[list[str], str | None]:
    """The module search path of a new process, and the name that its ``sitecustomize`` has left."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    result = subprocess.run([sys.executable, "-c", SAID], env=environment, capture_output=True, text=True, check=True)
    found, ran = json.loads(result.stdout)
    return found, ran


def test_installed_modules_are_imported_from_their_installation(installed: Path) -> None:
    found, _ = started(*paths(installed), START_HOOK, str(installed))
    assert not set(paths(installed)) & set(found)
    assert str(installed) in found


def test_pyspark_is_imported_from_the_zip_without_the_hook(installed: Path) -> None:
    found, _ = started(*paths(installed), str(installed))
    assert set(paths(installed)) <= set(found)
