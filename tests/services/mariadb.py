"""A MariaDB server of the tests, from Debian's package, with a data folder of its own, on a machine in New York."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from tests.services.server import HOST, Server, free_port, need

PACKAGE = "mariadb-server"
SETTINGS = (
    "--socket=mariadb.sock",  # in the data folder: the path of a socket must be short
    f"--bind-address={HOST}",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=0",  # what is killed here is the server, not the machine
)


class MariaDB(Server):
    """A server with one database; its address is a URL as of SQLAlchemy."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        self.port = free_port()
        user = ["--user=root"] if os.geteuid() == 0 else []
        self._options = ["--no-defaults", *user, f"--datadir={self.directory / 'data'}"]

    @property
    def address(self) -> str:
        return f"mysql+pymysql://root@{HOST}:{self.port}/test"

    def prepare(self) -> None:
        command = [need("mariadb-install-db", PACKAGE), *self._options, "--auth-root-authentication-method=normal"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.directory, check=False)
        if done.returncode:
            raise RuntimeError(f"mariadb-install-db failed: {done.stdout}{done.stderr}")

    def command(self) -> tuple[list[str], dict[str, str]]:
        options = [*self._options, *SETTINGS, f"--port={self.port}"]
        return [need("/usr/sbin/mariadbd", PACKAGE), *options], {"TZ": "America/New_York"}

    def answers(self) -> bool:
        import pymysql

        try:
            self.ask("SELECT 1")
        except pymysql.OperationalError:
            return False
        return True

    def ask(self, statement: str) -> Any:
        """Run a statement in a transaction of its own, and return its rows."""
        return ask(self.address, statement)


def ask(url: str, statement: str) -> Any:
    """Run a statement at the database of a URL in a transaction of its own, and return its rows."""
    import pymysql
    from sqlalchemy import make_url

    place = make_url(url)
    with pymysql.connect(
        host=place.host, port=place.port or 0, user=place.username, database=place.database, autocommit=True
    ) as connection:
        cursor = connection.cursor()
        cursor.execute(statement)
        return list(cursor.fetchall())
