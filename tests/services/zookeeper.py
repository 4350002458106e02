"""A ZooKeeper server of the tests: one process, small."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.services.jars import jars, java
from tests.services.server import HOST, Server, free_port

JVM = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# Four-letter words tell whether it serves; its administration server is not wanted.
SYSTEM = [
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dzookeeper.admin.enableServer=false",
    "-Dzookeeper.4lw.commands.whitelist=srvr",
]

CONFIG = """\
tickTime=500
minSessionTimeout=1000
dataDir={data}
clientPort={port}
clientPortAddress={host}
"""


class ZooKeeper(Server):
    """A ZooKeeper server; sessions may be as short as a second."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        self.port = free_port()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def prepare(self) -> None:
        (self.directory / "data").mkdir()
        text = CONFIG.format(data=self.directory / "data", port=self.port, host=HOST)
        (self.directory / "zoo.cfg").write_text(text)

    def command(self) -> tuple[list[str], dict[str, str]]:
        main = "org.apache.zookeeper.server.ZooKeeperServerMain"
        return [java(), *JVM, *SYSTEM, "-cp", f"{jars('zookeeper')}/*", main, str(self.directory / "zoo.cfg")], {}

    def answers(self) -> bool:
        with socket.create_connection((HOST, self.port), 2) as connection:
            connection.sendall(b"srvr")
            return b"Mode: standalone" in connection.makefile("rb").read()
