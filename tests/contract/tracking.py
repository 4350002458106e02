"""Trees of every kind in one topology: groupings, diamonds, what bolts do with their tuples."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkbolt import AsyncBolt, BasicBolt, Bolt, ColumnBolt, Direct, FailedException, Grouping, TopologyBuilder, bolt
from sparkbolt.errors import ReportedFailedException
from tests.contract.parts import ACTIONS, Messages, Queue, Sink, note

GROUPINGS = ["shuffle", "fields", "partial_key", "all", "global", "none", "direct", "local_or_shuffle", "custom"]


class Actions(Bolt):
    outputs = {
        "default": ["value"],
        "keyed": ["value"],
        "direct": Direct(["value"]),
        "unheard": ["value"],
    }

    def prepare(self, context: Any) -> None:
        self.context = context

    def execute(self, tup: Any, collector: Any) -> None:
        action = list(ACTIONS)[tup["n"]]
        done = getattr(self, action.replace(" ", "_"))(tup, collector)
        if done is None:
            collector.ack(tup)

    def acks(self, tup: Any, collector: Any) -> None:
        pass

    def raises(self, tup: Any, collector: Any) -> None:
        raise ValueError("on purpose")

    def raises_FailedException(self, tup: Any, collector: Any) -> None:  # noqa: N802
        raise FailedException("on purpose")

    def raises_ReportedFailedException(self, tup: Any, collector: Any) -> None:  # noqa: N802
        raise ReportedFailedException("on purpose")

    def fails_with_a_reason(self, tup: Any, collector: Any) -> bool:
        collector.fail(tup, "said so")
        return True

    def emits_too_many_values(self, tup: Any, collector: Any) -> None:
        collector.emit([1, 2], anchors=tup)

    def emits_another_field(self, tup: Any, collector: Any) -> None:
        collector.emit({"word": 1}, anchors=tup)

    def emits_on_no_stream(self, tup: Any, collector: Any) -> None:
        collector.emit([1], anchors=tup, stream="nowhere")

    def emits_what_cannot_be_pickled(self, tup: Any, collector: Any) -> None:
        collector.emit([lambda: None], anchors=tup)

    def emits_what_cannot_be_routed(self, tup: Any, collector: Any) -> None:
        collector.emit([object()], anchors=tup, stream="keyed")

    def acks_twice(self, tup: Any, collector: Any) -> None:
        collector.emit([1], anchors=tup)
        collector.ack(tup)

    def fails_after_it_acked(self, tup: Any, collector: Any) -> bool:
        collector.ack(tup)
        collector.fail(tup, "second thoughts")
        return True

    def acks_after_it_failed(self, tup: Any, collector: Any) -> None:
        collector.fail(tup, "said so")

    def anchors_twice_to_one_tuple(self, tup: Any, collector: Any) -> None:
        collector.emit([1], anchors=[tup, tup])

    def emits_to_nobody(self, tup: Any, collector: Any) -> None:
        collector.emit([1], anchors=tup, stream="unheard")

    def emits_unanchored_what_fails(self, tup: Any, collector: Any) -> None:
        collector.emit(["fail"])

    def emits_anchored_what_fails(self, tup: Any, collector: Any) -> None:
        collector.emit(["fail"], anchors=tup)

    def emits_after_it_acked_what_fails(self, tup: Any, collector: Any) -> bool:
        collector.ack(tup)
        collector.emit(["fail"], anchors=tup)
        return True

    def emits_values_of_all_types(self, tup: Any, collector: Any) -> None:
        for value in (None, True, 1 << 80, -1, 0.5, "ß", b"\x00", (1, [2]), {"a": {1}}, "\ud800"):
            collector.emit([value], anchors=tup)

    def emits_on_several_streams(self, tup: Any, collector: Any) -> None:
        collector.emit([1], anchors=tup)
        collector.emit([1], anchors=tup, stream="keyed")

    def emits_directly(self, tup: Any, collector: Any) -> None:
        for task in self.context.component_tasks("sink"):
            collector.emit_direct(task, [1], anchors=[tup], stream="direct")

    def emits_a_thousand(self, tup: Any, collector: Any) -> None:
        for i in range(1000):
            collector.emit([i], anchors=tup)


# Diamonds: two ways to each bolt, by each grouping.


@bolt(outputs={"default": ["n"]})
def same(tup: Any) -> Iterator[list[Any]]:
    yield [tup["n"]]


class Side(Bolt):
    """One side of the diamonds: emits on the default stream and directly, to each task in turn."""

    outputs = {"default": ["n"], "direct": Direct(["n"])}

    def prepare(self, context: Any) -> None:
        self.targets = context.component_tasks("meet-direct")

    def execute(self, tup: Any, collector: Any) -> None:
        collector.emit([tup["n"]], anchors=tup)
        target = self.targets[tup["n"] % len(self.targets)]
        collector.emit_direct(target, [tup["n"]], anchors=tup, stream="direct")
        collector.ack(tup)


class Meet(Bolt):
    """Emits anchored to the tuples of both sides, where both reach it; acks them then. The rest it acks at once."""

    outputs = ["n"]

    def __init__(self, both_reach_it: bool) -> None:
        self.both_reach_it = both_reach_it

    def prepare(self, context: Any) -> None:
        self.waiting: dict[int, Any] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        other = self.waiting.pop(tup["n"], None) if self.both_reach_it else tup
        if other is None:
            self.waiting[tup["n"]] = tup
            return
        collector.emit([tup["n"]], anchors=[other, tup])
        if other is not tup:
            collector.ack(other)
        collector.ack(tup)


class Twice(Grouping):
    """Names the last task two times."""

    def prepare(self, context: Any, stream: str, targets: Sequence[int]) -> None:
        self.targets = targets

    def choose_tasks(self, sender_task: int, values: list[Any]) -> Sequence[int]:
        return [self.targets[-1], self.targets[-1]]


def subscribe(declarer: Any, component: str, grouping: str) -> None:
    if grouping == "direct":
        declarer.direct_grouping(component, stream="direct")
    elif grouping == "custom":
        declarer.grouping(component, Twice())
    elif grouping in ("fields", "partial_key"):
        getattr(declarer, f"{grouping}_grouping")(component, ["n"])
    else:
        getattr(declarer, f"{grouping}_grouping")(component)


# The kinds of bolts, and replays.


class Concurrent(AsyncBolt):
    """Notes how many of its coroutines ran at once."""

    outputs = ["n"]
    concurrency = 5

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def prepare(self, context: Any) -> None:
        self.running = 0

    async def execute(self, tup: Any, collector: Any) -> Any:
        self.running += 1
        note(self.directory, "running", self.running)
        await asyncio.sleep(0.001 * (tup["n"] % 3))
        self.running -= 1
        if tup["n"] == 7:
            raise ValueError("seven")
        if tup["n"] == 8:
            raise asyncio.CancelledError("eight")
        yield [tup["n"]]


class Doubled(ColumnBolt):
    """Each row twice, the second time in reversed order."""

    outputs = ["n"]

    def execute(self, batch: Any, collector: Any) -> None:
        rows = list(range(batch.num_rows))
        column = pc.multiply(batch["n"], 2)
        collector.emit([column], anchors=pa.array(rows))
        collector.emit([column.take(pa.array(rows[::-1]))], anchors=rows[::-1])


class Batched(Bolt):
    """Holds its tuples until flush, which emits them anchored and acks them; notes the name that it would write."""

    outputs = ["n"]
    stateless = True

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def prepare(self, context: Any) -> None:
        self.context = context
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        self.collector = collector
        self.held.append(tup)

    def flush(self) -> None:
        note(self.directory, "flushed", self.context.micro_batch_id, self.context.task)
        for tup in self.held:
            self.collector.emit(list(tup.values()), anchors=tup)
            self.collector.ack(tup)
        self.held = []


class Tries(BasicBolt):
    """Notes every attempt; fails odd numbers always, and those of 4k + 2 at their first attempt."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Any, collector: Any) -> None:
        note(self.directory, "tries", tup["n"], tup.attempt)
        if tup["n"] % 2 or (tup["n"] % 4 == 2 and tup.attempt == 1):
            raise ValueError(f"attempt {tup.attempt}")


