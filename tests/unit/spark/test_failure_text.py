"""What ended a query, in words: errors as data, Spark's own failures, another Python, a full disk."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkbolt.api.reports import QueryFailure
from sparkbolt.errors import CheckpointError, InvalidTopology, StateError

pytest.importorskip("pyspark")

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from sparkbolt.spark import jvm
from sparkbolt.spark.driver_rpc import Bridge
from sparkbolt.spark.driver_rpc_client import DriverRpcClient
from sparkbolt.spark.failure_text import carried, errors_carried, query_failure
from tests.unit.spark.lives import FACTORY


@pytest.mark.parametrize(
    ("text", "is_free"),
    [
        (
            "[STREAM_FAILED] Query [id = 6, runId = 7] terminated with exception: Job aborted due to stage failure: "
            "Task 0 in stage 3.0 failed 4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 9) (localhost "
            "executor driver): org.apache.spark.SparkException: Python worker failed to connect back.\n\tat " + FACTORY,
            True,
        ),
        (
            "[STREAM_FAILED] Query [id = 6, runId = 7] terminated with exception: Python worker failed to connect back."
            " SQLSTATE: XXKST",
            True,
        ),
        ("ValueError: Python worker failed to connect back.", False),
    ],
)
def test_a_python_process_that_failed_to_start_is_recognized_by_the_error_text_of_spark(
    text: str, is_free: bool
) -> None:
    assert query_failure(PySparkException(text)).free is is_free


@pytest.mark.parametrize(
    "text",
    [
        "[PYTHON_DATA_SOURCE_ERROR] Failed:\nModuleNotFoundError: No module named 'sparkbolt'  SQLSTATE: 38000",
        "Error from python worker:\n  /usr/bin/python3: No module named pyspark",
        "[PYTHON_DATA_SOURCE_ERROR] Failed:\nModuleNotFoundError: No module named 'numpy'",
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11",
        'java.io.IOException: Cannot run program "/opt/python3.9": error=2, No such file or directory',
    ],
)
def test_workers_with_another_python_give_a_one_sentence_error_with_versions_and_advice(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(pythonExec="/opt/python3.9"))
    failure = query_failure(PySparkException(text))
    assert failure.hopeless
    assert "Spark's workers run the Python '/opt/python3.9', as PYSPARK_PYTHON said" in failure.text
    assert f"this program runs {sys.executable}. Set the environment variable PYSPARK_PYTHON" in failure.text


def test_a_sparkbolt_error_keeps_its_type_and_its_full_text_across_processes() -> None:
    for error in (StateError("bolt 'a'\nsecond line: \"quoted\" é"), InvalidTopology("t", ["one", "two"])):
        with pytest.raises(Exception) as raised, errors_carried():  # noqa: PT011  a type of its own, as a text to Spark
            raise error
        text = f"py4j: An error occurred while calling o77.\n: java.lang.X: {raised.value}\n\tat java.lang.Thread.run"
        assert carried(text) == QueryFailure(str(error), type(error))
        assert query_failure(Py4JError(text)) == QueryFailure(str(error), type(error))


def test_a_full_disk_is_recognized_by_its_error_number() -> None:
    assert query_failure(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))).text.startswith("a disk is full")
    assert (
        query_failure(OSError(errno.EACCES, "Permission denied")).text
        == "PermissionError: [Errno 13] Permission denied"
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CheckpointError("plans/3-0 is missing"), QueryFailure("plans/3-0 is missing", CheckpointError)),
        (ValueError("next_ranges is broken"), None),
        (SystemExit(2), None),
    ],
)
def test_driver_exception_reaches_the_planner_as_data(error: BaseException, expected: Any) -> None:
    def answer(verb: str, argument: Any) -> Any:
        raise error

    bridge = Bridge(answer)
    try:
        with pytest.raises(RuntimeError, match="the driver could not answer 'latest'") as raised:
            DriverRpcClient(bridge.directory).ask("latest", None)
        assert carried(str(raised.value)) == expected
        if expected is None:
            assert f"{type(error).__name__}: {error}" in str(raised.value)
    finally:
        bridge.close()


@pytest.mark.parametrize(
    ("says", "words"), [("x No space left on device y", "a disk is full"), ("x", "end of its connection")]
)
def test_a_call_of_state_that_spark_interrupted_is_explained_by_its_log(
    says: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "spark.log"
    log.write_text("long ago\n" * 100_000 + f"{says}\n")
    monkeypatch.setattr(jvm, "_output", SimpleNamespace(log_path=str(log)))
    text = "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  ...\nEOFError\n"
    assert words in query_failure(PySparkException(text)).text
    log.unlink()
    assert "end of its connection" in query_failure(PySparkException(text)).text
    monkeypatch.setattr(jvm, "_output", None)
    assert "end of its connection" in query_failure(PySparkException(text)).text
