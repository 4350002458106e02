"""Values and exceptions that ordinary code trips over, and a topology that meets them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from sparkbolt import BasicBolt, Bolt, Config, Spout, TopologyBuilder
from sparkbolt.api.components import Component
from sparkbolt.testing import TopologyTestDriver

MESSAGES = 9
BAD = 4
"""The message that is trouble."""


class TwoArgumentsError(Exception):
    """It can be pickled and not be read back, as many exceptions of libraries cannot."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


class Refusing:
    """It can be pickled; what is read back refuses its state."""

    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("no such version")

    def __getstate__(self) -> Any:
        return {"a": 1}


class OddStringError(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")


class OwnBaseError(BaseException):
    """No Exception."""


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def raised(error: BaseException) -> BaseException:
    """The exception with a traceback."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001
        return caught


EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "value": lambda: ValueError("no"),
    "two arguments": lambda: TwoArgumentsError(1, "no"),
    "odd text": OddStringError,
    "stop iteration": lambda: StopIteration(1),
    "exit": lambda: SystemExit(1),
    "cancelled": asyncio.CancelledError,
    "base": OwnBaseError,
    "group": lambda: ExceptionGroup("several", [ValueError(1), OddStringError()]),
}

UNSENDABLE: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "lambda": lambda: lambda: 1,
    "two arguments": lambda: TwoArgumentsError(1, "no"),
    "refusing": Refusing,
    "deep": lambda: nested(20_000),
    "large": lambda: "x" * 2_000_000,
}
"""What cannot travel to another task, nor be kept (but for the large ones)."""

SENDABLE: dict[str, Callable[[], Any]] = {
    "nan": lambda: float("nan"),
    "surrogates": lambda: "a\ud800",
    "large int": lambda: 1 << 5000,
    "exception": lambda: raised(ValueError("no")),
    "none": lambda: None,
    "mixed": lambda: [1, "a", b"b", None, 2.5, {"c": {1, 2}}],
}
"""What is odd and can."""


class Source(Spout):
    """Its messages are fed by the tests' driver."""

    outputs = ["n"]

    def next_tuple(self, collector: Any) -> None:
        raise NotImplementedError


class Last(BasicBolt):
    """Keeps what came to it."""

    outputs = ["n"]

    def prepare(self, context: Any) -> None:
        self.seen: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.seen.append(tup["n"])
        collector.emit([tup["n"]])


class Doing(BasicBolt):
    """Does something to the bad message, and sends it and all others on."""

    outputs = ["n", "thing"]

    def __init__(self, do: Callable[[Any, Any, Any], Any], *, stateless: bool = False) -> None:
        self.do = do
        self.stateless = stateless  # type: ignore[misc]

    transient = ["do", "stateless"]

    def prepare(self, context: Any) -> None:
        self.total = 0

    def execute(self, tup: Any, collector: Any) -> None:
        thing = self.do(self, tup, collector) if tup["n"] % 10 == BAD else None
        self.total += 1
        collector.emit([tup["n"], thing])


class DoingByHand(Bolt):
    """As ``Doing``, acking by hand."""

    outputs = ["n", "thing"]
    transient = ["do"]

    def __init__(self, do: Callable[[Any, Any, Any], Any]) -> None:
        self.do = do

    def prepare(self, context: Any) -> None:
        self.total = 0

    def execute(self, tup: Any, collector: Any) -> None:
        thing = self.do(self, tup, collector) if tup["n"] % 10 == BAD else None
        self.total += 1
        collector.emit([tup["n"], thing], anchors=tup)
        collector.ack(tup)


def run(bolt: Component, *, fails: bool = True, tasks: int = 1, **settings: Any) -> TopologyTestDriver:
    """Show the bolt ten messages, one of them bad, kill everything, and show it ten others.

    Asserts that what is bad failed, and that everything else was acked and came through, once.
    """
    builder = TopologyBuilder(
        "poison", Config(max_attempts=1, frame_bytes_max=65536, tuple_bytes_max=1 << 20, **settings)
    )
    builder.set_spout("source", Source())
    builder.set_bolt("bolt", bolt, parallelism=tasks).shuffle_grouping("source")
    builder.set_bolt("last", Last()).global_grouping("bolt")
    with TopologyTestDriver(builder.build()) as driver:
        for start in (0, 10, 20):
            for n in range(start, start + MESSAGES):
                driver.feed("source", [n], message_id=n)
            driver.run_until_idle()
            driver.restart()
    given = [n for start in (0, 10, 20) for n in range(start, start + MESSAGES)]
    bad = [n for n in given if n % 10 == BAD] if fails else []
    told = {failure.message_id: failure.reason for failure in driver.failed("source")}
    assert sorted(told) == bad, (told, driver.errors())
    assert sorted(driver.acked("source")) == [n for n in given if n not in bad]
    assert driver.pending("source") == []
    assert all(isinstance(reason, str) and reason for reason in told.values())
    arrived = [n for [n] in driver.emitted("last")]
    assert sorted(n for n in arrived if n not in bad) == [n for n in given if n not in bad]
    return driver
