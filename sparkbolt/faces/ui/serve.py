"""Serve: runs the application as a process that listens.

By default it listens on loopback; on any other address nothing is shown without the token. The token is stored only in
its file, of mode 0600. A client that does not complete its request's head within ``HEAD_SECS_MAX`` is disconnected.
"""

from __future__ import annotations

import asyncio
import getpass
import ipaddress
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from sparkbolt.base.file_access import Files
from sparkbolt.control.home import default_home
from sparkbolt.control.kept_state import ReadState
from sparkbolt.control.operator import Operator
from sparkbolt.errors import ConfigError, SparkboltError
from sparkbolt.faces.ui.app import LOOPBACK_HOSTS, make_app
from sparkbolt.faces.ui.page_routes import page_options
from sparkbolt.faces.ui.security import TOKEN_CHARACTERS_MIN
from sparkbolt.faces.ui.urls import part_of_path
from sparkbolt.files.local import LocalFiles

DEFAULT_PORT = 8088
CONNECTIONS_MAX = 1000
BACKLOG = 128
HEAD_BYTES_MAX = 32 << 10
HEAD_SECS_MAX = 10.0
IDLE_SECS_MAX = 15
LOOK_SECS_MAX = 2.0
"""How long the start waits for a look at the checkpoints that it was given."""
STOP_SECS_MAX = 3

TOKEN_VARIABLE = "SPARKBOLT_UI_TOKEN"


def serve(
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    home: str | None = None,
    checkpoints: Sequence[str] = (),
    token: str | None = None,
    *,
    open_files: Callable[..., Files],
    read_state: ReadState | None = None,
    private: bool = False,
    allowed_hosts: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> None:
    """Serve the UI and its interfaces until SIGINT or SIGTERM.

    Args:
        host: the address to listen at; one that is not loopback makes it ``private``.
        port: the port; 0 takes a free one.
        home: where topologies are registered; None: ``SPARKBOLT_HOME``, or the user's own default.
        checkpoints: paths or URLs of checkpoints that are shown besides.
        token: the token that changes need; None: ``SPARKBOLT_UI_TOKEN``, or the one that is stored in the home.
        open_files: opens a checkpoint for reading.
        read_state: as for ``Operator``.
        private: whether reading needs the token too.
        allowed_hosts: names of this server beside ``host``, without ports.
        say: prints the address, the token, and the checkpoints that cannot be read.

    Raises:
        ConfigError: the token is too short, or its file is not the user's alone.
        OSError: it cannot listen there.
    """
    private = private or not is_loopback(host)
    directory = token_directory(home)
    token = token or os.environ.get(TOKEN_VARIABLE) or kept_token(directory)
    operator = Operator(home, open_files=open_files, read_state=read_state)
    looking = threading.Thread(target=_look_at, args=(operator, checkpoints, say), daemon=True)
    looking.start()
    looking.join(LOOK_SECS_MAX)  # a file system may hang
    app = make_app(
        operator,
        token=token,
        allowed_hosts=[*LOOPBACK_HOSTS, host, *allowed_hosts],
        private=private,
        checkpoints=checkpoints,
        **page_options(),
    )
    run(app, host, port, lambda url: say(f"Sparkbolt's UI is at {url}\nTo make changes, open {login_link(url, token)}"))


def login_link(url: str, token: str) -> str:
    """The link that logs a browser in. Browsers send no fragment, so the token is in no log and no ``Referer``.

    >>> login_link("http://127.0.0.1:8088/", "a b")
    'http://127.0.0.1:8088/login#token=a%20b'
    """
    return f"{url}login#token={part_of_path(token)}"


def _look_at(operator: Operator, checkpoints: Sequence[str], say: Callable[[str], None]) -> None:
    """Report paths that are not checkpoints."""
    for place in checkpoints:
        try:
            operator.find(place)
        except SparkboltError as error:
            say(f"{error}; the UI shows it as soon as it exists")


def run(app: Starlette, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Listen until SIGINT or SIGTERM; ``ready`` gets the URL once it does.

    Raises:
        OSError: it cannot listen there.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Not uvicorn's own way, which ends the process when the port is taken.
    with socket.create_server((host, port), family=family, backlog=BACKLOG) as listener:
        at = listener.getsockname()[1]
        name = f"[{host}]" if ":" in host else host
        ready(f"http://{name}:{at}/")
        uvicorn.Server(server_config(app, host, at)).run(sockets=[listener])


def server_config(app: Starlette, host: str, port: int) -> uvicorn.Config:
    """The configuration of the server: limits, and no headers that identify it."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=PatientProtocol,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        timeout_keep_alive=IDLE_SECS_MAX,
        timeout_graceful_shutdown=STOP_SECS_MAX,
    )


class PatientProtocol(H11Protocol):
    """uvicorn's HTTP with a timeout for a request's head, for which uvicorn waits without a limit."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._head = self.loop.call_later(HEAD_SECS_MAX, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._no_longer()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Begin to wait for the rest of a head when its first bytes are there; stop when all of it is."""
        super().handle_events()
        if self.conn.their_state is not h11.IDLE:
            self._no_longer()
        elif self._head is None and self.conn.trailing_data[0]:
            self._head = self.loop.call_later(HEAD_SECS_MAX, self._give_up)

    def _no_longer(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _give_up(self) -> None:
        self.transport.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_directory(home: str | None) -> Path | None:
    """Where the token is kept: the home, if it is a local directory; None if it is elsewhere."""
    place = (home or default_home()).removeprefix("file://")
    return None if "://" in place else Path(place)


def kept_token(directory: Path | None) -> str:
    """The token in the home, made at the first start; one for this start only if the home is not a local directory.

    Raises:
        ConfigError: others can read the file, or it holds no token.
    """
    if directory is None:
        return secrets.token_urlsafe(32)
    path = directory / f"ui-token-{getpass.getuser()}"  # users of a shared home cannot read each other's files
    LocalFiles(str(directory), private=True).create(path.name, f"{secrets.token_urlsafe(32)}\n".encode())
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
        if os.fstat(file.fileno()).st_mode & 0o077:
            raise ConfigError(f"other users can read {path}: remove the file, and the next start creates a new token")
        token = file.read().strip()
    if len(token) < TOKEN_CHARACTERS_MIN:
        raise ConfigError(f"{path} contains no token: remove the file, and the next start creates one")
    return token
