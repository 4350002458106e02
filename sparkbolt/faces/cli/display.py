"""Displays of a run, for people and for programs.

With ``--json`` standard output contains only JSON lines. Otherwise it contains what the topology prints, and the
display goes to standard error. Counts are totals since the topology's first start with its checkpoint; rates are those
of the last seconds. An error in a display never fails the run: ``micro_batch`` is called during a promotion.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any

from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.progress import Progress
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.control.logs import current_log
from sparkbolt.control.metric_documents import metric_documents
from sparkbolt.faces.cli.dlq.summary import given_up_lines
from sparkbolt.faces.cli.program import NOT_UP, UNDER_WAY, RunEnd
from sparkbolt.faces.cli.tables import Cell, Sheet
from sparkbolt.faces.cli.texts import late_text, micro_batches, plain

if TYPE_CHECKING:
    from sparkbolt.api.reports import MicroBatchReport
    from sparkbolt.api.running import RunningTopology
    from sparkbolt.api.topology import ComponentSpec, Topology
    from sparkbolt.faces.cli.program import RunOutcome

LINE_EVERY_SECS = 5.0
"""Plain lines: at most one line in this time."""
IDLE_SECS = 2.0
"""After this time with nothing to do, the topology is shown as waiting for data."""
RATE_SECS = 6.0
"""Rates are means over about this time."""


@dataclass(frozen=True)
class Snapshot:
    """The counters after a promotion."""

    elapsed_s: float
    micro_batch_id: int
    metrics: TopologyMetrics
    retries: int

    def count(self, what: str, components: tuple[str, ...]) -> int:
        """The sum of a counter over components."""
        return sum(getattr(self.metrics.components.get(id_, _NOTHING), what) for id_ in components)


_NOTHING = ComponentMetrics()
WINDOW_COUNTS = frozenset({"windows", "window_tuples", "late_tuples", "expired", "watermark_ms", "watermark_behind_ms"})
"""The counters that only windowed bolts have."""


def window_line(component: str, counts: ComponentMetrics) -> str:
    """The counts of a windowed bolt, as a sentence.

    >>> window_line("average", ComponentMetrics(windows=6, window_tuples=15, expired=6, watermark_ms=21_631_000))
    'average: 6 windows of 15 tuples, 0 late, 6 expired, watermark 06:00:31, not behind'
    """
    return f"{component}: {', '.join(window_parts(counts))}"


def window_parts(counts: ComponentMetrics) -> list[str]:
    """The parts of ``window_line``."""
    parts = [
        f"{counts.windows:,} windows of {counts.window_tuples:,} tuples",
        f"{counts.late_tuples:,} late",
        f"{counts.expired:,} expired",
    ]
    if counts.watermark_text:
        parts.append(counts.watermark_text)
    return parts


def going_on(progress: Progress, spouts: tuple[str, ...], *, read: bool, waits_for: str | None = None) -> str:
    """A topology's present activity, in words.

    Args:
        progress: the progress of the running micro-batch.
        spouts: the ids of the spouts.
        read: whether a micro-batch was committed before.
        waits_for: the thing that the topology waits for before it is up; None if it is up.

    >>> going_on(Progress(), ("lines",), read=False)
    'waiting for data: lines has read nothing yet'
    """
    if progress.micro_batch_id is not None:
        return progress.sentence
    if waits_for is not None:
        return f"starting: {waits_for}"
    if read:
        return "waiting for data"
    names = f"{', '.join(spouts[:-1])} and {spouts[-1]}" if len(spouts) > 1 else "".join(spouts)
    return f"waiting for data: {names} {'have' if len(spouts) > 1 else 'has'} read nothing yet"


class Display:
    """Stores the numbers that the other displays show; it shows nothing itself."""

    logs = False
    """Whether it also writes its lines to the topology's log."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with no counters; ``clock`` returns monotonic seconds."""
        self._clock = clock
        self._began = clock()
        self._topology: Topology | None = None
        self._snapshots: deque[Snapshot] = deque()
        self._before: Snapshot | None = None
        """The counters that earlier runs have committed."""
        self._busy_s = 0.0
        """When the topology last had something to do, in seconds since the start of the run."""
        self.progress = Progress()
        """The progress of the running micro-batch at the last ``look``."""
        self.waits_for: str | None = None
        """The thing that the topology waited for at the last ``look`` before it was up; None if it was up."""
        self.outages: tuple[str, ...] = ()
        """Sentences about the bolts that were out at the last ``look``."""
        self.is_closed = False
        """Whether the reader of the output has closed it; then the run stops."""

    def starting(self, topology: Topology) -> None:
        """Called before the topology is started."""
        self._topology = topology
        self._began = self._clock()

    def started(self, running: RunningTopology) -> None:
        """Called when Spark runs the topology; the counters of earlier runs are read at once."""
        metrics = running.metrics()
        if metrics.micro_batches and not self._snapshots:
            elapsed_s = self._clock() - self._began
            self._before = Snapshot(elapsed_s, metrics.micro_batches - 1, metrics, running.retries)

    def micro_batch(self, report: MicroBatchReport, retries: int) -> None:
        """Called after each promotion, in the thread of the listeners."""
        metrics = copy.deepcopy(report.metrics)
        now = Snapshot(self._clock() - self._began, report.promotion.micro_batch_id, metrics, retries)
        self._snapshots.append(now)
        while len(self._snapshots) > 2 and now.elapsed_s - self._snapshots[1].elapsed_s > RATE_SECS:
            self._snapshots.popleft()

    def look(self, running: RunningTopology) -> None:
        """Read the progress of the running micro-batch; called a few times per second."""
        self.progress = running.progress()
        self.waits_for = running.waits_for
        self.outages = tuple(running.outages)
        now, at_work = self.latest, self.progress.micro_batch_id is not None or self.waits_for is not None
        if now is None or at_work or now.metrics.open_trees or now.retries:
            self._busy_s = self._clock() - self._began

    @property
    def idle(self) -> bool:
        """Whether the topology has had nothing to do for ``IDLE_SECS``."""
        now = self.latest
        busy_s = max(self._busy_s, 0.0 if now is None else now.elapsed_s)
        return now is not None and self._clock() - self._began - busy_s >= IDLE_SECS

    @property
    def doing(self) -> str:
        """The topology's present activity, in words."""
        return going_on(self.progress, self.spouts, read=self.latest is not None, waits_for=self.waits_for)

    def draining(self, open_trees: int, *, asked: bool) -> None:
        """Called when the run begins to stop: no new tuples are read, and ``open_trees`` trees are finished.

        Args:
            open_trees: how many trees are open.
            asked: whether a signal requested the stop.
        """

    def reloaded(self, topology: Topology) -> None:
        """Called when another topology goes on, because the code has changed."""
        self._topology = topology

    def printed(self, text: str) -> None:
        """Called with whole lines that tasks have printed."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def close(self) -> None:
        """Called at the end of the run, before ``summary``."""

    def summary(self, outcome: RunOutcome) -> None:
        """Called last, with the outcome of the run."""

    # For the subclasses.

    @property
    def spouts(self) -> tuple[str, ...]:
        """The ids of the spouts."""
        return () if self._topology is None else tuple(spec.id for spec in self._topology.spouts)

    @property
    def bolts(self) -> tuple[str, ...]:
        """The ids of the bolts."""
        return () if self._topology is None else tuple(spec.id for spec in self._topology.bolts)

    @property
    def latest(self) -> Snapshot | None:
        """The latest counters; None before the first promotion of the first run."""
        return self._snapshots[-1] if self._snapshots else self._before

    def rate(self, what: str, components: tuple[str, ...]) -> float:
        """How much a counter grows per second, over the last seconds; 0 before the second promotion."""
        if len(self._snapshots) < 2:
            return 0.0
        first, last = self._snapshots[0], self._snapshots[-1]
        passed = last.elapsed_s - first.elapsed_s
        return (last.count(what, components) - first.count(what, components)) / passed if passed > 0 else 0.0


class JsonLines(Display):
    """Writes one JSON object per line to standard output; the output of tasks goes to standard error."""

    def __init__(self, out: IO[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to ``out``, by default standard output."""
        super().__init__(clock)
        self._out = sys.stdout if out is None else out

    def micro_batch(self, report: MicroBatchReport, retries: int) -> None:
        """Write one line: the totals, and the time of this micro-batch."""
        super().micro_batch(report, retries)
        now = self._snapshots[-1]
        self._write(
            {
                "event": "micro_batch",
                "micro_batch_id": now.micro_batch_id,
                "elapsed_s": round(now.elapsed_s, 3),
                "micro_batch_ms": _rounded(now.metrics.micro_batch_ms),
                "emitted": now.count("emitted", self.spouts),
                "executed": now.count("executed", self.bolts),
                "acked": now.count("acked", self.spouts),
                "failed": now.count("failed", self.spouts),
                "open_trees": now.metrics.open_trees,
                "retries": retries,
                **self._windowed(now),
            }
        )

    def _windowed(self, now: Snapshot) -> dict[str, dict[str, dict[str, Any]]]:
        """The counters of windowed bolts, if there are any."""
        specs = () if self._topology is None else self._topology.bolts
        counts = {
            spec.id: vars(now.metrics.components.get(spec.id, _NOTHING))
            for spec in specs
            if isinstance(spec.component, RuntimeBolt)
        }
        shown = {id_: {name: of[name] for name in of if name in WINDOW_COUNTS} for id_, of in counts.items()}
        return {"windows": shown} if shown else {}

    def printed(self, text: str) -> None:
        """Write the lines to standard error, so that standard output contains only JSON."""
        sys.stderr.write(text)
        sys.stderr.flush()

    def summary(self, outcome: RunOutcome) -> None:
        """Write the last line."""
        self._write(summary_event(outcome, self._topology))

    def _write(self, event: Mapping[str, Any]) -> None:
        try:
            self._out.write(json.dumps(event) + "\n")
            self._out.flush()
        except OSError:
            self.is_closed = True


