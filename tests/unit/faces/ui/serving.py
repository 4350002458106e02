"""A real server for tests: the application behind uvicorn, as ``sparkbolt ui`` starts it, in a thread."""

from __future__ import annotations

import http.client
import socket
import threading
from types import TracebackType
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette

from sparkbolt.faces.ui.serve import server_config
from tests.patience import PATIENCE_SECS


class Serving:
    """The application at ``http://localhost:PORT/`` within a ``with`` block."""

    def __init__(self, app: Starlette) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://localhost:{self.port}"
        self.server = uvicorn.Server(server_config(app, "127.0.0.1", self.port))
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._listener]}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        while not self.server.started:
            assert self._thread.is_alive(), "the server ended before it began"
            threading.Event().wait(0.01)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.should_exit = True
        self._thread.join(PATIENCE_SECS)
        self._listener.close()
        assert not self._thread.is_alive(), "the server did not end"

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
        """(status, headers, body) of one request."""
        connection = http.client.HTTPConnection("localhost", self.port, timeout=PATIENCE_SECS)
        try:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def raw(self) -> socket.socket:
        """A connection, for what no client would send."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECS)


def until(condition: Any) -> None:
    """Wait until ``condition()`` holds."""
    for _ in range(int(PATIENCE_SECS / 0.02)):
        if condition():
            return
        threading.Event().wait(0.02)
    raise AssertionError("it never came")
