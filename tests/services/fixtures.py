"""Where the shared servers are: from ``scripts/services``, or of one that is started for this run.

A server that cannot be started is an error of the test, never a skip: a test of a connector that did not run tells
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.services import KINDS


def _address(variable: str, directories: pytest.TempPathFactory) -> Iterator[str]:
    if known := os.environ.get(variable):
        yield known
        return
    kind = KINDS[variable]
    with kind(directories.mktemp("services") / kind.__name__.lower()) as server:
        yield server.address


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The host:port of a Kafka broker that all tests share: a topic of one's own for each test."""
    yield from _address("SPARKBOLT_TEST_KAFKA", tmp_path_factory)


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The host:port of a ZooKeeper server that all tests share: a root of one's own for each test."""
    yield from _address("SPARKBOLT_TEST_ZOOKEEPER", tmp_path_factory)


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The AMQP URL of a RabbitMQ node that all tests share: a queue of one's own for each test."""
    yield from _address("SPARKBOLT_TEST_RABBITMQ", tmp_path_factory)


@pytest.fixture(scope="session")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server that all tests share: a schema of one's own for each test."""
    yield from _address("SPARKBOLT_TEST_POSTGRESQL", tmp_path_factory)


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a MariaDB server that all tests share: a database of one's own for each test."""
    yield from _address("SPARKBOLT_TEST_MARIADB", tmp_path_factory)
