"""Checkpoint: the files that Sparkbolt stores beside Spark's own files.

Which question it answers: where is the ledger's log, which micro-batches are committed, which driver owns the
checkpoint?

    DIR/spark        Spark's checkpoint: offsets, commits, state
    DIR/ledger       n.entry for each staged micro-batch, n.snapshot for the entries that compaction has replaced
    DIR/plans        plans that are too large for an offset
    DIR/aborts       n: which messages a transactional micro-batch leaves out, while it is not promoted
    DIR/commits      n.component: the rows that a committer has kept in micro-batch n, while they are not outside
    DIR/dead-letters n.jsonl: the dead letters of micro-batch n, if no other target is set for them
    DIR/topology     the fingerprint and the placement that the checkpoint was begun with
    DIR/tasks        the component and index of each task number, to read the ledger without the topology
    DIR/identity     the id of the checkpoint, which no other checkpoint has
    DIR/format       the format of the checkpoint
    DIR/lives        the life numbers that were taken
    DIR/control      what operators have asked for; DIR/events what happened, DIR/description what there is, for them
    DIR/spark-version the newest version of Spark that has run on the checkpoint
    DIR/lock         locked by the JVM; the lock ends with the JVM
    DIR/owner        the process that took the lock last, for the error message of the next one

Rule 1: a file is written under another name and renamed, so it exists completely or not at all.
Rule 2: an entry counts only once Spark's ``commits/n`` exists.
Rule 3: a life number is durable before the life reads or plans anything, so no two lives have the same number.
Rule 4: Spark does not flush its logs to the disk, so after a power cut the part of them that is left counts. A snapshot
replaces entries only once the commit of its micro-batch is on the disk.
Rule 5: a life whose number is no longer the newest writes nothing that counts, and removes nothing.

Read before: ``core.driver.ledger.files``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from sparkbolt.core.base.files import Files
from sparkbolt.core.base.locations import local_directory, scheme_of
from sparkbolt.core.driver import commits, transaction
from sparkbolt.core.driver.ledger import files as ledger_files
from sparkbolt.core.driver.ledger.agreement import TOPOLOGY_MISSING, is_whole, metadata_mistake, topology_in
from sparkbolt.core.driver.ledger.ledger import Ledger
from sparkbolt.core.model.lane import Lane, moved
from sparkbolt.core.model.topology import Topology
from sparkbolt.core.model.topology_changes import changes, differs
from sparkbolt.errors import CheckpointError
from sparkbolt.spark.checkpoint_lock import lock
from sparkbolt.spark.locations import FILES_SECS, answer_within, check_hdfs
from sparkbolt.spark.versions import FILE_MANAGER, note_version

CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Requests from Hadoop's S3 client a write that fails if the object exists; other clients ignore the option."""
_IDENTITY = re.compile("[0-9a-f]{32}")
log = logging.getLogger("sparkbolt")
_MODULES = {"s3a": "hadoop-aws", "abfs": "hadoop-azure", "abfss": "hadoop-azure", "wasb": "hadoop-azure"}
"""By URL scheme, the Hadoop modules that are not part of Spark."""


def module_of(jvm: Any, name: str) -> Any:
    """The instance of a Scala object; ``name`` is the name of its class and ends in ``$``."""
    door = jvm.java.lang.Class.forName(name, True, jvm.Thread.currentThread().getContextClassLoader())
    return door.getField("MODULE$").get(None)


