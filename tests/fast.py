"""The compiled kernels, wanted or not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sparkbolt.core.base.native import FAST_ENV, kernels


@contextmanager
def fast(wanted: bool) -> Iterator[None]:
    """Use the kernels, or do without them; they are there wherever tests run."""
    before = os.environ.get(FAST_ENV)
    os.environ[FAST_ENV] = "" if wanted else "off"
    kernels.cache_clear()
    try:
        if wanted and kernels() is None and os.environ.get("CI") == "true":
            raise RuntimeError("the kernels of fast/ are not installed")
        yield
    finally:
        del os.environ[FAST_ENV]
        if before is not None:
            os.environ[FAST_ENV] = before
        kernels.cache_clear()
