"""Locations: checks that the checkpoint and the master can be used.

A server that does not answer is reported within seconds; Spark and Hadoop would retry for minutes. Checks that need no
Spark run before Spark starts, and change nothing.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from sparkbolt.background import Answer, DeadlineError, within
from sparkbolt.base.locations import local_directory
from sparkbolt.errors import CheckpointError, EngineError

ANSWER_SECS = 5.0
"""How long a server may take to accept a connection."""
FILES_SECS = 30.0
"""How long a file system may take to answer the first requests."""
HDFS_PORT = 8020
_STANDALONE = re.compile(r"spark://(.+)")
_KUBERNETES = re.compile(r"k8s://(?:(https?)://)?([^/]+)")
_WITHOUT_ADDRESS = re.compile(r"local|local\[(\*|\d+)(\s*,\s*\d+)?\]|local-cluster\[.*\]|yarn")
"""Masters of Spark itself; those of other cluster managers are URLs."""


def check_master(master: str) -> None:
    """Refuse a master that Spark does not know, or that does not answer.

    A URL of another cluster manager, for which Spark has plug-ins, is accepted.

    Raises:
        EngineError: its name is not one of Spark's, or no server listens at its address.
    """
    if "://" not in master and not _WITHOUT_ADDRESS.fullmatch(master):
        raise EngineError(
            f"there is no master {master!r}: expected local[N], local[*], spark://HOST:PORT, yarn or k8s://HOST:PORT"
        )
    standalone, kubernetes = _STANDALONE.fullmatch(master), _KUBERNETES.match(master)
    addresses = []
    if standalone:
        addresses = [_address(one, 7077) for one in standalone[1].split(",")]
    elif kubernetes:
        addresses = [_address(kubernetes[2], 80 if kubernetes[1] == "http" else 443)]
    why = _nobody_at(addresses)
    if why is not None:
        raise EngineError(
            f"the master {master} does not answer ({why}): is it running, is its address right, and may this machine "
            "reach it?"
        )


def check_directory(place: str | None) -> None:
    """Refuse a checkpoint on this machine that cannot be made or written; any other is accepted.

    Raises:
        CheckpointError: a part of its path is not a directory, or this process may not write to it.
    """
    directory = None if place is None else local_directory(place)
    if directory is None:
        return
    there = next(one for one in (Path(directory), *Path(directory).parents) if os.path.lexists(one))
    if not there.is_dir():
        raise CheckpointError(f"checkpoint {place} cannot be used: {there} is no directory; name another place")
    if not os.access(there, os.W_OK | os.X_OK):
        raise CheckpointError(
            f"checkpoint {place} cannot be used: this process may not write to {there}; run as the user to whom it "
            "belongs, where it can be written, or name another place"
        )


def check_hdfs(place: str, services: Iterable[str] = ()) -> None:
    """Refuse a checkpoint on HDFS whose name node does not answer.

    Args:
        place: the checkpoint; one with another scheme is accepted.
        services: the name services of Hadoop's configuration; such a name is not a host and is accepted.

    Raises:
        CheckpointError: no server listens at its address.
    """
    match = re.match(r"hdfs://([^/]+)", place, re.IGNORECASE)
    if match is None or match[1] in set(services):
        return
    why = _nobody_at([_address(match[1].rsplit("@", 1)[-1], HDFS_PORT)])
    if why is not None:
        raise CheckpointError(
            f"checkpoint {place}: no name node answers there ({why}): is HDFS running, is its address right, and may "
            "this machine reach it?"
        )


def answer_within(secs: float, ask: Callable[[], Answer], place: str) -> Answer:
    """Call ``ask`` in a background thread and return its result.

    Args:
        secs: how long to wait.
        ask: the function to call.
        place: the checkpoint, for the message.

    Raises:
        CheckpointError: ``ask`` has not returned within ``secs`` seconds.
        BaseException: any exception that ``ask`` raises.
    """
    try:
        return within(secs, ask, "sparkbolt-first-contact")
    except DeadlineError:
        raise CheckpointError(
            f"checkpoint {place}: its file system has not answered within {secs:g} s: is it running, are its address "
            "and the credentials right, and may this machine reach it?"
        ) from None


def _address(text: str, port: int) -> tuple[str, int]:
    """A host and a port.

    >>> _address("host:7078", 7077), _address("host", 7077), _address("[::1]:9", 7077)
    (('host', 7078), ('host', 7077), ('::1', 9))
    """
    match = re.fullmatch(r"\[?(.+?)\]?:(\d+)", text)
    return (match[1], int(match[2])) if match else (text.strip("[]"), port)


def _nobody_at(addresses: Iterable[tuple[str, int]]) -> str | None:
    """Why none of the addresses can be reached; None if one can, or if there are none."""
    why = None
    for host, port in addresses:
        try:
            socket.create_connection((host, port), ANSWER_SECS).close()
            return None
        except OSError as error:
            why = f"{host}:{port}: {error.strerror or error}"
    return why
