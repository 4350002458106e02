"""FileId: identifies a followed file independently of its path.

The source of a followed file is ``PATH#BIRTH:INODE-LENGTH-DIGEST``: the path under which the file was found, its
creation time (in microseconds; ``BIRTH:`` is missing if the system does not record it), its inode, and a digest of the
first ``LENGTH`` bytes of its content (unpacked if it is compressed). The creation time is needed because a system may
reuse the inode of a deleted file, and the digest because a file may be emptied and rewritten. A file that was emptied
gets a number at the end: ``PATH#BIRTH:INODE-LENGTH-DIGEST.2``. The files that were found under one path are ordered by
age, the oldest first.

A file without a whole line, or one that waits for its turn, has a mark as its source, whose length is 0 and whose
digest is zeros. A mark has the one position 0 and no line. Once the mark is planned, the checkpoint knows the file.

Rule 1: a range of such a source is read only from the file with this inode, creation time and beginning, whatever its
current name. Content alone never identifies a file.
Rule 2: the device is not part of the identity: machines of a cluster number a shared device differently, and one
machine may number it differently after a restart.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from sparkbolt.base.source_names import IDENTITY, path_in
from sparkbolt.connectors.files.plain_file import PlainFile, escape, unescape
from sparkbolt.connectors.files.unpacked_file import UnpackedFile

HEAD_BYTES = 512
"""How many bytes of a file's beginning its digest covers, if it has so many when it is found."""

_NO_DIGEST = "0" * 16
"""In place of the digest of a mark."""


@dataclass(frozen=True)
class FileId:
    """The identity of a followed file, from which its source is named.

    >>> one = FileId.of_head("/var/log/a.log", 17, 0, b"to be")
    >>> one.source
    '/var/log/a.log#17-5-4fd786f4855f5fa2'
    >>> FileId.parse(one.source) == one, one.has_head(b"to be or not"), one.has_head(b"to b")
    (True, True, False)
    """

    path: str
    """Path under which the file was found, unescaped; its tuples show it, escaped, as ``path``."""
    inode: int
    birth: int
    """When the file was created; 0 if the system does not record it."""
    length: int
    digest: str
    generation: int = 1
    """Rises each time the file is emptied."""

    @classmethod
    def of_head(cls, path: str, inode: int, birth: int, head: bytes, generation: int = 1) -> FileId:
        """Return the identity of a file whose content begins with ``head``."""
        return cls(path, inode, birth, len(head), _digest(head), generation)

    @classmethod
    def mark(cls, path: str, inode: int, birth: int, generation: int = 1) -> FileId:
        """Return the mark of a file that has no whole line yet."""
        return cls(path, inode, birth, 0, _NO_DIGEST, generation)

    @property
    def mark_source(self) -> str:
        """The name of the mark of this file."""
        return FileId.mark(self.path, self.inode, self.birth, self.generation).source

    @property
    def is_mark(self) -> bool:
        """Whether its file had no whole line when it was seen."""
        return self.digest == _NO_DIGEST

    @classmethod
    def parse(cls, source: str) -> FileId | None:
        """Parse a source; return None if it is only a path, which is the source of a file that is not followed."""
        found = IDENTITY.search(source, 1)
        if found is None:
            return None
        birth, inode, length, digest, generation = found.groups()
        path = unescape(source[: found.start()])
        return cls(path, int(inode), int(birth or 0), int(length), digest, int(generation or 1))

    @property
    def source(self) -> str:
        """The name of the source."""
        behind = f".{self.generation}" if self.generation > 1 else ""
        birth = f"{self.birth}:" if self.birth else ""
        return f"{escape(self.path)}#{birth}{self.inode}-{self.length}-{self.digest}{behind}"

    def is_born_with(self, file: PlainFile | UnpackedFile) -> bool:
        """Whether an open file has this inode and, where both are recorded, this time of creation."""
        return file.inode == self.inode and (not self.birth or file.birth in (0, self.birth))

    def has_head(self, head: bytes) -> bool:
        """Whether content that begins with ``head`` may belong to the file."""
        return self.is_mark or (len(head) >= self.length and _digest(head[: self.length]) == self.digest)


def path_of(source: str) -> str:
    """Return the path that the tuples of a followed file show.

    >>> path_of("/var/log/a.log#17-5-4fd786f4855f5fa2"), path_of("/var/log/a.log")
    ('/var/log/a.log', '/var/log/a.log')
    """
    return escape(path_in(source))


def _digest(head: bytes) -> str:
    return hashlib.blake2b(head, digest_size=8).hexdigest()
