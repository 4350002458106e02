"""The checkpoint: what stands beside Spark's own files.

Which question it answers: where is the ledger's log, which micro-batches are committed, whose checkpoint is it?

    DIR/spark        Spark's checkpoint: offsets, commits, state
    DIR/ledger       n.entry for each micro-batch that was staged, n.snapshot for what compaction made of them
    DIR/plans        plans that are too large for an offset
    DIR/dead-letters n.jsonl: the dead letters of micro-batch n, where they go nowhere else
    DIR/topology     the fingerprint and the placement that the checkpoint was begun with
    DIR/tasks        which task number is whose, for those who read the ledger without the topology
    DIR/life         the number of the last life; raised before anything else of a life happens
    DIR/lock         held by the JVM: it dies with it
    DIR/owner        who took the lock last, for the message to whoever does not get it

Rule 1: a file is written under another name and renamed, so it is there whole or not at all.
Rule 2: an entry counts only once Spark's ``commits/n`` exists.
Rule 3: a life number is durable before the life reads or plans anything, so no two lives have one number.
Rule 4: a life whose number is no longer the newest writes nothing that counts, and removes nothing.

Read before: ``core.ledger_files``.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from sparkbolt.core import ledger_files
from sparkbolt.core.ledger import Ledger
from sparkbolt.core.ledger_files import Files
from sparkbolt.core.topology import Topology, changes
from sparkbolt.errors import CheckpointError

LOCK_WAIT_SECS = 20.0
"""How long a start waits for the lock: a JVM whose driver was killed needs a moment to die."""
FILE_MANAGER = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$"


def module_of(jvm: Any, name: str) -> Any:
    """The one instance of a Scala object, whose class's name ends in ``$``."""
    door = jvm.java.lang.Class.forName(name, True, jvm.Thread.currentThread().getContextClassLoader())
    return door.getField("MODULE$").get(None)


class LocalFiles:
    """A checkpoint in a local directory."""

    def __init__(self, directory: str, folders: Sequence[str] = ("ledger", "plans")) -> None:
        """Make the directory, with these folders, if it is missing; without any when something is written."""
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
        """Write, flush to the disk, rename."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:  # a full disk: what was written of it only takes room
            temporary.unlink(missing_ok=True)
            raise

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it does not exist."""
        try:
            return os.listdir(self._root / folder)
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """Remove a file that may or may not be there."""
        (self._root / name).unlink(missing_ok=True)


class HadoopFiles:
    """A checkpoint on any file system that Hadoop knows, written as Spark writes its own beside it.

    Spark knows for each file system how a file is replaced atomically, and its users may have told it
    (``spark.sql.streaming.checkpointFileManagerClass``); to delete and then rename would lose a file to a crash.
    """

    def __init__(self, spark: SparkSession, directory: str, *, make: bool = True) -> None:
        """Make the directory if it is missing, unless it is only read."""
        jvm: Any = spark._jvm  # pyspark has no public door to Hadoop's file systems
        self._path = jvm.org.apache.hadoop.fs.Path
        self._root = directory
        configuration = spark._jsc.hadoopConfiguration()
        self._manager = module_of(jvm, FILE_MANAGER).create(self._path(directory), configuration)
        self._read_all = jvm.org.apache.hadoop.io.IOUtils.readFullyToByteArray
        for folder in ("ledger", "plans") if make else ():
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
        """Write a file whole, replacing it atomically."""
        if name.startswith(f"{ledger_files.LETTERS_FOLDER}/"):
            self._manager.mkdirs(self._at(ledger_files.LETTERS_FOLDER))
        stream = self._manager.createAtomic(self._at(name), True)
        try:
            stream.write(bytearray(data))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def names(self, folder: str) -> list[str]:
        """The names in a folder; none if it does not exist."""
        path = self._at(folder)
        if not self._manager.exists(path):
            return []
        return [status.getPath().getName() for status in self._manager.list(path)]

    def remove(self, name: str) -> None:
        """Remove a file that may or may not be there."""
        self._manager.delete(self._at(name))


