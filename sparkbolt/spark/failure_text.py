"""Failure text: the cause of a failed query, as data and as a sentence.

An error that is raised in the driver is kept as an object. An error of another process can only come back through Spark
as text, so this text contains the error's class name and message as JSON behind a mark (``errors_carried``); nothing in
it is unpickled or evaluated. An exception of Java is identified by its class and by where it was thrown. Only the other
errors of Spark, Java and the system are recognised by their text.
"""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from sparkbolt import errors
from sparkbolt.api.reports import QueryFailure
from sparkbolt.base.exceptions import line_and_owner
from sparkbolt.errors import EngineError, SparkboltError, WorkerStartError
from sparkbolt.spark.jvm import log_says

_MARK = "sparkbolt-error:"
_NO_SPACE = "No space left on device"
_DISK_FULL = (
    "a disk is full (No space left on device), that of the checkpoint or of Spark's temporary files: make room; "
    "nothing that was acked is lost, and the topology goes on from its checkpoint"
)


_BROKEN_OFF = (
    "a Python worker met the end of its connection to Spark in the midst of a call (EOFError); Spark's log says why"
)
_EOF = re.compile(r"^\s*EOFError\s*$", re.MULTILINE)
"""The error of a Python worker if Spark's thread that serves its state has ended, as on a full disk."""
_TIMEOUT = "java.net.SocketTimeoutException"
_WORKER_FACTORY = "org.apache.spark.api.python.PythonWorkerFactory"
_NO_WORKER = (
    "Spark has waited 10 s in vain for a Python process to start (Python worker failed to connect back): the machine "
    "has too much to do, or too little memory"
)
_NO_WORKER_TOLD = re.compile(
    r"(?:\bSparkException: |\bterminated with exception: )Python worker failed to connect back\."
)
"""Spark's text if a Python process does not start, in an executor or in the query's own thread."""
_NOT_OURS = re.compile(
    r"No module named '?(?:sparkbolt|pyspark|pyarrow|pandas|numpy|cloudpickle)\b(?!\.)'?|PYTHON_VERSION_MISMATCH"
    r'|Cannot run program "[^"]*python[^"]*"'
)
"""The error texts of a Spark process that runs another Python than the one with Sparkbolt, or finds no Python."""
_OTHER_PYTHON = (
    "Spark's workers run the Python {!r}, as PYSPARK_PYTHON said when the session was made, and that cannot run this "
    f"version of Sparkbolt and PySpark ({{}}); this program runs {sys.executable}. Set the environment variable "
    "PYSPARK_PYTHON to that, or to another that has them, and make the session anew (spark.stop())"
)
_CAUSED_BY = "Caused by: "
"""How a cause begins in a stack trace of Java; the last one is the innermost."""
CAUSES_MAX = 30
"""How many causes of a Java exception are followed at most."""


class CarriedError(Exception):
    """An error of Sparkbolt on its way through Spark, as a text that ``carried`` decodes."""


def carry(error: SparkboltError) -> str:
    """Encode an error as a text.

    >>> carry(errors.StateError("gone"))
    'sparkbolt-error:{"kind": "StateError", "text": "gone"}'
    """
    return _MARK + json.dumps({"kind": type(error).__name__, "text": str(error)})


def carried(text: str) -> QueryFailure | None:
    """Decode the first error that a text contains, whatever is around it; None if it contains none.

    >>> carried("Task 0 failed: " + carry(errors.StateError("gone")) + " at java.lang.Thread")
    QueryFailure(text='gone', kind=<class 'sparkbolt.errors.StateError'>)
    """
    _, found, rest = text.partition(_MARK)
    if not found:
        return None
    try:
        body, _ = json.JSONDecoder().raw_decode(rest)
        kind = getattr(errors, body["kind"], None)
        said = str(body["text"])
    except (ValueError, TypeError, KeyError):  # the text was shortened on its way
        return None
    ours = isinstance(kind, type) and issubclass(kind, SparkboltError)
    return QueryFailure(said, kind if ours else None)


@contextmanager
def errors_carried() -> Iterator[None]:
    """Encode the errors of Sparkbolt that leave this block; used where Spark calls Sparkbolt in another process.

    Raises:
        CarriedError: instead of an error of Sparkbolt.
    """
    try:
        yield
    except SparkboltError as error:
        raise CarriedError(carry(error)) from error


def query_failure(error: BaseException) -> QueryFailure:
    """Why a query failed, from the error that its start, a request or the wait for its end has raised."""
    if isinstance(error, SparkboltError):
        return QueryFailure(str(error), type(error))
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return QueryFailure(_DISK_FULL)
    if not isinstance(error, PySparkException | Py4JError):
        return QueryFailure(line_and_owner(error))
    if _is_worker_missing(error):
        return QueryFailure(_NO_WORKER, WorkerStartError)
    text = str(error)
    found = carried(text)
    if found is not None:
        return found
    if _NO_WORKER_TOLD.search(text):
        return QueryFailure(_NO_WORKER, WorkerStartError)
    says = _NOT_OURS.search(text)
    if says is not None:
        runs = getattr(SparkContext._active_spark_context, "pythonExec", "python3")
        return QueryFailure(_OTHER_PYTHON.format(runs, says[0]), EngineError)
    if _NO_SPACE not in text and _EOF.search(text):
        return QueryFailure(_DISK_FULL if log_says(_NO_SPACE) else _BROKEN_OFF)
    return QueryFailure(explain(text))


def _is_worker_missing(error: BaseException) -> bool:
    """Whether an error was caused by a Python process that did not start within Spark's time limit."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    try:
        for _ in range(CAUSES_MAX):
            if java is None:
                return False
            places = java.getStackTrace()
            if java.getClass().getName() == _TIMEOUT and len(places) and places[0].getClassName() == _WORKER_FACTORY:
                return True
            java = java.getCause()
    except (Py4JError, OSError):  # the JVM is gone
        return False
    return False


def explain(text: str) -> str:
    r"""A sentence for the user, made from an error text of Spark or of the system.

    >>> explain("An error occurred while calling o7.get.\n: java.Odd: it\nCaused by: java.Cut: file 3 is cut\n\tat x")
    'java.Cut: file 3 is cut'
    """
    if _NO_SPACE in text:
        return _DISK_FULL
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    python = [
        line
        for line in lines
        if ": " in line and line.split(":", 1)[0].rsplit(".", 1)[-1].endswith(("Error", "Exception"))
    ]
    if python:
        return python[-1]
    causes = [line.removeprefix(_CAUSED_BY) for line in lines if line.startswith(_CAUSED_BY)]
    return (causes or lines[:1] or ["Spark's query failed and said nothing"])[-1]
