"""Local disk: writes the small files of a checkpoint that is on a disk of this machine.

By default Spark starts processes for them (``chmod``, ``readlink``), about a dozen for each micro-batch, and does not
flush them. Sparkbolt's file system, in ``java/``, starts none and flushes each file and its folder. It is set for the
query's own session alone, and executors outside of the driver's JVM receive the class. If its class cannot be loaded,
or users have set a file system or a file manager themselves, Spark's default applies.

Source: Hadoop's ``RawLocalFileSystem`` and Spark's ``CheckpointFileManager``.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from sparkbolt.spark.java_classes import JAR, java_class

FILE_SYSTEM = "fs.file.impl"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_CLASS = "sparkbolt.SyncedLocalFileSystem"
_SETTINGS = {
    FILE_SYSTEM: _CLASS,
    # Hadoop caches one file system for each scheme, whatever the settings of the caller.
    "fs.file.impl.disable.cache": "true",
    FILE_MANAGER: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
}


def write_synced(session: SparkSession, *, executors: bool = False) -> bool:
    """Let a query's own session write local files with Sparkbolt's class; returns whether it does.

    Args:
        session: the session of one query.
        executors: whether there are executors that are not threads of the driver's JVM; they are sent the class.
    """
    chosen = session.conf.get(FILE_MANAGER, None), session._jsc.hadoopConfiguration().get(FILE_SYSTEM)
    if any(chosen) or java_class(session._jvm, _CLASS) is None:
        return False
    if executors:
        session._jsc.addJar(str(JAR))
    for key, value in _SETTINGS.items():
        session.conf.set(key, value)
    return True
