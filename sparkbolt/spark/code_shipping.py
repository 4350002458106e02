"""Code shipping: sends the driver's modules to the executors of a cluster.

Installed code is not sent: the standard library, site-packages and Spark. All other modules that the program has loaded
are sent, packages with all files of their folder. Sparkbolt itself is always sent, so that the driver and the executors
run the same version. An archive's name contains a hash of its content, so the same content is sent once.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import site
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from sparkbolt.errors import EngineError
from sparkbolt.spark import scratch

ARCHIVE_BYTES_MAX = 64 << 20
"""A module or package that is larger (in bytes) is not sent by default: most likely its folder contains data."""
SPARK_S_OWN = frozenset({"pyspark", "py4j"})
_LEFT_OUT = (".pyc", ".pyo", ".so")
"""Suffixes of files that cannot be imported from an archive, or are not needed in it."""
_PLANNER_FOLDER = "streaming_job"
log = logging.getLogger("sparkbolt")

Sources = list[tuple[str, Path]]
"""Pairs of a name in the archive, and the file or folder that it contains."""


def installed_places() -> list[str]:
    """The folders of installed code, which is not sent."""
    paths = sysconfig.get_paths()
    places = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [os.path.realpath(place) for place in (*places, *site.getsitepackages(), site.getusersitepackages())]


def loaded_sources(modules: Mapping[str, ModuleType | None], installed: Sequence[str]) -> Sources:
    """The files and folders that the loaded modules were imported from, without installed ones; sorted by name.

    Args:
        modules: modules by name, as in ``sys.modules``.
        installed: folders that are left out, with everything below them.
    """
    found: set[tuple[str, Path]] = set()
    for name, module in modules.items():
        if module is None or "." in name or name == "__main__" or name in SPARK_S_OWN or name == "sparkbolt":
            continue
        file = getattr(module, "__file__", None)
        if file is None:  # built in, or a package without __init__.py, which may have several folders
            places = [Path(os.path.abspath(place)) for place in getattr(module, "__path__", ())]
        else:
            place = Path(os.path.abspath(file))
            places = [place.parent if place.name == "__init__.py" else place]
        for place in places:
            if place.exists() and not is_installed(place, installed):
                found.add((name if place.is_dir() else f"{name}{place.suffix}", place))
    return sorted(found)


def is_installed(path: str | Path, installed: Sequence[str]) -> bool:
    """Whether a file or folder is part of installed code; ``installed`` are the results of ``installed_places``."""
    place = Path(path)
    if {"site-packages", "dist-packages"} & set(place.parts):
        return True
    return any(place.resolve().is_relative_to(known) for known in installed)


def files_of(sources: Sources) -> Iterator[tuple[str, Path]]:
    """The files of an archive, each with its name in it; hidden and compiled files are left out."""
    for name, place in sources:
        if place.is_file():
            if not name.endswith(_LEFT_OUT):
                yield name, place
            continue
        for folder, folders, files in os.walk(place):
            folders[:] = sorted(inner for inner in folders if not inner.startswith(".") and inner != "__pycache__")
            for file in sorted(files):
                if not file.startswith(".") and not file.endswith(_LEFT_OUT):
                    path = Path(folder, file)
                    yield f"{name}/{path.relative_to(place).as_posix()}", path


def archive(stem: str, sources: Sources, directory: str) -> str:
    """Write an archive of sources, unless it exists, and return its path; a hash of the content is part of the name."""
    digest = hashlib.sha256()
    content = [(name, path.read_bytes()) for name, path in files_of(sources)]
    for name, data in content:
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    target = os.path.join(directory, f"{stem}-{digest.hexdigest()[:12]}.zip")
    if not os.path.exists(target):
        # A folder without __init__.py is found in an archive only if it is listed as a folder.
        folders = {f"{parent}/" for name, _ in content for parent in PurePosixPath(name).parents if parent.name}
        with zipfile.ZipFile(target, "w") as file:
            for name in sorted(folders):
                file.writestr(zipfile.ZipInfo(name), b"")
            for name, data in content:
                file.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return target


def size_of(sources: Sources) -> int:
    """The size of all files in bytes, uncompressed."""
    return sum(path.stat().st_size for _, path in files_of(sources))


def sendable(sources: Sources, bytes_max: int = ARCHIVE_BYTES_MAX) -> Sources:
    """The sources that are not larger than ``bytes_max``; a warning is logged for each of the others."""
    kept = []
    for source in sources:
        size = size_of([source])
        if size > bytes_max:
            log.warning(
                "%s (%s) is not sent to the executors, because it has %d MB: they must have it already; install it "
                "there, or keep data out of the folder of the package",
                *source,
                size >> 20,
            )
        else:
            kept.append(source)
    return kept


@cache
def _directory() -> str:
    directory = scratch.make("sources-")
    atexit.register(scratch.remove, directory)
    return directory


@cache
def own_archive() -> str:
    """The path of an archive of Sparkbolt itself; if it was imported from an archive, the path of that one."""
    folder = Path(os.path.abspath(__file__)).parents[1]
    return archive("sparkbolt", [("sparkbolt", folder)], _directory()) if folder.is_dir() else str(folder.parent)


def given_file(path: str) -> str:
    """The form in which Spark receives one of ``py_files``: a URL or an archive unchanged, all else as an archive.

    Raises:
        EngineError: there is no such file, or Python cannot import from it.
    """
    if "://" in path:
        return path
    place = Path(os.path.abspath(os.path.expanduser(path)))
    if not place.exists():
        raise EngineError(f"py_files names {path!r}, which does not exist (looked for at {place})")
    if place.is_dir() or place.suffix == ".py":  # a changed one has another name, so Spark sends it again
        return archive(place.stem if place.is_file() else place.name, [(place.name, place)], _directory())
    if place.suffix not in (".zip", ".egg"):
        raise EngineError(
            f"py_files names {path!r}, expected a .py file, a .zip or .egg archive, or the folder of a package"
        )
    return str(place)


_sent: dict[tuple[str, str], str] = {}
"""The application id and the path of each file that was already sent, with a hash of its content; "" for a URL."""


def send(context: Any, files: Iterable[str], *, cluster: bool) -> None:
    """Let Spark send modules to every executor before a task runs there.

    Args:
        context: the SparkContext.
        files: the results of ``given_file`` for the files, folders and URLs that the user named.
        cluster: whether Sparkbolt and the program's own loaded modules are sent, too.
    """
    paths = list(files)
    if cluster:
        _let_planner_see()
        paths.append(own_archive())
        sources = sendable(loaded_sources(sys.modules, installed_places()))
        if sources:
            paths.append(archive("sources", sources, _directory()))
    for path in paths:
        add(context, path)


def add(context: Any, path: str) -> None:
    """Call ``addPyFile`` once for each path, and undo its change of this process's ``sys.path``.

    Raises:
        EngineError: the file has changed since it was sent; Spark sends no second file of one name.
    """
    key = (str(context.applicationId), path)
    digest = "" if "://" in path else hashlib.sha256(Path(path).read_bytes()).hexdigest()
    if key in _sent:
        if _sent[key] != digest:
            raise EngineError(
                f"py_files names {path}, which has changed since this Spark session sent it to the executors, and "
                "Spark sends no second file of one name: give it another name, or make the session anew (spark.stop())"
            )
        return
    before = list(sys.path)
    context.addPyFile(path)
    sys.path[:] = before
    _sent[key] = digest


def _let_planner_see() -> None:
    """Let Spark's planner find the sent files.

    Spark gives the planner an empty folder below the folder of the files: a link makes them the same.
    """
    from pyspark import SparkFiles

    link = Path(SparkFiles.getRootDirectory(), _PLANNER_FOLDER)
    if not link.exists():
        link.symlink_to(link.parent, target_is_directory=True)
