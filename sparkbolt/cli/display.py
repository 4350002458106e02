"""Displays: what a person or a program sees of a run.

Which question it answers: what is written where while a topology runs?
Rule 1: with ``--json`` standard output is JSON lines and nothing else. Otherwise it is what the topology prints, and
what is shown of the run goes to standard error.
Rule 2: counts are totals since the topology's first start with its checkpoint; rates are of the last seconds.
Rule 3: nothing that fails here fails the run: ``micro_batch`` is called from within a promotion.

Read before: ``core.model.metrics``.
"""

from __future__ import annotations

import copy
import json
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO, TYPE_CHECKING, Any

from sparkbolt.cli.columns import GAP, Counters, fit
from sparkbolt.cli.dlq.summary import aside_lines
from sparkbolt.cli.program import RunEnd
from sparkbolt.core.model.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.core.model.progress import Progress
from sparkbolt.core.model.runtime_bolts import RuntimeBolt

if TYPE_CHECKING:
    from sparkbolt.cli.program import RunOutcome
    from sparkbolt.core.model.reports import MicroBatchReport
    from sparkbolt.core.model.running import RunningTopology
    from sparkbolt.core.model.topology import ComponentSpec, Topology

LINE_EVERY_SECS = 5.0
"""Plain lines: one in that time at most."""
IDLE_SECS = 2.0
"""After so long without anything to do a topology is said to wait for data."""
RATE_SECS = 6.0
"""Rates are means over about so long."""


@dataclass(frozen=True)
class Snapshot:
    """What is known after a promotion."""

    elapsed_s: float
    micro_batch_id: int
    metrics: TopologyMetrics
    retries: int

    def count(self, what: str, components: tuple[str, ...]) -> int:
        """A counter, summed over components."""
        return sum(getattr(self.metrics.components.get(id_, _NOTHING), what) for id_ in components)


_NOTHING = ComponentMetrics()
WINDOW_COUNTS = frozenset({"windows", "window_tuples", "late_tuples", "expired", "watermark_ms", "watermark_behind_ms"})
"""What is counted of windowed bolts only."""


def window_line(component: str, counts: ComponentMetrics) -> str:
    """What became of a windowed bolt's windows, as a sentence.

    >>> window_line("average", ComponentMetrics(windows=6, window_tuples=15, expired=6, watermark_ms=21_631_000))
    'average: 6 windows of 15 tuples, 0 late, 6 expired, watermark 06:00:31, not behind'
    """
    return f"{component}: {', '.join(window_parts(counts))}"


def window_parts(counts: ComponentMetrics) -> list[str]:
    """What became of windows, piece by piece."""
    parts = [
        f"{counts.windows:,} windows of {counts.window_tuples:,} tuples",
        f"{counts.late_tuples:,} late",
        f"{counts.expired:,} expired",
    ]
    if counts.watermark_text:
        parts.append(counts.watermark_text)
    return parts


def going_on(progress: Progress, spouts: tuple[str, ...], *, read: bool, waits_for: str | None = None) -> str:
    """What a topology is doing, in words.

    Args:
        progress: of the micro-batch that runs.
        spouts: the ids of the spouts.
        read: whether a micro-batch was committed yet.
        waits_for: what has to happen before the topology is up.

    >>> going_on(Progress(), ("lines",), read=False)
    'waiting for data: lines has read nothing yet'
    """
    if progress.micro_batch_id is not None:
        return progress.sentence
    if waits_for is not None:
        return f"coming up: {waits_for}"
    if read:
        return "waiting for data"
    names = f"{', '.join(spouts[:-1])} and {spouts[-1]}" if len(spouts) > 1 else "".join(spouts)
    return f"waiting for data: {names} {'have' if len(spouts) > 1 else 'has'} read nothing yet"


