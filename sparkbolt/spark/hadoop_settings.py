"""Hadoop settings: what Spark sends to its executors with every micro-batch that has state.

Rule: only where each setting came from is forgotten, which is for people to read; no setting changes.

Spark broadcasts all of Hadoop's settings, about a thousand, for each stateful level of each micro-batch. With each of
them goes the name of the file that it came from, compressed by itself. Where that cannot be forgotten, all is as Spark
does it.

It is apart from ``starting``, its only user, because it knows Hadoop and nothing of topologies.
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
    """Forget which file each of Hadoop's settings came from; returns whether that succeeded.

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
