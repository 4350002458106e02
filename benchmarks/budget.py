"""Where the processor's seconds go at full load, and where the milliseconds of a small micro-batch go.

Which part is the largest, and whose is it: user code's, ours, PySpark's, Spark's, the kernel's?

Processor time is the kernel's account of each process, and of each thread of the JVM, between two promotions. Python
workers divide their own: a bolt's ``prepare`` has functions of the engine timed, in that process alone. The
milliseconds are medians over micro-batches: our own record of each, Spark's durations of it, and Spark's record of its
spark_stages.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figures import Figure
from benchmarks.floor import MICRO_BATCHES, WARM, PassOn, small
from benchmarks.runs import MASTER, PARALLELISM, START, TIMEOUT_SECS, Options
from benchmarks.text import CACHE, Text, zipf_text
from benchmarks.words import FIRST_BUDGET, SplitSentence, WordCount, warm
from sparkbolt import Config, Topology, TopologyBuilder
from sparkbolt.api.components import BoltBase
from sparkbolt.api.reports import MicroBatchReport
from sparkbolt.observe.history import MicroBatchRecord
from sparkbolt.spark.recording import jvm_pid
from sparkbolt.spark.running_on_spark import RunningOnSpark
from sparkbolt.spouts import TextSpout
from sparkbolt.worker.state.keyvalue import KeyValueTable
from sparkbolt.worker.state.task_state import TaskState

RANKS = 400_000
PARTS = CACHE / "budget"
"""Where each Python worker writes how it divides its processor time."""
READ, LEVEL, STATE, GARBAGE, REST = "read and split", "level", "state", "garbage", "rest"
THREADS = {
    "spark_tasks": ("Executo",),
    "planning": ("stream ",),
    "garbage collector": ("GC Thread", "ParGC", "VM Thread"),
    "compiler": ("C1 ", "C2 "),
}
"""By kind of a JVM's threads: how their names begin, of which Java tells the kernel the first 7 characters."""
MICRO_BATCHES_MAX = 100_000
TICKS = os.sysconf("SC_CLK_TCK")


# In the workers.