class LocalFiles:
    """A checkpoint in a local directory."""

    def __init__(self, directory: str, folders: Sequence[str] = ("ledger", "lives", "plans")) -> None:
        """Make these folders if they are missing; with no folders, the directory is made with the first write."""
        self._root = Path(directory)
        for folder in folders:
            (self._root / folder).mkdir(parents=True, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if there is none."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file under a temporary name, flush it to the disk, and rename it."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:  # a full disk: the incomplete file only takes space
            temporary.unlink(missing_ok=True)
            raise

    def size(self, name: str) -> int | None:
        """The size of a file in bytes, or None if there is none."""
        try:
            return (self._root / name).stat().st_size
        except FileNotFoundError:
            return None

    def flush(self, name: str) -> None:
        """Flush a file of another process, and its directory, to the disk; nothing if it does not exist."""
        path = self._root / name
        for place in (path, path.parent):
            with contextlib.suppress(FileNotFoundError):
                descriptor = os.open(place, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that must not exist yet, and flush it to the disk; False if it exists."""
        path = self._root / name
        try:
            file = path.open("xb")
        except FileExistsError:
            return False
        try:
            with file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # a full disk: an empty file would be taken for somebody else's
            path.unlink(missing_ok=True)
            raise
        return True

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it does not exist."""
        try:
            return os.listdir(self._root / folder)
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        (self._root / name).unlink(missing_ok=True)


class HadoopFiles:
    """A checkpoint on any file system that Hadoop supports, written as Spark writes its own files beside it.

    Spark knows for each file system how to replace a file atomically, and users may have configured it
    (``spark.sql.streaming.checkpointFileManagerClass``). To delete and then rename could lose the file in a crash.
    """

    def __init__(self, spark: SparkSession, directory: str, *, make: bool = True) -> None:
        """Open the directory ``directory``, a URL; with ``make``, its folders are made if they are missing."""
        jvm: Any = spark._jvm  # pyspark has no public API for Hadoop's file systems
        self._path = jvm.org.apache.hadoop.fs.Path
        self._root = directory
        self._configuration = spark._jsc.hadoopConfiguration()
        self._manager = module_of(jvm, FILE_MANAGER).create(self._path(directory), self._configuration)
        self._read_all = jvm.org.apache.hadoop.io.IOUtils.readFullyToByteArray
        for folder in ("ledger", "lives", "plans") if make else ():
            self._manager.mkdirs(self._at(folder))

    def _at(self, name: str) -> Any:
        return self._path(f"{self._root}/{name}")

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if there is none."""
        path = self._at(name)
        if not self._manager.exists(path):
            return None
        stream = self._manager.open(path)
        try:
            return bytes(self._read_all(stream))
        finally:
            stream.close()

    def write(self, name: str, data: bytes) -> None:
        """Write a complete file, and replace an older one atomically."""
        folder = name.partition("/")[0]
        if folder in (ledger_files.LETTERS_FOLDER, transaction.FOLDER, commits.FOLDER):
            self._manager.mkdirs(self._at(folder))
        stream = self._manager.createAtomic(self._at(name), True)
        try:
            stream.write(bytearray(data))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that must not exist yet; False if it exists.

        HDFS and most object stores check this atomically; on S3, Hadoop's client must request a conditional write.
        """
        path = self._at(name)
        try:
            builder = path.getFileSystem(self._configuration).createFile(path).overwrite(False).recursive()
            stream = builder.opt(CONDITIONAL, True).build()
            stream.write(bytearray(data))
            stream.close()
        except Py4JJavaError as error:
            if "FileAlreadyExists" in error.java_exception.getClass().getName():
                return False
            raise
        return True

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it does not exist."""
        path = self._at(folder)
        if not self._manager.exists(path):
            return []
        return [status.getPath().getName() for status in self._manager.list(path)]

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        self._manager.delete(self._at(name))


def hadoop_files(spark: SparkSession, directory: str, *, make: bool = True) -> HadoopFiles:
    """The files of a checkpoint that is not local.

    Args:
        spark: any session.
        directory: the checkpoint's URL.
        make: whether missing folders are made.

    Raises:
        CheckpointError: Spark has no client for this file system, or the file system does not answer.
    """
    services = spark._jsc.hadoopConfiguration().get("dfs.nameservices") or ""
    check_hdfs(directory, services.split(","))
    try:
        return answer_within(FILES_SECS, lambda: HadoopFiles(spark, directory, make=make), directory)
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


class Checkpoint:
    """The checkpoint of one topology, locked for one driver."""

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
        unchanged: Files = hadoop_files(spark, directory, make=False) if local is None else LocalFiles(local, ())
        is_begun = ledger_files.check_format(unchanged, f"checkpoint {self.directory}")
        self.files = hadoop_files(spark, directory) if local is None else LocalFiles(local)
        self.letters: Files = self.files if letters is None else LocalFiles(letters, folders=())
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
        """The URL of Spark's own files."""
        return f"{self.url}/spark"

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
        """The id of the checkpoint; it is made when it is first asked for, and if its file is missing or damaged."""
        found = (self.files.read("identity") or b"").decode("ascii", "replace")
        if _IDENTITY.fullmatch(found) is None:
            found = uuid.uuid4().hex
            self.files.write("identity", found.encode())
        return found

    def check_life(self, life: int | None = None) -> None:
        """Check, before a life writes anything that counts, that no other life has begun meanwhile.

        On a local disk the lock already prevents that. Other file systems have no lock, and there this check stops an
        old driver that was believed to be dead.

        Args:
            life: the number of the life; by default the last one that this driver has begun, even if that life ended
                before it read anything.

        Raises:
            FencedError: another driver has taken over the checkpoint.
        """
        self.tenure.check(life)

    def placement(self, topology: Topology) -> Mapping[str, Any] | None:
        """The stored placement of the topology's tasks; None if the checkpoint is new.

        Raises:
            CheckpointError: the checkpoint belongs to another topology, or the placement is missing or damaged.
        """
        data = self.files.read("topology")
        if data is None:
            if self.last_commit() >= 0:
                raise CheckpointError(
                    f"checkpoint {self.directory} has {TOPOLOGY_MISSING}: it is damaged; restore the file, or "
                    "start with a new checkpoint directory"
                )
            return None
        known = topology_in(data, f"checkpoint {self.directory}")
        self._refuse(changes(known["fingerprint"], json.loads(json.dumps(topology.fingerprint()))))
        placement: Mapping[str, Any] = known["placement"]
        return placement

    def keep_placement(self, lane: Lane, before: Mapping[str, Any] | None) -> None:
        """Store the placement of the topology's tasks, if it differs from ``before``.

        Raises:
            CheckpointError: with the new placement, bolts would not find their state.
        """
        placement = lane.placement()
        if before is not None:
            self._refuse(moved(lane, before))
        if placement != before:
            body = {"fingerprint": lane.topology.fingerprint(), "placement": placement}
            self.files.write("topology", json.dumps(body).encode())

    def _refuse(self, differences: Sequence[str]) -> None:
        if differences:
            raise CheckpointError(differs(self.directory, differences))

    def last_commit(self) -> int:
        """The number of the last micro-batch that Spark has committed; -1 if there is none."""
        return max(self._numbers("spark/commits"), default=-1)

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
        offsets, commits = self._numbers("spark/offsets"), self._numbers("spark/commits")
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
        wrong = metadata_mistake(self.files, is_logged=bool(self._numbers("spark/offsets")))
        if wrong is not None:
            raise CheckpointError(
                f"checkpoint {self.directory}: {wrong}: have it made anew with `sparkbolt checkpoint repair`"
            )

    def _is_whole(self, log_: str, number: int) -> bool:
        """Whether a file of one of Spark's logs is complete; for a commit, also that its state files are not empty."""
        whole = is_whole(log_, self.files.read(f"spark/{log_}/{number}"))
        return whole and (log_ == "offsets" or not self._has_empty_state(number))

    def _has_empty_state(self, micro_batch_id: int) -> bool:
        """Whether a file with the state of a commit is empty; if one is missing, Spark reports it.

        On the file system of a cluster this is not checked: there a file exists only as it was closed.
        """
        if not isinstance(self.files, LocalFiles):
            return False
        for folder, unique_id in self.state_stores(micro_batch_id):
            name = f"{folder}/{micro_batch_id + 1}_{unique_id}"
            sizes = [self.files.size(f"{name}.{form}") for form in ("changelog", "zip")]
            if 0 in sizes and not any(sizes):
                return True
        return False

    def state_stores(self, micro_batch_id: int) -> Iterator[tuple[str, str]]:
        """(folder, id of the version) of each of Spark's state stores, for a committed micro-batch."""
        commit = self.files.read(f"spark/commits/{micro_batch_id}") or b""
        _, _, body = commit.partition(b"\n")
        known = json.loads(body or b"{}").get("stateUniqueIds") or {}
        for operator, stores in known.items():
            for number, ids in enumerate(stores):
                yield f"spark/state/{operator}/{number}", ids[0]

    def _numbers(self, folder: str) -> list[int]:
        return sorted(int(name) for name in self.files.names(folder) if name.isdigit())

    def _remove_of_spark(self, log_: str, number: int, why: str) -> None:
        log.warning(
            "checkpoint %s: spark/%s/%d is removed: it %s (a power cut leaves such files; what is not committed runs "
            "again)",
            self.directory,
            log_,
            number,
            why,
        )
        self.files.remove(f"spark/{log_}/{number}")
        self.files.remove(f"spark/{log_}/.{number}.crc")

    def note_version(self, version: str) -> None:
        """Record which version of Spark runs on the checkpoint.

        Raises:
            CheckpointError: a newer version has run on it.
        """
        note_version(self.files, version, f"checkpoint {self.directory}")

    def load_ledger(self, make: Callable[[], Ledger], restore: Callable[[bytes, str], Ledger]) -> Ledger:
        """The ledger with all entries up to the last commit.

        Args:
            make: makes an empty ledger.
            restore: makes a ledger from a snapshot and its name.

        Raises:
            CheckpointError: an entry that counts is missing or damaged.
        """
        where = f"checkpoint {self.directory}"
        return ledger_files.load_ledger(self.files, self.last_commit(), make, restore, where=where)

    def drop_uncommitted_letters(self) -> None:
        """At the beginning of a life: remove the dead letters of micro-batches that were not committed."""
        ledger_files.drop_uncommitted_letters(self.letters, self.last_commit())

    def write_letters(self, micro_batch_id: int, letters: Sequence[bytes]) -> None:
        """Make the dead letters of a micro-batch durable; they replace those of an earlier run of it."""
        ledger_files.write_letters(self.letters, micro_batch_id, letters)

    def write_entry(self, micro_batch_id: int, entry: bytes) -> None:
        """Make an entry of the ledger's log durable; it replaces an earlier one of the same micro-batch."""
        ledger_files.write_entry(self.files, micro_batch_id, entry)

    def compact(self, micro_batch_id: int, snapshot: bytes) -> None:
        """Replace all entries up to a promoted micro-batch by a snapshot of the ledger.

        Raises:
            FencedError: another driver has taken over the checkpoint; it reads these entries.
        """
        if self.tenure.life is not None:
            self.check_life()
        if isinstance(self.files, LocalFiles):
            self.files.flush(f"spark/offsets/{micro_batch_id}")
            self.files.flush(f"spark/commits/{micro_batch_id}")
        ledger_files.compact(self.files, micro_batch_id, snapshot)


def letters_beside(name: str) -> str:
    """The directory for the dead letters of a topology whose checkpoint is temporary: unlike the checkpoint, it stays.

    The directory is made with the first dead letter.
    """
    name = re.sub(r"[^\w.-]", "_", name)
    return os.path.join(tempfile.gettempdir(), f"dead-letters-of-{name}-{uuid.uuid4().hex[:8]}")
