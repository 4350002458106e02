"""Driver RPC client: the planner's end of the driver RPC.

It is a separate module, since that process must not load the driver's end and its imports.
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
    """The requests of the planner to the driver; ``LaneReader`` shows the argument of each."""

    INITIAL = "initial"
    LATEST = "latest"
    PARTITIONS = "partitions"
    IS_COMMITTED = "is committed"


class DriverRpcClient:
    """The planner's end; it connects with the first request."""

    def __init__(self, directory: str) -> None:
        """Use the driver RPC whose socket is in ``directory``."""
        self._directory = directory
        self._connection: Connection | None = None

    def ask(self, verb: str, argument: Any = None) -> Any:
        """Send one request and return the driver's answer.

        Raises:
            RuntimeError: the driver answered with an error, or does not answer.
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
