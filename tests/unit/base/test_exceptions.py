"""Exceptions as text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sparkbolt.base.exceptions import cause_in_jvm


def thrown(text: str, cause: Any = None) -> Any:
    """What py4j gives for an exception of the JVM."""
    return SimpleNamespace(getCause=lambda: cause, toString=lambda: text)


def test_an_exception_of_the_jvm_is_explained_by_its_innermost_cause() -> None:
    error = ValueError("An error occurred while calling o364.parquet.")
    assert cause_in_jvm(error) is None
    inner = thrown("java.io.IOException: Mkdirs failed to create file:/proc/nowhere\n and more")
    error.java_exception = thrown("Job aborted", thrown("Task failed", inner))
    assert cause_in_jvm(error) == "java.io.IOException: Mkdirs failed to create file:/proc/nowhere"
