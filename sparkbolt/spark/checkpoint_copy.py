"""Checkpoint copies: a checkpoint that another one can begin from, on the same file system or on another one.

A checkpoint that no driver uses is copied as it is; one that is in use up to a micro-batch that is committed, while its
topology goes on. Spark never changes a file of its state, so on one disk the copy has further names of these files
(hard links), and a large state takes no time.

Rule 1: what the driver changes or removes is taken while it waits (``held``); Spark keeps the state of the last hundred
micro-batches, which are copied after that.
Rule 2: a copy counts only after its ledger, its offsets, its commits and the state of its last commit were found whole.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from sparkbolt.base.file_access import Files
from sparkbolt.base.locations import local_directory
from sparkbolt.driver.ledger import ledger_files
from sparkbolt.driver.ledger.agreement import METADATA, examine
from sparkbolt.driver.ledger.generations import Generations, SparkLog
from sparkbolt.driver.ledger.origin import (
    ORIGIN_FILE,
    SAVEPOINTS_FOLDER,
    SUCCEEDED_FILE,
    CopyOrigin,
    CopyRole,
    origin_of,
)
from sparkbolt.errors import CheckpointError, WrongUseError
from sparkbolt.files.local import LocalFiles, make_folder
from sparkbolt.spark.checkpoint import hadoop_files, identity_in
from sparkbolt.spark.relocation import name_places_anew

TELL_SECS = 2.0
"""How often a long copy tells how far it is."""
LEFT_BEHIND = ("lock", "owner", "lives", "identity", "repairs", SAVEPOINTS_FOLDER, ORIGIN_FILE, SUCCEEDED_FILE)
"""What a copy does not take over, besides ``format``, which it gets at its end."""
_NUMBERED = re.compile(r"(?:ledger|looped|commits|dead-letters|aborts|plans)/(\d+)")
_LOGGED = re.compile(r"([^/]+)/(?:offsets|commits)/(\d+)")
_STORED = re.compile(r"([^/]+)/state/\d+/\d+/(\d+)_[^/]+\.(?:changelog|zip)")
_VERSION = re.compile(r"(\d+)_([^/]+)\.(changelog|zip)")
Tell = Callable[[str], None]


class Place:
    """A directory or URL with a checkpoint, or for one."""

    def __init__(self, directory: str, session: Callable[[], SparkSession]) -> None:
        """Open it.

        Args:
            directory: the directory or URL.
            session: makes a session, for the clients of its file systems; called for a URL only.

        Raises:
            CheckpointError: its file system cannot be reached.
        """
        self.path = local_directory(directory)
        self.directory = directory if self.path is None else self.path
        self.url = directory if self.path is None else f"file://{self.path}"
        self._session = session
        self.files: Files = (
            hadoop_files(session(), directory, make=False)
            if self.path is None
            else LocalFiles(self.path, keeps_root=False)
        )

    @property
    def where(self) -> str:
        """For messages."""
        return f"checkpoint {self.directory}"

    def sizes(self) -> Iterator[tuple[str, int]]:
        """(name, bytes) of all its files that are not hidden."""
        if self.path is not None:
            for folder, _, names in os.walk(self.path):
                for name in names:
                    path = os.path.join(folder, name)
                    with suppress(FileNotFoundError):
                        yield os.path.relpath(path, self.path), os.stat(path).st_size
            return
        root, system = self.hadoop("")
        listed = system.listFiles(root, True)
        begin = len(system.makeQualified(root).toUri().getPath().rstrip("/")) + 1
        while listed.hasNext():
            status = listed.next()
            yield status.getPath().toUri().getPath()[begin:], int(status.getLen())

    def hadoop(self, name: str) -> tuple[Any, Any]:
        """The path of a file for Hadoop, and its file system; one of this machine without checksums."""
        spark = self._session()
        jvm: Any = spark._jvm  # pyspark has no public API for Hadoop's file systems
        path = jvm.org.apache.hadoop.fs.Path(f"{self.url}/{name}" if name else self.url)
        system = path.getFileSystem(spark._jsc.hadoopConfiguration())
        return path, system.getRawFileSystem() if self.path is not None else system

    def take(self, name: str, source: Place) -> None:
        """Copy a file from another place.

        Raises:
            FileNotFoundError: it is gone.
        """
        if self.path is not None and source.path is not None:
            there, here = os.path.join(source.path, name), os.path.join(self.path, name)
            os.makedirs(os.path.dirname(here), exist_ok=True)
            if _is_of_spark(name):
                with suppress(OSError):  # another disk, or a file system without links
                    os.link(there, here)
                    return
            shutil.copyfile(there, here)
            return
        (there, from_system), (here, to_system) = source.hadoop(name), self.hadoop(name)
        if not from_system.exists(there):
            raise FileNotFoundError(name)
        jvm: Any = self._session()._jvm
        configuration = self._session()._jsc.hadoopConfiguration()
        jvm.org.apache.hadoop.fs.FileUtil.copy(from_system, there, to_system, here, False, True, configuration)

    def begin(self) -> None:
        """Make the directory, or empty it if a copy was broken off there.

        Raises:
            WrongUseError: there is something else.
        """
        found = next(self.sizes(), None) if self.path is None or os.path.isdir(self.path) else None
        if found is not None:
            files = self.files
            if files.read(ORIGIN_FILE) is None or files.read(ledger_files.FORMAT_FILE) is not None:
                raise WrongUseError(f"{self.directory} is not empty: name a directory that does not exist yet")
            if self.path is not None:
                shutil.rmtree(self.path)
            else:
                path, system = self.hadoop("")
                system.delete(path, True)
        if self.path is not None:
            make_folder(self.path)

    def settle(self) -> None:
        """Bring everything that was copied to the disk."""
        if self.path is not None:
            os.sync()


def _is_of_spark(name: str) -> bool:
    return "/state/" in name or _LOGGED.fullmatch(name) is not None


@dataclass(frozen=True)
class Copying:
    """A copy of a checkpoint up to a micro-batch."""

    source: Place
    target: Place
    role: CopyRole | None = None
    """What the copy is for; None: its start decides."""
    up_to: int | None = None
    """The last micro-batch; None: everything, as no driver uses the checkpoint."""
    held: Mapping[str, bytes] | None = None
    """The files of the ledger, if the driver goes on; its own are not copied then."""

    def run(self, tell: Tell = lambda _: None) -> CopyOrigin:
        """Copy; ``tell`` hears how far it is.

        Raises:
            CheckpointError: the copy is not whole.
            WrongUseError: something else is where the copy should be.
        """
        source, target = self.source, self.target
        generations = Generations.read(source.files, source.where)
        origin = self.origin()
        last = origin.micro_batch_id
        target.begin()
        target.files.write(ORIGIN_FILE, origin.to_bytes())
        sizes = [(name, size) for name, size in source.sizes() if self._takes(name, generations)]
        sizes.sort(key=lambda one: "/state/" in one[0])
        whole, done, told_s = sum(size for _, size in sizes), 0, time.monotonic()
        for name, size in sizes:
            with suppress(FileNotFoundError):  # an old one that Spark or the driver needs no more
                target.take(name, source)
            done += size
            if time.monotonic() - told_s > TELL_SECS:
                told_s = time.monotonic()
                tell(f"copied {done / 1e6:,.0f} of {whole / 1e6:,.0f} MB")
        for name, data in (self.held or {}).items():
            target.files.write(name, data)
        self._finish(generations, last)
        return origin

    def origin(self) -> CopyOrigin:
        """What the copy is a copy of.

        Raises:
            CheckpointError: there is nothing to copy.
        """
        source = self.source
        last = SparkLog(source.files).last_commit if self.up_to is None else self.up_to
        if last < 0:
            raise CheckpointError(f"{source.where} has no committed micro-batch yet: there is nothing to copy")
        before = origin_of(source.files, source.where)
        if before is not None and before.role == CopyRole.SAVEPOINT:
            before_id, place, host = before.checkpoint_id, before.place, before.host
        else:
            before_id, place, host = identity_in(source.files) or "", source.directory, platform.node()
        return CopyOrigin(before_id, place, host, last, source.directory, self.role)

    def _takes(self, name: str, generations: Generations) -> bool:
        parts = name.split("/")
        if parts[0] in LEFT_BEHIND or name == ledger_files.FORMAT_FILE or any(part.startswith(".") for part in parts):
            return False
        if self.up_to is None:
            return True
        if self.held is not None and parts[0] in ("ledger", "commits", "aborts", "plans"):
            return False
        if (match := _NUMBERED.match(name)) is not None:
            return int(match[1]) <= self.up_to
        first = {one.folder: one.first for one in generations}
        if (match := _LOGGED.fullmatch(name)) is not None:
            return match[1] not in first or first[match[1]] + int(match[2]) <= self.up_to
        if (match := _STORED.fullmatch(name)) is not None:
            return match[1] not in first or first[match[1]] + int(match[2]) <= self.up_to + 1
        return True

    def _finish(self, generations: Generations, last: int) -> None:
        """Make it a checkpoint of its own, look whether it is whole, and let it count."""
        target, files = self.target, self.target.files
        for folder in {one.folder for one in generations}:
            if files.names(f"{folder}/offsets"):
                files.write(f"{folder}/{METADATA}", json.dumps({"id": str(uuid.uuid4())}).encode())
            name_places_anew(files, target.directory, target.url, folder)
        life = max(ledger_files.last_life(self.source.files), 0)
        files.create(f"lives/{life}", b"copied")
        files.write("identity", uuid.uuid4().hex.encode())
        found = examine(files, target.where)
        wrong = [*found.mistakes, *_state_missing(files, SparkLog(files, generations), last)]
        if wrong:
            why = "its topology went on faster than it was copied" if self.up_to is not None else "files are missing"
            raise CheckpointError(
                f"the copy {target.directory} is not whole, and nothing starts with it ({wrong[0]}): {why}; "
                + ("stop the topology, and copy its checkpoint" if self.up_to is not None else "look at the original")
            )
        target.settle()
        files.write(ledger_files.FORMAT_FILE, str(ledger_files.FORMAT).encode())


def _state_missing(files: Files, log: SparkLog, last: int) -> Iterator[str]:
    """What is missing of the state after a commit, a sentence for each state store."""
    for folder, version in log.stores(last):
        number = int(version.partition("_")[0])
        versions = [match for name in files.names(folder) if (match := _VERSION.fullmatch(name))]
        whole = [int(one[1]) for one in versions if one[3] == "zip" and int(one[1]) <= number]
        changed = {int(one[1]) for one in versions if one[3] == "changelog"}
        begin = max(whole, default=0)
        if whole and not any(
            _has_tables(files, folder, one[0]) for one in versions if one[3] == "zip" and int(one[1]) == begin
        ):
            yield f"{folder}: a table of version {begin} is missing"
        gone = [at for at in range(begin + 1, number + 1) if at not in changed]
        if gone:
            yield f"{folder}: the changes of version {gone[0]} are missing"


def _has_tables(files: Files, folder: str, name: str) -> bool:
    """Whether all tables that a version of a state store consists of are there."""
    tables = set(files.names(f"{folder}/SSTs"))
    with zipfile.ZipFile(io.BytesIO(files.read(f"{folder}/{name}") or b"")) as packed:
        if "metadata" not in packed.namelist():
            return True
        _, _, body = packed.read("metadata").partition(b"\n")
    needed = json.loads(body).get("sstFiles") or []
    return all(one.get("dfsSstFileName") in tables for one in needed)


def savepoint_place(directory: str, name: str) -> str:
    """Where a savepoint of a checkpoint is.

    Raises:
        WrongUseError: it cannot have this name.
    """
    if not re.fullmatch(r"[\w][\w.-]{0,99}", name):
        raise WrongUseError(f"a savepoint cannot have the name {name!r}: use letters, digits, '.', '_' and '-'")
    return f"{directory.rstrip('/')}/{SAVEPOINTS_FOLDER}/{name}"
