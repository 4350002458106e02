"""User code from a grammar: bolts and spouts that make mistakes, each at a message of its own.

A program is a list of mistakes: what is done (a method of a collector, of a context, of the state, an attribute, a
value emitted, an exception) and with which thing (``tests.unit.poison``). One topology makes all mistakes of a program
among messages that have no trouble; those must be acked, each with its right result.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sparkbolt import AsyncBolt, BasicBolt, Bolt, Direct, Grouping, PartitionedSpout, Range, Spout, WindowedBolt
from tests.unit.poison import EXCEPTIONS, SENDABLE, UNSENDABLE, raised

OUTPUTS = {"default": ["n", "thing"], "direct": Direct(["n", "thing"]), "lonely": ["n"]}
THINGS: dict[str, Callable[[], Any]] = {
    **SENDABLE,
    **UNSENDABLE,
    **{f"raised {name}": lambda make=make: raised(make()) for name, make in EXCEPTIONS.items()},  # type: ignore[misc]
    "str": lambda: "ab",
    "empty": lambda: "",
    "list": lambda: [1, 2],
    "one": lambda: [1],
    "dict": lambda: {"n": 1, "thing": 2},
    "set": lambda: {1, 2},
    "number": lambda: 7,
    "negative": lambda: -1,
    "true": lambda: True,
    "default": lambda: "default",
    "direct": lambda: "direct",
    "lonely": lambda: "lonely",
}
Action: TypeAlias = Callable[[Any, Any, Any, Any], Any]
"""Done with (bolt, tuple, collector, thing)."""


def raises(bolt: Any, tup: Any, collector: Any, thing: Any) -> None:
    raise thing if isinstance(thing, BaseException) else ValueError(thing)


def keeps(bolt: Any, tup: Any, collector: Any, thing: Any) -> None:
    bolt.things[tup["n"]] = thing


COMMON: dict[str, Action] = {
    "raise": raises,
    "emit thing": lambda bolt, tup, collector, thing: collector.emit(thing),
    "emit with thing": lambda bolt, tup, collector, thing: collector.emit([tup["n"], thing]),
    "emit too few": lambda bolt, tup, collector, thing: collector.emit([thing]),
    "emit too many": lambda bolt, tup, collector, thing: collector.emit([thing, thing, thing]),
    "emit on thing": lambda bolt, tup, collector, thing: collector.emit([1, 2], stream=thing),
    "emit where nobody is": lambda bolt, tup, collector, thing: collector.emit([thing], stream="lonely"),
    "direct to thing": lambda bolt, tup, collector, thing: collector.emit_direct(thing, [1, 2], stream="direct"),
    "direct of thing": lambda bolt, tup, collector, thing: collector.emit_direct(
        bolt.context.component_tasks("last")[0], thing, stream="direct"
    ),
    "direct on thing": lambda bolt, tup, collector, thing: collector.emit_direct(1, [1, 2], stream=thing),
    "report": lambda bolt, tup, collector, thing: collector.report_error(thing),
    "keep": keeps,
    "attribute": lambda bolt, tup, collector, thing: setattr(bolt, f"of_{tup['n']}", thing),
    "keep collector": lambda bolt, tup, collector, thing: keeps(bolt, tup, collector, (collector, thing)),
    "keep tuple": lambda bolt, tup, collector, thing: keeps(bolt, tup, collector, tup),
    "keep context": lambda bolt, tup, collector, thing: keeps(bolt, tup, collector, [bolt.context]),
    "ask for tasks": lambda bolt, tup, collector, thing: bolt.context.component_tasks(thing),
    "field": lambda bolt, tup, collector, thing: tup[thing],
    "put value": lambda bolt, tup, collector, thing: bolt.state.put(tup["n"], thing),
    "put key": lambda bolt, tup, collector, thing: bolt.state.put(thing, 1),
    "put both": lambda bolt, tup, collector, thing: bolt.state.put((thing, 1), [thing]),
    "put many": lambda bolt, tup, collector, thing: bolt.state.put_many(thing, [1]),
    "get": lambda bolt, tup, collector, thing: bolt.state.get(thing),
    "get many": lambda bolt, tup, collector, thing: bolt.state.get_many(thing),
    "delete": lambda bolt, tup, collector, thing: bolt.state.delete(thing),
    "in": lambda bolt, tup, collector, thing: thing in bolt.state,
}
BY_HAND: dict[str, Action] = {
    "ack thing": lambda bolt, tup, collector, thing: collector.ack(thing),
    "fail thing": lambda bolt, tup, collector, thing: collector.fail(thing),
    "fail for thing": lambda bolt, tup, collector, thing: collector.fail(tup, thing),
    "more time for thing": lambda bolt, tup, collector, thing: collector.reset_timeout(thing),
    "anchor to thing": lambda bolt, tup, collector, thing: collector.emit([1, 2], anchors=thing),
    "anchor to things": lambda bolt, tup, collector, thing: collector.emit([1, 2], anchors=[tup, thing]),
    "ack before": lambda bolt, tup, collector, thing: collector.ack(tup),
}


@dataclass(frozen=True)
class Mistake:
    """What is done at one message."""

    action: str
    thing: str

    def make(self, bolt: Any, tup: Any, collector: Any) -> Any:
        return {**COMMON, **BY_HAND}[self.action](bolt, tup, collector, THINGS[self.thing]())


Program: TypeAlias = Mapping[int, Mistake]


def program(seed: int, messages: int, actions: Sequence[str], share: float = 0.2) -> dict[int, Mistake]:
    """Mistakes at some of the messages, always the same for a seed."""
    chosen = random.Random(seed)
    things = list(THINGS)
    return {
        n: Mistake(chosen.choice(actions), chosen.choice(things)) for n in range(messages) if chosen.random() < share
    }


class Mistaken:
    """What the bolts have in common: they count, and keep things."""

    outputs = OUTPUTS
    transient = ["program", "context", "state"]

    def __init__(self, mistakes: Program) -> None:
        self.program = mistakes

    def prepare(self, context: Any) -> None:
        self.context = context
        self.things: dict[int, Any] = {}


class Stateful(Mistaken):
    def init_state(self, state: Any) -> None:
        self.state = state


class MistakenBasic(Stateful, BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] in self.program:
            self.program[tup["n"]].make(self, tup, collector)
        collector.emit([tup["n"], -tup["n"]])


class MistakenByHand(Stateful, Bolt):
    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] in self.program:
            self.program[tup["n"]].make(self, tup, collector)
        collector.emit([tup["n"], -tup["n"]], anchors=tup)
        collector.ack(tup)


class MistakenAsync(Stateful, AsyncBolt):
    async def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] in self.program:
            self.program[tup["n"]].make(self, tup, collector)
        collector.emit([tup["n"], -tup["n"]])


class MistakenStateless(Mistaken, BasicBolt):
    """Fused behind its producer."""

    stateless = True

    def prepare(self, context: Any) -> None:
        super().prepare(context)
        self.state: Any = {}

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] in self.program:
            self.program[tup["n"]].make(self, tup, collector)
        collector.emit([tup["n"], -tup["n"]])


class MistakenWindow(Stateful, WindowedBolt):
    """Windows of one tuple each; what they emit starts trees of its own."""

    def execute(self, window: Any, collector: Any) -> None:
        for tup in window:
            if tup["n"] in self.program:
                self.program[tup["n"]].make(self, tup, collector)
            collector.emit([tup["n"], -tup["n"]])


class Flushing(Stateful, BasicBolt):
    """Makes its mistakes in flush."""

    def prepare(self, context: Any) -> None:
        super().prepare(context)
        self.came: list[int] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.came.append(tup["n"])
        collector.emit([tup["n"], -tup["n"]])
        self.last = None

    def flush(self) -> None:
        came, self.came = self.came, []
        for n in came:
            if n in self.program:
                self.program[n].make(self, {"n": n}, None)


class Last(BasicBolt):
    outputs = ["n", "result"]
    stateless = True

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"], tup["thing"]])


class OddGrouping(Grouping):
    """Chooses odd tasks for some messages."""

    def __init__(self, mistakes: Program) -> None:
        self.mistakes = mistakes

    def prepare(self, context: Any, stream: str, targets: Sequence[int]) -> None:
        self.targets = targets

    def choose_tasks(self, sender_task: int, values: list[Any]) -> Sequence[int]:
        mistake = self.mistakes.get(values[0])
        if mistake is None:
            return [self.targets[values[0] % len(self.targets)]]
        thing = THINGS[mistake.thing]()
        if mistake.action == "raise":
            raises(None, None, None, thing)
        return [thing] if mistake.action == "list" else thing  # type: ignore[no-any-return]


class Emitting(Spout):
    """Emits numbers, and makes mistakes before some of them."""

    outputs = ["n", "thing"]

    def __init__(self, mistakes: Program, messages: int) -> None:
        self.mistakes = mistakes
        self.messages = messages
        self.next = 0
        self.acked: list[Any] = []
        self.failed: list[Any] = []

    def next_tuple(self, collector: Any) -> None:
        if self.next >= self.messages:
            return
        n, self.next = self.next, self.next + 1
        try:
            if n in self.mistakes:
                mistake = self.mistakes[n]
                SPOUT[mistake.action](self, n, collector, THINGS[mistake.thing]())
        finally:
            collector.emit([n, None], message_id=n)

    def ack(self, message_id: Any) -> None:
        self.acked.append(message_id)
        self._odd("ack", message_id)

    def fail(self, message_id: Any) -> None:
        self.failed.append(message_id)
        self._odd("fail", message_id)

    def _odd(self, action: str, message_id: Any) -> None:
        mistake = self.mistakes.get(message_id) if type(message_id) is int else None
        if mistake is not None and mistake.action == action:
            raises(None, None, None, THINGS[mistake.thing]())


SPOUT: dict[str, Action] = {
    "raise": raises,
    "ack": lambda spout, n, collector, thing: None,
    "fail": lambda spout, n, collector, thing: None,
    "emit thing": lambda spout, n, collector, thing: collector.emit(thing, message_id=("odd", n)),
    "emit with thing": lambda spout, n, collector, thing: collector.emit([-1, thing], message_id=("odd", n)),
    "emit untracked": lambda spout, n, collector, thing: collector.emit([-1, thing]),
    "emit on thing": lambda spout, n, collector, thing: collector.emit([-1, 1], stream=thing),
    "id": lambda spout, n, collector, thing: collector.emit([-1, 1], message_id=[thing]),
    "direct": lambda spout, n, collector, thing: collector.emit_direct(thing, [-1, 1], message_id=("odd", n)),
    "report": lambda spout, n, collector, thing: collector.report_error(thing),
}


class Reading(PartitionedSpout):
    """Reads numbers, and makes mistakes at some of them."""

    outputs = ["n", "thing"]

    def __init__(self, mistakes: Program, messages: int) -> None:
        self.mistakes = mistakes
        self.messages = messages

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("numbers", 0)
        end = min(self.messages, start + min(budget, 20))
        return [Range(0, "numbers", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("numbers", 0) >= self.messages

    def read(self, range_: Range) -> Iterator[Any]:
        for n in range(range_.start, range_.end):
            if n in self.mistakes:
                mistake = self.mistakes[n]
                thing = THINGS[mistake.thing]()
                if mistake.action == "raise":
                    raises(None, None, None, thing)
                yield {"thing": thing, "values": (n, thing), "value": (n, [n, thing]), "position": (thing, [n, 1])}[
                    mistake.action
                ]
            else:
                yield n, [n, None]


READ = ("raise", "thing", "values", "value", "position")
