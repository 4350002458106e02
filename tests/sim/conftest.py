"""What holds for all tests in the simulator."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collector_rests() -> Iterator[None]:
    """A seed makes little garbage; collecting it in the middle takes a sixth of the time."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
