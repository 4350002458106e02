"""Found sources: saves Spark's search for installed Python data sources if there are none.

With the first Python data source of a JVM, Spark starts a Python process that imports each installed package whose name
begins with ``pyspark_``, and asks it for a data source. The driver sees at once that there is no such package, if
Spark's Python is its own. In any other case Spark searches.

Source: PySpark's ``lookup_data_sources``, Spark's ``DataSourceManager``.
"""

from __future__ import annotations

import logging
import os
import pkgutil
import sys
from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

log = logging.getLogger("sparkbolt")

_MANAGER = "org.apache.spark.sql.execution.datasources.DataSourceManager$"
_SETTER = "dataSourceBuilders_$eq"
_PREFIX = "pyspark_"


def spare_the_search(context: SparkContext) -> bool:
    """Skip Spark's search if no data source is installed; returns whether it is skipped."""
    if not _is_own_python(context):
        return False
    given = (os.environ.get("PYTHONPATH", ""), context.environment.get("PYTHONPATH", ""))
    if any_installed({*sys.path, os.getcwd(), *(path for one in given for path in one.split(os.pathsep))}):
        return False
    jvm: Any = context._jvm  # pyspark has no public API for it
    try:
        manager = getattr(getattr(jvm, _MANAGER), "MODULE$")
        if manager.dataSourceBuilders().isEmpty():
            none = jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
            getattr(manager, _SETTER)(jvm.scala.Some(none))
    except (Py4JError, TypeError) as error:  # another version of Spark; TypeError: there is no such class
        log.debug("Spark looks for installed data sources: %s", error)
        return False
    return True


def _is_own_python(context: SparkContext) -> bool:
    """Whether the JVM, which has the environment of this process if that has started it, would look with its Python."""
    gateway: Any = context._gateway
    asked_for = os.environ.get("PYSPARK_DRIVER_PYTHON")
    return gateway.proc is not None and asked_for == context.pythonExec == sys.executable


def any_installed(paths: Iterable[str]) -> bool:
    """Whether there may be a package in these directories and archives that Spark would ask for a data source."""
    return any(name.startswith(_PREFIX) for path in paths for name in _names(path))


def _names(path: str) -> list[str]:
    """The names in a directory, or the modules of an archive; empty if Python would find nothing there."""
    if not os.path.isdir(path):
        return [module.name for module in pkgutil.iter_modules([path])]
    try:
        return os.listdir(path)
    except OSError:
        return []
