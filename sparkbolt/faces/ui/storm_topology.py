"""Storm's pages about one topology and its components: ``topology/ID``, ``.../metrics`` and ``.../component/C``.

The values and their types come from ``storm_pages``.
"""

from __future__ import annotations

from typing import Any

from sparkbolt.control.documents import (
    ALL_TIME,
    WINDOWS_SECS,
    ComponentDocument,
    TaskNumbers,
    TopologyDocument,
    WindowDocument,
)
from sparkbolt.faces.ui.storm_pages import (
    FIRST_PORT,
    NO_NUMBERS,
    SAMPLING_PERCENT,
    Json,
    alive_secs,
    components_of,
    counts,
    decimal,
    empty_window,
    error_page,
    executions,
    head_of,
    last_error,
    log_link,
    uptime,
    window_hint,
    worker_pages,
)
from sparkbolt.faces.ui.urls import part_of_path


def topology_page(document: TopologyDocument, window: WindowDocument, now_ms: int, *, sys: bool) -> Json:
    """``topology/ID``."""
    entry, name = document["entry"], window["window"]
    return {
        **head_of(document, now_ms),
        "window": name,
        "windowHint": window_hint(name),
        "msgTimeout": int(document["settings"].get("message_timeout_secs") or 0),
        "debug": False,
        "samplingPct": SAMPLING_PERCENT,
        "schedulerDisplayResource": False,
        "user": None,
        "bugtracker-url": None,
        "central-log-url": None,
        "visualizationTable": [],
        "topologyStats": [_topology_stats(document, each) for each in _windows(document, window)],
        "workers": worker_pages(document, now_ms),
        "spouts": [_spout_line(document, each, window, now_ms) for each in components_of(document, "spout", sys=sys)],
        "bolts": [_bolt_line(document, each, window, now_ms) for each in components_of(document, "bolt", sys=sys)],
        "configuration": {**document["settings"], "storm.id": entry["id"], "topology.name": entry["name"]},
    }


def _windows(document: TopologyDocument, asked: WindowDocument) -> list[WindowDocument]:
    """All windows: first the requested one, since readers take the first; otherwise from short to long."""
    names = [*WINDOWS_SECS, ALL_TIME]
    own = [document["windows"].get(name) or empty_window(name) for name in names if name != asked["window"]]
    return [*own, asked] if asked["window"] == ALL_TIME else [asked, *own]


def _topology_stats(document: TopologyDocument, window: WindowDocument) -> Json:
    """The sums of a topology: the emitted tuples of all components, and the outcomes of the spouts' trees."""
    spouts = {component["id"] for component in document["components"] if component["kind"] == "spout"}
    numbers = window["components"]
    trees = [numbers[id_] for id_ in spouts if id_ in numbers]
    acked = sum(each["acked"] for each in trees)
    latency = sum((each["complete_latency_ms"] or 0.0) * each["acked"] for each in trees)
    return {
        "window": window["window"],
        "windowPretty": window_hint(window["window"]),
        "emitted": sum(each["emitted"] for each in numbers.values()),
        "transferred": sum(each["transferred"] for each in numbers.values()),
        "completeLatency": decimal(latency / acked if acked else None),
        "acked": acked,
        "failed": sum(each["failed"] for each in trees),
    }


def _line(document: TopologyDocument, component: ComponentDocument, window: WindowDocument, now_ms: int) -> Json:
    numbers = window["components"].get(component["id"], NO_NUMBERS)
    return {
        "executors": component["parallelism"],
        "tasks": component["parallelism"],
        **counts(numbers),
        "requestedMemOnHeap": 0.0,
        "requestedMemOffHeap": 0.0,
        "requestedCpu": 0.0,
        "requestedGenericResourcesComp": "",
        **last_error(document["errors"], component["id"], document["entry"], now_ms),
    }


def _spout_line(document: TopologyDocument, spout: ComponentDocument, window: WindowDocument, now_ms: int) -> Json:
    numbers = window["components"].get(spout["id"], NO_NUMBERS)
    return {
        "spoutId": spout["id"],
        "encodedSpoutId": part_of_path(spout["id"]),
        **_line(document, spout, window, now_ms),
        "completeLatency": decimal(numbers["complete_latency_ms"]),
    }


def _bolt_line(document: TopologyDocument, bolt: ComponentDocument, window: WindowDocument, now_ms: int) -> Json:
    numbers = window["components"].get(bolt["id"], NO_NUMBERS)
    return {
        "boltId": bolt["id"],
        "encodedBoltId": part_of_path(bolt["id"]),
        **_line(document, bolt, window, now_ms),
        **executions(numbers),
        "capacity": decimal(numbers["capacity"]),
    }


def metrics_page(document: TopologyDocument, window: WindowDocument, *, sys: bool) -> Json:
    """``topology/ID/metrics``: by component and stream."""
    name = window["window"]
    return {
        "window": name,
        "windowHint": window_hint(name),
        "window-hint": window_hint(name),
        "spouts": [_spout_metrics(each, window) for each in components_of(document, "spout", sys=sys)],
        "bolts": [_bolt_metrics(each, window) for each in components_of(document, "bolt", sys=sys)],
    }


def _sent(component: ComponentDocument, window: WindowDocument, name: str) -> list[Json]:
    """A count by stream that the component emitted to."""
    streams = [each for each in window["streams"] if each["component"] == component["id"] and not each["sender"]]
    return [{"stream_id": each["stream"], "value": each[name]} for each in streams]  # type: ignore[literal-required]