class Stopwatch:
    """Divides the processor time of this process; what is spent in an inner part does not count for the outer one."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._part = REST
        self._since = time.process_time()

    def switch(self, part: str) -> str:
        """Begin a part, and return the one before it."""
        now = time.process_time()
        self.spent[self._part] = self.spent.get(self._part, 0.0) + now - self._since
        before, self._part, self._since = self._part, part, now
        return before

    def time(self, owner: Any, name: str, part: str) -> None:
        """Let a function count for a part from now on."""
        original = getattr(owner, name)

        def timed(*arguments: Any, **keywords: Any) -> Any:
            before = self.switch(part)
            try:
                return original(*arguments, **keywords)
            finally:
                self.switch(before)
                if before == REST:
                    Path(PARTS, str(os.getpid())).write_text(json.dumps(self.spent))

        setattr(owner, name, timed)


_watched: list[Stopwatch] = []


def watch() -> None:
    """Have this process divide its processor time, if it does not yet."""
    if _watched:
        return
    from sparkbolt.spark import lane_query, level_task, source_task

    watch_ = Stopwatch()
    _watched.append(watch_)
    watch_.time(source_task, "run_piece", READ)
    for module in (level_task, lane_query):
        watch_.time(module, "run_level", LEVEL)
    for name in ("begin", "make_ready", "commit"):
        watch_.time(TaskState, name, STATE)
    for name in ("_sync", "_load"):
        watch_.time(KeyValueTable, name, STATE)
    watch_.time(gc, "collect", GARBAGE)


class SplitWatched(SplitSentence):
    def prepare(self, context):
        watch()


class CountWatched(WordCount):
    def prepare(self, context):
        watch()


# Processor time.


@dataclass(frozen=True)
class Spent:
    """Processor time of one moment, since the start of each process; in seconds."""

    at_s: float
    done: int
    """Tuples that the last bolt had executed."""
    user: dict[str, float]
    """By kind of process, or of thread."""
    kernel: dict[str, float]
    parts: dict[str, float]
    """By part of the Python workers, user and kernel together."""
    machine: float
    """Of all processes of the machine."""


class Accountant:
    """Reads the processor time of the driver, of its JVM and of all processes below that."""

    def __init__(self) -> None:
        pid = jvm_pid()
        assert pid is not None, "this process has started no JVM"
        self._jvm = psutil.Process(pid)
        self._known: dict[tuple[str, int], tuple[float, float]] = {}
        """By kind and id: user and kernel. What has ended keeps its last."""
        self._known_threads: dict[tuple[str, int], tuple[float, float]] = {}
        shutil.rmtree(PARTS, ignore_errors=True)
        PARTS.mkdir(parents=True)

    def spent(self, done: int = 0) -> Spent:
        """The processor time until now."""
        at_s = time.perf_counter()
        self._see("driver, Python", psutil.Process())
        jvm = self._jvm.cpu_times()
        threads = self._threads()
        for process in self._jvm.children(recursive=True):
            try:
                worker = any("daemon" in word for word in process.cmdline())
                self._see("Python workers" if worker else "planner", process)
            except psutil.NoSuchProcess:
                continue
        user, kernel = ({kind: 0.0 for kind, _ in self._known} for _ in range(2))
        for (kind, _), times in self._known.items():
            user[kind] += times[0]
            kernel[kind] += times[1]
        for index, (of, whole) in enumerate(((user, jvm.user), (kernel, jvm.system))):
            of.update({f"JVM, {kind}": times[index] for kind, times in threads.items()})
            of["JVM, rest"] = whole - sum(times[index] for times in threads.values())
        all_ = psutil.cpu_times()
        return Spent(at_s, done, user, kernel, _parts(), sum(all_) - all_.idle - all_.iowait)

    def _see(self, kind: str, process: psutil.Process) -> None:
        times = process.cpu_times()
        self._known[kind, process.pid] = times.user, times.system

    def _threads(self) -> dict[str, list[float]]:
        """By kind of the JVM's threads: user and kernel. What has ended keeps its last, as some of its compiler do."""
        for path in Path(f"/proc/{self._jvm.pid}/task").iterdir():
            try:
                before, _, after = (path / "stat").read_text().rpartition(")")
            except OSError:  # it has ended
                continue
            name, fields = before.partition("(")[2], after.split()
            for kind, beginnings in THREADS.items():
                if name.startswith(beginnings):
                    self._known_threads[kind, int(path.name)] = int(fields[11]) / TICKS, int(fields[12]) / TICKS
        found = {kind: [0.0, 0.0] for kind in THREADS}
        for (kind, _), times in self._known_threads.items():
            for index, secs in enumerate(times):
                found[kind][index] += secs
        return found


def _parts() -> dict[str, float]:
    """What all workers have written, but for what is no part; empty if they are not watched."""
    sums: Counter[str] = Counter()
    for path in PARTS.iterdir():
        sums.update(json.loads(path.read_text()))
    sums.pop(REST, None)
    return dict(sums)


def shares(first: Spent, last: Spent, per: float) -> dict[str, float]:
    """What was spent between two moments, divided by ``per``: by kind, in all, and by nobody.

    >>> before = Spent(0.0, 0, {"driver": 1.0}, {"driver": 0.0}, {}, 1.0)
    >>> shares(before, Spent(2.0, 9, {"driver": 2.0}, {"driver": 0.5}, {}, 3.0), 1.0)["driver"]
    1.5
    """
    whole, kernel = {}, {}
    for kind in last.user:
        kernel[kind] = last.kernel[kind] - first.kernel.get(kind, 0.0)
        whole[kind] = last.user[kind] - first.user.get(kind, 0.0) + kernel[kind]
    found = dict(whole)
    parts = {part: secs - first.parts.get(part, 0.0) for part, secs in last.parts.items()}
    if parts:
        parts[REST] = whole["Python workers"] - sum(parts.values())
    found.update({f"Python workers: {part}": secs for part, secs in parts.items()})
    wall, machine, all_ = last.at_s - first.at_s, last.machine - first.machine, sum(whole.values())
    found |= {"all": all_, "all, of that in the kernel": sum(kernel.values()), "wall clock": wall}
    found |= {"others on this machine": machine - all_, "idle": (os.cpu_count() or 1) * wall - machine}
    for of in ("JVM", "Python workers"):
        found[f"{of}, of that in the kernel"] = sum(secs for kind, secs in kernel.items() if kind.startswith(of))
    return {name: secs / per for name, secs in found.items()}


