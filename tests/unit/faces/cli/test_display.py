"""What a running topology looks like: lines of JSON, plain lines, the live table at any width."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from sparkbolt import TopologyBuilder, WindowedBolt
from sparkbolt.api.config import Config
from sparkbolt.api.metrics import ComponentMetrics, TopologyMetrics
from sparkbolt.api.progress import Progress
from sparkbolt.api.topology import Topology
from sparkbolt.bolts import PrintBolt
from sparkbolt.faces.cli.display import JsonLines, PlainLines, late_lines, summary_event
from sparkbolt.faces.cli.live import LiveTable
from sparkbolt.faces.cli.program import RunOutcome
from tests.topologies import Split
from tests.unit.faces.cli.words import Clock, Lines, Sink, build, report


def test_each_line_of_json_is_an_object_and_the_last_is_the_summary() -> None:
    out, clock = io.StringIO(), Clock()
    display = JsonLines(out, clock)
    display.starting(build())
    clock.now = 1.5
    display.micro_batch(report(0, 10), 3)
    display.summary(RunOutcome("stopped", 2.0, report(0, 10).metrics, drained=True, retries=3))
    first, last = (json.loads(line) for line in out.getvalue().splitlines())
    assert first == {
        "event": "micro_batch",
        "micro_batch_id": 0,
        "elapsed_s": 1.5,
        "micro_batch_ms": 123.5,
        "emitted": 10,
        "executed": 10,
        "acked": 8,
        "failed": 0,
        "open_trees": 2,
        "retries": 3,
    }
    assert last["event"] == "summary"
    assert (last["outcome"], last["elapsed_s"], last["drained"], last["open_trees"]) == ("stopped", 2.0, True, 2)
    assert {"emitted": 10, "acked": 8, "failed": 0, "pending": 2}.items() <= last["components"]["lines"].items()
    assert {"emitted": 0, "executed": 10, "acked": 0, "failed": 0}.items() <= last["components"]["split"].items()


class Late(WindowedBolt):
    outputs = ["count"]

    def execute(self, window: Any, collector: Any) -> None: ...


def windowed(late_stream: bool = False, subscribed: bool = False) -> Topology:
    builder = TopologyBuilder("late")
    builder.set_spout("lines", Lines())
    windows = Late().with_tumbling_window(timedelta(minutes=10)).with_timestamp_field("line")
    if late_stream:
        windows = windows.with_late_tuple_stream("late")
    builder.set_bolt("windows", windows).global_grouping("lines")
    if subscribed:
        builder.set_bolt("print", PrintBolt()).global_grouping("windows", "late")
    return builder.build()


@pytest.mark.parametrize(
    ("late_stream", "subscribed", "remedy"),
    [
        (False, False, "and in no window: raise the lag, or set late to have them in a stream"),
        (True, False, "and went to stream 'late', to which no bolt subscribes: raise the lag, or subscribe to it"),
        (True, True, "and went to stream 'late'"),
    ],
)
def test_a_remedy_for_late_tuples_is_given_only_if_no_bolt_takes_them(
    late_stream: bool, subscribed: bool, remedy: str
) -> None:
    topology = windowed(late_stream, subscribed)
    [line] = late_lines(TopologyMetrics({"windows": ComponentMetrics(late_tuples=3)}), topology)
    assert line == f"windows: 3 late tuples were older than the watermark {remedy}"


@pytest.mark.parametrize(("late", "count"), [(0, "0"), (168_057, "168,057")])
def test_last_table_and_summary_show_late_tuples_and_the_summary_says_what_to_do(late: int, count: str) -> None:
    topology, out = windowed(), io.StringIO()
    counts = {"windows": ComponentMetrics(executed=345_600, late_tuples=late)}
    outcome = RunOutcome("finished", 2.0, TopologyMetrics(counts, micro_batches=1), drained=True)
    display = PlainLines(out)
    display._topology = topology
    display.summary(outcome)
    header, _, windows, *rest = out.getvalue().splitlines()
    assert (header.split()[-1], windows.split()[-1]) == ("late", count)
    assert any("168,057 late tuples were older than the watermark" in line for line in rest) == bool(late)
    assert summary_event(outcome, topology)["late_tuples"] == late


def test_plain_lines_come_every_five_seconds_at_most() -> None:
    out, clock = io.StringIO(), Clock()
    display = PlainLines(out, clock)
    display.starting(build())
    for number in range(100):
        clock.now = number / 10
        display.micro_batch(report(number, number * 100), 0)
    lines = [line for line in out.getvalue().splitlines() if "micro-batch" in line]
    assert len(lines) == 2
    assert "micro-batch 50  executed 5,000 (1,000/s)  acked 8  failed 0  open 2" in lines[1]


def test_the_live_table_shows_counters_rates_and_trees() -> None:
    clock = Clock()
    console = Console(file=io.StringIO(), width=120)
    display = LiveTable(console, clock)
    display.starting(build())
    display.started(fake_running())
    display.micro_batch(report(0, 0), 0)
    clock.now = 2.0
    display.micro_batch(report(1, 5000), 7)
    with console.capture() as drawn:
        console.print(display.picture())
    display.close()
    text = drawn.get()
    assert "2,500" in text
    assert "micro-batch 1: 123 ms" in text
    assert "2 open" in text
    assert "retries: 7" in text


def fake_running(progress: Progress | None = None, **more: Any) -> Any:
    """What displays ask of a running topology; nothing was committed before."""
    known = {"waits_for": None, "outages": (), "retries": 0, "metrics": TopologyMetrics, **more}
    return SimpleNamespace(progress=lambda: progress or Progress(), **known)


def drawn(display: LiveTable, console: Console) -> str:
    with console.capture() as captured:
        console.print(display.picture())
    return captured.get()


def test_idle_topology_is_shown_as_waiting_for_data() -> None:
    clock, console = Clock(), Console(file=io.StringIO(), width=120)
    display = LiveTable(console, clock)
    display.starting(build())
    done = report(0, 10)
    done.metrics.open_trees = 0
    display.micro_batch(done, 0)
    for progress, said in ((Progress(1), "running"), (Progress(), "waiting for data"), (Progress(2), "running")):
        running = fake_running(progress)
        display.started(running)
        display.look(running)
        clock.now += 1
        display.look(running)
        assert "  running" in drawn(display, console), "a short break is none"
        clock.now += 2
        display.look(running)
        assert f"  {said}" in drawn(display, console)
    display.micro_batch(report(3, 10), 0)  # with open trees
    clock.now += 60
    display.look(fake_running())
    assert "  running" in drawn(display, console)
    display.close()


def test_a_bolt_that_is_out_has_a_line_while_it_is_out() -> None:
    said = "db waits for its database since 14:02 UTC (ConnectionError: refused), next probe in 12 s"
    out, clock, console = io.StringIO(), Clock(), Console(file=io.StringIO(), width=120)
    live, plain = LiveTable(console, clock), PlainLines(out, clock)
    for display in (live, plain):
        display.starting(build())
        display.started(fake_running())
        display.micro_batch(report(0, 10), 0)
    for _ in range(60):
        clock.now += 0.2
        for display in (live, plain):
            display.look(fake_running(outages=[said]))
    assert said in drawn(live, console)
    assert out.getvalue().count(said) == 3, "one in five seconds"
    live.look(fake_running())
    assert said not in drawn(live, console)
    live.close()


def test_a_reader_that_disconnects_closes_the_display_and_raises_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    display = JsonLines(Gone())
    display.starting(build())
    display.micro_batch(report(0, 1), 0)
    assert display.is_closed


RUNS = Progress(2, 31.5, 1, 2, {"lines": (1_000, 0), "count": (0, 21_000)})


SNAPSHOTS = Path(__file__).parent / "snapshots"


def drawn_at(width: int, progress: Progress, *, committed: bool = True) -> list[str]:
    clock, console = Clock(), Console(file=io.StringIO(), width=width)
    display = LiveTable(console, clock)
    display.starting(wide())
    running = fake_running(progress)
    display.started(running)
    if committed:
        display.micro_batch(big(0), 0)
        clock.now = 2.0
        display.micro_batch(big(1), 7)
    clock.now = 75.0
    display.look(running)
    with console.capture() as drawn:
        console.print(display.picture())
    display.close()
    return drawn.get().rstrip().splitlines()


def big(number: int) -> Any:
    """Eight digits, and a name that is too long for any terminal."""
    metrics = TopologyMetrics(
        {
            "lines": ComponentMetrics(emitted=12_345_678, acked=12_340_012, pending=5_666, failed=3),
            "split-sentences-into-words-and-punctuation": ComponentMetrics(emitted=63_201_243, executed=12_345_678),
            "count": ComponentMetrics(executed=63_201_243, acked=63_201_240, errors=3),
        },
        micro_batches=number + 1,
        open_trees=5_666,
        complete_latency_ms=2_345.0,
        micro_batch_ms=1_234.5,
    )
    return SimpleNamespace(promotion=SimpleNamespace(micro_batch_id=number), metrics=metrics)


def wide() -> Topology:
    builder = TopologyBuilder("words", Config(message_timeout_secs=1))
    builder.set_spout("lines", Lines())
    builder.set_bolt("split-sentences-into-words-and-punctuation", Split()).shuffle_grouping("lines")
    builder.set_bolt("count", Sink()).shuffle_grouping("split-sentences-into-words-and-punctuation")
    return builder.build()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_no_number_or_header_is_truncated_at_any_width(width: int) -> None:
    lines = drawn_at(width, RUNS)
    assert max(map(len, lines)) <= width
    assert "\n".join(line.rstrip() for line in lines) + "\n" == (SNAPSHOTS / f"live_{width}.txt").read_text()
    words = set(" ".join(lines).split())
    assert words & {"63.2M", "63,222,243"}


def test_what_is_committed_meanwhile_is_not_counted_twice() -> None:
    (count,) = (line for line in drawn_at(120, replace(RUNS, micro_batch_id=1)) if line.startswith("count"))
    assert "63,201,243" in count
