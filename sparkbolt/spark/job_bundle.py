"""Job bundle: a lane and its components as bytes, which are sent to executors.

Storing or forwarding a bundle imports nothing that tasks need. Spark starts processes that only inspect a source or a
processor before any task runs; they forward the bytes, and only ``executor`` unpacks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

SCHEMA = "dest int, frame binary"
"""The schema of the rows between levels."""


class ModuleFile(NamedTuple):
    """The file of a module of the program, as it was when the topology started."""

    path: str
    written_ns: int
    size: int
    root: str
    """The folder of the module search path in which the module, or its package, was found."""


@dataclass(frozen=True)
class JobBundle:
    """The result of ``executor.packed`` for a lane."""

    run: str
    """The id of one life of a topology; a restart of the query gets a new one."""
    lane: bytes
    components: Mapping[str, bytes]
    namespace: bytes
    path: tuple[str, ...]
    """The driver's module search path; empty if the executors are on other machines."""
    pages: str | None = None
    """The directory of the activity pages; None if the workers are on other machines."""
    modules: Mapping[str, ModuleFile] = field(default_factory=dict)
    """The files of the program's modules, by module."""
    checkpoint_id: str = ""
    """The id of the topology's checkpoint."""