class Checkpoint:
    """The checkpoint of one topology, locked for one driver."""

    _life: int | None = None
    """The number of the life that this driver has begun last."""

    def __init__(self, spark: SparkSession, directory: str, *, letters: str | None = None) -> None:
        """Lock the directory.

        Args:
            spark: whose file systems are used.
            directory: where it is.
            letters: a local directory whose ``dead-letters`` takes those of the checkpoint; by default its own. It is
                made when there is one to write.

        Raises:
            CheckpointError: another driver has it.
        """
        scheme = urlparse(directory).scheme
        self.directory = directory
        self.files: Files
        local = scheme in ("", "file")
        if local:
            self.directory = os.path.abspath(urlparse(directory).path if scheme else directory)
            self.files = LocalFiles(self.directory)
        else:
            self.files = HadoopFiles(spark, directory)
        self.letters: Files = self.files if letters is None else LocalFiles(letters, folders=())
        self.letters_directory = f"{self.directory if letters is None else letters}/{ledger_files.LETTERS_FOLDER}"
        self._lock = None
        if local:
            owner = self.files.read("owner")
            self._lock = _lock(spark, self.directory, owner.decode() if owner else "another driver")
            pid = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
            try:
                self.files.write("owner", f"another driver (process {os.getpid()}, its JVM is {pid})".encode())
            except OSError:
                self.close()
                raise

    @property
    def spark_directory(self) -> str:
        """Where Spark keeps its own files."""
        return f"{self.directory}/spark"

    def close(self) -> None:
        """Let another driver have it."""
        if self._lock is not None:
            channel, self._lock = self._lock, None
            with contextlib.suppress(Py4JError, OSError):  # the JVM is gone, and the lock with it
                channel.close()

    def begin_life(self) -> int:
        """The number of the life that begins now: one more than ever before."""
        self._life = ledger_files.begin_life(self.files)
        return self._life

    def check_life(self, life: int) -> None:
        """Before a life writes anything that counts: nobody began another one meanwhile.

        The lock sees to that on a local disk; elsewhere there is none, and this is what keeps a driver out that was
        thought dead.

        Raises:
            CheckpointError: another driver has taken the checkpoint over.
        """
        newest = self.files.read("life")
        if newest is None or int(newest) != life:
            raise CheckpointError(
                f"checkpoint {self.directory} was taken over by another driver (life {newest and int(newest)} began, "
                f"this one is {life}): this one ends without counting what it does"
            )

    def placement(self, topology: Topology) -> Mapping[str, Any] | None:
        """How the topology was laid out when the checkpoint was begun; None if it begins now.

        Raises:
            CheckpointError: the checkpoint is another topology's.
        """
        data = self.files.read("topology")
        if data is None:
            if self.last_commit() >= 0:
                raise CheckpointError(
                    f"checkpoint {self.directory} has committed micro-batches but no file 'topology': it is damaged; "
                    "restore the file, or start with a new checkpoint directory"
                )
            return None
        try:
            known = json.loads(data)
        except ValueError as error:
            raise CheckpointError(f"checkpoint {self.directory}: its file 'topology' is damaged ({error})") from error
        differences = changes(known["fingerprint"], json.loads(json.dumps(topology.fingerprint())))
        if differences:
            listed = "".join(f"\n  - {difference}" for difference in differences)
            raise CheckpointError(
                f"checkpoint {self.directory} was begun by a topology that differs:{listed}\nGive the topology the "
                "shape it had, or start it with a new checkpoint directory (which starts from the beginning)"
            )
        placement: Mapping[str, Any] = known["placement"]
        return placement

    def keep_placement(self, topology: Topology, placement: Mapping[str, Any]) -> None:
        """Note how the topology is laid out."""
        self.files.write(
            "topology", json.dumps({"fingerprint": topology.fingerprint(), "placement": placement}).encode()
        )

    def last_commit(self) -> int:
        """The last micro-batch that Spark has committed; -1 if there is none."""
        found = [int(name) for name in self.files.names("spark/commits") if name.isdigit()]
        return max(found, default=-1)

    def load_ledger(self, make: Callable[[], Ledger], restore: Callable[[bytes, str], Ledger]) -> Ledger:
        """The ledger as of the last commit.

        Raises:
            CheckpointError: an entry that counts is missing or damaged.
        """
        where = f"checkpoint {self.directory}"
        return ledger_files.load_ledger(self.files, self.last_commit(), make, restore, where=where)

    def drop_uncommitted_letters(self) -> None:
        """A life begins: what no committed micro-batch has written is no letter."""
        ledger_files.drop_uncommitted_letters(self.letters, self.last_commit())

    def write_letters(self, micro_batch_id: int, letters: Sequence[bytes]) -> None:
        """Make the dead letters of a micro-batch durable, replacing those of an earlier run of it."""
        ledger_files.write_letters(self.letters, micro_batch_id, letters)

    def write_entry(self, micro_batch_id: int, entry: bytes) -> None:
        """Make an entry durable, replacing an earlier one of the same micro-batch."""
        ledger_files.write_entry(self.files, micro_batch_id, entry)

    def compact(self, micro_batch_id: int, snapshot: bytes) -> None:
        """Replace all entries up to a promoted micro-batch by a snapshot of the ledger.

        Raises:
            CheckpointError: another driver has taken the checkpoint over, which reads these entries.
        """
        if self._life is not None:
            self.check_life(self._life)
        ledger_files.compact(self.files, micro_batch_id, snapshot)


def _lock(spark: SparkSession, directory: str, owner: str) -> Any:
    """Lock the directory from within the JVM, so that the lock lives exactly as long as what could commit."""
    jvm: Any = spark._jvm  # pyspark has no public door to the JVM
    until = time.monotonic() + LOCK_WAIT_SECS
    while True:
        channel = jvm.java.io.RandomAccessFile(f"{directory}/lock", "rw").getChannel()
        try:
            if channel.tryLock() is not None:
                return channel
        except Exception as error:
            if "OverlappingFileLock" not in str(error):
                raise
            until = 0.0
        channel.close()
        if time.monotonic() > until:
            raise CheckpointError(
                f"checkpoint {directory} is in use by {owner}: stop that one first, or give this topology a checkpoint "
                "directory of its own"
            )
        time.sleep(0.25)
