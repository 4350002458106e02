"""The compiled kernels, wanted or not.

How does one process run the same once with the kernels and once in pure Python?
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sparkbolt.base.native import FAST_ENV, kernels


@contextmanager
def fast(wanted: bool) -> Iterator[None]:
    """Use the kernels, or do without them."""
    before = os.environ.get(FAST_ENV)
    os.environ[FAST_ENV] = "" if wanted else "off"
    kernels.cache_clear()
    try:
        if wanted and kernels() is None:
            raise RuntimeError("the kernels are not installed: pip install ./fast")
        yield
    finally:
        del os.environ[FAST_ENV]
        if before is not None:
            os.environ[FAST_ENV] = before
        kernels.cache_clear()
