"""The live table of a run at a terminal.

It is drawn on standard error; lines that the topology prints appear above it if both go to the same terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sparkbolt.api.metrics import ComponentMetrics
from sparkbolt.api.progress import duration
from sparkbolt.api.runtime_bolts import RuntimeBolt
from sparkbolt.faces.cli.display import LATE, RATE, Display, closing_lines, counters_sheet, drain_sentence, window_parts
from sparkbolt.faces.cli.program import RunEnd
from sparkbolt.faces.cli.texts import exact, wrapped

if TYPE_CHECKING:
    from sparkbolt.api.running import RunningTopology
    from sparkbolt.api.topology import Topology
    from sparkbolt.faces.cli.program import RunOutcome

STARTING = "starting Spark"
_NOTHING = ComponentMetrics()
_STYLES = {RunEnd.FINISHED: "bold green", RunEnd.STOPPED: "bold yellow", RunEnd.FAILED: "bold red"}


class LiveTable(Display):
    """A table that is drawn again four times a second."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Draw on ``console``, by default standard error; ``clock`` returns monotonic seconds."""
        super().__init__(clock)
        self._console = console or Console(stderr=True, highlight=False)
        self._phase = STARTING
        self._live: Live | None = None

    def starting(self, topology: Topology) -> None:
        """Draw the empty table, since Spark takes some seconds to start."""
        super().starting(topology)
        self._live = Live(
            get_renderable=self.picture,
            console=self._console,
            refresh_per_second=4,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._live.start(refresh=True)

    def started(self, running: RunningTopology) -> None:
        """Spark has started."""
        super().started(running)
        self._phase = ""

    def draining(self, open_trees: int, *, asked: bool) -> None:
        """Show above the table that the run stops."""
        self._phase = drain_sentence(open_trees, asked)

    def close(self) -> None:
        """Stop drawing; the summary draws the last table."""
        if self._live is not None:
            self._live.transient = True
            self._live.stop()
            self._live = None

    def summary(self, outcome: RunOutcome) -> None:
        """Draw the last table, and print how the run ended."""
        if outcome.metrics.micro_batches:
            self._console.print(self._table({}, outcome.metrics.components))
        sentence, *details = closing_lines(outcome, self._topology)
        style = _STYLES[outcome.kind]
        self._console.print(Text(sentence, style=style))
        for line in details:
            self._console.print(Text(line), soft_wrap=True)  # so that a command in it can be copied

    def picture(self) -> RenderableType:
        """The current picture."""
        now = self.latest
        spent = duration(self._clock() - self._began)
        head = Text.assemble(("" if self._topology is None else self._topology.name, "bold"), f"  {spent}  ")
        state = "running, nothing is committed yet" if now is None else "waiting for data" if self.idle else "running"
        head.append(self._phase or state, "cyan")
        progress = self.progress
        if self._phase == STARTING:
            return Group(head, self._table({}, {}))
        counts = {} if now is None else now.metrics.components
        table = self._table(self._rates() if now is not None else {}, self._so_far(counts))
        foot = [self.doing]
        if progress.micro_batch_id is None and self._snapshots and now is not None:
            foot = [f"micro-batch {now.micro_batch_id}: {_ms(now.metrics.micro_batch_ms)}"]
        if now is not None:
            latency = _ms(now.metrics.complete_latency_ms)
            foot += [
                f"trees: {exact(now.metrics.open_trees)} open, {latency} on average",
                f"retries: {exact(now.retries)}",
                f"executed: {exact(self.rate('executed', self.bolts))} tuples/s",
            ]
        dim = [Text(line, style="dim") for line in wrapped(foot, self._console.width)]
        hung = [Text(sentence, style="yellow") for sentence in (*self.outages, *progress.waits, *progress.hung)]
        return Group(head, table, *self._windows(counts), *dim, *hung)

    def _rates(self) -> dict[str, float]:
        rates = {id_: self.rate("emitted", (id_,)) for id_ in self.spouts}
        return rates | {id_: self.rate("executed", (id_,)) for id_ in self.bolts}

    def _so_far(self, counts: dict[str, ComponentMetrics]) -> dict[str, ComponentMetrics]:
        """The committed counters, plus those of the running micro-batch so far."""
        found = dict(counts)
        runs = self.progress.micro_batch_id
        if runs is None or (self.latest is not None and runs <= self.latest.micro_batch_id):
            return found  # the progress was read before this micro-batch was committed
        for id_, (emitted, executed) in self.progress.components.items():
            own = found.get(id_, ComponentMetrics())
            found[id_] = replace(own, emitted=own.emitted + emitted, executed=own.executed + executed)
        return found

    def _windows(self, counts: dict[str, ComponentMetrics]) -> list[Text]:
        """The counts of windows, for each windowed bolt that has counted anything."""
        specs = () if self._topology is None else self._topology.bolts
        lines: list[Text] = []
        for spec in specs:
            if isinstance(spec.component, RuntimeBolt) and counts.get(spec.id, _NOTHING) != _NOTHING:
                first, *rest = window_parts(counts[spec.id])
                parts = wrapped([f"{spec.id}: {first}", *rest], self._console.width, ", ")
                lines += [Text(line, style="dim") for line in parts]
        return lines

    def _table(self, rates: dict[str, float], counts: dict[str, ComponentMetrics]) -> Table:
        """The table; it is not wider than the terminal, if that is possible at all."""
        sheet = counters_sheet(self._topology, counts, rates)

        def style(row: int, title: str) -> str:
            if title == RATE:
                return "green"
            if title == "component":
                return "cyan" if sheet.rows[row][0] in self.spouts else ""
            return "red" if title in ("failed", "errors", LATE) and sheet.rows[row][sheet.titles.index(title)] else ""

        return sheet.table(self._console.width, style)


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1000:.1f} s" if value >= 1000 else f"{value:.0f} ms"
