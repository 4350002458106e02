"""Launching: what ``Topology.run`` and ``start`` call, and where the names of sinks become objects.

Which question it answers: how does a topology come to its engine?
Rule: nothing is loaded before it is asked for: who builds a topology needs no Spark.

Read before: ``core.base.engine_door``.
"""

from __future__ import annotations

from typing import Any

from sparkbolt.core.base.engine_door import set_engine_door


class Launch:
    """The engine on Spark, with the live display, and the sinks that write files."""

    def run(self, topology: Any, options: dict[str, Any]) -> Any:
        """Run to the end, as ``sparkbolt run`` does."""
        from sparkbolt.cli.program import run

        return run(topology, **options)

    def start(self, topology: Any, options: dict[str, Any]) -> Any:
        """Start on Spark and return at once."""
        from sparkbolt.spark.running import start

        return start(topology, **options)

    def file_sink(self, path: str) -> Any:
        """The sink that writes dead letters into a file of JSON lines."""
        from sparkbolt.bolts.dead_letter_files import FileDeadLetters

        return FileDeadLetters(path)


set_engine_door(Launch())
