"""The topologies of the contract: what the tests of this directory run on both engines.

They are in a module of their own because Spark's workers import it. Bolts tell the tests what they saw with
``note``, a line of JSON in a file that every process can append to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparkbolt import (
    AsyncBolt,
    BasicBolt,
    Bolt,
    ColumnBolt,
    Config,
    Count,
    Direct,
    FailedException,
    Grouping,
    PartitionedSpout,
    Range,
    ReportedFailedException,
    Spout,
    StatefulBolt,
    Topology,
    TopologyBuilder,
    Tuple,
    WindowedBolt,
    bolt,
)
from sparkbolt.windows import TupleWindow, WindowCollector

GROUPINGS = ["shuffle", "fields", "partial_key", "all", "global", "none", "direct", "local_or_shuffle", "custom"]


def note(directory: str, name: str, *values: Any) -> None:
    with open(Path(directory, name), "a") as file:
        file.write(json.dumps(values) + "\n")


def notes(directory: str, name: str) -> list[list[Any]]:
    path = Path(directory, name)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Messages(PartitionedSpout):
    """The numbers below what the file ``limit`` says; ``finished`` where ``end`` is reached."""

    outputs = ["n"]

    def __init__(self, directory: str, end: int, per_micro_batch: int = 1000) -> None:
        self.directory = directory
        self.end = end
        self.per_micro_batch = per_micro_batch

    def limit(self) -> int:
        path = Path(self.directory, "limit")
        return min(self.end, int(path.read_text())) if path.exists() else self.end

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("numbers", 0)
        end = min(self.limit(), start + min(budget, self.per_micro_batch))
        return [Range(0, "numbers", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("numbers", 0) >= self.end

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for position in range(range_.start, range_.end):
            yield position, [position]


class Queue(Spout):
    """Messages with ids 0 to ``count - 1``, each given again when it failed; and one without an id."""

    outputs = ["n", "attempt"]

    def __init__(self, directory: str, count: int) -> None:
        self.directory = directory
        self.waiting = [(n, 1) for n in range(count)]
        self.tries: dict[int, int] = {}
        self.unfinished = set(range(count))
        self.begun = False

    def next_tuple(self, collector: Any) -> None:
        if not self.begun:
            self.begun = True
            collector.emit([-1, 1])
        if self.waiting:
            n, attempt = self.waiting.pop(0)
            self.tries[n] = attempt
            collector.emit([n, attempt], message_id=n)

    def ack(self, message_id: Any) -> None:
        note(self.directory, "queue", "ack", message_id)
        self.unfinished.discard(message_id)

    def fail(self, message_id: Any) -> None:
        note(self.directory, "queue", "fail", message_id)
        self.waiting.append((message_id, self.tries[message_id] + 1))

    @property
    def exhausted(self) -> bool:
        return self.begun and not self.unfinished


class Sink(BasicBolt):
    """Acks whatever comes, but fails what is told to fail."""

    def execute(self, tup: Any, collector: Any) -> None:
        if tup[0] == "fail":
            raise FailedException("the child failed")


# One message, one deed.

DEEDS: dict[str, tuple[str, str, str] | None] = {
    "acks": None,
    "raises": ("exception", "deeds", "ValueError: on purpose"),
    "raises FailedException": ("fail", "deeds", "on purpose"),
    "raises ReportedFailedException": ("fail", "deeds", "on purpose"),
    "fails with a reason": ("fail", "deeds", "said so"),
    "emits too many values": ("emit", "deeds", "'deeds' emitted 2 values on stream 'default'"),
    "emits a str": ("emit", "deeds", "did you mean ['word']?"),
    "emits on no stream": ("emit", "deeds", "stream 'nowhere'"),
    "emits what cannot be pickled": ("emit", "deeds", "cannot be sent to another task (function: "),
    "emits what cannot be routed": ("emit", "deeds", "object"),
    "acks twice": None,
    "fails after it acked": ("fail", "deeds", "second thoughts"),
    "acks after it failed": ("fail", "deeds", "said so"),
    "anchors twice to one tuple": None,
    "emits to nobody": None,
    "emits unanchored what fails": None,
    "emits anchored what fails": ("fail", "sink", "the child failed"),
    "emits after it acked what fails": ("fail", "sink", "the child failed"),
    "emits values of all types": None,
    "emits on several streams": None,
    "emits directly": None,
    "emits a thousand": None,
}
"""What the bolt ``deeds`` does with message n, and (cause, component, part of the reason) if its tree must fail."""


class Deeds(Bolt):
    outputs = {
        "default": ["value"],
        "keyed": ["value"],
        "direct": Direct(["value"]),
        "unheard": ["value"],
    }

    def prepare(self, context: Any) -> None:
        self.context = context

    def execute(self, tup: Any, collector: Any) -> None:
        deed = list(DEEDS)[tup["n"]]
        done = getattr(self, deed.replace(" ", "_"))(tup, collector)
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

    def emits_a_str(self, tup: Any, collector: Any) -> None:
        collector.emit("word", anchors=tup)

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

    async def execute(self, tup: Any, collector: Any) -> None:
        self.running += 1
        note(self.directory, "running", self.running)
        await asyncio.sleep(0.001 * (tup["n"] % 3))
        self.running -= 1
        if tup["n"] == 7:
            raise ValueError("seven")
        collector.emit([tup["n"]])


class Doubled(ColumnBolt):
    """Each row twice, the second time in reversed order."""

    outputs = ["n"]

    def execute(self, batch: Any, collector: Any) -> None:
        rows = list(range(batch.num_rows))
        column = pc.multiply(batch["n"], 2)
        collector.emit([column], anchors=pa.array(rows))
        collector.emit([column.take(pa.array(rows[::-1]))], anchors=rows[::-1])


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
        note(self.directory, "moody", *tup.values)
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
        note(self.directory, f"from-{tup.source_component}", *tup.values)


DIAMONDS = 20
BOTH = ("fields", "global", "direct")
QUEUED = 10
TRIED = 12


def everything(directory: str) -> Topology:
    """Independent lines in one topology, so that Spark starts once for all of them."""
    builder = TopologyBuilder("everything", Config(max_attempts=1, max_error_report_per_interval=1000))

    builder.set_spout("messages", Messages(directory, len(DEEDS)))
    builder.set_bolt("deeds", Deeds()).shuffle_grouping("messages")
    sink = builder.set_bolt("sink", Sink(), parallelism=2).shuffle_grouping("deeds")
    sink.fields_grouping("deeds", ["value"], stream="keyed").direct_grouping("deeds", stream="direct")

    builder.set_spout("diamonds", Messages(directory, DIAMONDS, per_micro_batch=7))
    builder.set_bolt("left", Side(), parallelism=2).shuffle_grouping("diamonds")
    builder.set_bolt("right", Side()).all_grouping("diamonds")
    for grouping in GROUPINGS:
        meet = builder.set_bolt(f"meet-{grouping}", Meet(grouping in BOTH), parallelism=2)
        subscribe(meet, "left", grouping)
        subscribe(meet, "right", grouping)
    end = builder.set_bolt("end", Sink())
    for grouping in GROUPINGS:
        end.global_grouping(f"meet-{grouping}")

    builder.set_spout("numbers", Messages(directory, 30))
    builder.set_bolt("function", same, parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("concurrent", Concurrent(directory)).global_grouping("numbers")
    builder.set_bolt("doubled", Doubled()).global_grouping("numbers")
    collected = builder.set_bolt("collected", Collected(directory))
    for source in ("function", "concurrent", "doubled"):
        collected.global_grouping(source)

    builder.set_spout("tried", Messages(directory, TRIED, per_micro_batch=5), max_attempts=3)
    builder.set_bolt("tries", Tries(directory), parallelism=2).fields_grouping("tried", ["n"])

    builder.set_spout("queue", Queue(directory, QUEUED), max_spout_pending=4)
    builder.set_bolt("moody", Moody(directory), parallelism=2).fields_grouping("queue", ["n"])
    collected.global_grouping("moody")
    return builder.build()


# What outlives a restart.


class Pairs(Bolt):
    """Holds even numbers until the next odd one comes; notes and emits again meanwhile."""

    outputs = ["n", "with"]

    def prepare(self, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any, collector: Any) -> None:
        for held in self.held:
            collector.emit([held["n"], tup["n"]], anchors=held)
        if tup["n"] % 2 == 0:
            self.held.append(tup)
            return
        collector.emit([tup["n"], None], anchors=[*self.held, tup])
        for held in self.held:
            collector.ack(held)
        self.held = []
        collector.ack(tup)


class Counting(BasicBolt):
    """A durable attribute, and one that is not."""

    outputs = ["count", "since_start"]
    transient = ["since_start"]

    def prepare(self, context: Any) -> None:
        self.count = 0
        self.since_start = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.count += 1
        self.since_start += 1
        collector.emit([self.count, self.since_start])


class Remembering(StatefulBolt):
    """Counts by key in a ``KeyValueState``."""

    outputs = ["key", "count"]
    transient = ["state"]

    def init_state(self, state: Any) -> None:
        self.state = state

    def execute(self, tup: Any, collector: Any) -> None:
        key = f"{tup['n'] % 3}"
        self.state.put(key, self.state.get(key, 0) + 1)
        collector.emit([key, self.state.get(key)], anchors=tup)
        collector.ack(tup)


class InOrder(BasicBolt):
    """Notes a number that comes after a larger one of the same task."""

    outputs = ["wrong"]

    def prepare(self, context: Any) -> None:
        self.last: dict[Any, int] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        source = (tup.source_component, tup.source_task)
        if tup["n"] <= self.last.get(source, -1):
            collector.emit([tup["n"]])
        self.last[source] = tup["n"]


KEPT = 12


def kept(directory: str) -> Topology:
    builder = TopologyBuilder("kept", Config(frame_bytes_max=1024))
    builder.set_spout("numbers", Messages(directory, KEPT, per_micro_batch=3))
    builder.set_bolt("pairs", Pairs()).global_grouping("numbers")
    builder.set_bolt("counting", Counting()).global_grouping("numbers")
    builder.set_bolt("remembering", Remembering(), parallelism=2).fields_grouping("numbers", ["n"])
    builder.set_bolt("relay", Counting(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("same", same, parallelism=2, fuse=False).shuffle_grouping("numbers")
    builder.set_bolt("in_order", InOrder()).global_grouping("same")
    collected = builder.set_bolt("collected", Collected(directory))
    for source in ("pairs", "counting", "remembering", "relay", "in_order"):
        collected.global_grouping(source)
    return builder.build()


# Time.


class Waits(Bolt):
    """Message 0 is forgotten; message 1 gets its time anew at each tick until the third age, then it is acked."""

    outputs = ["now_ms"]

    def __init__(self, released_after_ms: int) -> None:
        self.released_after_ms = released_after_ms

    def prepare(self, context: Any) -> None:
        self.context = context
        self.held: Any = None
        self.since_ms = 0

    transient = ["context"]

    def execute(self, tup: Any, collector: Any) -> None:
        if not tup.is_tick:
            if tup["n"] == 1:
                self.held, self.since_ms = tup, self.context.now_ms
            return
        collector.emit([self.context.now_ms])
        if self.held is not None:
            collector.reset_timeout(self.held)
            if self.context.now_ms - self.since_ms > self.released_after_ms:
                collector.ack(self.held)
                self.held = None


TIMEOUT_SECS = 8


def timed(directory: str) -> Topology:
    builder = TopologyBuilder("timed", Config(message_timeout_secs=TIMEOUT_SECS, max_attempts=1))
    builder.set_spout("numbers", Messages(directory, 2))
    builder.set_bolt("waits", Waits(12_000), tick_tuple_freq_secs=1).global_grouping("numbers")
    builder.set_bolt("collected", Collected(directory)).global_grouping("waits")
    return builder.build()


class Gathers(Bolt):
    """Acks numbers as they come, and starts a tree for each with the next tick."""

    outputs = {"default": ["n"], "direct": Direct(["n"])}
    starts_trees = True
    transient = ["target"]

    def prepare(self, context: Any) -> None:
        self.numbers: list[int] = []
        [self.target] = context.component_tasks("behind")

    def execute(self, tup: Any, collector: Any) -> None:
        if not tup.is_tick:
            self.numbers.append(tup["n"])
            collector.ack(tup)
            return
        for n in self.numbers:
            if n % 2:
                collector.emit_direct(self.target, [n], stream="direct")
            else:
                collector.emit([n])
        self.numbers = []


BEHIND = {
    0: ["ack"],
    1: ["fail", "raise", "ack"],
    2: ["raise", "fail", "raise"],
    3: ["never", "ack"],
    4: ["never", "never", "never"],
}
"""What is done with each attempt at a number, by its remainder."""


class Behind(Bolt):
    """Notes every attempt, and does what ``BEHIND`` says."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Any, collector: Any) -> None:
        n = tup["n"]
        note(self.directory, "behind", n, tup.attempt)
        what = BEHIND[n % len(BEHIND)][tup.attempt - 1]
        if what == "raise":
            raise ValueError("on purpose")
        if what == "fail":
            collector.fail(tup, "not now")
        elif what == "ack":
            collector.ack(tup)


