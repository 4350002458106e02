"""What tests of Kafka without a broker share; made only for those that ask for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from sparkbolt.spouts.kafka import MockKafka
from tests.kafka import SEEN


@pytest.fixture(scope="module")
def kafka() -> Iterator[MockKafka]:
    """Brokers within this process."""
    with MockKafka() as mock:
        yield mock


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic, and a group, of the test's own."""
    own = re.sub(r"[^a-z0-9]+", "-", request.node.name)[:80]
    SEEN[own] = []
    return own
