"""The job bundle: a lane and its components on their way to executors, as bytes.

Which question it answers: what do Spark's processes get of a topology?
Rule: to hold it, or to pass it on, costs nothing: Spark starts processes that only look at a source or a processor
before any task runs, and each of them would load all that tasks need. ``executor`` unpacks it.

Read before: ``core.worker.environment``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SCHEMA = "dest int, frame binary"
"""Of the rows between levels."""


@dataclass(frozen=True)
class JobBundle:
    """What ``workers.packed`` makes of a lane."""

    run: str
    """Names one start of a topology."""
    lane: bytes
    components: Mapping[str, bytes]
    namespace: bytes
    path: tuple[str, ...]
    """Where the driver finds modules, if executors are on the same machine and are to look there too."""
    pages: str | None = None
    """The directory where workers show what they are at, if they are on the driver's machine."""
