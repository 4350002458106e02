"""The history of a topology at three resolutions: its speed, its latency and its lag.

It is a report that nothing depends on, and is not committed with micro-batches: a process that dies loses what it has
not written, up to one step of each ring. Time is an argument, in milliseconds since the epoch. Prior art: RRDtool's
round robin archives.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple

from sparkbolt.base.codec import SPARSE, Coder, decode, encode
from sparkbolt.base.file_access import Files
from sparkbolt.base.words import EARLIER_NAMES
from sparkbolt.observe.histogram import Histogram
from sparkbolt.observe.measurements import (
    Flow,
    FlowCounts,
    add_flows,
    add_histograms,
    flows_from_json,
    flows_to_json,
)

FOLDER: Final = "history"
CHUNK_BUCKETS: Final = 30
"""How many buckets one file has."""
BYTES_MAX: Final = 32 << 20
"""How large all files may be together; beyond it the oldest are removed, those of the finest ring first."""
MICRO_BATCHES_MAX: Final = 300
SOURCES_MAX: Final = 200
"""Of how many sources of a spout the lag is kept: those with the largest."""
COUNTED: Final = (
    "emitted",
    "executed",
    "acked",
    "failed",
    "given_up",
    "retried",
    "dead_letters",
    "errors",
    "late",
    "execute_ms",
)
"""The counters of ``ComponentMetrics`` that the history has."""


class Ring(NamedTuple):
    """One resolution."""

    step_secs: int
    """The length of a bucket."""
    buckets: int
    """How many are kept."""
    write_secs: int
    """How often the newest are written."""


RINGS: Final = (Ring(10, 360, 10), Ring(300, 288, 60), Ring(3600, 720, 300))
"""An hour, a day, a month."""


_Rounded = Annotated[float, Coder(lambda value: round(value, 3), lambda value: value)]
_Counts = Annotated[
    dict[str, float],
    Coder(dict, lambda counts: {EARLIER_NAMES.get(name, name): count for name, count in counts.items()}),
]
_Flows = Annotated[dict[Flow, FlowCounts], Coder(flows_to_json, flows_from_json)]


@dataclass
class Bucket:
    """The work of a topology in a span of time."""

    JSON = SPARSE

    start_ms: int = 0
    secs: _Rounded = 0.0
    """For how long of the span it ran."""
    micro_batches: int = 0
    micro_batch_ms: _Rounded = 0.0
    """How long these took, summed."""
    components: dict[str, _Counts] = field(default_factory=dict)
    """By component: the counters in ``COUNTED`` that are not 0."""
    flows: _Flows = field(default_factory=dict)
    execute: dict[str, Histogram] = field(default_factory=dict)
    complete: dict[str, Histogram] = field(default_factory=dict)
    parts_ms: dict[str, _Rounded] = field(default_factory=dict)
    """By part of micro-batches: how long it took, summed."""
    gauges: dict[str, float] = field(default_factory=dict)
    """The last ``open_trees``, ``retries``, ``lag``, and memory of ``driver``, ``jvm`` and ``workers``."""
    lag: dict[str, dict[str, int]] = field(default_factory=dict)
    """By spout and source: the last known lag."""
    slowest: tuple[float, str, int] | None = None
    """(latency in milliseconds, root, time) of the slowest tree."""

    def add(self, other: Bucket) -> None:
        """Add the work of a later span."""
        self.secs += other.secs
        self.micro_batches += other.micro_batches
        self.micro_batch_ms += other.micro_batch_ms
        for component, counts in other.components.items():
            own = self.components.setdefault(component, {})
            for name, count in counts.items():
                own[name] = own.get(name, 0) + count
        add_flows(self.flows, other.flows)
        add_histograms(self.execute, other.execute)
        add_histograms(self.complete, other.complete)
        for part, elapsed_ms in other.parts_ms.items():
            self.parts_ms[part] = self.parts_ms.get(part, 0.0) + elapsed_ms
        self.gauges.update(other.gauges)
        self.lag.update(other.lag)
        if other.slowest is not None and (self.slowest is None or other.slowest[0] >= self.slowest[0]):
            self.slowest = other.slowest


@dataclass
class MicroBatchRecord:
    """One promoted micro-batch: where its time went."""

    micro_batch_id: int
    began_ms: int
    elapsed_ms: float
    parts: list[tuple[str, float, float]]
    """(name, start and end in milliseconds after ``began_ms``), by start; names as in ``WindowDocument.parts_ms``."""
    busy_ms: dict[str, float]
    """By part on the executors: how long processes worked on it, summed."""
    emitted: int = 0
    """Tuples that spouts emitted."""
    executed: int = 0
    acked: int = 0
    failed: int = 0
    repeats: int = 0
    """How many executions of it were aborted, if the topology is transactional."""
    rows: int = 0
    """Frames that were sent between stages."""
    bytes: int = 0
    spark_ms: dict[str, float] = field(default_factory=dict)
    """Spark's own durations of it, if they were seen."""