STARTED = 20


def starting(directory: str) -> Topology:
    builder = TopologyBuilder("starting", Config(message_timeout_secs=2, max_error_report_per_interval=1000))
    builder.set_spout("numbers", Messages(directory, STARTED))
    gathers = builder.set_bolt("gathers", Gathers(), parallelism=2, tick_tuple_freq_secs=1)
    gathers.fields_grouping("numbers", ["n"])
    behind = builder.set_bolt("behind", Behind(directory)).global_grouping("gathers")
    behind.direct_grouping("gathers", stream="direct")
    return builder.build()


def untracked(directory: str) -> Topology:
    builder = TopologyBuilder("untracked", Config(acker_tasks=0))
    builder.set_spout("numbers", Messages(directory, 10))
    builder.set_spout("queue", Queue(directory, 4))
    builder.set_bolt("tries", Tries(directory)).fields_grouping("numbers", ["n"])
    builder.set_bolt("moody", Moody(directory)).fields_grouping("queue", ["n"])
    return builder.build()


class Raises(BasicBolt):
    def execute(self, tup: Any, collector: Any) -> None:
        if tup["n"] == 3:
            raise ValueError("three")


def stops(directory: str) -> Topology:
    builder = TopologyBuilder("stops")
    builder.set_spout("numbers", Messages(directory, 100, per_micro_batch=2))
    builder.set_bolt("raises", Raises(), on_error="stop").global_grouping("numbers")
    return builder.build()