class Display:
    """Remembers what the other displays show, and shows nothing itself."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing has happened yet; ``clock`` gives seconds."""
        self._clock = clock
        self._began = clock()
        self._topology: Topology | None = None
        self._snapshots: deque[Snapshot] = deque()
        self._before: Snapshot | None = None
        """What runs before this one have committed."""
        self._busy_s = 0.0
        """When it was last seen to have something to do."""
        self.progress = Progress()
        """Of the micro-batch that runs, when it was looked at last."""
        self.waits_for: str | None = None
        """What had to happen then before the topology is up."""
        self.outages: tuple[str, ...] = ()
        """Sentences on the bolts that were out then."""
        self.is_closed = False
        """Whether whoever read what is shown has gone; the run then stops."""

    def starting(self, topology: Topology) -> None:
        """The topology is about to be started."""
        self._topology = topology
        self._began = self._clock()

    def started(self, running: RunningTopology) -> None:
        """Spark runs it; what runs before this one have committed is known at once."""
        metrics = running.metrics()
        if metrics.micro_batches and not self._snapshots:
            elapsed_s = self._clock() - self._began
            self._before = Snapshot(elapsed_s, metrics.micro_batches - 1, metrics, running.retries)

    def micro_batch(self, report: MicroBatchReport, retries: int) -> None:
        """A micro-batch was promoted; called from the engine's thread."""
        metrics = copy.deepcopy(report.metrics)
        now = Snapshot(self._clock() - self._began, report.promotion.micro_batch_id, metrics, retries)
        self._snapshots.append(now)
        while len(self._snapshots) > 2 and now.elapsed_s - self._snapshots[1].elapsed_s > RATE_SECS:
            self._snapshots.popleft()

    def look(self, running: RunningTopology) -> None:
        """See how far the micro-batch that runs has come; called a few times a second."""
        self.progress = running.progress()
        self.waits_for = running.waits_for
        self.outages = tuple(running.outages)
        now, at_work = self.latest, self.progress.micro_batch_id is not None or self.waits_for is not None
        if now is None or at_work or now.metrics.open_trees or now.retries:
            self._busy_s = self._clock() - self._began

    @property
    def idle(self) -> bool:
        """Whether there has been nothing to do for some seconds."""
        now = self.latest
        busy_s = max(self._busy_s, 0.0 if now is None else now.elapsed_s)
        return now is not None and self._clock() - self._began - busy_s >= IDLE_SECS

    @property
    def doing(self) -> str:
        """What the topology is doing, in words."""
        return going_on(self.progress, self.spouts, read=self.latest is not None, waits_for=self.waits_for)

    def draining(self, open_trees: int, *, asked: bool) -> None:
        """No new tuples from now on; ``open_trees`` are to be finished."""

    def printed(self, text: str) -> None:
        """A task printed whole lines."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def close(self) -> None:
        """The run is over; ``summary`` comes next."""

    def summary(self, outcome: RunOutcome) -> None:
        """How it ended."""

    # For those below.

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
        """What is known now; None before the first promotion of all."""
        return self._snapshots[-1] if self._snapshots else self._before

    def rate(self, what: str, components: tuple[str, ...]) -> float:
        """A counter's growth a second over the last seconds; 0 before the second promotion."""
        if len(self._snapshots) < 2:
            return 0.0
        first, last = self._snapshots[0], self._snapshots[-1]
        passed = last.elapsed_s - first.elapsed_s
        return (last.count(what, components) - first.count(what, components)) / passed if passed > 0 else 0.0


