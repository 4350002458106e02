"""``sparkbolt stats``: the numbers of a topology, or of one of its components, over a window.

Latencies are in milliseconds unless they say otherwise; a value that was not measured is left empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sparkbolt.api.config import did_you_mean
from sparkbolt.api.progress import duration
from sparkbolt.api.story import time_text
from sparkbolt.base.source_names import short_sources
from sparkbolt.control.documents import (
    ALL_TIME,
    ComponentDocument,
    ErrorDocument,
    Numbers,
    TopologyDocument,
    WindowDocument,
)
from sparkbolt.control.lags import bytes_text, lag_text
from sparkbolt.errors import WrongUseError
from sparkbolt.faces.cli.operate.overview import runs
from sparkbolt.faces.cli.tables import Cell, Sheet
from sparkbolt.faces.cli.texts import (
    ago_text,
    late_text,
    micro_batches,
    ms_text,
    plain,
    sentence,
    wrapped,
)

ERRORS_SHOWN = 3
SERIES_SHOWN = 10
"""How many series of each metric the numbers of a whole topology have."""
SLOW_CAPACITY = 0.8
"""From this capacity on a component is pointed out."""
WINDOW_WORDS = {"600": "last 10 min", "10800": "last 3 h", "86400": "last day", ALL_TIME: "since its first start"}


def window_of(document: TopologyDocument, window: str) -> WindowDocument:
    """The sums over a window.

    Raises:
        WrongUseError: the topology has no numbers of that window.
    """
    found = document["windows"].get(window)
    if found is None:
        known = ", ".join("all" if name == ALL_TIME else name for name in document["windows"]) or "none yet"
        raise WrongUseError(
            f"topology {document['entry']['name']!r} has no numbers for that window; it has numbers for: {known}"
        )
    return found


def component_of(document: TopologyDocument, component: str) -> ComponentDocument:
    """A component by its id.

    Raises:
        WrongUseError: the topology has no such component.
    """
    known = {one["id"]: one for one in document["components"]}
    if component not in known:
        hint = did_you_mean(component, known) or (f": there is {', '.join(known)}" if known else ": it reported none")
        raise WrongUseError(f"topology {document['entry']['name']!r} has no component {component!r}{hint}")
    return known[component]


def stats_lines(document: TopologyDocument, window: str, now_ms: int, width: int) -> list[str]:
    """The lines of ``sparkbolt stats NAME``."""
    over = window_of(document, window)
    lines = [*_head(document, over, now_ms, width), ""]
    for kind in ("spout", "bolt", "system"):
        sheet = _sheet(document, over, kind)
        if sheet.rows and (kind != "system" or len(sheet.titles) > 1):
            lines += [*sheet.lines(width), ""]
    lines += _metrics(document, width)
    lines += _parts(over, width)
    lines += _now(document, width)
    newest = document["errors"][-ERRORS_SHOWN:]
    if newest:
        lines += ["", *_errors(newest, now_ms, width)]
    return lines


def component_lines(document: TopologyDocument, component: str, window: str, now_ms: int, width: int) -> list[str]:
    """The lines of ``sparkbolt stats NAME COMPONENT``.

    Raises:
        WrongUseError: the topology has no such component.
    """
    declared = component_of(document, component)
    over = window_of(document, window)
    lines = [*_head(document, over, now_ms, width), ""]
    inputs = [
        f"{one['component']}{'' if one['stream'] == 'default' else ' ' + one['stream']} by {one['grouping'].lower()}"
        f"{' on ' + ', '.join(one['fields']) if one['fields'] else ''}{', feedback' if one['feedback'] else ''}"
        for one in declared["inputs"]
    ]
    facts = [f"{declared['kind']} {component}", declared["type"], f"{declared['parallelism']} tasks"]
    facts += ["keeps state"] * declared["stateful"] + [f"fused with {declared['fused_with']}"] * bool(
        declared["fused_with"]
    )
    facts += [f"reads {'; '.join(inputs)}"] * bool(inputs)
    lines += [*wrapped([plain(fact) for fact in facts if fact], width, ", "), ""]
    sheet = _sheet(document, over, declared["kind"], only=component)
    lines += [*sheet.lines(width), *_percentiles(over["components"].get(component)), ""]
    tasks = _tasks(over, component)
    if tasks.rows:
        lines += [*tasks.lines(width), ""]
    for streams in _streams(over, component):
        if streams.rows:
            lines += [*streams.lines(width), ""]
    lag = document["now"]["lag"].get(component)
    if lag:
        secs, unit = document["now"]["lag_secs"].get(component, {}), declared["position_unit"]
        names = short_sources(lag)
        sources = tuple((plain(names[one]), lag_text(lag[one], unit, secs.get(one))) for one in sorted(lag))
        lines += [*Sheet(("source", "lag"), sources, right=("lag",)).lines(width), ""]
    lines += _metrics(document, width, component)
    errors = [error for error in document["errors"] if error["component"] == component]
    return [*lines, *_errors(errors[-ERRORS_SHOWN:], now_ms, width)] if errors else lines[:-1]


def stats_json(document: TopologyDocument, component: str | None, window: str) -> dict[str, Any]:
    """The output of ``--json``: the numbers of one window, and the present state.

    Raises:
        WrongUseError: the topology has no such component.
    """
    over = window_of(document, window)
    entry, now = document["entry"], document["now"]
    if component is None:
        parts = {"components": document["components"], "window": over, "now": now, "errors": document["errors"]}
        return {"entry": entry, "live": document["live"], **parts, "metrics": document["metrics"]}
    return {
        "entry": entry,
        "live": document["live"],
        "component": component_of(document, component),
        "window": over["window"],
        "secs": over["secs"],
        "numbers": over["components"].get(component),
        "tasks": [task for task in over["tasks"] if task["component"] == component],
        "streams": [stream for stream in over["streams"] if stream["component"] == component],
        "lag": now["lag"].get(component, {}),
        "lag_secs": now["lag_secs"].get(component, {}),
        "metrics": document["metrics"].get(component, []),
        "errors": [error for error in document["errors"] if error["component"] == component],
    }


def _head(document: TopologyDocument, over: WindowDocument, now_ms: int, width: int) -> list[str]:
    entry = document["entry"]
    since = ago_text(entry["started_ms"], now_ms)
    state = f"{entry['state']} for {since}" if runs(entry) else f"{entry['state']}, {_ended(document, now_ms)}"
    measured = f"{WINDOW_WORDS.get(over['window'], over['window'])}, {duration(over['secs'])} of it measured"
    parts = [f"{plain(entry['name'])}: {state}", measured, micro_batches(over["micro_batches"])]
    lines = wrapped(parts, width, "; ")
    if runs(entry) and not document["live"]:
        lines += sentence("it does not answer: these numbers are from its checkpoint", width)
    return lines + sentence(entry["verdict"]["text"], width)


def _ended(document: TopologyDocument, now_ms: int) -> str:
    entry = document["entry"]
    return f"{ago_text(entry['ended_ms'] or entry['beat_ms'], now_ms)} ago"


_TITLES = {
    "spout": ("spout", "emitted", "acked", "given up", "failed attempts", "lag", "p50 ms", "p99 ms", "max ms"),
    "bolt": ("bolt", "executed", "emitted", "failed", "errors", "capacity", "execute ms", "p99 ms", "process ms"),
    "system": ("system", "executed", "capacity", "execute ms"),
}
_DROPPABLE = {
    "spout": ("lag", "p99 ms", "failed attempts", "p50 ms", "max ms"),
    "bolt": ("capacity", "execute ms", "process ms", "errors", "emitted", "p99 ms"),
    "system": (),
}


def _sheet(document: TopologyDocument, over: WindowDocument, kind: str, only: str | None = None) -> Sheet:
    rows: list[tuple[Cell, ...]] = []
    for component in document["components"]:
        id_ = component["id"]
        if component["kind"] != kind or (only is not None and id_ != only):
            continue
        numbers = over["components"].get(id_)
        if numbers is None:
            rows.append((plain(id_), *(None for _ in _TITLES[kind][1:])))
        else:
            rows.append((plain(id_), *_cells(kind, numbers, _lag(document, component))))
    return _without_empty(Sheet(_TITLES[kind], tuple(rows), _DROPPABLE[kind], right=("lag",)))


def _lag(document: TopologyDocument, spout: ComponentDocument) -> Cell:
    """The lag over all sources, with its unit and the age of the oldest record."""
    lags = document["now"]["lag"].get(spout["id"])
    if lags is None:
        return None
    secs = document["now"]["lag_secs"].get(spout["id"], {})
    return lag_text(sum(lags.values()), spout["position_unit"], max(secs.values(), default=None))


def _cells(kind: str, of: Numbers, lag: Cell) -> tuple[Cell, ...]:
    if kind == "spout":
        complete = (_ms(of["complete"].get(name)) for name in ("p50", "p99", "max"))
        counts = (float(of["emitted"]), float(of["acked"]), float(of["given_up"]), float(of["failed"]))
        return (*counts, lag, *complete)
    if kind == "system":
        return float(of["executed"]), _share(of["capacity"]), _ms(of["execute_latency_ms"])
    counts = (float(of["executed"]), float(of["emitted"]), float(of["failed"]), float(of["errors"]))
    times = (_ms(of["execute_latency_ms"]), _ms(of["execute"].get("p99")), _ms(of["process_latency_ms"]))
    return (*counts, _share(of["capacity"]), *times)


def _ms(ms: float | None) -> str | None:
    return ms_text(ms) or None


def _share(capacity: float | None) -> str | None:
    return None if capacity is None else f"{capacity:.2f}{' !' if capacity >= SLOW_CAPACITY else ''}"


def _percentiles(of: Numbers | None) -> list[str]:
    found = []
    for what, measured in (("execute", of["execute"]), ("complete", of["complete"])) if of is not None else ():
        parts = [f"{name} {ms_text(ms)}" for name, ms in measured.items() if ms is not None]
        if parts:
            found.append(f"{what} latency in ms: {', '.join(parts)}")
    return found


def _tasks(over: WindowDocument, component: str) -> Sheet:
    titles = ("task", "executed", "emitted", "acked", "failed", "capacity", "execute ms", "process ms", "complete ms")
    reads = any(task["executed"] for task in over["tasks"] if task["component"] == component)
    rows = tuple(
        (
            f"{plain(component)}[{task['task']}]",
            float(task["executed"]) if reads else None,
            *(float(count) for count in (task["emitted"], task["acked"], task["failed"])),
            _share(task["capacity"]),
            _ms(task["execute_latency_ms"]),
            _ms(task["process_latency_ms"]),
            _ms(task["complete_latency_ms"]),
        )
        for task in over["tasks"]
        if task["component"] == component
    )
    return _without_empty(Sheet(titles, rows, ("capacity", "execute ms", "complete ms", "process ms", "acked")))


def _streams(over: WindowDocument, component: str) -> Iterable[Sheet]:
    own = [stream for stream in over["streams"] if stream["component"] == component]
    yield _without_empty(
        Sheet(
            ("input", "stream", "executed", "acked", "failed", "execute ms", "process ms"),
            tuple(
                (
                    plain(stream["sender"]),
                    plain(stream["stream"]),
                    *(float(count) for count in (stream["executed"], stream["acked"], stream["failed"])),
                    _ms(stream["execute_latency_ms"]),
                    _ms(stream["process_latency_ms"]),
                )
                for stream in own
                if stream["sender"]
            ),
            ("execute ms", "process ms"),
        )
    )
    yield _without_empty(
        Sheet(
            ("output", "emitted", "transferred", "complete ms"),
            tuple(
                (
                    plain(stream["stream"]),
                    *(float(count) for count in (stream["emitted"], stream["transferred"])),
                    _ms(stream["complete_latency_ms"]),
                )
                for stream in own
                if not stream["sender"]
            ),
        )
    )


def _without_empty(sheet: Sheet) -> Sheet:
    """The same without columns in which nothing was measured."""
    kept = [place for place in range(len(sheet.titles)) if any(row[place] is not None for row in sheet.rows)]
    return Sheet(
        tuple(sheet.titles[place] for place in kept),
        tuple(tuple(row[place] for place in kept) for row in sheet.rows),
        sheet.droppable,
        sheet.right,
    )


def _metrics(document: TopologyDocument, width: int, component: str | None = None) -> list[str]:
    """The metrics that components have declared: of one component with all series, otherwise the first of each."""
    rows: list[tuple[Cell, ...]] = []
    for id_, metrics in document["metrics"].items():
        for metric in metrics if component in (None, id_) else ():
            series = metric["series"] if component is not None else metric["series"][:SERIES_SHOWN]
            name = metric["name"] if component is not None else f"{id_} {metric['name']}"
            rows += [(plain(name), plain(_labels(one["labels"])) or None, plain(one["text"])) for one in series]
            if len(series) < len(metric["series"]):
                rows.append((plain(name), f"and {len(metric['series']) - len(series):,} more", None))
    if not rows:
        return []
    title = "metric since the first start"
    return [*_without_empty(Sheet((title, "labels", "value"), tuple(rows), right=("value",))).lines(width), ""]


def _labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in labels.items())


def _parts(over: WindowDocument, width: int) -> list[str]:
    """Where the time of micro-batches went, the largest part first."""
    total = sum(over["parts_ms"].values())
    if total <= 0:
        return []
    parts = sorted(over["parts_ms"].items(), key=lambda part: -part[1])
    shares = [f"{plain(name)} {ms / total:.0%}" for name, ms in parts if ms / total >= 0.005]
    first, *rest = shares
    return wrapped([f"time of micro-batches: {first}", *rest], width, ", ")


def _now(document: TopologyDocument, width: int) -> list[str]:
    now = document["now"]
    counts = [f"open trees: {now['open_trees']:,}", f"waiting for a retry: {now['retries']:,}"]
    if now["state"].get("rows"):
        counts.append(f"state: {now['state']['rows']:,} rows, {bytes_text(now['state'].get('memory_bytes', 0))}")
    memory: dict[str, int] = {}
    for process in now["memory"]:
        memory[process["process"]] = memory.get(process["process"], 0) + process["bytes"]
    if memory:
        counts.append("memory: " + ", ".join(f"{name} {bytes_text(size)}" for name, size in memory.items()))
    lines = wrapped(counts, width, "   ")
    doing = (now["micro_batch"] or {}).get("doing")
    slowest = now["slowest"]
    if slowest:
        took = f"{slowest['latency_ms'] / 1000:.1f} s"
        lines += sentence(f"slowest tree of the last hour: root {slowest['root']}, {took}", width)
    sentences = [doing, now["waits_for"], now["trouble"], *now["outages"], *now["hung"]]
    for component, marks in now["watermarks"].items():
        if "watermark_ms" in marks:
            behind = ago_text(0, marks.get("behind_ms", 0))
            sentences.append(f"{component}: watermark {time_text(marks['watermark_ms'])}, {behind} behind")
        if marks.get("late_tuples"):
            sentences.append(f"{component}: {_late(document, component, int(marks['late_tuples']))}")
    for one in filter(None, sentences):
        lines += sentence(str(one), width)
    return lines


def _late(document: TopologyDocument, component: str, late: int) -> str:
    streams = next((one["streams"] for one in document["components"] if one["id"] == component), {})
    inputs = [entry for one in document["components"] for entry in one["inputs"]]
    return late_text(late, streams, [one["stream"] for one in inputs if one["component"] == component])


def _errors(errors: Sequence[ErrorDocument], now_ms: int, width: int) -> list[str]:
    lines = ["newest errors:"]
    for error in errors:
        times = f" ({error['count']:,} times)" if error["count"] > 1 else ""
        where = f"{ago_text(error['time_ms'], now_ms)} ago, {error['component']}[{error['task']}]{times}"
        lines += [f"  {line}" for line in sentence(f"{where}: {error['text']}", width - 2)]
    return lines