class Moody(Bolt):
    """Fails the first attempt of every third message of the queue."""

    outputs = ["n"]

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Any, collector: Any) -> None:
        note(self.directory, "moody", *tup.values())
        collector.emit([tup["n"]], anchors=tup)
        if tup["n"] % 3 == 0 and tup["attempt"] == 1:
            collector.fail(tup, "not the first time")
        else:
            collector.ack(tup)


class Collected(BasicBolt):
    """Notes what it gets, under the name of who sent it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Any, collector: Any) -> None:
        note(self.directory, f"from-{tup.source_component}", *tup.values())


DIAMONDS = 20
BOTH = ("fields", "global", "direct")
QUEUED = 10
TRIED = 12


def trees(builder: TopologyBuilder, directory: str) -> None:
    """Add trees of every shape, each kind with a spout of its own; from phase 1 on."""
    builder.set_spout("messages", Messages(directory, len(ACTIONS), limits=[0]), max_attempts=1)
    builder.set_bolt("deeds", Actions()).shuffle_grouping("messages")
    sink = builder.set_bolt("sink", Sink(), parallelism=2).shuffle_grouping("deeds")
    sink.fields_grouping("deeds", ["value"], stream="keyed").direct_grouping("deeds", stream="direct")

    builder.set_spout("diamonds", Messages(directory, DIAMONDS, per_micro_batch=7, limits=[0]))
    builder.set_bolt("left", Side(), parallelism=2).shuffle_grouping("diamonds")
    builder.set_bolt("right", Side()).all_grouping("diamonds")
    for grouping in GROUPINGS:
        meet = builder.set_bolt(f"meet-{grouping}", Meet(grouping in BOTH), parallelism=2)
        subscribe(meet, "left", grouping)
        subscribe(meet, "right", grouping)
    end = builder.set_bolt("end", Sink())
    for grouping in GROUPINGS:
        end.global_grouping(f"meet-{grouping}")

    builder.set_spout("numbers", Messages(directory, 30, limits=[0]), max_attempts=1)
    builder.set_bolt("function", same, parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("concurrent", Concurrent(directory)).global_grouping("numbers")
    builder.set_bolt("doubled", Doubled()).global_grouping("numbers")
    builder.set_bolt("batched", Batched(directory), parallelism=2).shuffle_grouping("numbers")
    collected = builder.set_bolt("collected", Collected(directory))
    for source in ("function", "concurrent", "doubled", "batched"):
        collected.global_grouping(source)

    builder.set_spout("tried", Messages(directory, TRIED, per_micro_batch=5, limits=[0]), max_attempts=3)
    builder.set_bolt("tries", Tries(directory), parallelism=2).fields_grouping("tried", ["n"])

    builder.set_spout("queue", Queue(directory, QUEUED, in_phase=1), max_spout_pending=4)
    builder.set_bolt("moody", Moody(directory), parallelism=2).fields_grouping("queue", ["n"])
    collected.global_grouping("moody")