# Runs.


@dataclass(frozen=True)
class Watched:
    """What was seen of a run."""

    moments: dict[int, Spent]
    """By number of a promotion, from 0."""
    records: list[MicroBatchRecord]
    progress: list[Any]
    """Spark's own reports, ``StreamingQueryProgress``."""
    stages: list[list[dict[str, float]]]
    """By job, as ``_stages_of`` returns them."""


def watched(topology: Topology, chosen: Container[int]) -> Watched:
    """Run a topology to its end, and see where its time goes.

    Args:
        topology: has a component ``count``.
        chosen: the promotions at which processor time is read, which takes some milliseconds.

    Raises:
        RuntimeError: it did not end, or a tree failed.
    """
    running: RunningOnSpark = topology.start(master=MASTER)
    moments: dict[int, Spent] = {}
    accountant, numbers = Accountant(), itertools.count()

    def note(report: MicroBatchReport) -> None:
        number = next(numbers)
        if number in chosen:
            moments[number] = accountant.spent(report.metrics.of("count").executed)

    running.on_micro_batch(note)
    try:
        if not running.await_finished(TIMEOUT_SECS):
            raise RuntimeError(f"{topology.name!r} did not finish within {TIMEOUT_SECS} s")
        failed = {name: counts.failed for name, counts in running.metrics().components.items() if counts.failed}
        if failed:
            raise RuntimeError(f"{topology.name!r} failed trees: {failed}")
        query = running._supervisor.life.query
        assert query is not None
        records = list(running.recording.view().micro_batches)
        return Watched(moments, records, list(query.recentProgress), _jobs(running, str(query.runId)))
    finally:
        running.close()


def _jobs(running: RunningOnSpark, group: str) -> list[list[dict[str, float]]]:
    """The spark_stages of each job of a query, from Spark's own store, which is also kept without its web pages."""
    context = running._spark.sparkContext
    store = context._jsc.sc().statusStore()
    found = []
    for number in sorted(context.statusTracker().getJobIdsForGroup(group)):
        ids = store.job(number).stageIds()
        stages = [store.lastStageAttempt(ids.apply(index)) for index in range(ids.size())]
        found.append(sorted((_stage(stage) for stage in stages), key=lambda stage: stage["submitted"]))
    return found


def _stage(stage: Any) -> dict[str, float]:
    """Times in milliseconds; those of spark_tasks are summed over the stage."""
    return {
        "submitted": stage.submissionTime().get().getTime(),
        "completed": stage.completionTime().get().getTime(),
        "spark_tasks": stage.numTasks(),
        "executorRunTime": stage.executorRunTime(),
        "executorCpuTime": stage.executorCpuTime() / 1e6,
        "executorDeserializeTime": stage.executorDeserializeTime(),
        "resultSerializationTime": stage.resultSerializationTime(),
    }


# A small micro-batch.


