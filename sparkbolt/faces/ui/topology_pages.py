"""Topology pages: all topologies, one of them, one component, its micro-batches, lag, settings and log.

Everything comes from ``Asking``; nothing here computes a number that a document has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sparkbolt.api.config import Config
from sparkbolt.base.source_names import short_sources
from sparkbolt.control.documents import (
    ComponentDocument,
    Numbers,
    SeriesDocument,
    SeriesPoint,
    StreamSubscription,
    TopologyDocument,
    TopologyEntry,
    TopologyState,
    WindowDocument,
)
from sparkbolt.control.intent import LOG_LEVELS, SETTINGS
from sparkbolt.errors import StateError, WrongUseError
from sparkbolt.faces.ui.charts import Chart, Line, Unit
from sparkbolt.faces.ui.drawings import flow, flow_list
from sparkbolt.faces.ui.operator_calls import LateAnswerError
from sparkbolt.faces.ui.pages import (
    PAGE_ROWS,
    REACH_SECS,
    WINDOWS,
    Tab,
    asking_of,
    chosen,
    no_such,
    now_ms,
    rendered,
    sliced,
    topology_of,
    topology_page,
    wanted_rows,
)
from sparkbolt.faces.ui.record_texts import brief_value, entry_key, entry_value
from sparkbolt.faces.ui.shown import VERY_BUSY, words
from sparkbolt.faces.ui.storm_pages import NO_NUMBERS
from sparkbolt.faces.ui.urls import path_of

MICRO_BATCHES_SHOWN = 40
LOG_LINES = 200
PEEKED_SHOWN = 30
DEFAULTS = vars(Config())
"""The settings of a topology that sets none."""
COLOURS = "abcd"
"""The colours of lines, as ``Line.colour``."""


async def topologies_page(request: Request) -> Response:
    """``/``: all topologies."""
    entries = await asking_of(request).topologies()
    search = request.query_params.get("q", "")
    found = [entry for entry in entries if search.lower() in f"{entry['name']} {entry['id']} {entry['host']}".lower()]
    return rendered(request, "topologies.html", rows=by_name(found), search=search, none_at_all=not entries)


def by_name(entries: Sequence[TopologyEntry]) -> list[tuple[TopologyEntry, list[TopologyEntry]]]:
    """Topologies with their other runs, the newest first: rows of those that run, then of those that do not.

    A name has a row for each run that goes on, or for its newest one; its first row has the other runs.
    """
    newest_first = sorted(entries, key=lambda entry: entry["started_ms"], reverse=True)
    names: dict[str, list[TopologyEntry]] = {}
    for entry in sorted(newest_first, key=lambda entry: not TopologyState(entry["state"]).runs):
        names.setdefault(entry["name"], []).append(entry)
    rows = []
    for runs in names.values():
        many = max(1, sum(TopologyState(entry["state"]).runs for entry in runs))
        rows += [(entry, [] if at else runs[many:]) for at, entry in enumerate(runs[:many])]
    return rows


async def one_topology_page(request: Request) -> Response:
    """``/topologies/ID``: its state, its graph, its charts and its components."""
    asking, id_ = asking_of(request), topology_of(request)
    document = await asking.document(id_)
    window = chosen(request, "window", WINDOWS)
    series = await asking.series(id_, since_ms=_since(request, document, window))
    return topology_page(
        request,
        "topology.html",
        document,
        Tab.OVERVIEW,
        charts=topology_charts(series),
        drawing=flow(document, window, path_of(document["entry"]["id"])),
        flow_list=flow_list(document, window, path_of(document["entry"]["id"])),
        window=window,
        rows=component_rows(document, window),
        sums={name: _sums(document, name) for name in WINDOWS},
        slowest=_busiest(document, window),
        late=_latest_bolt(document),
        events=document["events"][::-1][:12],
    )


def _latest_bolt(document: TopologyDocument) -> tuple[str, int] | None:
    """The bolt with the most late tuples, and the late tuples of all bolts; None if there are none."""
    late = {component: marks.get("late_tuples", 0) for component, marks in document["now"]["watermarks"].items()}
    return (max(late, key=lambda component: late[component]), sum(late.values())) if any(late.values()) else None


def _since(request: Request, document: TopologyDocument, window: str) -> int:
    """Where charts begin: so long before now, or before the end of a topology that has ended; to 10 s, to be shared."""
    end = document["entry"]["ended_ms"] or now_ms(request)
    return int(end - 1000 * REACH_SECS[window]) // 10_000 * 10_000


def component_rows(document: TopologyDocument, window: str) -> dict[str, list[tuple[ComponentDocument, Numbers]]]:
    """By kind (``spout``, ``bolt``, ``system``): the components with their numbers of a window."""
    numbers = document["windows"][window]["components"] if window in document["windows"] else {}
    rows: dict[str, list[tuple[ComponentDocument, Numbers]]] = {"spout": [], "bolt": [], "system": []}
    for one in document["components"]:
        rows.setdefault(one["kind"], []).append((one, numbers.get(one["id"], NO_NUMBERS)))
    return rows


def _sums(document: TopologyDocument, window: str) -> dict[str, Any]:
    """A row of Storm's table of a topology: sums over a window."""
    sums: WindowDocument | None = document["windows"].get(window)
    if sums is None:
        return {"secs": None}
    numbers = sums["components"]
    spouts = [numbers[one["id"]] for one in document["components"] if one["kind"] == "spout" and one["id"] in numbers]
    every = [one for id_, one in numbers.items() if not id_.startswith("__")]
    worst = [value for one in spouts if (value := one["complete"].get("p99")) is not None]
    weights = [(one["complete_latency_ms"], one["acked"]) for one in spouts if one["complete_latency_ms"] is not None]
    acked = sum(count for _, count in weights)
    return {
        "secs": sums["secs"],
        "emitted": sum(one["emitted"] for one in every),
        "transferred": sum(one["transferred"] for one in every),
        "complete_latency_ms": sum(mean * count for mean, count in weights) / acked if acked else None,
        "p99": max(worst, default=None),
        "acked": sum(one["acked"] for one in spouts),
        "failed": sum(one["failed"] for one in spouts),
        "given_up": sum(one["given_up"] for one in spouts),
        "micro_batches": sums["micro_batches"],
    }


