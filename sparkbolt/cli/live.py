"""The live table: a run as a person at a terminal sees it.

Which question it answers: what does each component do right now?
Rule: it is drawn on standard error; what the topology prints goes above it where both are the same terminal.

Read before: ``display``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sparkbolt.cli.display import Display, drain_sentence, summary_lines, window_line
from sparkbolt.core.hosted import HostedBolt
from sparkbolt.core.metrics import ComponentMetrics

if TYPE_CHECKING:
    from sparkbolt.cli.program import Outcome
    from sparkbolt.core.running import RunningTopology
    from sparkbolt.core.topology import ComponentSpec, Topology

COLUMNS = ("emitted", "executed", "acked", "failed", "pending", "errors", "tuples/s")


class LiveTable(Display):
    """A table that is drawn again four times a second."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Draw on ``console``, which is standard error if nothing is given."""
        super().__init__(clock)
        self._console = console or Console(stderr=True, highlight=False)
        self._phase = "starting Spark"
        self._live: Live | None = None

    def starting(self, topology: Topology) -> None:
        """Draw the empty table: Spark takes some seconds."""
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
        """Say so above the table."""
        self._phase = "running"

    def draining(self, open_trees: int, *, asked: bool) -> None:
        """Say so above the table."""
        self._phase = drain_sentence(open_trees, asked)

    def close(self) -> None:
        """Leave the table as it is; the summary draws the last one."""
        if self._live is not None:
            self._live.transient = True
            self._live.stop()
            self._live = None

    def summary(self, outcome: Outcome) -> None:
        """The last table, and the sentence."""
        if outcome.metrics.micro_batches:
            self._console.print(self._table({}, outcome.metrics.components))
        *_, sentence = summary_lines(outcome, self._topology)
        style = {"finished": "bold green", "stopped": "bold yellow", "failed": "bold red"}[outcome.kind]
        self._console.print(Text(sentence, style=style))

    def picture(self) -> RenderableType:
        """What is drawn now."""
        now, name = self.latest, "" if self._topology is None else self._topology.name
        head = Text.assemble((name, "bold"), f"  {self._clock() - self._began:.0f} s  ", (self._phase, "cyan"))
        if now is None:
            return Group(head, self._table({}, {}))
        rates = {id_: self.rate("emitted", (id_,)) for id_ in self.spouts}
        rates |= {id_: self.rate("executed", (id_,)) for id_ in self.bolts}
        latency = now.metrics.complete_latency_ms
        foot = (
            f"micro-batch {now.micro_batch_id}: {_ms(now.metrics.micro_batch_ms)}"
            f"   trees: {now.metrics.open_trees:,} open, {_ms(latency)} on average"
            f"   retries: {now.retries:,}   executed: {self.rate('executed', self.bolts):,.0f} tuples/s"
        )
        table = self._table(rates, now.metrics.components)
        return Group(head, table, *self._windows(now.metrics.components), Text(foot, style="dim"))

    def _windows(self, counts: dict[str, ComponentMetrics]) -> list[Text]:
        """A line for each windowed bolt that has counted anything."""
        specs = () if self._topology is None else self._topology.bolts
        windowed = [spec.id for spec in specs if isinstance(spec.component, HostedBolt) and spec.id in counts]
        return [Text(window_line(id_, counts[id_]), style="dim") for id_ in windowed]

    def _table(self, rates: dict[str, float], counts: dict[str, ComponentMetrics]) -> Table:
        columns = COLUMNS if rates else COLUMNS[:-1]
        table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
        table.add_column("component")
        for column in columns:
            table.add_column(column, justify="right")
        for spec in () if self._topology is None else self._topology.components.values():
            own = counts.get(spec.id, ComponentMetrics())
            cells = [_cell(spec, own, column, rates.get(spec.id, 0.0)) for column in columns]
            table.add_row(Text(spec.id, style="cyan" if spec.is_spout else ""), *cells)
        return table


def _cell(spec: ComponentSpec, counts: ComponentMetrics, column: str, rate: float) -> Text:
    if column == "tuples/s":
        return Text(f"{rate:,.0f}", style="green")
    if column == ("executed" if spec.is_spout else "pending"):
        return Text("")
    value = getattr(counts, column)
    return Text(f"{value:,}", style="red" if value and column in ("failed", "errors") else "")


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value / 1000:.1f} s" if value >= 1000 else f"{value:.0f} ms"
