"""Moments of a micro-batch at which a program may be made to do something, such as to die.

========== =====================================================================
planned    the plan was given to Spark
staging    what came of the micro-batch is known, its ledger entry not yet durable
staged     the ledger entry is durable, Spark has not committed
committed  Spark has committed, nothing is promoted
promoted   the verdicts were counted and spouts were told
compacting a snapshot of the ledger is written, the entries that it replaces are not yet removed
========== =====================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

MOMENTS = ("planned", "staging", "staged", "committed", "promoted", "compacting")


def plant(moment: str, act: Callable[[int], None]) -> None:
    """Have ``act`` called with the micro-batch's id whenever this process comes to a moment."""
    from sparkbolt.core.driver.machine import DriverMachine
    from sparkbolt.core.driver.planner import Planner
    from sparkbolt.files.local import LocalFiles
    from sparkbolt.spark.checkpoint import Checkpoint
    from sparkbolt.spark.life import Life

    owner, name, before = {
        "planned": (Planner, "offset_of", False),
        "staging": (Checkpoint, "write_entry", True),
        "staged": (Checkpoint, "write_entry", False),
        "committed": (DriverMachine, "committed", True),
        "promoted": (Life, "_told", False),
        "compacting": (LocalFiles, "write", False),
    }[moment]
    original = getattr(owner, name)

    def planted(self: Any, what: Any, *rest: Any) -> Any:
        number = _number(what)
        if before and number is not None:
            act(number)
        result = original(self, what, *rest)
        if not before and number is not None:
            act(number)
        return result

    setattr(owner, name, planted)


def _number(what: Any) -> int | None:
    """The micro-batch of a method's first argument: a number, a plan, a promotion, or the name of a snapshot."""
    if isinstance(what, str):
        match = re.fullmatch(r"ledger/(\d+)\.snapshot", what)
        return int(match[1]) if match else None
    return int(getattr(what, "micro_batch_id", what))