def steps_of(record: MicroBatchRecord, stages: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Where the milliseconds of a micro-batch with two spark_stages went, one step after the other.

    Args:
        record: ours.
        stages: Spark's, the source's first; ``submitted`` and ``completed`` in milliseconds since the epoch.
    """
    parts = {part: (record.began_ms + start, record.began_ms + end) for part, start, end in record.parts}
    source, level = stages
    read, works = parts["read"], parts["level 1"]
    ends = {
        "plan, offset log": parts["plan"][1],
        "Spark plans, calls foreachBatch": source["submitted"],
        "source: until a worker reads": read[0],
        "source: read": read[1],
        "source: until its spark_stage ends": source["completed"],
        "level: until a worker works": works[0],
        "level: work": works[1],
        "level: until its spark_stage ends": level["completed"],
        "frames are collected": parts["acker"][1],
        "ledger's entry": parts["stage"][1],
        "commit log": parts["commit"][1],
        "promotion": parts["promotion"][1],
    }
    steps, before = {}, float(record.began_ms)
    for name, end in ends.items():
        steps[name], before = end - before, end
    return {**steps, "all": record.elapsed_ms}


def small_budget(bolt: BoltBase) -> dict[str, float]:
    """Medians of what is known of small micro-batches, in milliseconds; and processor time of each."""
    seen = watched(small(bolt), (WARM, MICRO_BATCHES - 1))
    rows = list(zip(seen.records, seen.stages, strict=True))[WARM:]
    found = _medians([steps_of(record, stages) for record, stages in rows])
    durations = [one.durationMs for one in seen.progress if one.batchId >= WARM]
    found |= _medians([{f"Spark: {name}": ms for name, ms in one.items()} for one in durations])
    found |= _medians([_summed(stages) for _, stages in rows])
    operators = [one.stateOperators[0] for one in seen.progress if one.batchId >= WARM and one.stateOperators]
    found |= _medians([_state_of(operator) for operator in operators])
    first, last = seen.moments[WARM], seen.moments[MICRO_BATCHES - 1]
    spent = shares(first, last, (MICRO_BATCHES - 1 - WARM) / 1000)
    return found | {f"processor: {name}": ms for name, ms in spent.items()}


def _summed(stages: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = [name for name in stages[0] if name not in ("submitted", "completed")]
    sums = {f"spark_tasks: {name}": sum(stage[name] for stage in stages) for name in names}
    return {"spark_stages": len(stages), **sums}


def _state_of(operator: Any) -> dict[str, float]:
    custom = operator.customMetrics
    return {
        "state: load": custom["rocksdbLoadLatencyMs"],
        "state: commit": operator.commitTimeMs,
        "state: commit, sync of files": custom["rocksdbCommitFileSyncLatencyMs"],
    }


def _medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """By name, the median over the rows.

    >>> _medians([{"a": 1.0}, {"a": 2.0}, {"a": 9.0}])
    {'a': 2.0}
    """
    return {name: statistics.median(row[name] for row in rows) for name in (rows[0] if rows else ())}


# Full load.


def word_count(text: Text) -> Topology:
    """The word count with class bolts and default settings, whose workers divide their time."""
    builder = TopologyBuilder("budget", Config(message_timeout_secs=120))
    spout = TextSpout(text.path)
    spout.first_budget = FIRST_BUDGET
    builder.set_spout("lines", spout, parallelism=PARALLELISM)
    builder.set_bolt("split", SplitWatched(), parallelism=PARALLELISM).shuffle_grouping("lines")
    builder.set_bolt("count", CountWatched(), parallelism=PARALLELISM).fields_grouping("split", ["word"])
    return builder.build()


def full_budget(text: Text) -> dict[str, float]:
    """Processor seconds for a million words, in the steady middle.

    Raises:
        RuntimeError: not every word was counted once.
    """
    moments = [*watched(word_count(text), range(MICRO_BATCHES_MAX)).moments.values()]
    if moments[-1].done != text.words:
        raise RuntimeError(f"{moments[-1].done} words were counted, the text has {text.words}")
    steady = [moment for moment in moments if START * text.words <= moment.done < text.words]
    first, last = steady[0], steady[-1]
    millions = (last.done - first.done) / 1e6
    micro_batches = len(steady) - 1
    return shares(first, last, millions) | {"words a micro-batch, in millions": millions / micro_batches}


def _figures(what: str, turns: Sequence[Mapping[str, float]], unit: str) -> Iterator[Figure]:
    for name in turns[0]:
        yield Figure("budget", f"{what}: {name}", tuple(turn[name] for turn in turns), unit)


def figures(options: Options) -> Iterator[Figure]:
    """Measure: small micro-batches of both shapes in turn, then the word count."""
    text = zipf_text(options.words, ranks=RANKS)
    warm()
    turns = [(small_budget(WordCount()), small_budget(PassOn())) for _ in range(options.rounds)]
    yield from _figures("stateful", [one for one, _ in turns], "ms")
    yield from _figures("stateless", [one for _, one in turns], "ms")
    yield from _figures("a million words", [full_budget(text) for _ in range(options.rounds)], "s")