def _busiest(document: TopologyDocument, window: str) -> tuple[str, float] | None:
    """The component that limits the rate, if one is busy nearly all of its time."""
    numbers = document["windows"][window]["components"] if window in document["windows"] else {}
    found = [(one["capacity"], id_) for id_, one in numbers.items() if one["capacity"] is not None]
    capacity, id_ = max(found, default=(0.0, ""))
    return (id_, capacity) if capacity >= VERY_BUSY else None


Reading = Callable[[SeriesPoint], float | None]


def _values(points: Sequence[SeriesPoint], read: Reading) -> list[float | None]:
    return [read(point) if point["secs"] > 0 else None for point in points]


def _a_second(name: str) -> Reading:
    return lambda point: float(point[name]) / point["secs"]  # type: ignore[literal-required]


def topology_charts(series: SeriesDocument) -> list[Chart]:
    """Throughput, latency, waiting and failed messages, micro-batches and memory over time."""
    points = series["points"]
    times = [point["time_ms"] for point in points]

    def line(name: str, colour: str, read: Reading, peaks: bool = False) -> Line:
        return Line(name, colour, _values(points, read), peaks)

    latency = [
        line(label, colour, lambda point, key=key: point["complete"].get(key), True)  # type: ignore[misc]
        for key, label, colour in (("p50", "p50", "a"), ("p99", "p99", "b"), ("max", "max", "c"))
    ]
    waiting = [
        line("lag", "b", lambda point: point["lag"], True),
        line("open trees", "a", lambda point: point["open_trees"], True),
    ]
    wrong = [line("failed", "bad", lambda point: point["failed"]), line("errors", "c", lambda point: point["errors"])]
    memory = [
        line(name, colour, lambda point, name=name: point["memory"].get(name))  # type: ignore[misc]
        for name, colour in (("driver", "a"), ("jvm", "b"), ("workers", "c"))
    ]
    none_wrong = "No tree failed, and no component reported an error."
    return _of_series(
        series,
        Chart("Throughput", "rate", times, [line("trees acked", "a", _a_second("acked"))]),
        Chart("Complete latency", "ms", times, latency),
        Chart("Waiting", "count", times, waiting),
        Chart("Failed trees and errors", "count", times, wrong, bars=True, all_zero=none_wrong),
        Chart("Micro-batch", "ms", times, [line("mean", "a", lambda point: point["micro_batch_ms"])]),
        Chart("Memory", "size", times, memory),
    )


