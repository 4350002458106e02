"""A RabbitMQ node of the tests, from Debian's package, with a port mapper of its own.

Erlang's nodes find each other by a daemon (epmd), which a node would start by itself and leave behind. So one is
started here and ended with the node.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from pathlib import Path

from tests.services.server import HOST, START_SECS_MAX, Server, free_port, need

NODE = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one on the path changes the user first

CONFIG = """\
listeners.tcp.1 = {host}:{port}
loopback_users.guest = true
log.console = true
log.console.level = warning
# Queues of tests are small; a disk or a machine that is rather full is no reason to block publishers.
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.relative = 0.8
"""


class PortMapper(Server):
    """Erlang's port mapper daemon."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        self.port = free_port()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def prepare(self) -> None: ...

    def command(self) -> tuple[list[str], dict[str, str]]:
        return [need("epmd", "rabbitmq-server"), "-port", str(self.port), "-address", HOST], {}

    def answers(self) -> bool:
        with socket.create_connection((HOST, self.port), 2):
            return True


class RabbitMQ(Server):
    """A node with the user ``guest``; its address is an AMQP URL."""

    def __init__(self, directory: str | Path) -> None:
        super().__init__(directory)
        self.mapper = PortMapper(self.directory.with_name(self.directory.name + "-epmd"))
        self.port, self.distribution = free_port(), free_port()

    @property
    def address(self) -> str:
        return f"amqp://guest:guest@{HOST}:{self.port}/"

    def prepare(self) -> None:
        (self.directory / "rabbitmq.conf").write_text(CONFIG.format(host=HOST, port=self.port))
        (self.directory / "enabled_plugins").write_text("[].\n")

    def launch(self) -> None:
        if self.mapper.process is None:
            self.mapper.start()
        super().launch()

    def command(self) -> tuple[list[str], dict[str, str]]:
        home = self.directory
        return [need(NODE, "rabbitmq-server")], {
            "HOME": str(home),
            "ERL_EPMD_PORT": str(self.mapper.port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"tests{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.distribution),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_BASE": str(home),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(home / "generated"),
            "RABBITMQ_SCHEMA_DIR": str(home / "schema"),
            "RABBITMQ_PID_FILE": str(home / "node.pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} +S 2:2 "
                "-mnesia dump_log_time_threshold 500"
            ),
            "RUNNING_UNDER_SYSTEMD": "1",  # the script then becomes the node, which is what is to be killed
        }

    def answers(self) -> bool:
        import pika
        from pika.exceptions import AMQPError

        with socket.create_connection((HOST, self.port), 2):
            pass  # pika would log an error for a port that nobody listens on
        try:
            pika.BlockingConnection(pika.URLParameters(self.address)).close()
        except AMQPError:
            return False
        return True

    def wait_until_kept(self, queue: str) -> None:
        """Wait until the declaration of a durable queue outlives a kill; what was confirmed of messages does already.

        The node has only begun to write a declaration when it says that it is done. It is safe when Mnesia, which keeps
        what is declared, has moved it from its log into the table.
        """
        for _ in range(int(20 * START_SECS_MAX)):
            for table in (self.directory / "mnesia").glob("*/rabbit_durable_queue.DC?"):
                with contextlib.suppress(FileNotFoundError):  # its log goes when the table has it
                    if queue.encode() in table.read_bytes():
                        return
            threading.Event().wait(0.05)
        raise RuntimeError(f"{self} has not written the declaration of {queue!r}")

    def _end(self, how: signal.Signals) -> None:
        super()._end(how)
        self.mapper.kill()
