"""The import paths of the upper packages that lower ones call; a module is imported at the first call.

A program that only builds a topology needs no Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sparkbolt.base.engine_door import set_engine_door

PLACES = {
    "run": ("sparkbolt.faces.cli.program", "run"),
    "start": ("sparkbolt.spark.starting", "start"),
    "begun_from": ("sparkbolt.spark.state_reading", "begun_from"),
    "columns_of": ("sparkbolt.spark.inlet_frames", "columns_of"),
    "file_sink": ("sparkbolt.connectors.files.dead_letter_files", "FileDeadLetters"),
    "topology_html": ("sparkbolt.faces.drawing.html", "topology_html"),
    "running_html": ("sparkbolt.faces.drawing.html", "running_html"),
}
"""By name: a module, and the function or class in it."""


def load(name: str) -> Any:
    """Import the object of ``name`` in ``PLACES``, and return it.

    Raises:
        EngineError: it needs Spark, and the installed PySpark is not supported.
    """
    module, attribute = PLACES[name]
    if module.startswith("sparkbolt.spark."):
        from sparkbolt.spark.versions import check_installed

        check_installed()  # before modules are loaded that another version may lack
    return getattr(import_module(module), attribute)


set_engine_door(load)
