"""Which versions of Spark are refused, and which checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyspark
import pytest

from sparkbolt.errors import CheckpointError, EngineError
from sparkbolt.files.local import LocalFiles
from sparkbolt.launch import load
from sparkbolt.spark.session import check_usable, given_session
from sparkbolt.spark.versions import check_version, note_version


@pytest.mark.parametrize(
    ("version", "why"),
    [("3.5.9", "too old"), ("4.0.5", "too old"), ("4.4.0", "newer than"), ("5.0", "newer than"), ("unknown", "says")],
)
def test_other_spark_versions_are_refused_with_a_hint_on_what_to_install(version: str, why: str) -> None:
    with pytest.raises(EngineError, match=rf"{why}.*Sparkbolt runs on Spark 4\.1 to 4\.3"):
        check_version(version)


def test_a_pyspark_that_is_not_supported_is_refused_before_its_modules_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    with pytest.raises(EngineError, match=r"the installed PySpark is 3\.5\.9, which is too old"):
        load("start")


def test_a_session_of_spark_connect_is_refused_with_what_to_do() -> None:
    remote: Any = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    for refuse in (check_usable, lambda session: given_session(session, "a session is active")):
        with pytest.raises(EngineError, match=r"one of Spark Connect: a topology needs the process in which .* driver"):
            refuse(remote)


def test_a_checkpoint_continues_with_a_newer_version_and_never_with_an_older_one(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))

    def begin(version: str) -> str:
        note_version(files, version, "checkpoint c")
        return (files.read("spark-version") or b"").decode()

    assert begin("4.1.4") == "4.1.4"
    assert begin("4.2.0") == "4.2.0"
    assert begin("4.2.1") == "4.2.0", "what counts is the minor version"
    with pytest.raises(CheckpointError, match=r"checkpoint c was continued with Spark 4\.2\.0, and this is Spark 4\.1"):
        begin("4.1.4")
    assert begin("4.3.0") == "4.3.0"
