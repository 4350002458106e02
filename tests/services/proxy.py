"""A TCP proxy of the tests: it passes on what comes and goes, until the test cuts it, be it in mid-message."""

from __future__ import annotations

import selectors
import socket
import threading
from types import TracebackType
from typing import Self

from tests.services.server import HOST

CHUNK = 1 << 18


class Proxy:
    """Passes connections on to ``port`` on loopback; ``cut`` ends all of them at once."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listening = socket.create_server((HOST, 0))
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._cut = threading.Event()
        self._stop = False
        self.cuts = 0
        """How many connections were cut."""
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    @property
    def port(self) -> int:
        port: int = self._listening.getsockname()[1]
        return port

    def cut(self) -> None:
        """End all connections; new ones are passed on."""
        self._cut.set()
        self._waker.send(b"x")

    def __enter__(self) -> Self:
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop = True
        self._waker.send(b"x")
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop:
            for key, _ in self._selector.select():
                if key.fileobj is self._listening:
                    self._accept()
                elif key.fileobj is self._woken:
                    self._woken.recv(100)
                elif key.data in [k.fileobj for k in self._selector.get_map().values()]:
                    self._pass(key.fileobj, key.data)
            if self._cut.is_set():
                self._cut.clear()
                self._end_all()
        self._end_all()
        for each in (self._listening, self._woken, self._waker):
            each.close()
        self._selector.close()

    def _accept(self) -> None:
        client = self._listening.accept()[0]
        try:
            server = socket.create_connection((HOST, self._target), 5)
        except OSError:
            client.close()
            return
        self._selector.register(client, selectors.EVENT_READ, server)
        self._selector.register(server, selectors.EVENT_READ, client)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            data = source.recv(CHUNK)
            if data:
                sink.sendall(data)
                return
        except OSError:
            pass
        self._end(source, sink)

    def _end(self, *ends: socket.socket) -> None:
        for each in ends:
            self._selector.unregister(each)
            each.close()

    def _end_all(self) -> None:
        pairs = [(key.fileobj, key.data) for key in self._selector.get_map().values() if key.data is not None]
        for source, sink in pairs:
            if source.fileno() != -1:
                self._end(source, sink)
                self.cuts += 1
