"""Relocation: updates the paths in Spark's files after a checkpoint was moved or copied.

Of Spark's files only the metadata of stateful operators contain full paths: those of the schemas of their states
(Spark's ``StateSchemaV3`` and ``OperatorStateMetadataV2``). Spark cannot start without these schemas. A path changes
only if the new one names an existing file, and a file that cannot be parsed is not changed: Spark reports the error.
"""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import urlsplit

from sparkbolt.base.file_access import Files

_METADATA = "_metadata/v2"
_VERSION = b"v2\n"
_SCHEMAS = "/_stateSchema/"
log = logging.getLogger("sparkbolt")


def name_places_anew(files: Files, directory: str, url: str, folder: str) -> None:
    """Rewrite the paths in Spark's files to where the checkpoint is now; call it before the query starts.

    Args:
        files: the files of the checkpoint.
        directory: the checkpoint's directory, for the log.
        url: the checkpoint's URL, as Spark uses it.
        folder: the folder of Spark's checkpoint in it.
    """
    for operator in files.names(f"{folder}/state"):
        state = f"{folder}/state/{operator}"
        for number in files.names(f"{state}/{_METADATA}"):
            if not number.isdigit():
                continue
            name = f"{state}/{_METADATA}/{number}"
            before = files.read(name) or b""
            after = _renamed(files, state, before, url)
            if after == before:
                continue
            log.info("checkpoint %s was moved here: %s names the new place", directory, name)
            files.write(name, after)


def _renamed(files: Files, state: str, metadata: bytes, url: str) -> bytes:
    """The metadata of an operator, with the current paths of its schemas."""
    if not metadata.startswith(_VERSION):
        return metadata
    try:
        body: dict[str, Any] = json.loads(metadata[len(_VERSION) :])
        stores = body["stateStoreInfo"]
        for store in stores:
            paths = store["stateSchemaFilePaths"]
            store["stateSchemaFilePaths"] = [_at_its_place(files, state, path, url) for path in paths]
    except (ValueError, KeyError, TypeError, AttributeError):
        return metadata
    return _VERSION + json.dumps(body, separators=(",", ":")).encode()


def _at_its_place(files: Files, state: str, path: str, url: str) -> str:
    """The path of a schema in this checkpoint; the old path if it is right, or if there is no such file here."""
    _, found, name = path.rpartition(_SCHEMAS)
    folder = f"{state}{_SCHEMAS.rstrip('/')}"
    here = f"{url}/{folder}/{name}"
    store, _, file = name.rpartition("/")
    if not found or _place(path) == _place(here) or file not in files.names(f"{folder}/{store}"):
        return path
    return here


def _place(path: str) -> tuple[str, str]:
    """A path in a form that can be compared: Spark writes ``file:/a``, Sparkbolt writes ``file:///a``.

    >>> _place("file:/a/b") == _place("file:///a/b"), _place("hdfs://one/a") == _place("hdfs://two/a")
    (True, False)
    """
    parts = urlsplit(path)
    return f"{parts.scheme}:{parts.netloc}", parts.path
