"""Checkpoint: the files that Sparkbolt stores beside Spark's own files.

    DIR/spark        Spark's checkpoint: offsets, commits, state; of a later generation DIR/spark-2 and so on
    DIR/ledger       n.entry for each staged micro-batch, n.snapshot for the entries that compaction has replaced
    DIR/plans        plans that are too large for an offset
    DIR/aborts       n: which messages a transactional micro-batch leaves out, while it is not promoted
    DIR/commits      n.component: the rows of micro-batch n for a committer, until they are committed outside
    DIR/dead-letters n.jsonl: the dead letters of micro-batch n, if no other target is set for them
    DIR/topology     the generations: the shapes that the topology has had, and the places of its tasks in each
    DIR/tasks        the component and index of each task number, to read the ledger without the topology
    DIR/identity     the id of the checkpoint, which no other checkpoint has
    DIR/format       the format of the checkpoint
    DIR/lives        the life numbers that were taken
    DIR/control      the requests of operators; for them also DIR/events (the timeline) and DIR/description (the shape)
    DIR/spark-version the newest version of Spark that has run on the checkpoint
    DIR/lock         locked by the JVM; the lock ends with the JVM
    DIR/owner        the process that took the lock last, for the error message of the next one

Rule 1: files are replaced atomically and durably (``sparkbolt.files``).
Rule 2: an entry counts only once Spark's ``commits/n`` exists.
Rule 3: a life number is durable before the life reads or plans anything, so no two lives have the same number.
Rule 4: Spark does not flush its logs to the disk, so after a power cut the remaining part of them counts. A snapshot
replaces entries only once the commit of its micro-batch is on the disk.
Rule 5: a life whose number is no longer the newest writes nothing that counts, and removes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import tempfile
import uuid
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from sparkbolt.base.file_access import Files
from sparkbolt.base.locations import local_directory, scheme_of
from sparkbolt.driver.ledger import ledger_files
from sparkbolt.driver.ledger.agreement import is_whole, metadata_mistake
from sparkbolt.driver.ledger.generations import Generation, Generations, SparkLog, keep
from sparkbolt.errors import CheckpointError
from sparkbolt.files.hadoop import HadoopFiles
from sparkbolt.files.local import LocalFiles, make_folder
from sparkbolt.spark.checkpoint_lock import lock
from sparkbolt.spark.location_checks import FILES_SECS, answer_within, check_hdfs
from sparkbolt.spark.versions import FILE_MANAGER

_IDENTITY = re.compile("[0-9a-f]{32}")
log = logging.getLogger("sparkbolt")
_MODULES = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure", "wasb": "hadoop-azure"}
"""By URL scheme, the Hadoop modules that are not part of Spark."""


def module_of(jvm: Any, name: str) -> Any:
    """The instance of a Scala object; ``name`` is the name of its class and ends in ``$``."""
    door = jvm.java.lang.Class.forName(name, True, jvm.Thread.currentThread().getContextClassLoader())
    return door.getField("MODULE$").get(None)


def local_files(directory: str) -> LocalFiles:
    """The files of a checkpoint in a directory, made if it is missing, without temporary files of dead processes.

    If somebody removes the directory afterwards, writes fail: a topology must not continue with half a checkpoint.
    """
    make_folder(directory)
    files = LocalFiles(directory, keeps_root=False)
    for folder in ("", *files.names("")):
        files.remove_leftovers(folder)
    return files


def hadoop_files(spark: SparkSession, directory: str, *, make: bool = True) -> HadoopFiles:
    """The files of a checkpoint that is not local.

    Args:
        spark: any session.
        directory: the checkpoint's URL.
        make: whether the directory is made if it is missing.

    Raises:
        CheckpointError: Spark has no client for this file system, or the file system does not answer.
    """
    jvm: Any = spark._jvm  # pyspark has no public API for Hadoop's file systems
    configuration = spark._jsc.hadoopConfiguration()
    check_hdfs(directory, (configuration.get("dfs.nameservices") or "").split(","))

    def connected() -> HadoopFiles:
        manager = module_of(jvm, FILE_MANAGER).create(jvm.org.apache.hadoop.fs.Path(directory), configuration)
        files = HadoopFiles(jvm, directory, configuration, manager)
        if make:
            files.make_folder("ledger")
        return files

    try:
        return answer_within(FILES_SECS, connected, directory)
    except Py4JJavaError as error:
        raise CheckpointError(f"checkpoint {directory} cannot be reached: {_why(spark, directory, error)}") from None


def _why(spark: SparkSession, directory: str, error: Py4JJavaError) -> str:
    """A sentence about the root cause of a Java exception; the cause's class decides what it recommends."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    kind, said = cause.getClass().getSimpleName(), str(cause.getMessage()).split("\n", 1)[0]
    if kind in ("ClassNotFoundException", "UnsupportedFileSystemException"):
        scheme = scheme_of(directory)
        version = spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion()  # type: ignore[union-attr]
        module = _MODULES.get(scheme or "")
        example = f", here org.apache.hadoop:{module}:{version}" if module else ""
        return (
            f"Spark has no file system for {scheme}:// ({said}): name the package that has it in the setting "
            f"spark.jars.packages{example} (sparkbolt run --conf spark.jars.packages=...)"
        )
    if kind == "UnknownHostException":
        return f"there is no host {said!r}"
    return f"{kind}: {said}"


