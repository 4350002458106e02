"""Versions: the supported versions of Spark, and the differences between them.

Every private name of Spark's JVM is in ``PRIVATE_CLASSES`` or ``PRIVATE_METHODS``, and every private name of a PySpark
DataFrame in ``PRIVATE_OF_A_DATA_FRAME``; the tests look for each in every supported version. A checkpoint never
continues with an older version of Spark than the newest that has run on it. Spark itself does not record which version
wrote a checkpoint, and refuses only unknown formats.

Spark 4.1 calls ``latestOffset`` of a Python data source without the end of the committed part, and ``partitions`` once
with an empty range after a restart (``data_source``, ``life``).
"""

from __future__ import annotations

import re

import pyspark

from sparkbolt.base.file_access import Files
from sparkbolt.errors import CheckpointError, EngineError

OLDEST, NEWEST = (4, 1), (4, 3)
"""The first and the last version that the tests run on; versions between them, too."""
FILE = "spark-version"
"""The file of a checkpoint with the newest version of Spark that has run on it."""

FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$"
CODECS = "org.apache.spark.io.CompressionCodec$"
CHANGELOG_READERS = "org.apache.spark.sql.execution.streaming.state.StateStoreChangelogReaderFactory"
STATE_PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATEFUL_OPERATOR = "org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec"
PRIVATE_CLASSES = (FILE_MANAGER, CODECS, CHANGELOG_READERS, STATE_PROVIDER, STATEFUL_OPERATOR)
PRIVATE_METHODS = {
    "org.apache.spark.ContextCleaner": ("doCleanupShuffle",),
    "org.apache.spark.sql.execution.streaming.runtime.StreamExecution": ("lastExecution",),
    "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper": ("streamingQuery",),
    STATEFUL_OPERATOR: ("checkpointInfoAccumulator",),
}
"""By class, the methods that ``repetition`` calls."""
PRIVATE_OF_A_DATA_FRAME = ("_collect_as_arrow",)


def number_of(version: str) -> tuple[int, int]:
    """Major and minor number of a version, as Spark or a vendor writes it.

    >>> number_of("4.3.0"), number_of("4.2.1-amzn-0")
    ((4, 3), (4, 2))

    Raises:
        EngineError: the text begins with no number.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None:
        raise EngineError(f"Spark says that its version is {version!r}: {_supported()}")
    return int(match[1]), int(match[2])


def installed() -> str:
    """The version of the installed PySpark."""
    return pyspark.__version__


def check_installed() -> None:
    """Refuse a PySpark that is not supported, before anything of it is used.

    Raises:
        EngineError: it is not.
    """
    check_version(installed())


def check_version(version: str, what: str = "the installed PySpark") -> None:
    """Refuse a version that is not supported.

    Args:
        version: the version, as it calls itself.
        what: its description in the message.

    Raises:
        EngineError: the version is too old or too new.
    """
    number = number_of(version)
    if number < OLDEST:
        lacks = "" if number == (4, 0) else ", and 3.x has no state in Python that could carry the guarantees"
        raise EngineError(
            f"{what} is {version}, which is too old{lacks}: {_supported()}; "
            f'install one of them (pip install "pyspark~={NEWEST[0]}.{NEWEST[1]}.0")'
        )
    if number > NEWEST:
        raise EngineError(
            f"{what} is {version}, which is newer than this version of Sparkbolt: {_supported()}; install one of them, "
            "or a newer Sparkbolt"
        )


def check_not_older(files: Files, version: str, where: str) -> str | None:
    """Check that no newer version of Spark has run on a checkpoint.

    Args:
        files: the files of the checkpoint.
        version: the version of Spark.
        where: the checkpoint, for the message.

    Returns:
        The newest version that has run on it; None if none has.

    Raises:
        CheckpointError: a newer version has run on it.
    """
    found = files.read(FILE)
    known = found.decode().strip() if found else None
    if known is not None and number_of(known) > number_of(version):
        raise CheckpointError(
            f"{where} was continued with Spark {known}, and this is Spark {version}: an older Spark may misread what a "
            f"newer one has written; continue with Spark {known} or later, or start with a new checkpoint directory"
        )
    return known


def note_version(files: Files, version: str, where: str) -> None:
    """Record that this version of Spark runs on a checkpoint; call it before a query starts.

    The arguments are those of ``check_not_older``.

    Raises:
        CheckpointError: a newer version has run on it; nothing was written.
    """
    known = check_not_older(files, version, where)
    if known is None or number_of(known) < number_of(version):
        files.write(FILE, version.encode())


def _supported() -> str:
    return f"Sparkbolt runs on Spark {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
