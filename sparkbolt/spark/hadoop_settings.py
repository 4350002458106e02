"""Hadoop settings: shrinks the settings that Spark sends to its executors with every stateful micro-batch.

Spark broadcasts all of Hadoop's settings, about a thousand, for each stateful level of each micro-batch. Each of them
carries the name of the file that it came from, compressed by itself. This module drops these names, which are only for
people to read; no setting changes. If that fails, Spark's default applies.

Source: Hadoop's ``Configuration.write``, Spark's ``BaseStateStoreRDD``.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.java_gateway import get_method
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

log = logging.getLogger("sparkbolt")

_CLASS = "org.apache.hadoop.conf.Configuration"
_SOURCES = "updatingResource"


def forget_sources(session: SparkSession) -> bool:
    """Drop the name of the file of each of Hadoop's settings; returns whether that succeeded.

    Args:
        session: any session; the settings are those of its Spark, for all sessions.
    """
    jvm: Any = session._jvm  # pyspark has no public API for it, and Hadoop none
    try:
        field = jvm.java.lang.Class.forName(_CLASS).getDeclaredField(_SOURCES)
        field.setAccessible(True)
        sources = field.get(session._jsc.hadoopConfiguration())
        if sources is not None:
            clear = get_method(sources, "clear")  # py4j's own one asks the JVM for one key after the other
            clear()
    except Py4JError as error:  # another version of Hadoop, or of its rules
        log.debug("Hadoop's settings are sent with their sources: %s", error)
        return False
    return True