def _of_series(series: SeriesDocument, *charts: Chart) -> list[Chart]:
    """The charts with the events of their series, and its step."""
    return [replace(chart, events=series["events"], step_secs=series["step_secs"]) for chart in charts]


async def component_page(request: Request) -> Response:
    """``/topologies/ID/components/C``: its tasks, its streams, its errors, its windows."""
    asking, id_ = asking_of(request), topology_of(request)
    document = await asking.document(id_)
    one = component_of(request, document)
    component = one["id"]
    window = chosen(request, "window", WINDOWS)
    series = await asking.series(id_, since_ms=_since(request, document, window))
    sums = document["windows"].get(window)
    return topology_page(
        request,
        "component.html",
        document,
        Tab.OVERVIEW,
        component=one,
        settings=own_settings(document, one),
        by_window={
            name: document["windows"][name]["components"].get(component, NO_NUMBERS)
            for name in WINDOWS
            if name in document["windows"]
        },
        tasks=[task for task in sums["tasks"] if task["component"] == component] if sums else [],
        streams_in=[one for one in sums["streams"] if one["component"] == component and one["sender"]] if sums else [],
        streams_out=[one for one in sums["streams"] if one["component"] == component and not one["sender"]]
        if sums
        else [],
        readers=readers_of(document, component),
        errors=[error for error in document["errors"] if error["component"] == component][::-1][:50],
        watermark=document["now"]["watermarks"].get(component),
        metrics=document["metrics"].get(component, []),
        charts=component_charts(series, one),
        window=window,
    )


async def state_page(request: Request) -> Response:
    """``/topologies/ID/state/C``: the first entries that a bolt keeps, or one key."""
    asking, id_ = asking_of(request), topology_of(request)
    document = await asking.document(id_)
    component, key = component_of(request, document), request.query_params.get("key", "")
    found, refusal = None, ""
    try:
        found = await asking.ask(id_, "component_state", component=component["id"], key=key or None, first=PAGE_ROWS)
    except (StateError, WrongUseError, LateAnswerError) as error:
        refusal = str(error)
    return topology_page(
        request,
        "state.html",
        document,
        Tab.OVERVIEW,
        component=component,
        key=key,
        found=found,
        refusal=refusal,
        entry_key=entry_key,
        shown=entry_value if key else brief_value,
        is_still=True,  # each look is work for Spark
    )


async def peek_page(request: Request) -> Response:
    """``/topologies/ID/peek/C``: the newest tuples of a component; they arrive as long as somebody looks."""
    asking, id_ = asking_of(request), topology_of(request)
    document = await asking.document(id_)
    component = component_of(request, document)
    stream, match = request.query_params.get("stream", ""), request.query_params.get("match", "")
    found, refusal = [], ""
    try:
        asked = {"component": component["id"], "stream": stream or None, "match": match, "last": PEEKED_SHOWN}
        found = await asking.ask(id_, "peek", **asked)
    except (WrongUseError, LateAnswerError) as error:
        refusal = str(error)
    return topology_page(
        request,
        "peek.html",
        document,
        Tab.OVERVIEW,
        component=component,
        stream=stream,
        match=match,
        found=found[::-1],
        refusal=refusal,
    )


