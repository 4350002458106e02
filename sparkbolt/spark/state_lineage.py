"""State lineage: limits the chain of versions that Spark's state depends on.

Spark writes each version of a state store as the changes since the version before. The header of each such file lists
the ids of all versions since the last snapshot. This header is a string of at most 65,535 bytes, which has room for 863
ids. Spark makes snapshots in the background, and only the process that made one begins a new list. So a topology that
often starts and soon ends (because of its schedule, or because it is killed) would reach a version that can never be
written.

A life whose state depends on more than ``LINEAGE_MAX`` versions therefore writes its first micro-batch as a snapshot,
which depends on no other version. Then the query is restarted, and a normal life follows.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from sparkbolt.spark.checkpoint import Checkpoint, module_of
from sparkbolt.spark.versions import CHANGELOG_READERS, CODECS, FILE_MANAGER

CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
LINEAGE_MAX = 400
"""Far below Spark's limit, and more than the versions that one life makes between two snapshots."""
_CODEC = "spark.sql.streaming.stateStore.compression.codec"
log = logging.getLogger("sparkbolt")


def choose_form(spark: SparkSession, checkpoint: Checkpoint) -> bool:
    """Set whether the next query of a session writes its state as changes or as snapshots.

    Args:
        spark: the topology's own session.
        checkpoint: the topology's checkpoint.

    Returns:
        True for snapshots; the life then ends after its first micro-batch.
    """
    length = longest(spark, checkpoint)
    as_snapshots = length > LINEAGE_MAX
    if as_snapshots:
        log.info(
            "the state stands on %d versions since its last snapshot, since the topology was started often and ended "
            "soon: the next micro-batch writes a snapshot, and the query is started anew behind it",
            length,
        )
    spark.conf.set(CHANGELOG, str(not as_snapshots).lower())
    return as_snapshots


def longest(spark: SparkSession, checkpoint: Checkpoint) -> int:
    """On how many versions the state of the last commit depends: the maximum over all state stores.

    If the checkpoint has fewer than ``LINEAGE_MAX`` commits, their number is returned as an upper bound.
    """
    last = checkpoint.last_commit()
    if last - checkpoint.generation.first < LINEAGE_MAX:
        return last - checkpoint.generation.first + 1
    return max((_length(spark, checkpoint, *store) for store in checkpoint.log.stores(last)), default=0)


def _length(spark: SparkSession, checkpoint: Checkpoint, folder: str, version: str) -> int:
    """On how many versions one state store depends."""
    if f"{version}.zip" in checkpoint.files.names(folder):
        return 1
    jvm: Any = spark._jvm  # pyspark has no public API for the files of a state store
    try:
        path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint.url}/{folder}/{version}.changelog")
        files = module_of(jvm, FILE_MANAGER).create(path.getParent(), spark._jsc.hadoopConfiguration())
        codec = module_of(jvm, CODECS).createCodec(spark._jsc.sc().conf(), spark.conf.get(_CODEC, "lz4"))
        reader = getattr(jvm, CHANGELOG_READERS)(files, path, codec).constructChangelogReader()
        try:
            return len(reader.lineage()) + 1
        finally:
            reader.closeIfNeeded()
    except Py4JError as error:  # if the state is damaged, the query reports it
        log.debug("the lineage of version %s in %s could not be read: %s", version, folder, error)
        return 0
