"""A Kafka broker of the tests: one process that is broker and controller (KRaft), small and quick to start."""

from __future__ import annotations

import base64
import socket
import subprocess
import uuid
from pathlib import Path

from tests.services.jars import jars, java
from tests.services.server import HOST, START_SECS_MAX, Server, free_port

JVM = ["-Xms64m", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
LOG = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
# With the defaults a broker that was killed answers only after 12 s.
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=3000
# The default takes 150 MB.
log.cleaner.dedupe.buffer.size=4194304
# A test makes its topics itself, and a wrong name is an error.
auto.create.topics.enable=false
# So that a test can let messages run out by retention and see it within seconds.
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
"""


class Kafka(Server):
    """A broker; ``settings`` are added to its properties: ``Kafka(tmp_path, {"message.max.bytes": 1000})``."""

    def __init__(self, directory: str | Path, settings: dict[str, object] | None = None) -> None:
        super().__init__(directory)
        self.settings = dict(settings or {})
        self.port, self.controller = free_port(), free_port()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    def prepare(self) -> None:
        data = self.directory / "data"
        text = PROPERTIES.format(host=HOST, port=self.port, controller=self.controller, data=data)
        self.properties.write_text(text + "".join(f"{key}={value}\n" for key, value in self.settings.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._java("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(self.properties))
        run = subprocess.run(command, capture_output=True, text=True, timeout=START_SECS_MAX)
        if run.returncode != 0:
            raise RuntimeError(f"Kafka's storage could not be made:\n{run.stdout}{run.stderr}")

    def command(self) -> tuple[list[str], dict[str, str]]:
        return self._java("kafka.Kafka", str(self.properties)), {}

    def _java(self, *arguments: str) -> list[str]:
        return [java(), *JVM, *LOG, "-cp", f"{jars('kafka')}/*", *arguments]

    def answers(self) -> bool:
        # Here, since every test run loads this module, also where the client is not installed.
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        with socket.create_connection((HOST, self.port), 1):
            pass
        # Without a level the client prints every connection that is refused.
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=5).brokers)
        except KafkaException:
            return False