def component_of(request: Request, document: TopologyDocument) -> ComponentDocument:
    """The component that a URL names.

    Raises:
        HTTPException: there is no such component.
    """
    id_ = request.path_params["component"]
    for one in document["components"]:
        if one["id"] == id_:
            return one
    raise no_such(f"the topology {document['entry']['name']!r} has no component {id_!r}")


def readers_of(document: TopologyDocument, component: str) -> list[tuple[str, StreamSubscription]]:
    """The subscribers of a component: (bolt, subscription)."""
    return [
        (other["id"], way)
        for other in document["components"]
        for way in other["inputs"]
        if way["component"] == component
    ]


def component_charts(series: SeriesDocument, component: ComponentDocument) -> list[Chart]:
    """The rate, the capacity or lag, and the failures of one component over time."""
    points, id_ = series["points"], component["id"]
    times = [point["time_ms"] for point in points]

    def of(name: str, missing: float | None = None) -> Reading:
        return lambda point: point["components"].get(id_, {}).get(name, missing)

    def a_second(name: str) -> Reading:
        return lambda point: point["components"].get(id_, {}).get(name, 0.0) / point["secs"]

    done = "emitted" if component["kind"] == "spout" else "executed"
    throughput = Chart("Throughput", "rate", times, [Line(done, "a", _values(points, a_second(done)))])
    if component["kind"] == "spout":
        load = Chart("Lag", _unit_of_lag(component), times, [Line("lag", "b", _values(points, of("lag")), True)])
    else:
        busiest = Line("busiest task", "b", _values(points, lambda point: point["capacity"].get(id_)), True)
        load = Chart("Capacity", "share", times, [busiest])
    failed = [Line("failed", "bad", _values(points, of("failed", 0)))]
    is_spout = component["kind"] == "spout"
    none = "No tree of this spout failed." if is_spout else "No tuple failed in this bolt."
    title = "Failed attempts" if is_spout else "Failed tuples"
    return _of_series(series, throughput, load, Chart(title, "count", times, failed, bars=True, all_zero=none))


async def micro_batches_page(request: Request) -> Response:
    """``/topologies/ID/micro-batches``: where the time of each went."""
    asking, id_ = asking_of(request), topology_of(request)
    document = await asking.document(id_)
    batches = (await asking.ask(id_, "micro_batches", last=MICRO_BATCHES_SHOWN))[::-1]
    window = chosen(request, "window", WINDOWS)
    sums = document["windows"].get(window)
    parts = sums["parts_ms"] if sums else {}
    names = [*parts, *dict.fromkeys(name for one in batches for name, _, _ in one["parts"] if name not in parts)]
    return topology_page(
        request,
        "micro_batches.html",
        document,
        Tab.MICRO_BATCHES,
        batches=batches,
        longest=max((one["elapsed_ms"] for one in batches), default=0.0),
        window=window,
        parts=parts,
        parts_total=sum(parts.values()),
        colours=part_colours(names),
        batches_in_window=sums["micro_batches"] if sums else 0,
    )


PART_COLOURS = {part: part for part in ("plan", "aborted", "read", "acker", "stage", "commit", "promotion")}


def part_colours(names: Sequence[str]) -> dict[str, str]:
    """By part of a micro-batch the class of its colour; levels take turns.

    >>> part_colours(["read", "level 1", "level 2", "level 5", "else"])
    {'read': 'read', 'level 1': 'level-1', 'level 2': 'level-2', 'level 5': 'level-1', 'else': 'other'}
    """
    colours = {}
    for name in names:
        level = name.removeprefix("level ")
        is_level = name.startswith("level ") and level.isdecimal()
        colours[name] = f"level-{(int(level) - 1) % 4 + 1}" if is_level else PART_COLOURS.get(name, "other")
    return colours


