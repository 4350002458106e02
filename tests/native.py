"""Native: the compiled kernels in tests."""

from __future__ import annotations

import os

import pytest

from sparkbolt.base.native import kernels

WHY_NOT = "the kernels are not installed: pip install ./fast"


def missing() -> bool:
    """Whether tests of the kernels are left out; in continuous integration they fail where there are none."""
    return kernels() is None and os.environ.get("CI") != "true"


needs_kernels = pytest.mark.skipif(missing(), reason=WHY_NOT)
