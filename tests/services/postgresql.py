"""A PostgreSQL server of the tests, from Debian's package, with a data folder of its own.

PostgreSQL refuses to run as root. So root runs it as the user ``postgres`` that the package makes, in a folder that
this user can reach; anybody else runs it as who they are.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import Any

import psutil

from tests.services.server import HOST, Server, free_port, need

SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "fsync": "off",  # what is killed here is the server, not the machine
    "full_page_writes": "off",
    "logging_collector": "off",
    "jit": "off",
}
USER = "sparkbolt"


def program(name: str) -> str:
    """The path of a program of the newest version that is installed."""
    found = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]), reverse=True
    )
    return str(found[0]) if found else need(name, "postgresql")


class PostgreSQL(Server):
    """A server with one database; its address is a URL as of SQLAlchemy."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        self.port = free_port()
        self._is_root = os.geteuid() == 0
        # The folders of a test of root's can be entered by root alone.
        self._home = Path(tempfile.mkdtemp(prefix="sparkbolt-postgresql-")) if self._is_root else self.directory
        if self._is_root:
            weakref.finalize(self, shutil.rmtree, self._home, ignore_errors=True)
        self.data = self._home / "data"

    @property
    def address(self) -> str:
        return f"postgresql+psycopg://{USER}@{HOST}:{self.port}/postgres"

    def _as_user(self, *command: str) -> list[str]:
        if not self._is_root:
            return list(command)
        # To change the user clears the signal that ends a server with its starter, so it is set once more.
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL"]
        return ["env", "-C", str(self._home), *user, *command]

    def prepare(self) -> None:
        if self._is_root:
            shutil.chown(self._home, "postgres", "postgres")
        begin = [program("initdb"), "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"]
        done = subprocess.run(
            self._as_user(*begin, "--locale=C.UTF-8"), capture_output=True, text=True, cwd=self._home, check=False
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")

    def command(self) -> tuple[list[str], dict[str, str]]:
        settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        return self._as_user(program("postgres"), "-D", str(self.data), "-p", str(self.port), *settings), {}

    def answers(self) -> bool:
        import psycopg

        try:
            self.ask("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def ask(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement in a transaction of its own, and return its rows."""
        import psycopg

        url = self.address.replace("+psycopg", "")
        with psycopg.connect(url, connect_timeout=5) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def _end(self, how: signal.Signals) -> None:
        """End its processes, too: those that serve clients are of sessions of their own, and outlive it for a while."""
        serving = psutil.Process(self.process.pid).children(recursive=True) if self.process is not None else []
        super()._end(signal.SIGINT if how is signal.SIGTERM else how)  # SIGTERM waits for all clients
        if how is signal.SIGKILL:
            for process in serving:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
        psutil.wait_procs(serving, timeout=10)
