"""Locations: what the name of a checkpoint means.

A name without a scheme, or with ``file:``, is a directory of this machine, whatever Hadoop's default file system is: so
Spark's files and the ledger are in the same place.
"""

from __future__ import annotations

import os
import re

from sparkbolt.errors import CheckpointError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_FILE = re.compile(r"file:(?://([^/]*))?(/.*)", re.IGNORECASE)


def scheme_of(place: str) -> str | None:
    """The scheme of a URL; None for a path.

    >>> scheme_of("s3a://bucket/state"), scheme_of("file:/state"), scheme_of("state/a:b"), scheme_of("~/state")
    ('s3a', 'file', None, None)
    """
    match = _SCHEME.match(place)
    return match[1].lower() if match else None


def local_directory(place: str) -> str | None:
    """The absolute path of a checkpoint on this machine; None if it is elsewhere.

    >>> local_directory("file:///var/state"), local_directory("file:/var/state"), local_directory("hdfs://host/state")
    ('/var/state', '/var/state', None)

    Raises:
        CheckpointError: it is a ``file:`` URL that names a host.
    """
    scheme = scheme_of(place)
    if scheme not in (None, "file"):
        return None
    if scheme is None:
        return os.path.abspath(os.path.expanduser(place))
    match = _FILE.fullmatch(place)
    if match is None or match[1] not in (None, "", "localhost"):
        path = place.split(":", 1)[1].lstrip("/")
        raise CheckpointError(
            f"checkpoint {place} names a host and no path: a local directory has three slashes, as in file:///{path}"
        )
    return os.path.abspath(match[2])
