"""Moments of a micro-batch at which a program may be made to do something, such as to die.

=========== =====================================================================
planned     the plan was given to Spark
staging     what came of the micro-batch is known, its ledger entry not yet durable
staged      the ledger entry is durable, Spark has not committed
committed   Spark has committed, nothing is promoted
promoted    the verdicts were counted and spouts were told
compacting  a snapshot of the ledger is written, the entries that it replaces are not yet removed
aborted     what failed in a transactional micro-batch is durable, it has not run again yet
repeated    it has run again, nothing is staged
before:out  Spark has committed, the rows of committer ``out`` are not outside yet
written:out they are outside, the checkpoint does not know it
=========== =====================================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOMENTS = ("planned", "staging", "staged", "committed", "promoted", "compacting")
"""Those that each topology comes to."""


def plant(moment: str, act: Callable[[int], None], topology: str | None = None) -> None:
    """Have ``act`` called with the micro-batch's id whenever this process comes to a moment.

    With ``topology``, for that one only: its checkpoint must be in a directory of its name.
    """
    from sparkbolt.driver.effects import Execute, Tell, Write, WriteEntry
    from sparkbolt.driver.machine import DriverMachine
    from sparkbolt.driver.planner import Planner
    from sparkbolt.files.local import LocalFiles
    from sparkbolt.spark.commit_calls import CommitCalls
    from sparkbolt.spark.life import Life

    where, _, component = moment.partition(":")
    owner, name, before = {
        "planned": (Planner, "offset_of", False),
        "staging": (Life, "_perform", True),
        "staged": (Life, "_perform", False),
        "committed": (DriverMachine, "committed", True),
        "promoted": (Life, "_perform", False),
        "compacting": (LocalFiles, "write", False),
        "aborted": (Life, "_perform", False),
        "repeated": (Life, "_perform", False),
        "before": (CommitCalls, "_commit", True),
        "written": (CommitCalls, "_commit", False),
    }[where]
    original = getattr(owner, name)

    def number_of(self: Any, arguments: tuple[Any, ...]) -> int | None:
        """The micro-batch that has come to the moment; None if none has."""
        if topology is not None and topology != _topology_of(self):
            return None
        if where == "compacting":
            match = re.fullmatch(r"ledger/(\d+)\.snapshot", arguments[0])
            return int(match[1]) if match else None
        if where in ("staging", "staged"):
            return arguments[0].micro_batch_id if isinstance(arguments[0], WriteEntry) else None
        if where == "promoted":
            return arguments[0].promotion.micro_batch_id if isinstance(arguments[0], Tell) else None
        if where == "aborted":
            is_abort = isinstance(arguments[0], Write) and arguments[0].name.startswith("aborts/")
            return int(arguments[0].name.removeprefix("aborts/")) if is_abort else None
        if where == "repeated":
            is_repeat = isinstance(arguments[0], Execute) and arguments[0].repeats
            return arguments[0].plan.micro_batch_id if is_repeat else None
        if component:
            return arguments[0].txid if arguments[0].component == component else None
        return int(getattr(arguments[0], "micro_batch_id", arguments[0]))

    def planted(self: Any, *arguments: Any, **named: Any) -> Any:
        number = number_of(self, arguments) if before else None
        if number is not None:
            act(number)
        result = original(self, *arguments, **named)
        number = None if before else number_of(self, arguments)
        if number is not None:
            act(number)
        return result

    setattr(owner, name, planted)


def _topology_of(owner: Any) -> str:
    """The name of the topology that a part of the engine works for."""
    from sparkbolt.files.local import LocalFiles
    from sparkbolt.spark.life import Life

    if isinstance(owner, LocalFiles):
        return Path(owner.root).parent.name
    if isinstance(owner, Life):  # in its beginning, too, when it has no coordinator
        return str(owner.lane.topology.name)
    lane = owner.coordinator.lane if hasattr(owner, "coordinator") else owner._lane
    return str(lane.topology.name)
