"""What holds for all tests in the simulator."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _collector_rests() -> Iterator[None]:
    """A seed makes little garbage; collecting it in the middle takes a sixth of the time.

    Tests of many seeds collect it themselves; what there is before them is not looked at again.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
