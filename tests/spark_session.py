"""The Spark session that tests, and examples in docstrings, share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests, as ``local[2,4]``: a test that asks for it is to be marked ``spark``."""
    from sparkbolt.spark.session import make_session

    session = make_session("tests", "local[2,4]")
    yield session
    session.stop()