# Why did this tuple fail?


class Words(BasicBolt):
    """Three tuples for each message."""

    outputs = ["n", "k"]

    def execute(self, tup: Any, collector: Any) -> None:
        for k in range(3):
            collector.emit([tup["n"], k])


class Trouble(Bolt):
    """Raises for message 1 each time and for message 2 at its first attempt; keeps a tuple of message 3."""

    def prepare(self, context: Any) -> None:
        self.kept: dict[int, Any] = {}

    def execute(self, tup: Any, collector: Any) -> None:
        if tup["k"] == 2 and (tup["n"] == 1 or (tup["n"] == 2 and tup.attempt == 1)):
            raise ValueError(f"no {tup['n']}")
        if tup["n"] == 3 and tup["k"] == 0:
            self.kept[tup.attempt] = tup
            return
        collector.ack(tup)


TOLD = 6


def told(directory: str) -> Topology:
    config = Config(message_timeout_secs=3, max_attempts=2, compact_every=2)
    builder = TopologyBuilder("told", config)
    builder.set_spout("numbers", Messages(directory, TOLD), trace=lambda tup: tup["n"] == 4)
    builder.set_bolt("words", Words(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("trouble", Trouble(), parallelism=2).fields_grouping("words", ["n"])
    return builder.build()


EXAMPLE_FIRST = ((3, "1"), (5, "2"), (7, "3"), (18, "4"), (26, "5"), (36, "6"))
EXAMPLE_SECOND = ((25, "7"), (26, "8"), (27, "9"), (39, "X"))
SIX, EIGHT = 6 * 3_600_000, 8 * 3_600_000
EXAMPLE_EVENTS = [(name, SIX + 1000 * second) for second, name in EXAMPLE_FIRST]
EXAMPLE_EVENTS += [(name, EIGHT + 1000 * second) for second, name in EXAMPLE_SECOND]


class Events(PartitionedSpout):
    """``EXAMPLE_EVENTS``: the first six, and the others once the file ``go`` is there."""

    outputs = ["name", "at"]

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start = progress.get("events", 0)
        end = len(EXAMPLE_EVENTS) if Path(self.directory, "go").exists() else len(EXAMPLE_FIRST)
        return [Range(0, "events", start, end)] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return progress.get("events", 0) >= len(EXAMPLE_EVENTS)

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for position in range(range_.start, range_.end):
            yield position, EXAMPLE_EVENTS[position]


class Example(WindowedBolt):
    """Notes its windows."""

    outputs = ["names", "end"]

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        collector.emit(["".join(tup["name"] for tup in window), window.end_ms])


class Blocks(WindowedBolt):
    """The numbers of a window as (count, sum, least, greatest), and where the last one ended."""

    outputs = ["shape", "block"]

    def __init__(self, shape: str) -> None:
        self.shape = shape
        self.windows = 0

    def execute(self, window: TupleWindow, collector: WindowCollector) -> None:
        self.windows += 1
        numbers = window.column("n")
        least, greatest = pc.min_max(numbers).values()
        block = [self.windows, len(window), pc.sum(numbers).as_py(), least.as_py(), greatest.as_py(), window.key]
        collector.emit([self.shape, block])


class Windows(BasicBolt):
    """Writes down each window that it gets."""

    stateless = True
    outputs = []

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Tuple, collector: Any) -> None:
        note(self.directory, "windows", *tup.values)


def storms_example(directory: str) -> Topology:
    """Storm's worked example of windows: 6:00:03 to 8:00:39."""
    windowed = Example().with_window(timedelta(seconds=20), slide=timedelta(seconds=10)).with_timestamp_field("at")
    windowed.with_lag(timedelta(seconds=5)).with_watermark_interval(timedelta(milliseconds=500))
    builder = TopologyBuilder("storms-example")
    builder.set_spout("events", Events(directory))
    builder.set_bolt("example", windowed).global_grouping("events")
    builder.set_bolt("windows", Windows(directory)).shuffle_grouping("example")
    return builder.build()


class Keyed(Messages):
    """``Messages`` with a key, which has a window of its own."""

    outputs = ["n", "key", "at"]

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        for position, _ in super().read(range_):
            yield position, [position, position % 7, 1000 * position]


WINDOWED = 4_000


def windows_kept(directory: str) -> Topology:
    """Windows of several kinds over numbers that come in 40 micro-batches."""
    second = timedelta(seconds=1)
    shapes = {
        "count": Blocks("count").with_window(Count(300), slide=Count(200)),
        "time": Blocks("time").with_window(300 * second, slide=200 * second).with_timestamp_field("at"),
        "mixed": Blocks("mixed").with_window(300 * second, slide=Count(200)).with_timestamp_field("at"),
        "keyed": Blocks("keyed").with_tumbling_window(Count(100)).with_key("key"),
    }
    builder = TopologyBuilder("windows-kept", Config(message_timeout_secs=60))
    builder.set_spout("numbers", Keyed(directory, WINDOWED, per_micro_batch=100))
    sink = builder.set_bolt("windows", Windows(directory))
    for name, windowed in shapes.items():
        if windowed._windowing.in_event_time:
            windowed.with_watermark_interval(timedelta(milliseconds=1))
        builder.set_bolt(name, windowed).global_grouping("numbers")
        sink.shuffle_grouping(name)
    return builder.build()
