"""Finds a followed file again: under another name, or in a copy that a rotation has made.

A file counts as a copy only if it has the name of a copy, lies beside the original, and holds the original's content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

from sparkbolt.connectors.files.file_identity import FileId
from sparkbolt.connectors.files.plain_file import PlainFile, find_files
from sparkbolt.connectors.files.unpacked_file import UnpackedFile, is_compressed, open_content

Inode: TypeAlias = tuple[int | None, int]
"""(Device, inode)."""

COPY_BYTES = 256
"""At least so many bytes of copies are compared."""
_COPY_MARKS = (".", "-", "_", "~")
"""One of these characters separates the name of a file from the addition in the name of its copy."""
_ENDINGS = (re.compile(r"[._-]\d+$"), re.compile(r"\.[^./]*$"))
"""The end of a name that a rotation replaces: its number, or its extension."""


def inode_of(path: str) -> Inode | None:
    """Return the place of the file at a path, which does not depend on its names; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def files_beside(paths: Iterable[str]) -> Iterator[str]:
    """Yield the files in the directories of some paths, and of the files to which these are links; sorted."""
    for folder in sorted({os.path.dirname(name) for path in paths for name in (path, os.path.realpath(path))}):
        try:
            with os.scandir(folder) as entries:
                yield from sorted(entry.path for entry in entries if _is_file(entry))
        except OSError:
            continue


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link that leads back to itself
        return False


def adds_to(name: str, path: str) -> bool:
    """Whether a path is that of a copy: it has more characters than the name, and a mark between them."""
    behind = path[len(name) :]
    return path.startswith(name) and behind[:1] in _COPY_MARKS and "/" not in behind


def is_copy(path: str, names: Collection[str]) -> bool:
    """Whether a rotation may name a copy of a file with these names so.

    >>> [is_copy(path, ["a.log"]) for path in ("a.log.1", "a.log-20260101", "a.1.log", "a.log.2.gz", "b.log.1")]
    [True, True, True, True, False]
    """
    return path not in names and any(adds_to(end.sub("", name), path) for name in names for end in _ENDINGS)


def open_file(id_: FileId, place: str | None, patterns: Sequence[str]) -> tuple[str, PlainFile | UnpackedFile]:
    """Find and open the file with this identity; return its current path and the open file.

    The search covers the last known path (``place``), the path of the identity, all names beside it, and the files
    that ``patterns`` name.

    Raises:
        FileNotFoundError: It is at none of these places.
    """
    near = [id_.path] if place is None else [place, id_.path]
    seen: set[str] = set()
    for path in chain(near, files_beside([id_.path]), _files_of(patterns)):
        if path in seen:
            continue
        seen.add(path)
        try:
            if os.stat(path).st_ino != id_.inode:
                continue
            file = open_content(path)
        except OSError:
            continue
        if id_.is_born_with(file) and id_.has_head(file.read_at(0, id_.length, 0)):
            return path, file
        file.close()
    raise FileNotFoundError(id_.source)


def _files_of(patterns: Sequence[str]) -> Iterator[str]:
    yield from find_files(patterns).files


def open_copy(id_: FileId, start: int, end: int) -> PlainFile | UnpackedFile | None:
    """Find and open a copy of a followed file that was emptied or is gone, for content that was planned before.

    The copy is not older than the file, has its beginning, and a line begins at ``start``. If several such copies
    differ there, none is returned.

    Args:
        id_: the file.
        start: the first position to be read.
        end: the position behind the last one.
    """
    if id_.is_mark or is_compressed(id_.path):
        return None
    names = {id_.path, os.path.realpath(id_.path)}
    found: PlainFile | UnpackedFile | None = None
    seen = b""
    for path in files_beside([id_.path]):
        if not is_copy(path, names):
            continue
        try:
            file = open_content(path)
        except OSError:
            continue
        content = _content_of(id_, file, start, end)
        if found is None and content:
            found, seen = file, content
            continue
        file.close()
        if found is not None and content and content != seen:
            found.close()
            return None
    return found


def _content_of(id_: FileId, file: PlainFile | UnpackedFile, start: int, end: int) -> bytes:
    """The content of a file's copy from ``start`` on, up to ``end`` or further; empty if it is not a copy."""
    if (id_.birth and file.birth and file.birth < id_.birth) or not id_.has_head(file.read_at(0, id_.length, 0)):
        return b""
    before = max(0, start - 1)
    content = file.read_at(before, max(end - before, COPY_BYTES), before)
    is_whole = len(content) >= end - before and (start == 0 or content[:1] == b"\n")
    return content if is_whole else b""