def summary_event(outcome: RunOutcome, topology: Topology | None) -> dict[str, Any]:
    """The summary as a JSON object, with an object of counters for each component."""
    components: dict[str, dict[str, Any]] = {}
    for spec in () if topology is None else topology.components.values():
        counts = asdict(outcome.metrics.components.get(spec.id, _NOTHING))
        counts["execute_ms"] = round(counts["execute_ms"], 3)
        del counts["user"]
        leave_out = {"executed", "execute_ms"} if spec.is_spout else {"pending", "given_up", "lag", "skipped", "late"}
        if not isinstance(spec.component, RuntimeBolt):
            leave_out |= WINDOW_COUNTS
        components[spec.id] = {key: value for key, value in counts.items() if key not in leave_out}
    for component, metrics in metric_documents(outcome.metrics).items():
        components[component]["metrics"] = metrics
    event: dict[str, Any] = {
        "event": "summary",
        "outcome": outcome.kind,
        "elapsed_s": round(outcome.elapsed_s, 3),
        "components": components,
        "micro_batches": outcome.metrics.micro_batches,
        "open_trees": outcome.metrics.open_trees,
        "given_up": sum(counts.get("given_up", 0) for counts in components.values()),
        "given_up_in_this_run": dict(outcome.given_up),
        "late_tuples": sum(counts.get("late_tuples", 0) for counts in components.values()),
        "retries": outcome.retries,
        "drained": outcome.drained,
    }
    if outcome.given_up:
        event["how_to_look"] = list(given_up_lines(outcome.given_up, topology, outcome.letters_directory))
    if outcome.failure is not None:
        event["failure"] = outcome.failure
    return event


