"""Real servers for the tests: each is started, killed and started again from Python.

``scripts/services COMMAND`` installs what they need, starts one of each, tells COMMAND where they are by the
environment (``SPARKBOLT_TEST_KAFKA`` and ``SPARKBOLT_TEST_ZOOKEEPER`` are host:port, ``SPARKBOLT_TEST_RABBITMQ`` is an
AMQP URL, ``SPARKBOLT_TEST_POSTGRESQL`` and ``SPARKBOLT_TEST_MARIADB`` are URLs of SQLAlchemy) and stops them. The
fixtures ``kafka``, ``zookeeper``, ``rabbitmq``, ``postgresql`` and ``mariadb`` give the address, from there or of a
server that they start. A test that kills its server makes one of its own, since those are shared:

    with Kafka(tmp_path / "kafka") as kafka:
        ...
        kafka.kill()
        kafka.start()       # the same address, the same data

Read ``server`` first: it is what all have in common.
"""

from pathlib import Path

from tests.services.kafka import Kafka
from tests.services.mariadb import MariaDB
from tests.services.postgresql import PostgreSQL
from tests.services.rabbitmq import RabbitMQ
from tests.services.server import Server
from tests.services.zookeeper import ZooKeeper

# What COMMAND is told about each server by.
KINDS: dict[str, type[Kafka] | type[MariaDB] | type[PostgreSQL] | type[RabbitMQ] | type[ZooKeeper]] = {
    "SPARKBOLT_TEST_KAFKA": Kafka,
    "SPARKBOLT_TEST_ZOOKEEPER": ZooKeeper,
    "SPARKBOLT_TEST_POSTGRESQL": PostgreSQL,
    "SPARKBOLT_TEST_MARIADB": MariaDB,
    "SPARKBOLT_TEST_RABBITMQ": RabbitMQ,
}


def make(directory: Path) -> dict[str, Server]:
    """One server of each kind, by the variable that tells its address; none is started."""
    return {name: kind(directory / kind.__name__.lower()) for name, kind in KINDS.items()}


__all__ = ["KINDS", "Kafka", "MariaDB", "PostgreSQL", "RabbitMQ", "Server", "ZooKeeper", "make"]
