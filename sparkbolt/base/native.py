"""Native: the compiled kernels of ``sparkbolt[fast]``, if this process has them.

A kernel has the same results as the Python that it replaces, which runs wherever there are no kernels.
"""

from __future__ import annotations

import importlib
import logging
import os
from functools import cache
from typing import Any

FAST_ENV = "SPARKBOLT_FAST"
"""``off``: no kernels are used."""
KERNELS = 4
"""The version of the kernels that are called here."""
log = logging.getLogger("sparkbolt")


@cache
def kernels() -> Any:
    """The module with the kernels; None: there are none."""
    if os.environ.get(FAST_ENV, "").strip() == "off":
        return None
    try:
        package = importlib.import_module("sparkbolt_fast")
        if package.KERNELS != KERNELS:
            log.warning(
                "sparkbolt-fast is of another version, and is not used: pip install --upgrade 'sparkbolt[fast]' "
                "(it has kernels of version %s, expected %s)",
                package.KERNELS,
                KERNELS,
            )
            return None
        return importlib.import_module("sparkbolt_fast.kernels")
    except ImportError as error:
        log.debug("there are no compiled kernels: %s", error)
        return None