class JsonLines(Display):
    """One JSON object a line on standard output; what tasks print goes to standard error."""

    def __init__(self, out: IO[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to ``out``, which is standard output if nothing is given."""
        super().__init__(clock)
        self._out = sys.stdout if out is None else out

    def micro_batch(self, report: MicroBatchReport, retries: int) -> None:
        """One line: totals, and the micro-batch's own time."""
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
        """What windowed bolts have counted, if there are any."""
        specs = () if self._topology is None else self._topology.bolts
        counts = {
            spec.id: vars(now.metrics.components.get(spec.id, _NOTHING))
            for spec in specs
            if isinstance(spec.component, RuntimeBolt)
        }
        shown = {id_: {name: of[name] for name in of if name in WINDOW_COUNTS} for id_, of in counts.items()}
        return {"windows": shown} if shown else {}

    def printed(self, text: str) -> None:
        """Keep standard output clean."""
        sys.stderr.write(text)
        sys.stderr.flush()

    def summary(self, outcome: RunOutcome) -> None:
        """The last line."""
        self._write(summary_event(outcome, self._topology))

    def _write(self, event: Mapping[str, Any]) -> None:
        try:
            self._out.write(json.dumps(event) + "\n")
            self._out.flush()
        except OSError:
            self.is_closed = True


def summary_event(outcome: RunOutcome, topology: Topology | None) -> dict[str, Any]:
    """The summary as a JSON object, with a line of counters for each component."""
    components: dict[str, dict[str, Any]] = {}
    for spec in () if topology is None else topology.components.values():
        counts = asdict(outcome.metrics.components.get(spec.id, _NOTHING))
        counts["execute_ms"] = round(counts["execute_ms"], 3)
        of_spouts = {"pending", "set_aside", "dead_letters", "retried", "waiting", "late"}
        leave_out = {"executed", "execute_ms"} if spec.is_spout else of_spouts
        leave_out = {"executed", "execute_ms"} if spec.is_spout else {"pending", "set_aside", "lag", "skipped", "late"}
        if not isinstance(spec.component, RuntimeBolt):
            leave_out |= WINDOW_COUNTS
        components[spec.id] = {key: value for key, value in counts.items() if key not in leave_out}
    event: dict[str, Any] = {
        "event": "summary",
        "outcome": outcome.kind,
        "elapsed_s": round(outcome.elapsed_s, 3),
        "components": components,
        "micro_batches": outcome.metrics.micro_batches,
        "open_trees": outcome.metrics.open_trees,
        "set_aside": sum(counts.get("set_aside", 0) for counts in components.values()),
        "set_aside_in_this_run": dict(outcome.set_aside),
        "retries": outcome.retries,
        "drained": outcome.drained,
    }
    if outcome.set_aside:
        event["how_to_look"] = list(aside_lines(outcome.set_aside, topology, outcome.letters_directory))
    if outcome.failure is not None:
        event["failure"] = outcome.failure
    return event


class PlainLines(Display):
    """A line every few seconds on standard error."""

    def __init__(self, out: IO[str] | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to ``out``, which is standard error if nothing is given."""
        super().__init__(clock)
        self._out = out
        self._next_line_s = 0.0
        self._next_look_s = LINE_EVERY_SECS
        self._told_to_wait = ""
        self._next_outage_s = 0.0

    def starting(self, topology: Topology) -> None:
        """Say so: Spark takes some seconds."""
        super().starting(topology)
        self.say(f"{topology.name}: starting Spark")

    def started(self, running: RunningTopology) -> None:
        """Say so, and how far runs before this one have come."""
        super().started(running)
        assert self._topology is not None
        tasks = sum(spec.parallelism for spec in self._topology.components.values())
        before = "" if self._before is None else f"; it goes on after {self._counters(self._before)}"
        self.say(f"{self._topology.name}: running, {len(self._topology.components)} components, {tasks} tasks{before}")
        self._next_look_s = self._clock() - self._began + LINE_EVERY_SECS

    def look(self, running: RunningTopology) -> None:
        """A line every few seconds while a micro-batch takes longer than that, and one where no data comes at all."""
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
        """A line, if the last one is some time ago."""
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
        """Say what happens, and what a second Ctrl-C would do."""
        self.say(drain_sentence(open_trees, asked))

    def summary(self, outcome: RunOutcome) -> None:
        """The last lines."""
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
    """What a person is told when a run begins to stop.

    >>> drain_sentence(1, asked=False)
    'stopping: no new tuples, 1 open tree is being finished'
    """
    trees = f"{open_trees:,} open tree{'s are' if open_trees != 1 else ' is'}" if open_trees else "what is under way is"
    more = "; Ctrl-C again leaves them for replay" if asked else ""
    return f"stopping: no new tuples, {trees} being finished{more}"


def summary_lines(outcome: RunOutcome, topology: Topology | None) -> Iterator[str]:
    """The end of a run, for people."""
    if topology is not None and outcome.metrics.micro_batches:
        yield from counters_table(topology, outcome.metrics)
    yield from closing_lines(outcome, topology)


def closing_lines(outcome: RunOutcome, topology: Topology | None) -> Iterator[str]:
    """How a run ended, in a sentence, and then what to do about what was set aside."""
    took = f"after {outcome.elapsed_s:.1f} s"
    if outcome.kind == RunEnd.FAILED:
        yield f"failed {took}: {outcome.failure}"
        return
    rest = ""
    if not outcome.drained:
        rest = f"; {_left(outcome)}"
    elif outcome.retries:
        rest = f"; {outcome.retries:,} record{'s' if outcome.retries != 1 else ''} left to be read again"
    aside = sum(counts.set_aside for counts in outcome.metrics.components.values())
    rest += f"; {aside:,} set aside after {'their' if aside != 1 else 'its'} last attempt" if aside else ""
    if outcome.time_over and outcome.committed == 0:
        rest += "; no micro-batch was committed in that time: if there was something to read, give it longer"
    yield f"{outcome.kind} {took}, {outcome.metrics.micro_batches:,} micro-batches{rest}"
    yield from aside_lines(outcome.set_aside, topology, outcome.letters_directory)


def _left(outcome: RunOutcome) -> str:
    """What is to be done again by the next run."""
    left = outcome.metrics.open_trees
    trees = f"{left:,} tree{'s' if left != 1 else ''}" if left or outcome.broken_off is None else ""
    broken = "" if outcome.broken_off is None else f"micro-batch {outcome.broken_off}, which was broken off,"
    said = f"{' and '.join(part for part in (trees, broken) if part)} left for replay"
    where = (
        "the next run with this checkpoint" if outcome.checkpointed else "and there is no --checkpoint to replay from"
    )
    return f"{said} ({where})"


def counters_table(topology: Topology, metrics: TopologyMetrics) -> Iterator[str]:
    """The counters of all components, aligned."""
    table = fit([counters_of(spec, metrics.components) for spec in topology.components.values()], COLUMNS, 1 << 20)
    for row in (table.columns, *table.rows):
        yield GAP.join(table.line(row)).rstrip()


COLUMNS = ("component", "emitted", "executed", "acked", "failed", "pending", "errors")


def counters_of(spec: ComponentSpec, counts: Mapping[str, ComponentMetrics], **more: float) -> Counters:
    """What a table shows of a component."""
    own = counts.get(spec.id, _NOTHING)
    blank = "executed" if spec.is_spout else "pending"
    return Counters(spec.id, {name: None if name == blank else getattr(own, name) for name in COLUMNS[1:]} | more)


def choose_display(*, as_json: bool = False) -> Display:
    """JSON lines if asked for, a live table on a terminal, plain lines elsewhere."""
    if as_json:
        return JsonLines()
    if sys.stderr.isatty():
        from sparkbolt.cli.live import LiveTable

        return LiveTable()
    return PlainLines()


class _CurrentStderr(logging.Handler):
    """Writes to what standard error is at that moment: above the live table, while there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


@contextmanager
def logged(level: str) -> Iterator[None]:
    """Show what Sparkbolt logs, unless the program has configured logging itself."""
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