def _came(component: ComponentDocument, window: WindowDocument, name: str) -> list[Json]:
    """A count, or a mean, by input stream."""
    streams = [each for each in window["streams"] if each["component"] == component["id"] and each["sender"]]
    found = []
    for each in streams:
        value: Any = each[name]  # type: ignore[literal-required]
        value = decimal(value) if name.endswith("_ms") else value
        found.append({"component_id": each["sender"], "stream_id": each["stream"], "value": value})
    return found


def _spout_metrics(spout: ComponentDocument, window: WindowDocument) -> Json:
    names = ("emitted", "transferred", "acked", "failed")
    means = _sent(spout, window, "complete_latency_ms")
    return {
        "id": spout["id"],
        **{name: _sent(spout, window, name) for name in names},
        "complete_ms_avg": [{**each, "value": decimal(each["value"])} for each in means],
    }


def _bolt_metrics(bolt: ComponentDocument, window: WindowDocument) -> Json:
    return {
        "id": bolt["id"],
        **{name: _sent(bolt, window, name) for name in ("emitted", "transferred")},
        **{name: _came(bolt, window, name) for name in ("acked", "failed", "executed")},
        "process_ms_avg": _came(bolt, window, "process_latency_ms"),
        "executed_ms_avg": _came(bolt, window, "execute_latency_ms"),
    }


# ---- one component


def component_page(
    document: TopologyDocument, component: ComponentDocument, window: WindowDocument, now_ms: int
) -> Json:
    """``topology/ID/component/C``."""
    entry, id_ = document["entry"], component["id"]
    is_spout = component["kind"] == "spout"
    head = head_of(document, now_ms)
    windows = [
        _component_stats(each, id_, last_error(document["errors"], id_, entry, now_ms)["lastError"], spout=is_spout)
        for each in _windows(document, window)
    ]
    errors = [error_page(each, entry, now_ms) for each in document["errors"] if each["component"] == id_]
    parts: Json = {"spoutSummary": windows} if is_spout else {"boltStats": windows, "inputStats": _inputs(window, id_)}
    return {
        **parts,
        "user": None,
        "id": id_,
        "encodedId": part_of_path(id_),
        "name": entry["name"],
        "executors": component["parallelism"],
        "tasks": component["parallelism"],
        "requestedMemOnHeap": 0.0,
        "requestedMemOffHeap": 0.0,
        "requestedCpu": 0.0,
        "requestedGenericResources": "",
        "schedulerDisplayResource": False,
        "topologyId": entry["id"],
        "topologyStatus": head["status"],
        "encodedTopologyId": part_of_path(entry["id"]),
        "window": window["window"],
        "windowHint": window_hint(window["window"]),
        "componentType": "spout" if is_spout else "bolt",
        "debug": False,
        "samplingPct": SAMPLING_PERCENT,
        "eventLogLink": log_link(entry),
        "profilingAndDebuggingCapable": False,
        "profileActionEnabled": False,
        "profilerActive": [],
        "componentErrors": errors,
        "outputStats": _outputs(window, id_, spout=is_spout),
        "executorStats": [
            _executor(document, component, task, now_ms) for task in window["tasks"] if task["component"] == id_
        ],
    }


def _component_stats(window: WindowDocument, component: str, error: str, *, spout: bool) -> Json:
    numbers = window["components"].get(component, NO_NUMBERS)
    line = {"window": window["window"], "windowPretty": window_hint(window["window"]), **counts(numbers)}
    if spout:
        return {**line, "completeLatency": decimal(numbers["complete_latency_ms"]), "lastError": error}
    return {**line, **executions(numbers), "capacity": decimal(numbers["capacity"])}


def _inputs(window: WindowDocument, component: str) -> list[Json]:
    return [
        {
            "component": each["sender"],
            "encodedComponentId": part_of_path(each["sender"]),
            "stream": each["stream"],
            **executions(each),
            "acked": each["acked"],
            "failed": each["failed"],
        }
        for each in window["streams"]
        if each["component"] == component and each["sender"]
    ]


def _outputs(window: WindowDocument, component: str, *, spout: bool) -> list[Json]:
    found = []
    for each in window["streams"]:
        if each["component"] != component or each["sender"]:
            continue
        line: Json = {"stream": each["stream"], "emitted": each["emitted"], "transferred": each["transferred"]}
        if spout:
            line |= {"completeLatency": decimal(each["complete_latency_ms"])}
            line |= {"acked": each["acked"], "failed": each["failed"]}
        found.append(line)
    return found


def _executor(document: TopologyDocument, component: ComponentDocument, task: TaskNumbers, now_ms: int) -> Json:
    """One task: each task is one executor."""
    number = component["task_numbers"][task["task"]]
    id_, secs = f"[{number}-{number}]", alive_secs(document["entry"], now_ms)
    line: Json = {
        "id": id_,
        "encodedId": part_of_path(id_),
        "uptime": uptime(secs),
        "uptimeSeconds": secs,
        "host": document["entry"]["host"],
        "port": FIRST_PORT,
        **counts(task),
        "workerLogLink": log_link(document["entry"]),
    }
    if component["kind"] == "spout":
        return {**line, "completeLatency": decimal(task["complete_latency_ms"])}
    return {**line, **executions(task), "capacity": decimal(task["capacity"])}
