"""Class archive: the classes that Spark loads at a start, in a file that the next JVM maps into its memory.

A JVM that starts Spark reads, checks and links thousands of classes. Java can write the result to an archive (class
data sharing) for the next JVM; ``scripts/bench start`` measures both. Writing takes longer than a start, so another
process does it, once for each Java and each Spark, while or after the first topology runs.

An archive gets its name only when it is on the disk and its JVM has ended well; Java ignores one that does not match.
Nothing that goes wrong here affects a topology. Only a folder that nobody else may write to is used, since Java runs
the content of an archive.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from sparkbolt.files.local import publish

log = logging.getLogger("sparkbolt")
CACHE_ENV = "SPARKBOLT_CACHE"
"""The folder of archives; ``off``: no archives. Not set: ``sparkbolt`` in the user's folder for caches."""
OFF = "off"
MAKER = "sparkbolt.spark.class_archive_maker"
BEGIN_SECS = 20.0
"""After so long, or at its end if that is earlier, a process whose JVM had no archive has one made."""
DISK_BYTES_MIN = 2 << 30
MEMORY_BYTES_MIN = 3 << 30
"""With less left, no archive is made: the second JVM takes a gigabyte, and an archive takes a fifth of one."""
TRIED_SECS = 24 * 3600.0
"""For so long it is not tried again to make an archive that could not be made."""
MAKING = ".making-"
"""How the names of folders begin in which archives are made."""
KEPT_MAX = 3
"""How many archives are kept: the most recently used ones."""
_END = b"sparkbolt: whole"
"""The mark at the end of an archive: one without its end would kill Java. Java does not read it."""
_QUIET = "-Xlog:cds=off -Xlog:class+path=off"
_OWN = "SharedArchiveFile"
"""An option of Java: a user who sets it has an archive already."""


class ClassArchive:
    """The archive at a path, for one Java and one Spark; it need not be there."""

    def __init__(self, path: str) -> None:
        self.path, self.folder = path, os.path.dirname(path)
        self.log_path = str(Path(self.path).with_suffix(".log"))
        """The output of its maker: the file exists from its start until the archive is made."""

    def option(self) -> str | None:
        """The options with which a JVM uses the archive, as in a shell; None if there is none."""
        try:
            usable = is_private(self.folder) and is_private(self.path) and self._is_whole()
        except OSError:
            return None
        if not usable or '"' in self.path or "\\" in self.path:
            return None
        try:
            os.utime(self.path)  # it is in use: see KEPT_MAX
        except OSError:
            pass  # a disk that is only read
        return f'"-XX:{_OWN}={self.path}" -XX:+VerifySharedSpaces {_QUIET}'

    def _is_whole(self) -> bool:
        with open(self.path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - len(_END)))
            return file.read() == _END

    def recording_option(self, path: str) -> str:
        """The options with which a JVM writes an archive at its end."""
        return f'"-XX:ArchiveClassesAtExit={path}" {_QUIET}'

    def is_wanted(self) -> bool:
        """Whether to make an archive now: none can be used, no process makes one, and there is room for it."""
        if self.option() is not None or not is_private(self.folder) or _is_of_today(self.log_path):
            return False
        return shutil.disk_usage(self.folder).free >= DISK_BYTES_MIN and memory_left() >= MEMORY_BYTES_MIN

    def make_folder(self) -> None:
        """Make the folder of archives, if it does not exist; remove the remains of killed makers from it."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        for left in Path(self.folder).glob(f"{MAKING}*"):
            if not _is_of_today(str(left)):
                shutil.rmtree(left, ignore_errors=True)

    def begin(self) -> None:
        """Start a process that makes it, if it is wanted."""
        try:
            self.make_folder()
            if not self.is_wanted():
                return
            Path(self.log_path).unlink(missing_ok=True)
            said = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
                subprocess.run(  # it leaves a process behind, and ends
                    [sys.executable, "-P", "-m", MAKER, self.path],
                    env={**os.environ, "PYTHONPATH": path, CACHE_ENV: OFF},
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    check=True,
                )
            finally:
                os.close(said)
            log.info("Spark's classes are written down, once, in the background: later starts take less time")
        except Exception as error:  # noqa: BLE001  an archive never fails a topology
            log.debug("no class archive is made: %s", error)

    def begin_later(self) -> None:
        """Have it made after ``BEGIN_SECS``, or when this process ends."""
        begun = threading.Lock()

        def begin() -> None:
            if begun.acquire(blocking=False):
                self.begin()

        atexit.register(begin)
        later = threading.Timer(BEGIN_SECS, begin)
        later.name, later.daemon = "sparkbolt-classes", True
        later.start()

    def made(self, written: str) -> None:
        """Give a complete archive its name, and remove the least recently used ones."""
        os.chmod(written, 0o600)
        with open(written, "ab") as file:
            file.write(_END)
        os.chmod(written, 0o400)
        publish(written, self.path)
        others = sorted(Path(self.folder).glob("classes-*.jsa"), key=lambda path: path.stat().st_mtime)
        for old in others[:-KEPT_MAX]:
            old.unlink(missing_ok=True)
        Path(self.log_path).unlink(missing_ok=True)


def archive_for(java: str | None, spark_home: str) -> ClassArchive | None:
    """The archive that a JVM of this process would use; None if there can be none.

    Args:
        java: the path of the program ``java``, if it is known.
        spark_home: where Spark is installed.
    """
    given = os.environ.get(CACHE_ENV, "").strip()
    if given == OFF or java is None or _OWN in os.environ.get("SPARK_SUBMIT_OPTS", ""):
        return None
    try:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = os.path.abspath(given or Path(caches, "sparkbolt"))
        return ClassArchive(f"{folder}/classes-{_key(java, spark_home)}.jsa")
    except (OSError, RuntimeError) as error:  # no home, or a Java that is built in another way
        log.debug("there is no class archive: %s", error)
        return None


def is_private(path: str) -> bool:
    """Whether a file or folder belongs to this user, and nobody else may write to it."""
    found = os.stat(path)
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_of_today(path: str) -> bool:
    """Whether a file or folder is there and was changed within ``TRIED_SECS``."""
    try:
        return time.time() - os.stat(path).st_mtime < TRIED_SECS
    except FileNotFoundError:
        return False


def memory_left() -> int:
    """How many bytes of memory processes may still take, on this machine and in this container."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    return min([available, *_left_in_container()])


def _left_in_container() -> Iterator[int]:
    versions = ("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")
    for limit, used in versions:
        try:
            yield int(Path("/sys/fs/cgroup", limit).read_text()) - int(Path("/sys/fs/cgroup", used).read_text())
        except (OSError, ValueError):
            continue


def _key(java: str, spark_home: str) -> str:
    """A name for the versions that an archive depends on.

    Raises:
        OSError: this is not an OpenJDK, or not a Spark.
    """
    home = Path(os.path.realpath(java)).parents[1]
    parts = [home / "lib/server/libjvm.so", home / "lib/server/classes.jsa", home / "lib/modules"]
    jars = sorted(Path(spark_home, "jars").glob("*.jar"))
    facts = [(str(file), (found := file.stat()).st_size, found.st_mtime_ns) for file in (*parts, *jars)]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