async def lag_page(request: Request) -> Response:
    """``/topologies/ID/kafka``: unfinished messages, by partition, and over time."""
    asking, id_ = asking_of(request), topology_of(request)
    document = await asking.document(id_)
    window = chosen(request, "window", WINDOWS)
    series = await asking.series(id_, since_ms=_since(request, document, window))
    lag, secs = document["now"]["lag"], document["now"]["lag_secs"]
    spouts = [one for one in document["components"] if one["kind"] == "spout"]
    return topology_page(
        request,
        "lag.html",
        document,
        Tab.KAFKA,
        window=window,
        spouts=[
            (
                one,
                sorted(lag.get(one["id"], {}).items(), key=lambda each: (-each[1], each[0])),
                short_sources(lag.get(one["id"], ())),
                secs.get(one["id"], {}),
            )
            for one in spouts
        ],
        charts=lag_charts(series, spouts),
        most=max((value for sources in lag.values() for value in sources.values()), default=0),
    )


def _unit_of_lag(spout: ComponentDocument) -> Unit:
    return "size" if spout["position_unit"] == "bytes" else "count"


def lag_charts(series: SeriesDocument, spouts: Sequence[ComponentDocument]) -> list[Chart]:
    """The lag of each spout over time; of its largest partitions, where the series has them."""
    points = series["points"]
    times = [point["time_ms"] for point in points]
    charts = []
    for one in spouts:
        id_ = one["id"]
        newest: dict[str, int] = next((p["lags"][id_] for p in points[::-1] if id_ in p.get("lags", {})), {})
        sources = sorted(newest, key=lambda source: (-newest[source], source))[: len(COLOURS)]

        def of(source: str, id_: str = id_) -> Reading:
            return lambda point: point.get("lags", {}).get(id_, {}).get(source)

        def whole(point: SeriesPoint, id_: str = id_) -> float | None:
            return point["components"].get(id_, {}).get("lag")

        names = short_sources(newest)
        lines = [
            Line(names[source], colour, _values(points, of(source)), True)
            for source, colour in zip(sources, COLOURS, strict=False)
        ]
        lines = lines or [Line("all partitions", "b", _values(points, whole), True)]
        charts.append(Chart(id_, _unit_of_lag(one), times, lines))
    return _of_series(series, *charts)


async def settings_page(request: Request) -> Response:
    """``/topologies/ID/settings``: the settings in force, and which of them you can change."""
    document = await asking_of(request).document(topology_of(request))
    settings = document["settings"]
    changeable = [(key, setting, settings.get(setting.field)) for key, setting in SETTINGS.items()]
    own = [(one, name, value) for one in document["components"] for name, value in own_settings(document, one).items()]
    changed = [(words(name), value) for name, value in sorted(settings.items()) if differs(name, value, DEFAULTS)]
    return topology_page(
        request,
        "settings.html",
        document,
        Tab.SETTINGS,
        changeable=changeable,
        changed=changed,
        own=own,
        levels=LOG_LEVELS,
    )


def differs(name: str, value: Any, others: Mapping[str, Any]) -> bool:
    """Whether a setting has another value than in ``others``."""
    return name not in others or others[name] != value


def own_settings(document: TopologyDocument, component: ComponentDocument) -> dict[str, Any]:
    """The settings of a component that differ from the defaults, and from those of its topology."""
    return {
        name: value
        for name, value in sorted(component["settings"].items())
        if differs(name, value, DEFAULTS) and differs(name, value, document["settings"])
    }


async def log_page(request: Request) -> Response:
    """``/topologies/ID/log``: the newest lines, of all or of one component."""
    asking, id_ = asking_of(request), topology_of(request)
    document = await asking.document(id_)
    component, search = request.query_params.get("component", ""), request.query_params.get("q", "")
    lines = await asking.ask(id_, "log", component=component or None, search=search, last=LOG_LINES)
    return topology_page(
        request, "log.html", document, Tab.LOG, lines=lines, component=component, search=search, most=LOG_LINES
    )


async def errors_page(request: Request) -> Response:
    """``/topologies/ID/errors``: all errors, the newest first."""
    document = await asking_of(request).document(topology_of(request))
    page = sliced(request, document["errors"][-wanted_rows(request) :])
    return topology_page(request, "errors.html", document, Tab.OVERVIEW, page=page)
