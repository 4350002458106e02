"""A checkpoint that was moved or copied: which of Spark's files still name the place where it was made?

Which question it answers: what must be written anew so that Spark finds everything where the checkpoint is now?
Rule 1: only places change, and only to a file that is there; what else stands in a file of Spark's stays as it is.
Rule 2: a file that is not understood is left alone: Spark says what is wrong with it.

Of Spark's files only the metadata of stateful operators name others by their full paths: the schemas of their states
(Spark's ``StateSchemaV3`` and ``OperatorStateMetadataV2``). Spark cannot start without them. Read before:
``checkpoint``.
"""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import urlsplit

from sparkbolt.core.base.files import Files

STATE = "spark/state"
_METADATA = "_metadata/v2"
_VERSION = b"v2\n"
_SCHEMAS = "/_stateSchema/"
log = logging.getLogger("sparkbolt")


def name_places_anew(files: Files, directory: str, url: str) -> None:
    """Have Spark's files name the places where the checkpoint is now; before its query is started.

    Args:
        files: those of the checkpoint.
        directory: where it is, for the log.
        url: where Spark finds it.
    """
    for operator in files.names(STATE):
        folder = f"{STATE}/{operator}/{_METADATA}"
        for number in files.names(folder):
            if not number.isdigit():
                continue
            before = files.read(f"{folder}/{number}") or b""
            after = _renamed(files, operator, before, url)
            if after == before:
                continue
            log.info("checkpoint %s was moved here: %s/%s names the new place", directory, folder, number)
            files.write(f"{folder}/{number}", after)
            files.remove(f"{folder}/.{number}.crc")  # Hadoop's checksum of what stood there


def _renamed(files: Files, operator: str, metadata: bytes, url: str) -> bytes:
    """The metadata of an operator with schemas at their places now."""
    if not metadata.startswith(_VERSION):
        return metadata
    try:
        body: dict[str, Any] = json.loads(metadata[len(_VERSION) :])
        stores = body["stateStoreInfo"]
        for store in stores:
            paths = store["stateSchemaFilePaths"]
            store["stateSchemaFilePaths"] = [_at_its_place(files, operator, path, url) for path in paths]
    except (ValueError, KeyError, TypeError, AttributeError):
        return metadata
    return _VERSION + json.dumps(body, separators=(",", ":")).encode()


def _at_its_place(files: Files, operator: str, path: str, url: str) -> str:
    """The path of a schema in this checkpoint; as it was if it is right, or the schema is not here."""
    _, found, name = path.rpartition(_SCHEMAS)
    folder = f"{STATE}/{operator}{_SCHEMAS.rstrip('/')}"
    here = f"{url}/{folder}/{name}"
    store, _, file = name.rpartition("/")
    if not found or _place(path) == _place(here) or file not in files.names(f"{folder}/{store}"):
        return path
    return here


def _place(path: str) -> tuple[str, str]:
    """A path as it can be compared: Spark writes ``file:/a`` where we write ``file:///a``.

    >>> _place("file:/a/b") == _place("file:///a/b"), _place("hdfs://one/a") == _place("hdfs://two/a")
    (True, False)
    """
    parts = urlsplit(path)
    return f"{parts.scheme}:{parts.netloc}", parts.path
