"""Start hook: lets Spark's Python processes import PySpark from its installation, not from Spark's zip of it.

Spark puts ``pyspark.zip`` first on the module search path of each process that it starts. Nothing in it is compiled,
and Python never stores bytecode for a zip, so each process would spend most of a second on compiling. Only the zip of
the very PySpark installation that is also on the path is left out, and a ``sitecustomize`` of the machine or of the
user still runs.

Python imports this module by its name, at the start of each process that has this directory on its ``PYTHONPATH``; it
imports only modules that Python has imported by then.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def without_zips(path: list[str]) -> list[str]:
    """A module search path without the duplicates of Spark's pip package: PySpark and py4j, zipped and installed.

    Args:
        path: as ``sys.path``.
    """
    homes = [os.path.join(entry, "pyspark") for entry in path]
    twice = [
        home
        for home in homes
        if os.path.join(home, "python", "lib", "pyspark.zip") in path
        and os.path.isfile(os.path.join(home, "__init__.py"))
    ]
    return [entry for entry in path if not any(_is_spare(entry, home) for home in twice)]


def _is_spare(entry: str, home: str) -> bool:
    """Whether an entry of the path has nothing that the installation of PySpark at ``home`` does not give."""
    directory, name = os.path.split(entry)
    if directory == os.path.join(home, "jars"):
        return True  # Spark adds its own jar; it contains no Python, and Python would read its whole index
    if directory != os.path.join(home, "python", "lib"):
        return False
    version = name.removeprefix("py4j-").removesuffix("-src.zip")
    is_installed = os.path.isdir(os.path.join(os.path.dirname(home), f"py4j-{version}.dist-info"))
    return name == "pyspark.zip" or is_installed


def run_the_next(path: list[str]) -> None:
    """Run the ``sitecustomize`` that Python would have found without this directory, if there is one."""
    here = os.path.dirname(os.path.abspath(__file__))
    found = PathFinder.find_spec("sitecustomize", [entry for entry in path if os.path.abspath(entry) != here])
    if found is not None and found.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(found)
        found.loader.exec_module(module)


sys.path[:] = without_zips(sys.path)
run_the_next(sys.path)
