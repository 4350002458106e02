"""KestrelSpout against the tests' own Kestrel server, and that server against Kestrel's guide."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkbolt import Config
from sparkbolt.api.components import TopologyContext
from sparkbolt.spouts import KestrelSpout
from tests.services.kestrel import Kestrel
from tests.services.server import HOST, free_port


@pytest.fixture
def kestrel() -> Iterator[Kestrel]:
    with Kestrel() as server:
        yield server


class Calls:
    """A spout, called as its thread calls it."""

    def __init__(self, spout: KestrelSpout, **config: Any) -> None:
        self.spout = pickle.loads(pickle.dumps(spout))
        self.spout.open(TopologyContext("t", "lines", 0, 1, 1, Config(**config)))
        self.emitted: list[tuple[Any, Any]] = []
        self.reported: list[str] = []

    room = 10_000

    def emit(self, values: list[Any], message_id: Any) -> None:
        self.emitted.append((message_id, values[0]))

    def report_error(self, error: str) -> None:
        self.reported.append(error)

    @property
    def values(self) -> list[Any]:
        return [value for _, value in self.emitted]

    def until(self, condition: Callable[[], bool]) -> None:
        pause = threading.Event()
        for _ in range(1000):
            self.spout.next_tuple(self)
            if condition():
                return
            pause.wait(0.01)
        raise AssertionError(f"it never came to that: {self.emitted}, {self.reported}")

    def until_emitted(self, count: int) -> list[Any]:
        self.until(lambda: len(self.emitted) >= count)
        return [message_id for message_id, _ in self.emitted]


@pytest.fixture
def opened(kestrel: Kestrel) -> Iterator[Callable[..., Calls]]:
    made: list[Calls] = []

    def make(**arguments: Any) -> Calls:
        config = arguments.pop("config", {})
        made.append(Calls(KestrelSpout(kestrel.address, "lines", backoff_max_secs=0.1, **arguments), **config))
        return made[-1]

    yield make
    for each in made:
        each.spout.close()


def test_an_item_is_removed_when_it_is_acked_and_is_redelivered_when_it_fails(
    kestrel: Kestrel, opened: Callable[..., Calls]
) -> None:
    kestrel.put("lines", b"to", b"be", b"or")
    calls = opened()
    calls.until_emitted(3)
    ids = {value: message_id for message_id, value in calls.emitted}
    assert (set(ids), kestrel.open_items, kestrel.left("lines")) == ({"to", "be", "or"}, 3, [])
    calls.spout.ack(ids["to"])
    calls.spout.fail(ids["be"])
    again = calls.until_emitted(4)[3]
    assert calls.values[3] == "be"
    calls.spout.ack(again)
    calls.spout.close()
    kestrel.wait_until_open(0)
    assert kestrel.left("lines") == [b"or"], "closing puts back what was open, and nothing that was acked"


def test_no_more_items_are_open_than_connections_and_max_spout_pending_allow(
    kestrel: Kestrel, opened: Callable[..., Calls]
) -> None:
    kestrel.put("lines", *[b"%d" % number for number in range(20)])
    few, fewer = opened(connections=5), opened(connections=5, config={"max_spout_pending": 2})
    few.until_emitted(5)
    fewer.until_emitted(2)
    for calls in (few, fewer):
        calls.spout.next_tuple(calls)
    assert (len(few.emitted), len(fewer.emitted), kestrel.open_items) == (5, 2, 7)


def test_an_undecodable_item_is_given_up_and_blocks_no_other(kestrel: Kestrel, opened: Callable[..., Calls]) -> None:
    kestrel.put("lines", b'{"n": 1}', b'{"n": ', b'{"n": 3}')
    calls = opened(value="json", outputs=["n"])
    calls.until_emitted(2)
    assert sorted(calls.values) == [1, 3]
    assert len(calls.reported) == 1
    kestrel.wait_until_open(2)
    assert kestrel.left("lines") == []


def test_items_are_delivered_again_when_connections_are_cut(kestrel: Kestrel, opened: Callable[..., Calls]) -> None:
    kestrel.put("lines", *[b"%d" % number for number in range(10)])
    calls = opened()
    before = calls.until_emitted(10)
    kestrel.cut()
    for message_id in before:
        calls.spout.ack(message_id)
    after = calls.until_emitted(20)[10:]
    assert sorted(calls.values[10:]) == sorted(calls.values[:10]), "their connections were gone before they were acked"
    for message_id in after:
        calls.spout.ack(message_id)
    calls.spout.close()
    kestrel.wait_until_open(0)
    assert kestrel.left("lines") == []


def test_an_unavailable_server_blocks_no_other(kestrel: Kestrel, caplog: pytest.LogCaptureFixture) -> None:
    away = f"{HOST}:{free_port()}"
    calls = Calls(KestrelSpout([away, kestrel.address], "lines"))
    kestrel.put("lines", b"to", b"be")
    calls.until_emitted(2)
    calls.spout.close()
    assert f"Kestrel at {away}: [Errno 111] Connection refused; next attempt in 0.1 s" in caplog.text


def test_a_server_that_comes_back_is_asked_again(kestrel: Kestrel, opened: Callable[..., Calls]) -> None:
    calls = opened()
    kestrel.put("lines", b"to")
    calls.until_emitted(1)
    kestrel.stop()
    calls.spout.next_tuple(calls)
    kestrel.start()
    kestrel.put("lines", b"be")
    calls.until_emitted(3)
    assert sorted(calls.values) == ["be", "to", "to"]


def test_a_failure_of_an_old_broken_connection_does_not_count_against_its_server(
    kestrel: Kestrel, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls(KestrelSpout(kestrel.address, "lines", backoff_max_secs=60.0))
    for size in (1, 2, 4, 8):
        kestrel.put("lines", *[b"%d" % number for number in range(size)])
        calls.until_emitted(2 * size - 1)
    kestrel.stop()
    for message_id, _ in calls.emitted:
        calls.spout.ack(message_id)  # some of these go into a socket that nobody reads any more
    kestrel.start()
    before = len(calls.emitted)
    calls.until_emitted(before + len(kestrel.left("lines")))
    assert "next attempt" not in caplog.text
    calls.spout.close()
