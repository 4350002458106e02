"""Launch: what ``Topology.run``, ``Topology.start`` and notebooks call, and where names of sinks become objects.

Which question it answers: how does a topology find its engine?
Rule: nothing is loaded before it is needed: a program that only builds a topology needs no Spark.

Read before: ``core.base.engine_door``.
"""

from __future__ import annotations

from typing import Any

from sparkbolt.core.base.engine_door import check_not_imported, set_engine_door


class Launch:
    """The engine on Spark, with the live display, the sinks that write files, and what notebooks show."""

    def run(self, topology: Any, options: dict[str, Any]) -> Any:
        """Run a topology to its end, as ``sparkbolt run`` does."""
        check_not_imported(topology)
        from sparkbolt.cli.program import run

        return run(topology, **options)

    def start(self, topology: Any, options: dict[str, Any]) -> Any:
        """Start a topology on Spark and return at once."""
        check_not_imported(topology)
        from sparkbolt.spark.versions import check_installed

        check_installed()  # before modules are loaded that another version may lack
        from sparkbolt.spark.starting import start

        return start(topology, **options)

    def file_sink(self, path: str) -> Any:
        """The sink that writes dead letters to a file, one JSON object per line."""
        from sparkbolt.bolts.dead_letter_files import FileDeadLetters

        return FileDeadLetters(path)

    def columns_of(self, spout: Any) -> Any:
        """The columns of the DataFrame of a ``SparkSpout``."""
        from sparkbolt.spark.versions import check_installed

        check_installed()
        from sparkbolt.spark.inlets import columns_of

        return columns_of(spout)

    def topology_html(self, topology: Any) -> str:
        """The picture of a topology."""
        from sparkbolt.drawing.html import topology_html

        return topology_html(topology)

    def running_html(self, running: Any) -> str:
        """The table about a running topology."""
        from sparkbolt.drawing.html import running_html

        return running_html(running)


set_engine_door(Launch())
