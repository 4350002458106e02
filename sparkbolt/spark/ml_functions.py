"""ML functions: delays the functions that Spark registers for machine learning in each new session.

Spark's part for machine learning registers three internal functions with each new session. They use Scala's reflection,
which nothing else needs: loading it took a fifth of the time until there was a session. A class of ours registers a
function when it is first requested. If there are other extensions of that kind, or a Spark is built differently,
Spark's default applies.

Source: Spark's ``SparkSession.applyAndLoadExtensions`` and ``InternalFunctionRegistration``.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from sparkbolt.spark.java_classes import java_class

log = logging.getLogger("sparkbolt")

_CLASS = "sparkbolt.MlFunctions"
_SESSION = "org.apache.spark.sql.classic.SparkSession"
_PROVIDERS = "META-INF/services/org.apache.spark.sql.SparkSessionExtensionsProvider"
_OF_ML = "/spark-mllib_"
_APPLY = f"{_SESSION.replace('.', '$')}$$applyExtensions"


def session_without(context: SparkContext) -> bool:
    """Make the session that PySpark returns at the next request; returns whether there is such a session.

    Args:
        context: of the JVM, which has no session yet.
    """
    jvm: Any = context._jvm  # pyspark has no public API for it
    java_context: Any = context._jsc
    try:
        ours = java_class(jvm, _CLASS) if _only_ml(jvm) else None
        if ours is None:
            return False
        ours.getMethod("defer", None).invoke(None, None)
        companion = getattr(getattr(jvm, f"{_SESSION}$"), "MODULE$")
        extensions = getattr(companion, _APPLY)(java_context.sc(), jvm.org.apache.spark.sql.SparkSessionExtensions())
        nothing, no_settings = jvm.scala.Option.empty(), jvm.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        sessions = jvm.org.apache.spark.sql.classic.SparkSession
        session = sessions(java_context.sc(), nothing, nothing, extensions, no_settings, no_settings)
        sessions.setDefaultSession(session)
    except (Py4JError, TypeError) as error:  # another version of Spark; TypeError: there is no such class
        log.debug("Spark's functions for machine learning are registered at the start: %s", error)
        return False
    return True


def _only_ml(jvm: Any) -> bool:
    """Whether Spark's machine learning is the only extension of each session."""
    found = jvm.java.lang.Thread.currentThread().getContextClassLoader().getResources(_PROVIDERS)
    places = []
    while found.hasMoreElements():
        places.append(str(found.nextElement()))
    return len(places) == 1 and _OF_ML in places[0]
