"""The RPC client: the planner's end of the driver RPC.

Which question it answers: how does a process that Spark has made for the source reach the driver?
Rule: it stands apart from the driver's end, since that process is to load nothing else of ours.

Read before: nothing.
"""

from __future__ import annotations

import os
from enum import StrEnum
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import cloudpickle

SOCKET = "planner.sock"
SECRET = "secret"


class Question(StrEnum):
    """What the planner asks the driver; with which argument, ``LaneReader`` says."""

    INITIAL = "initial"
    LATEST = "latest"
    PARTITIONS = "partitions"


class DriverRpcClient:
    """The planner's end; connects when it is first used."""

    def __init__(self, directory: str) -> None:
        """Ask the bridge that has this directory."""
        self._directory = directory
        self._connection: Connection | None = None

    def ask(self, verb: str, argument: Any = None) -> Any:
        """One request.

        Raises:
            RuntimeError: the driver refused it, or is gone.
        """
        try:
            if self._connection is None:
                secret = Path(self._directory, SECRET).read_bytes()
                self._connection = Client(os.path.join(self._directory, SOCKET), family="AF_UNIX", authkey=secret)
            self._connection.send_bytes(cloudpickle.dumps((str(verb), argument)))
            outcome, value = cloudpickle.loads(self._connection.recv_bytes())
        except (OSError, EOFError) as error:
            raise RuntimeError(
                f"the driver of the topology does not answer ({error}): it has stopped or died"
            ) from error
        if outcome != "ok":
            raise RuntimeError(f"the driver could not answer {str(verb)!r}: {value}")
        return value
