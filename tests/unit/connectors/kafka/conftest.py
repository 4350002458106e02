"""What every test of the Kafka spout leaves: no thread that talks to brokers."""

import threading
from collections.abc import Iterator

import pytest


def watchers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "kafka-watcher"}


@pytest.fixture(autouse=True)
def no_watcher_is_left() -> Iterator[None]:
    before = watchers()
    yield
    assert watchers() <= before, "a thread that talks to brokers goes on after its topology has ended"