def identity_in(files: Files) -> str | None:
    """The id of a checkpoint; None if there is no checkpoint, or its file is missing or damaged."""
    found = (files.read("identity") or b"").decode("ascii", "replace")
    return found if _IDENTITY.fullmatch(found) else None


class Checkpoint:
    """The checkpoint of one topology, locked for one driver."""

    reads_before = False
    """Whether the query that runs has taken its state from the folder of the generation before: Spark looks into that
    folder in each micro-batch of the query, though it needs it in the first one only."""

    def __init__(self, spark: SparkSession, directory: str, *, letters: str | None = None) -> None:
        """Lock the directory.

        Args:
            spark: the session whose file systems are used.
            directory: the checkpoint's path or URL.
            letters: a local directory for the folder ``dead-letters``; by default the checkpoint's own directory. It
                is made with the first dead letter.

        Raises:
            CheckpointError: another driver uses the checkpoint, it has another format, or its file system cannot be
                reached.
        """
        self.files: Files
        local = local_directory(directory)
        self.directory = directory if local is None else local
        self.url = self.directory if local is None else f"file://{local}"
        """The URL of the checkpoint; it does not depend on Spark's default file system."""
        unchanged: Files = hadoop_files(spark, directory, make=False) if local is None else LocalFiles(local)
        is_begun = ledger_files.check_format(unchanged, f"checkpoint {self.directory}")
        self.files = hadoop_files(spark, directory) if local is None else local_files(local)
        self._generations: Generations | None = None
        self.letters: Files = self.files if letters is None else LocalFiles(letters)
        self.letters_directory = f"{self.directory if letters is None else letters}/{ledger_files.LETTERS_FOLDER}"
        self._lock = None
        if local is not None:
            owner = self.files.read("owner")
            self._lock = lock(spark, self.directory, owner.decode() if owner else "another driver")
        try:
            if local is not None:
                pid = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
                self.files.write("owner", f"another driver (process {os.getpid()}, its JVM is {pid})".encode())
            if not is_begun:
                self.files.write(ledger_files.FORMAT_FILE, str(ledger_files.FORMAT).encode())
        except BaseException:
            self.close()
            raise

    @property
    def is_local(self) -> bool:
        """Whether it is a directory of this machine."""
        return self._lock is not None

    @property
    def spark_directory(self) -> str:
        """The URL of Spark's own files of the generation that runs."""
        return f"{self.url}/{self.generation.folder}"

    def close(self) -> None:
        """Release the lock, so that another driver can use the checkpoint."""
        if self._lock is not None:
            channel, self._lock = self._lock, None
            with contextlib.suppress(Py4JError, OSError):  # the JVM is gone, and the lock with it
                channel.close()

    @cached_property
    def tenure(self) -> ledger_files.Tenure:
        """The lives that this driver has begun."""
        return ledger_files.Tenure(self.files, where=f"checkpoint {self.directory}")

    def begin_life(self) -> int:
        """Begin a life and return its number: higher than all before, and never used by another life."""
        return self.tenure.begin(uuid.uuid4().hex)

    def identity(self) -> str:
        """The id of the checkpoint; it is made at the first request, and if its file is missing or damaged."""
        found = identity_in(self.files)
        if found is None:
            found = uuid.uuid4().hex
            self.files.write("identity", found.encode())
        return found

    @property
    def generations(self) -> Generations:
        """The generations; none if the checkpoint is new.

        Raises:
            CheckpointError: the file with them is missing or damaged.
        """
        if self._generations is None:
            self._generations = Generations.read(self.files, f"checkpoint {self.directory}")
        return self._generations

    @property
    def generation(self) -> Generation:
        """The generation that runs."""
        return self.generations[-1] if self.generations else Generation()

    def keep(self, generations: Generations) -> None:
        """Store the generations, if they differ from those that are stored (``generations.keep``)."""
        if generations != self.generations:
            keep(self.files, self.generations, generations, self._remove_folder)
            self._generations = generations

    def _remove_folder(self, folder: str) -> None:
        if isinstance(self.files, LocalFiles):
            shutil.rmtree(os.path.join(self.directory, folder), ignore_errors=True)
        else:
            self.files.remove(folder)

    @property
    def log(self) -> SparkLog:
        """Spark's log."""
        return SparkLog(self.files, self.generations)

    def last_commit(self) -> int:
        """The number of the last micro-batch that Spark has committed; -1 if there is none."""
        return self.log.last_commit

    def cut_back(self) -> None:
        """At the start, before anything else is read: make the checkpoint consistent again after a power cut.

        Spark does not flush its files to the disk, so the newest of them may be empty or missing. Its commits count up
        to the last one that is complete and whose offset and state are complete. Offsets after the next one are
        removed: Spark would continue with the newest of them, even if others before it are missing.

        Raises:
            CheckpointError: the ledger has no entry or snapshot as old as the last commit that is left (then nothing
                was removed), or the id of Spark's query is damaged.
        """
        # Offsets are listed first: if a driver elsewhere commits meanwhile, its new offsets must not be removed.
        offsets, commits = self.log.numbers("offsets"), self.log.numbers("commits")
        kept = [*commits]
        while kept and not (self._is_whole("offsets", kept[-1]) and self._is_whole("commits", kept[-1])):
            kept.pop()
        last = kept[-1] if kept else -1
        undone = ledger_files.undone(self.files, last, max(offsets, default=-1))
        for number in ledger_files.cut_back(self.files, last, where=f"checkpoint {self.directory}"):
            log.warning("checkpoint %s: ledger/%d.snapshot is removed: its commit is gone", self.directory, number)
        if undone is not None:
            log.warning("checkpoint %s: %s", self.directory, undone)
        for number in reversed(commits[len(kept) :]):
            self._remove_of_spark("commits", number, "is not whole, or its offset or state is not")
        for number in reversed(offsets):
            if number > last + 1:
                self._remove_of_spark("offsets", number, f"comes after commit {last}, the last that is left")
            elif number == last + 1 and not self._is_whole("offsets", number):
                self._remove_of_spark("offsets", number, "is not whole, and its micro-batch is planned anew")
        folder = self.generation.folder
        wrong = metadata_mistake(self.files, folder, is_logged=bool(self.files.names(f"{folder}/offsets")))
        if wrong is not None:
            raise CheckpointError(
                f"checkpoint {self.directory}: {wrong}: have it made anew with `sparkbolt checkpoint repair`"
            )

    def _is_whole(self, log_: str, number: int) -> bool:
        """Whether a file of one of Spark's logs is complete; for a commit, also that its state files are not empty."""
        whole = is_whole(log_, self.log.read(log_, number))
        return whole and (log_ == "offsets" or not self._has_empty_state(number))

    def _has_empty_state(self, micro_batch_id: int) -> bool:
        """Whether a file with the state of a commit is empty; if one is missing, Spark reports it.

        On the file system of a cluster this is not checked: there a file is visible only after it was closed.
        """
        if not isinstance(self.files, LocalFiles):
            return False
        for folder, version in self.log.stores(micro_batch_id):
            sizes = [self.files.size(f"{folder}/{version}.{form}") for form in ("changelog", "zip")]
            if 0 in sizes and not any(sizes):
                return True
        return False

    def _remove_of_spark(self, log_: str, number: int, why: str) -> None:
        name = self.log.name(log_, number)
        log.warning(
            "checkpoint %s: %s is removed: it %s (a power cut leaves such files; what is not committed runs again)",
            self.directory,
            name,
            why,
        )
        self.files.remove(name)

    def compact(self, micro_batch_id: int, snapshot: bytes) -> None:
        """Replace all entries up to a promoted micro-batch by a snapshot of the ledger.

        Raises:
            FencedError: another driver has taken over the checkpoint; it reads these entries.
        """
        if self.tenure.life is not None:
            self.tenure.check()
        if isinstance(self.files, LocalFiles):
            for log_ in ("offsets", "commits"):
                self.files.flush(self.log.name(log_, micro_batch_id))
        ledger_files.compact(self.files, micro_batch_id, snapshot)
        if micro_batch_id >= self.generation.base and not self.reads_before:
            # Its state is on the disk, so the folders before it are not needed.
            for folder in {one.folder for one in self.generations} - {self.generation.folder}:
                self._remove_folder(folder)


def letters_beside(name: str) -> str:
    """The directory for the dead letters of a topology whose checkpoint is temporary: unlike the checkpoint, it stays.

    The directory is made with the first dead letter.
    """
    name = re.sub(r"[^\w.-]", "_", name)
    return os.path.join(tempfile.gettempdir(), f"{ledger_files.KEPT_LETTERS}{name}-{uuid.uuid4().hex[:8]}")