class PlainLines(Display):
    """Writes a line every few seconds to standard error."""

    def __init__(self, out: IO[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to ``out``, by default standard error."""
        super().__init__(clock)
        self._out = out
        self._next_line_s = 0.0
        self._next_look_s = LINE_EVERY_SECS
        self._told_to_wait = ""
        self._next_outage_s = 0.0

    def starting(self, topology: Topology) -> None:
        """Write that Spark starts, since that takes some seconds."""
        super().starting(topology)
        self.say(f"{topology.name}: starting Spark")

    def started(self, running: RunningTopology) -> None:
        """Write that the topology runs, and the counters of earlier runs."""
        super().started(running)
        assert self._topology is not None
        tasks = sum(spec.parallelism for spec in self._topology.components.values())
        before = "" if self._before is None else f"; it continues after {self._counters(self._before)}"
        self.say(f"{self._topology.name}: running, {len(self._topology.components)} components, {tasks} tasks{before}")
        self._next_look_s = self._clock() - self._began + LINE_EVERY_SECS

    def look(self, running: RunningTopology) -> None:
        """Write a line every few seconds during a long micro-batch, and one line if no data arrives at all."""
        super().look(running)
        elapsed_s = self._clock() - self._began
        if self.outages and elapsed_s >= self._next_outage_s:
            self._next_outage_s = elapsed_s + LINE_EVERY_SECS
            self.say(f"{elapsed_s:7.1f} s  {'; '.join(self.outages)}")
        if elapsed_s < max(self._next_look_s, self._next_line_s):
            return
        waits = "" if self.progress.micro_batch_id is not None else self.doing
        if waits and (self._told_to_wait == waits or self._snapshots):
            return
        self._told_to_wait = waits
        self._next_look_s = elapsed_s + LINE_EVERY_SECS
        self.say(f"{elapsed_s:7.1f} s  {self.doing}")

    def micro_batch(self, report: MicroBatchReport, retries: int) -> None:
        """Write a line, if the last one was written ``LINE_EVERY_SECS`` ago or earlier."""
        super().micro_batch(report, retries)
        now = self._snapshots[-1]
        if now.elapsed_s >= self._next_line_s:
            self._next_line_s = self._next_look_s = now.elapsed_s + LINE_EVERY_SECS
            rate = self.rate("executed", self.bolts)
            self.say(f"{now.elapsed_s:7.1f} s  {self._counters(now, rate)}")

    def _counters(self, of: Snapshot, rate: float = 0.0) -> str:
        return (
            f"micro-batch {of.micro_batch_id}"
            f"  executed {of.count('executed', self.bolts):,}{f' ({rate:,.0f}/s)' if rate else ''}"
            f"  acked {of.count('acked', self.spouts):,}  failed {of.count('failed', self.spouts):,}"
            f"  open {of.metrics.open_trees:,}  retries {of.retries:,}"
        )

    def draining(self, open_trees: int, *, asked: bool) -> None:
        """Explain the stop, and the effect of a second Ctrl-C."""
        self.say(drain_sentence(open_trees, asked))

    def summary(self, outcome: RunOutcome) -> None:
        """Write the last lines."""
        for line in summary_lines(outcome, self._topology):
            self.say(line)

    def say(self, line: str) -> None:
        """Write a line."""
        out = sys.stderr if self._out is None else self._out
        try:
            out.write(line + "\n")
            out.flush()
        except OSError:
            self.is_closed = True


def drain_sentence(open_trees: int, asked: bool) -> str:
    """The sentence that is shown when a run begins to stop.

    >>> drain_sentence(1, asked=False)
    'stopping: no new tuples, 1 open tree is being finished'
    """
    trees = f"{open_trees:,} open tree{'s are' if open_trees != 1 else ' is'}" if open_trees else "the micro-batch is"
    more = "; Ctrl-C again leaves them for replay" if asked else ""
    return f"stopping: no new tuples, {trees} being finished{more}"


def summary_lines(outcome: RunOutcome, topology: Topology | None) -> Iterator[str]:
    """The lines at the end of a run: the counters, and how it ended."""
    if topology is not None and outcome.metrics.micro_batches:
        yield from counters_sheet(topology, outcome.metrics.components).lines()
    yield from closing_lines(outcome, topology)


def closing_lines(outcome: RunOutcome, topology: Topology | None) -> Iterator[str]:
    """One line about how a run ended, and lines with the next steps for messages that were given up."""
    took = f"after {outcome.elapsed_s:.1f} s"
    if outcome.kind == RunEnd.FAILED:
        yield f"failed {took}: {outcome.failure}"
        return
    rest = ""
    if not outcome.up:
        rest = f", {NOT_UP}"
    elif not outcome.drained:
        rest = f"; {_left(outcome)}"
    elif outcome.retries:
        rest = f"; {outcome.retries:,} record{'s' if outcome.retries != 1 else ''} left to retry"
    count = sum(outcome.given_up.values())
    rest += f"; {count:,} given up after {'their' if count != 1 else 'its'} last attempt" if count else ""
    if outcome.time_over and outcome.committed == 0:
        rest += "; no micro-batch was committed in that time: if there is data to read, use a longer time"
    ended = f"{outcome.kind}, {outcome.killed}," if outcome.killed is not None else outcome.kind
    count = outcome.metrics.micro_batches if outcome.committed is None else outcome.committed
    yield f"{ended} {took}{f', {micro_batches(count)}' if outcome.up else ''}{rest}"
    yield from late_lines(outcome.metrics, topology)
    yield from given_up_lines(outcome.given_up, topology, outcome.letters_directory)


def late_lines(metrics: TopologyMetrics, topology: Topology | None) -> Iterator[str]:
    """A line for each bolt in event time that got late tuples: their number, and a remedy if no stream has them."""
    bolts = () if topology is None else topology.bolts
    for spec in bolts:
        late = metrics.components.get(spec.id, _NOTHING).late_tuples
        if has_watermark(spec) and late:
            streams = {stream.name: stream.fields for stream in spec.streams}
            inputs = {(one.source, one.stream) for bolt in bolts for one in bolt.subscriptions}
            subscribed = [stream for source, stream in inputs if source == spec.id]
            yield f"{spec.id}: {late_text(late, streams, subscribed)}"


def _left(outcome: RunOutcome) -> str:
    """The work that is left for the next run, in words."""
    left = outcome.metrics.open_trees
    trees = f"{left:,} tree{'s' if left != 1 else ''}" if left else ""
    broken = "" if left else UNDER_WAY
    if outcome.broken_off is not None:
        broken = f"micro-batch {outcome.broken_off}, which was cancelled,"
    said = f"{' and '.join(part for part in (trees, broken) if part)} left for replay"
    where = (
        "the next run with this checkpoint" if outcome.checkpointed else "and there is no --checkpoint to replay from"
    )
    return f"{said} ({where})"


COLUMNS = ("component", "emitted", "executed", "acked", "failed", "pending", "errors")
LATE = "late"
"""The column of late tuples, in topologies that have windows in event time."""
RATE = "tuples/s"
_DROPPABLE = ("executed", "failed", LATE, "emitted", "errors", "pending", RATE)


def has_watermark(spec: ComponentSpec) -> bool:
    """Whether a component is a bolt in event time, which may get late tuples."""
    return isinstance(spec.component, RuntimeBolt) and spec.component.has_watermark


def counters_sheet(
    topology: Topology | None, counts: Mapping[str, ComponentMetrics], rates: Mapping[str, float] | None = None
) -> Sheet:
    """The table of all components' counters, with the rates of components if they are given."""
    specs = () if topology is None else tuple(topology.components.values())
    late = (LATE,) if any(map(has_watermark, specs)) else ()
    titles = (*COLUMNS, *late, *((RATE,) if rates else ()))
    rows: list[tuple[Cell, ...]] = []
    for spec in specs:
        own = counts.get(spec.id, _NOTHING)
        blank = "executed" if spec.is_spout else "pending"
        values = {name: None if name == blank else getattr(own, name) for name in COLUMNS[1:]}
        values |= {LATE: own.late_tuples if has_watermark(spec) else None, RATE: (rates or {}).get(spec.id, 0.0)}
        rows.append((spec.id, *(values[title] for title in titles[1:])))
    return Sheet(titles, tuple(rows), _DROPPABLE)


def choose_display(*, as_json: bool = False) -> Display:
    """The display for a run: JSON lines if ``as_json``, a live table on a terminal, plain lines otherwise."""
    if as_json:
        return JsonLines()
    if sys.stderr.isatty():
        from sparkbolt.faces.cli.live import LiveTable

        return LiveTable()
    return PlainLines()


class _CurrentStderr(logging.Handler):
    """Writes to the current ``sys.stderr``: while there is a live table, lines appear above it."""

    def emit(self, record: logging.LogRecord) -> None:
        log = current_log()
        with log.not_taken() if log is not None else nullcontext():
            print(plain(self.format(record)), file=sys.stderr)


@contextmanager
def logged(level: str) -> Iterator[None]:
    """Show Sparkbolt's log lines inside of the block, unless the program has configured logging itself."""
    logger = logging.getLogger("sparkbolt")
    if logger.hasHandlers():
        yield
        return
    handler, before = _CurrentStderr(), logger.level
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
