"""Ordinary beginnings of a spout: what is there when its topology starts, and what comes later.

Each spout has a bolt that counts, and a directory of its own. ``now`` says how many messages are there at the start;
``deliver`` brings ``LATER`` more, if the source can have more. ``TOPOLOGIES`` says which spouts are one topology.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkbolt import BasicBolt, Config, PartitionedSpout, Range, Spout, Topology, TopologyBuilder
from sparkbolt.spouts import (
    GeneratorSpout,
    KafkaSpout,
    TextSpout,
)
from sparkbolt.spouts.kafka import MockKafka

LATER = 3


class CountAll(BasicBolt):
    outputs = ["count"]

    def prepare(self, context: Any) -> None:
        self.count = 0

    def execute(self, tup: Any, collector: Any) -> None:
        self.count += 1
        collector.emit([self.count])


class OpensWhenItMay:
    """Reads a directory; ``gate`` must be there before ``open`` returns, which raises ``failures`` times first."""

    def __init__(self, directory: Path, *, gate: Path | None = None, failures: int = 0) -> None:
        self.directory, self.gate, self.failures = directory, gate, failures

    def open(self, context: Any) -> None:
        await_gate(self.gate)
        fail_at_first(self.directory, self.failures)


class FromFiles(OpensWhenItMay, Spout):
    """Gives the numbers that stand in a directory as names of files, each once in a life."""

    outputs = ["n"]

    def open(self, context: Any) -> None:
        super().open(context)
        self.given: set[str] = set()

    def next_tuple(self, collector: Any) -> None:
        for path in sorted(self.directory.glob("*.n")):
            if path.name not in self.given and not path.with_suffix(".done").exists():
                self.given.add(path.name)
                collector.emit([path.stem], message_id=path.name)

    def ack(self, message_id: str) -> None:
        (self.directory / message_id).with_suffix(".done").touch()

    def fail(self, message_id: str) -> None:
        self.given.discard(message_id)


class Ranges(OpensWhenItMay, PartitionedSpout):
    """The same by ranges: as many messages as there are files."""

    outputs = ["n"]

    def next_ranges(self, progress: Mapping[str, int], budget: int) -> Sequence[Range]:
        start, end = progress.get("files", 0), len(list(self.directory.glob("*.n")))
        return [Range(0, "files", start, min(end, start + budget))] if end > start else []

    def finished(self, progress: Mapping[str, int]) -> bool:
        return False

    def read(self, range_: Range) -> Iterator[tuple[int, Sequence[Any]]]:
        return ((position, [str(position)]) for position in range(range_.start, range_.end))


def await_gate(gate: Path | None) -> None:
    pause = threading.Event()
    for _ in range(6000):
        if gate is None or gate.exists():
            return
        pause.wait(0.02)
    raise TimeoutError(f"{gate} never came")


def fail_at_first(directory: Path, failures: int) -> None:
    tries = len(list(directory.glob("try-*")))
    if tries < failures:
        (directory / f"try-{tries}").touch()
        raise ConnectionError(f"attempt {tries + 1} to open finds nobody")


def touch_numbers(directory: Path, count: int) -> None:
    for _ in range(count):
        (directory / f"{len(list(directory.glob('*.n')))}.n").touch()


@dataclass
class Beginning:
    """The beginning of one spout."""

    spout: Any
    now: int = 0
    """How many messages are there when it starts."""
    deliver: Callable[[], None] | None = None
    """Brings ``LATER`` more; None: the source ends."""


def topology_of(name: str, beginnings: Mapping[str, Beginning]) -> Topology:
    builder = TopologyBuilder(name, Config(message_timeout_secs=60, restart_backoff_secs=0.2))
    for spout, beginning in beginnings.items():
        builder.set_spout(spout, beginning.spout)
        builder.set_bolt(f"count-{spout}", CountAll()).global_grouping(spout)
    return builder.build()


@dataclass
class Maker:
    """Makes beginnings; what they need is closed with ``stack``."""

    root: Path
    stack: ExitStack = field(default_factory=ExitStack)

    def directory(self, name: str) -> Path:
        directory = self.root / name
        directory.mkdir()
        return directory

    # Files.

    def followed(self, name: str, now: int, spout: Callable[..., Any] = TextSpout, line: str = "line\n") -> Beginning:
        path = self.directory(name) / "lines.log"
        path.write_text(line * now)

        def deliver() -> None:
            with path.open("a") as file:
                file.write(line * LATER)

        return Beginning(spout(str(path), follow=True), now, deliver)

    def no_data(self) -> Beginning:
        return self.followed("no-data", 0)

    def one_line(self) -> Beginning:
        return self.followed("one-line", 1)

    def no_file_yet(self) -> Beginning:
        directory = self.directory("no-file-yet")

        def deliver() -> None:
            hidden = directory / ".later"
            with hidden.open("a") as file:
                file.write("line\n" * LATER)
            hidden.rename(directory / f"{len(list(directory.glob('*.log')))}.log")

        return Beginning(TextSpout(str(directory / "*.log"), follow=True), 0, deliver)

    # Sources that end.

    def nothing_at_all(self) -> Beginning:
        return Beginning(GeneratorSpout(lambda: iter(()), outputs=["n"], count=0))

    def one_tuple(self) -> Beginning:
        return Beginning(GeneratorSpout(lambda: iter([[1]]), outputs=["n"]), 1)

    # Spouts of one's own.

    def own(self, name: str, kind: Callable[..., Any], now: int = 0, **arguments: Any) -> Beginning:
        directory = self.directory(name)
        touch_numbers(directory, now)
        spout = kind(directory, **arguments)
        return Beginning(spout, now, lambda: touch_numbers(directory, LATER))

    def quiet_spout(self) -> Beginning:
        return self.own("quiet-spout", FromFiles)

    def slow_open(self) -> Beginning:
        gate = self.root / "slow-open.gate"
        beginning = self.own("slow-open", FromFiles, gate=gate)
        return self.opened_by_delivery(beginning, gate)

    def failing_open(self) -> Beginning:
        return self.own("failing-open", FromFiles, 2, failures=2)

    def ranges(self) -> Beginning:
        return self.own("ranges", Ranges)

    def ranges_with_a_failing_open(self) -> Beginning:
        return self.own("ranges-failing-open", Ranges, 2, failures=2)

    def opened_by_delivery(self, beginning: Beginning, gate: Path) -> Beginning:
        bring = beginning.deliver
        assert bring is not None

        def deliver() -> None:
            gate.touch()
            bring()

        return Beginning(beginning.spout, beginning.now, deliver)

    # Servers.

    def empty_topic(self) -> Beginning:
        kafka = self.stack.enter_context(MockKafka())
        kafka.create("empty")
        spout = KafkaSpout(kafka.brokers, "empty", group="g", value="text", outputs=["line"], start="earliest")
        return Beginning(spout, 0, lambda: self._produce(kafka))

    def _produce(self, kafka: MockKafka) -> None:
        kafka.produce("empty", ["line"] * LATER)


TOPOLOGIES = {
    "a file without data": ("no_data",),
    "a spout without data": ("quiet_spout",),
    "an open that does not return": ("slow_open",),
    "opens that fail": ("failing_open", "ranges_with_a_failing_open"),
    "no data anywhere": (
        "no_file_yet",
        "ranges",
        "empty_topic",
    ),
    "data": ("one_line",),
    "ends without a tuple": ("nothing_at_all",),
    "ends after one tuple": ("one_tuple",),
}
"""The spouts of each topology: together where all of them begin the same way."""