class History:
    """The history of one topology. Not thread safe."""

    def __init__(self) -> None:
        """Begin without any."""
        self._rings: list[deque[Bucket]] = [deque(maxlen=ring.buckets) for ring in RINGS]
        self._written_ms = [0] * len(RINGS)
        self._dirty: list[set[int]] = [set() for _ in RINGS]
        """By ring: the starts of the chunks that have changed since they were written."""
        self._sizes: dict[str, int] = {}
        """By name: the size of each file."""
        self._micro_batches_changed = False
        self._total = Bucket()
        """The sum of all buckets of the coarsest resolution at the load, and of all later work."""
        self.micro_batches: deque[MicroBatchRecord] = deque(maxlen=MICRO_BATCHES_MAX)
        self.damaged: list[str] = []
        """The files that could not be read; they are replaced in time."""

    def add(self, done: Bucket, now_ms: int) -> None:
        """Add the latest work of the topology."""
        for ring, buckets, dirty in zip(RINGS, self._rings, self._dirty, strict=True):
            start_ms = now_ms - now_ms % (ring.step_secs * 1000)
            if not buckets or buckets[-1].start_ms < start_ms:
                buckets.append(Bucket(start_ms))
            buckets[-1].add(done)  # if the clock was set back: the newest one
            dirty.add(_chunk_of(ring, buckets[-1].start_ms))
        self._total.add(done)

    def promoted(self, record: MicroBatchRecord) -> None:
        """Add a micro-batch."""
        self.micro_batches.append(record)
        self._micro_batches_changed = True

    def spark_took(self, micro_batch_id: int, durations_ms: Mapping[str, float]) -> None:
        """Note Spark's own durations of a micro-batch."""
        for record in reversed(self.micro_batches):
            if record.micro_batch_id == micro_batch_id:
                record.spark_ms = dict(durations_ms)
                self._micro_batches_changed = True
                break

    # Queries.

    def ring_for(self, since_ms: int, now_ms: int) -> int:
        """The index of the finest ring that reaches back to a moment, but for a bucket or two."""
        for index, ring in enumerate(RINGS):
            if now_ms - since_ms <= ring.step_secs * (ring.buckets + 2) * 1000:
                return index
        return len(RINGS) - 1

    def buckets(self, since_ms: int, until_ms: int, now_ms: int) -> tuple[int, list[Bucket]]:
        """(length of a bucket in seconds, those that begin in a span of time), from the finest ring that has them."""
        index = self.ring_for(since_ms, now_ms)
        step_secs = RINGS[index].step_secs
        first_ms = since_ms - step_secs * 1000
        return step_secs, [one for one in self._rings[index] if first_ms < one.start_ms <= until_ms]

    def window(self, secs: float, now_ms: int) -> Bucket:
        """The sum over the last ``secs``, rounded up to whole buckets of at most a tenth of it, if there are such."""
        fits = [index for index, ring in enumerate(RINGS) if ring.step_secs * 10 <= secs]
        index = max([self.ring_for(int(now_ms - secs * 1000), now_ms), *fits])
        since_ms = now_ms - secs * 1000 - RINGS[index].step_secs * 1000
        return summed((one for one in self._rings[index] if since_ms < one.start_ms <= now_ms), int(since_ms))

    def all_time(self) -> Bucket:
        """The sum of everything: at least of the last month."""
        return self._total

    def view(self) -> History:
        """The current history, for a reader in another thread; ended buckets are shared, the rest is copied."""
        made = History()
        for own, others in zip(made._rings, self._rings, strict=True):
            own.extend(others)
            if own:
                own[-1] = _copy(own[-1])
        made._total = _copy(self._total)
        made.micro_batches.extend(self.micro_batches)
        return made

    # Files.

    def changed_files(self, now_ms: int, *, all_rings: bool = False) -> dict[str, bytes]:
        """The files to write now, by name; ``all_rings``: also of rings that were written not long ago."""
        files: dict[str, bytes] = {}
        for index, ring in enumerate(RINGS):
            due = all_rings or now_ms - self._written_ms[index] >= ring.write_secs * 1000
            if due and self._dirty[index]:
                self._written_ms[index] = now_ms
                for start in sorted(self._dirty[index]):
                    chunk = [encode(one) for one in self._rings[index] if _chunk_of(ring, one.start_ms) == start]
                    files[f"{FOLDER}/{ring.step_secs}-{start}"] = _packed(chunk)
                self._dirty[index] = set()
        if self._micro_batches_changed:
            files[f"{FOLDER}/micro-batches"] = _packed([encode(record) for record in self.micro_batches])
        self._micro_batches_changed = False
        self._sizes.update({name: len(data) for name, data in files.items()})
        return files

    def not_written(self, names: Iterable[str]) -> None:
        """Note that these files of ``changed_files`` could not be written: ``changed_files`` returns them again."""
        for name in names:
            self._micro_batches_changed |= name.endswith("/micro-batches")
            for index, ring in enumerate(RINGS):
                if ring.step_secs == _step_of(name):
                    self._dirty[index].add(_start_of(name))
                    self._written_ms[index] = 0

    def old_files(self, now_ms: int) -> list[str]:
        """The names of files that are no longer needed: too old, or beyond ``BYTES_MAX``; each is named once."""
        chunks = sorted(
            (step, start, name) for name in self._sizes if (step := _step_of(name)) for start in [_start_of(name)]
        )
        old = []
        left = sum(self._sizes.values())
        for step, start, name in chunks:
            ring = next((ring for ring in RINGS if ring.step_secs == step), None)
            kept_secs = 0 if ring is None else ring.step_secs * (ring.buckets + CHUNK_BUCKETS)
            if start < now_ms // 1000 - kept_secs or left > BYTES_MAX:
                left -= self._sizes.pop(name)
                old.append(name)
        return old

    @classmethod
    def load(cls, files: Files) -> History:
        """The history in the files of a checkpoint; damaged files are left out, and named in ``damaged``."""
        made = cls()
        names = sorted(files.names(FOLDER), key=lambda name: (_step_of(name), _start_of(name)))
        for name in names:
            path = f"{FOLDER}/{name}"
            data = files.read(path)
            if data is None or name.startswith("."):
                continue
            made._sizes[path] = len(data)
            try:
                made._restore(name, json.loads(zlib.decompress(data)))
            except (ValueError, TypeError, KeyError, zlib.error):
                made.damaged.append(path)
        for index in range(1, len(RINGS)):
            made._mend(index)
        made._total = summed(made._rings[-1], 0)
        return made

    def _mend(self, index: int) -> None:
        """Replace buckets of a ring by the sum of the finer ring for their time, if that is more.

        A coarser ring is written less often, so that a process that was killed has lost more of it.
        """
        finer, step_ms = self._rings[index - 1], RINGS[index].step_secs * 1000
        own = {bucket.start_ms: bucket for bucket in self._rings[index]}
        parts: dict[int, list[Bucket]] = {}
        for bucket in finer:
            parts.setdefault(bucket.start_ms - bucket.start_ms % step_ms, []).append(bucket)
        for start_ms, buckets in parts.items():
            sum_ = summed(buckets, start_ms)
            if start_ms not in own or own[start_ms].micro_batches < sum_.micro_batches:
                own[start_ms] = sum_
                self._dirty[index].add(_chunk_of(RINGS[index], start_ms))
        self._rings[index] = deque((own[start] for start in sorted(own)), maxlen=RINGS[index].buckets)

    def _restore(self, name: str, body: Sequence[Any]) -> None:
        if name == "micro-batches":
            self.micro_batches.extend([decode(MicroBatchRecord, record) for record in body])
        else:
            step = _step_of(name)
            for ring, buckets in zip(RINGS, self._rings, strict=True):
                if ring.step_secs == step:
                    buckets.extend([decode(Bucket, one) for one in body])


def summed(buckets: Iterable[Bucket], start_ms: int) -> Bucket:
    """The sum of buckets, the oldest first."""
    total = Bucket(start_ms)
    for bucket in buckets:
        total.add(bucket)
    return total


def _copy(bucket: Bucket) -> Bucket:
    return summed([bucket], bucket.start_ms)


def _chunk_of(ring: Ring, start_ms: int) -> int:
    """The start of a bucket's chunk, in seconds since the epoch."""
    secs = start_ms // 1000
    return secs - secs % (ring.step_secs * CHUNK_BUCKETS)


def _step_of(name: str) -> int:
    """The length of the buckets in a file, from its name; 0 if it has none."""
    step = name.rpartition("/")[2].partition("-")[0]
    return int(step) if step.isdigit() else 0


def _start_of(name: str) -> int:
    start = name.rpartition("-")[2]
    return int(start) if start.isdigit() else 0


def _packed(body: Sequence[Any]) -> bytes:
    return zlib.compress(json.dumps(body, separators=(",", ":")).encode(), 1)
