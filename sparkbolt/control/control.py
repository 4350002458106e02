"""Control: the server in the driver's process that answers operators.

Rule 1: a request is one line of JSON, ``{"verb": ..., "by": ..., "token": ..., "arguments": {...}}``, and so is its
answer, ``{"answer": ...}`` or ``{"error": ..., "kind": ...}``. Nothing is ever unpickled.
Rule 2: by default the server listens on a Unix socket of mode 0600 in a folder of mode 0700, and the system identifies
the caller: this user or root. With ``SPARKBOLT_CONTROL=tcp://HOST:PORT`` it listens on TCP, on loopback if HOST is left
out; then each request must have the token, which is compared in constant time.
Rule 3: everything has a limit: ``REQUEST_BYTES_MAX``, ``CONNECTIONS_MAX``, and ``REQUEST_SECS`` to receive a request.

Prior art: the control sockets of PostgreSQL and HAProxy.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import logging
import os
import re
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from sparkbolt.base.exceptions import line_of
from sparkbolt.errors import ConfigError, SparkboltError, WrongUseError

CONTROL_ENV = "SPARKBOLT_CONTROL"
REQUEST_BYTES_MAX = 64 << 10
CONNECTIONS_MAX = 32
REQUEST_SECS = 5.0
"""How long the server waits to receive a request, and to send its answer."""
LINGER_SECS = 0.5
SOCKET_PATH_MAX = 100
"""The system allows paths of sockets of 103 to 107 characters."""
BY_CHARACTERS_MAX = 100
_TCP = re.compile(r"tcp://(?:\[([0-9A-Fa-f:.]+)\]|([^:/\[\]]*))(?::(\d+))?/?")
log = logging.getLogger("sparkbolt")


class Asks(Protocol):
    """Returns the answer to a request: ``Steering.ask``."""

    def __call__(self, verb: str, arguments: Mapping[str, Any], by: str) -> Any:
        """Return the answer, which is JSON."""


class NotAdmittedError(SparkboltError):
    """A request is refused before anybody looks at it; the connection is closed."""


def tcp_address(text: str) -> tuple[str, int] | None:
    """Host and port of ``SPARKBOLT_CONTROL``; None if it asks for a Unix socket.

    >>> tcp_address("tcp://:9001"), tcp_address("tcp://10.0.0.7:0"), tcp_address("tcp://[::1]:9"), tcp_address("unix")
    (('127.0.0.1', 9001), ('10.0.0.7', 0), ('::1', 9), None)

    Raises:
        ConfigError: it is neither.
    """
    if text in ("", "unix"):
        return None
    match = _TCP.fullmatch(text)
    if match is None or (match[3] and int(match[3]) > 65535):
        raise ConfigError(f"{CONTROL_ENV} is {text!r}, expected unix, off, or tcp://HOST:PORT (HOST may be left out)")
    return match[1] or match[2] or "127.0.0.1", int(match[3] or 0)


class ControlServer:
    """Answers requests until it is closed."""

    def __init__(
        self,
        ask: Asks,
        *,
        folder: str | None = None,
        tcp: tuple[str, int] | None = None,
        token: str | None = None,
        host: Callable[[], str] = socket.gethostname,
    ) -> None:
        """Open the socket and begin to answer, in separate threads.

        Args:
            ask: returns the answer to a request, in the time that who asks waits.
            folder: a private folder for the socket; None: a new one, which the server removes at its end.
            tcp: host and port for TCP.
            token: the secret that requests over TCP must have.
            host: the name of this machine for other machines.

        Raises:
            OSError: the address cannot be used.
        """
        self._ask, self._token = ask, token
        self._folder: str | None = None
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._closed = threading.Event()
        self._path: str | None = None
        if tcp is not None:
            if not token:
                raise ConfigError("control over TCP needs a token")
            self._listener = _listen_tcp(tcp)
            name, port = self._listener.getsockname()[:2]
            shown = host() if name in ("0.0.0.0", "::") else name
            self.address = f"tcp://{f'[{shown}]' if ':' in shown else shown}:{port}"
            if not _is_loopback(name):
                log.warning(
                    "control listens at %s and can be reached from other machines: everyone who has the token can "
                    "change the topology",
                    self.address,
                )
        else:
            self._path = self._socket_path(folder)
            self._listener = _listen_unix(self._path)
            self.address = f"unix:{self._path}"
        threading.Thread(target=self._accept, name="sparkbolt-control", daemon=True).start()

    def _socket_path(self, folder: str | None) -> str:
        if folder is not None and len(path := os.path.join(folder, "control")) <= SOCKET_PATH_MAX:
            return path
        for place in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"):
            if os.path.isdir(place) and len(place) <= SOCKET_PATH_MAX - 40:
                with contextlib.suppress(OSError):
                    self._folder = tempfile.mkdtemp(prefix="sparkbolt-control-", dir=place)  # of mode 0700
                    return os.path.join(self._folder, "control")
        raise OSError(
            "no directory with a short path can be created for a socket: set TMPDIR to a directory with a short path"
        )

    def close(self) -> None:
        """Stop answering, and remove the socket."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            connections = list(self._connections)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)  # an answer that is being written is finished
        if self._path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if not self._closed.is_set():
                    time.sleep(0.1)  # too many open files, perhaps: later there may be fewer
                continue
            with self._lock:
                room = not self._closed.is_set() and len(self._connections) < CONNECTIONS_MAX
                if room:
                    self._connections.add(connection)
            if not room:
                with contextlib.suppress(OSError), connection:
                    connection.settimeout(0.1)
                    _send(
                        connection,
                        {
                            "error": f"{CONNECTIONS_MAX} connections are open, which is the maximum; try again later",
                            "kind": "busy",
                        },
                    )
                continue
            threading.Thread(target=self._serve, args=(connection,), name="sparkbolt-request", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            lines = _Lines(connection)
            while not self._closed.is_set() and (line := lines.next()) is not None:
                if _has_gone(connection):  # the client has given up, and does not expect the change any more
                    log.warning("dropped a request, because its client no longer waits for the answer")
                    return
                connection.settimeout(REQUEST_SECS)
                _send(connection, self._answer(connection, line))
        except NotAdmittedError as error:
            with contextlib.suppress(OSError):
                _send_last(connection, {"error": str(error), "kind": "refused"})
        except OSError as error:
            log.debug("a request to control ended early: %s", error)
        except Exception:
            log.exception("a request to control failed, which is a defect of Sparkbolt; the topology continues")
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _answer(self, connection: socket.socket, line: bytes) -> dict[str, Any]:
        try:
            body = json.loads(line)
        except (ValueError, RecursionError):
            return {"error": "the request is not JSON", "kind": "wrong"}
        if not isinstance(body, dict) or not isinstance(body.get("verb"), str):
            return {"error": "the request is not a JSON object with a verb", "kind": "wrong"}
        self._check_allowed(connection, body.get("token"))
        arguments = body.get("arguments", {})
        if not isinstance(arguments, dict) or "by" in arguments:
            return {
                "error": "the arguments of the request are not an object, or contain the name of the user",
                "kind": "wrong",
            }
        by = str(body.get("by") or "somebody")[:BY_CHARACTERS_MAX]
        try:
            return {"answer": self._ask(body["verb"], arguments, "".join(c if c.isprintable() else "?" for c in by))}
        except WrongUseError as error:
            return {"error": str(error), "kind": "absent"}
        except SparkboltError as error:
            return {"error": str(error), "kind": "wrong"}
        except Exception as error:
            log.error("request %r of an operator failed: %s", body["verb"], line_of(error), exc_info=True)
            return {"error": f"the request failed: {line_of(error)}", "kind": "failed"}

    def _check_allowed(self, connection: socket.socket, token: object) -> None:
        if self._path is None:
            given = token.encode() if isinstance(token, str) else b""
            if self._token is None or not hmac.compare_digest(given, self._token.encode()):
                raise NotAdmittedError(
                    "the token is missing or wrong: set SPARKBOLT_TOKEN, or use the token file of the home"
                )
            return
        user = _peer(connection)
        if user is not None and user not in (0, os.getuid()):
            raise NotAdmittedError("only the user who runs the topology can change it")


class _Lines:
    """The lines that a connection receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def next(self) -> bytes | None:
        """The next line; None if the other end has closed the connection.

        Raises:
            NotAdmittedError: it is too long, or does not arrive in time.
        """
        until = time.monotonic() + REQUEST_SECS
        while b"\n" not in self._rest:
            if len(self._rest) > REQUEST_BYTES_MAX:
                raise NotAdmittedError(f"a request has at most {REQUEST_BYTES_MAX:,} bytes")
            left = until - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                self._connection.settimeout(left)
                data = self._connection.recv(16 << 10)
            except TimeoutError:
                raise NotAdmittedError(f"the request did not arrive within {REQUEST_SECS:g} s") from None
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        if len(line) > REQUEST_BYTES_MAX:
            raise NotAdmittedError(f"a request has at most {REQUEST_BYTES_MAX:,} bytes")
        return line


def _has_gone(connection: socket.socket) -> bool:
    """Whether the client has closed its end, for example after a timeout while this process was stopped."""
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False


def _send(connection: socket.socket, body: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps(body, separators=(",", ":"), default=str).encode() + b"\n")


def _send_last(connection: socket.socket, body: Mapping[str, Any]) -> None:
    """Send, and read on a little: closing with unread data would discard the answer at the other end."""
    connection.settimeout(LINGER_SECS)
    _send(connection, body)
    connection.shutdown(socket.SHUT_WR)
    until = time.monotonic() + LINGER_SECS
    while time.monotonic() < until and connection.recv(64 << 10):
        continue


def _listen_unix(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(CONNECTIONS_MAX)
    except BaseException:
        listener.close()
        raise
    return listener


def _listen_tcp(address: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(CONNECTIONS_MAX)
    except BaseException:
        listener.close()
        raise
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _peer(connection: socket.socket) -> int | None:
    """The user at the other end of a Unix socket; None if the system does not report it."""
    if not sys.platform.startswith("linux"):
        return None
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    user: int = struct.unpack("3i", data)[1]
    return user
