"""KestrelSpout against the tests' own Kestrel server, and that server against Kestrel's guide."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkbolt import Config, TopologyBuilder, bolt
from sparkbolt.api.components import TopologyContext
from sparkbolt.sim.engine import LocalEngine
from sparkbolt.spouts import KestrelSpout
from tests.services.kestrel import Kestrel
from tests.services.server import HOST, free_port


@pytest.fixture
def kestrel() -> Iterator[Kestrel]:
    with Kestrel() as server:
        yield server


class Client:
    """Says one line and reads as many as were asked for."""

    def __init__(self, kestrel: Kestrel) -> None:
        self.socket = socket.create_connection((HOST, kestrel.port), 10)
        self.reader = self.socket.makefile("rb")

    def say(self, text: bytes, lines: int = 1) -> list[bytes]:
        self.socket.sendall(text + b"\r\n")
        return [self.reader.readline()[:-2] for _ in range(lines)]

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


@pytest.fixture
def client(kestrel: Kestrel) -> Iterator[Callable[[], Client]]:
    made: list[Client] = []

    def make() -> Client:
        made.append(Client(kestrel))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_the_server_does_as_the_guide_says(kestrel: Kestrel, client: Callable[[], Client]) -> None:
    one, two = client(), client()
    assert one.say(b"set work 0 0 3\r\nto \r\nset work 0 0 2\r\nbe", 2) == [b"STORED", b"STORED"]
    assert one.say(b"get work/peek", 3) == [b"VALUE work 0 3", b"to ", b"END"]
    assert one.say(b"get work/open", 3) == [b"VALUE work 0 3", b"to ", b"END"]
    assert one.say(b"get work/open") == [b"CLIENT_ERROR another item is open"]
    assert one.say(b"get work/abort") == [b"END"]
    assert two.say(b"get work/close/open", 3) == [b"VALUE work 0 3", b"to ", b"END"], "aborted items come first"
    assert two.say(b"get work/close/open", 3) == [b"VALUE work 0 2", b"be", b"END"]
    two.close()
    kestrel.wait_until_open(0)
    assert one.say(b"get work", 3) == [b"VALUE work 0 2", b"be", b"END"], "what was open comes again"
    assert one.say(b"get work/t=20") == [b"END"]
    assert one.say(b"set work 0 1000001 1\r\nx") == [b"STORED"]
    assert one.say(b"get work") == [b"END"], "it expired in 1970"
    assert one.say(b"sing") == [b"ERROR"]


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


def test_an_item_is_forgotten_when_it_is_acked_and_comes_again_when_it_failed(
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


def test_an_item_that_cannot_be_decoded_is_given_up_and_holds_up_nobody(
    kestrel: Kestrel, opened: Callable[..., Calls]
) -> None:
    kestrel.put("lines", b'{"n": 1}', b'{"n": ', b'{"n": 3}')
    calls = opened(value="json", outputs=["n"])
    calls.until_emitted(2)
    assert sorted(calls.values) == [1, 3]
    assert len(calls.reported) == 1
    kestrel.wait_until_open(2)
    assert kestrel.left("lines") == []


def test_items_come_again_when_connections_are_cut(kestrel: Kestrel, opened: Callable[..., Calls]) -> None:
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


def test_a_server_that_is_away_holds_up_no_other(kestrel: Kestrel, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_word_count_of_a_kestrel_queue(kestrel: Kestrel) -> None:
    kestrel.put("lines", *[b"to be or not to be"] * 300)

    @bolt(outputs=["word"])
    def split(tup: Any) -> Iterator[list[str]]:
        for word in tup["line"].split():
            yield [word]

    builder = TopologyBuilder("kestrel")
    builder.set_spout("lines", KestrelSpout(kestrel.address, "lines", outputs=["line"], connections=20), parallelism=2)
    builder.set_bolt("split", split).shuffle_grouping("lines")
    engine = LocalEngine(builder.build())
    pause = threading.Event()
    for _ in range(2000):
        if engine.step() is None:
            pause.wait(0.01)
        if engine.ledger.metrics.of("lines").acked == 300:
            break
    emitted = engine.ledger.metrics.of("split").emitted
    engine.close()
    assert emitted == 6 * 300
    kestrel.wait_until_open(0)
    assert kestrel.left("lines") == []
