"""Driver RPC: lets Spark's planner process ask the driver for plans.

Rule 1: the socket is a Unix socket with mode 0600 in a directory with mode 0700. Before any message is read, both ends
prove that they know a secret, which is stored only in a file beside the socket. So only data of the other end is
unpickled.
Rule 2: an error that is raised in the driver reaches Spark, through the planner, as data (``failure_text``).
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import cloudpickle

from sparkbolt.base.exceptions import line_of
from sparkbolt.errors import EngineError, SparkboltError
from sparkbolt.spark import scratch
from sparkbolt.spark.driver_rpc_client import SECRET, SOCKET
from sparkbolt.spark.failure_text import carry


class Bridge:
    """The driver's end: answers each request with the result of ``answer(verb, argument)``."""

    def __init__(self, answer: Callable[[str, Any], Any]) -> None:
        """Open the socket and serve it from a separate thread."""
        self.directory = scratch.make()
        secret = secrets.token_bytes(32)
        path = Path(self.directory, SECRET)
        path.touch(mode=0o600)
        path.write_bytes(secret)
        self._answer = answer
        address = os.path.join(self.directory, SOCKET)
        try:
            self._listener = Listener(address, family="AF_UNIX", authkey=secret)
        except OSError as error:
            raise EngineError(
                f"no socket can be made at {address} ({error}): have TMPDIR name a directory that can be written to "
                "and whose path is shorter than 70 characters"
            ) from None
        os.chmod(address, 0o600)
        self._closed = False
        threading.Thread(target=self._accept, name="sparkbolt-bridge", daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection = self._listener.accept()
            except Exception:  # noqa: BLE001  a peer that does not know the secret, or the socket was closed
                continue
            threading.Thread(target=self._serve, args=(connection,), name="sparkbolt-planner", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection:
            while True:
                try:
                    words = cloudpickle.loads(connection.recv_bytes())
                except (EOFError, OSError):
                    return
                try:
                    reply = ("ok", self._answer(*words))
                except SparkboltError as error:
                    reply = ("error", carry(error))
                except BaseException as error:  # noqa: BLE001  ``sys.exit`` in user code, too: the planner receives it
                    reply = ("error", line_of(error))
                try:
                    connection.send_bytes(cloudpickle.dumps(reply))
                except (BrokenPipeError, OSError):
                    return

    def close(self) -> None:
        """Close the socket and remove the directory."""
        self._closed = True
        with suppress(OSError), socket.socket(socket.AF_UNIX) as nobody:  # wakes the thread, which then ends
            nobody.connect(os.path.join(self.directory, SOCKET))
        self._listener.close()
        scratch.remove(self.directory)
