"""Storm's pages: the values of Storm's REST interface, made from documents.

The names and types are Storm's (docs/STORM-UI-REST-API.md of Storm 2, and its ``UIHelpers``): latencies and capacities
are strings of three decimals, sizes are megabytes, uptimes are ``1d 2h 3m 4s`` with the seconds beside it. Fields
without a counterpart in Sparkbolt (slots, assigned CPU, profilers) have Storm's zero or empty value. Numbers belong to
the requested window, which may also be any number of seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from sparkbolt.base.codec import salvage
from sparkbolt.control.documents import (
    ALL_TIME,
    WINDOWS_SECS,
    ComponentDocument,
    ErrorDocument,
    Numbers,
    SeriesDocument,
    StreamNumbers,
    TaskNumbers,
    TopologyDocument,
    TopologyEntry,
    TopologyState,
    WindowDocument,
)
from sparkbolt.faces.ui.urls import part_of_path

STORM_VERSION = "2.8.8"
"""The version of Storm whose interface this is; readers choose by it how they ask."""
WINDOW_SECS_MAX = 31 * 86_400
ERROR_CHARACTERS_MAX = 200
SAMPLING_PERCENT = 10
MEGABYTE = 1 << 20
FIRST_PORT = 6700
"""The first port of Storm's workers; ours have no ports, and are numbered."""

STATUS = {
    TopologyState.STARTING: "ACTIVE",
    TopologyState.ACTIVE: "ACTIVE",
    TopologyState.INACTIVE: "INACTIVE",
    TopologyState.DRAINING: "INACTIVE",
    TopologyState.KILLED: "KILLED",
    TopologyState.RESTARTING: "REBALANCING",
    TopologyState.ENDED: "KILLED",
    TopologyState.FAILED: "FAILED",
    TopologyState.DEAD: "DEAD",
}
"""Storm's word for each state. It has none for the last two: they have words of ours, so that nobody takes them for
well."""

Json = dict[str, Any]


def decimal(value: float | None) -> str:
    """A latency or capacity as Storm writes it.

    >>> decimal(2.1116), decimal(None)
    ('2.112', '0.000')
    """
    return f"{value if value is not None and math.isfinite(value) else 0.0:.3f}"


def uptime(secs: int) -> str:
    """A time in Storm's words.

    >>> uptime(365), uptime(86_400), uptime(0)
    ('6m 5s', '1d 0h 0m 0s', '')
    """
    words: list[str] = []
    for unit, size in (("s", 60), ("m", 60), ("h", 24), ("d", 1 << 62)):
        if secs > 0:
            words.insert(0, f"{secs % size}{unit}")
            secs //= size
    return " ".join(words)


def window_hint(window: str) -> str:
    """A window in words.

    >>> window_hint("600"), window_hint(ALL_TIME)
    ('10m 0s', 'All time')
    """
    return "All time" if window == ALL_TIME else uptime(int(window))


def listed(entries: Iterable[TopologyEntry]) -> list[TopologyEntry]:
    """The topologies that Storm would list: those that run, and those that should run.

    If no topology of a name runs, the newest of that name should run if it is dead or has failed: a monitoring check
    would not notice otherwise that it is missing.
    """
    entries = list(entries)
    running = [entry for entry in entries if TopologyState.of(entry["state"]).runs]
    names = {entry["name"] for entry in running}
    newest: dict[str, TopologyEntry] = {}
    for entry in sorted(entries, key=lambda entry: entry["started_ms"]):
        newest[entry["name"]] = entry
    lost = (TopologyState.DEAD, TopologyState.FAILED)
    return running + [entry for name, entry in newest.items() if name not in names and entry["state"] in lost]


# ---- windows


def window_of(document: TopologyDocument, window: str, series: SeriesDocument) -> WindowDocument:
    """The sums of a window that the document has not, from the history over it.

    The emitted, executed, acked and failed tuples of components come from the history. Their distribution over
    streams and tasks, transferred tuples and latencies come from the smallest of Storm's windows around it.
    """
    around = document["windows"].get(_around(window)) or document["windows"].get(ALL_TIME) or empty_window(window)
    shares: dict[str, dict[str, float]] = {}
    components: dict[str, Numbers] = {}
    secs = sum(point["secs"] for point in series["points"])
    for id_, wide in around["components"].items():
        sums = dict.fromkeys(("emitted", "executed", "acked", "failed", "execute_ms"), 0.0)
        for point in series["points"]:
            for name in sums:
                sums[name] += point["components"].get(id_, {}).get(name, 0)
        shares[id_] = {name: count / wide[name] if wide[name] else 0.0 for name, count in sums.items()}  # type: ignore[literal-required]
        shares[id_]["transferred"] = shares[id_]["emitted"]
        components[id_] = _scaled_numbers(wide, sums, shares[id_])
        busy = [(point["capacity"][id_], point["secs"]) for point in series["points"] if id_ in point["capacity"]]
        measured = sum(each for _, each in busy)
        components[id_]["capacity"] = sum(share * each for share, each in busy) / measured if measured else None
    return {
        **around,
        "window": window,
        "secs": secs,
        "components": components,
        "tasks": [_scaled(task, shares.get(task["component"], {})) for task in around["tasks"]],
        "streams": [_scaled(stream, shares.get(stream["component"], {})) for stream in around["streams"]],
        "micro_batches": sum(point["micro_batches"] for point in series["points"]),
    }


def _around(window: str) -> str:
    wider = [name for name, secs in WINDOWS_SECS.items() if secs >= int(window)]
    return wider[0] if wider else ALL_TIME


def _scaled_numbers(wide: Numbers, sums: dict[str, float], shares: dict[str, float]) -> Numbers:
    executed = sums["executed"]
    return {
        **wide,
        "emitted": round(sums["emitted"]),
        "transferred": round(wide["transferred"] * shares["transferred"]),
        "executed": round(executed),
        "acked": round(sums["acked"]),
        "failed": round(sums["failed"]),
        "execute_ms": sums["execute_ms"],
        "execute_latency_ms": sums["execute_ms"] / executed if executed else None,
    }


def _scaled(numbers: Any, shares: dict[str, float]) -> Any:
    names = ("emitted", "transferred", "executed", "acked", "failed")
    return {**numbers, **{name: round(numbers[name] * shares.get(name, 0.0)) for name in names}}


def empty_window(window: str) -> WindowDocument:
    """A window without data."""
    return salvage(WindowDocument, {"window": window})


NO_NUMBERS = salvage(Numbers, {})

# ---- the parts that pages share


def components_of(document: TopologyDocument, kind: str, *, sys: bool) -> list[ComponentDocument]:
    """The spouts or bolts; with ``sys`` the system's components are bolts, as they are Storm's."""
    kinds = (kind, "system") if sys and kind == "bolt" else (kind,)
    return [component for component in document["components"] if component["kind"] in kinds]


def megabytes(document: TopologyDocument, *processes: str) -> float:
    """The memory of its processes of these kinds."""
    return round(sum(each["bytes"] for each in document["now"]["memory"] if each["process"] in processes) / MEGABYTE, 1)


def memory_of(document: TopologyDocument) -> Json:
    """The fields of a topology's resources in Storm: ours requests none from Spark."""
    on_heap, off_heap = megabytes(document, "jvm"), megabytes(document, "driver", "worker")
    return {
        "requestedMemOnHeap": 0.0,
        "requestedMemOffHeap": 0.0,
        "requestedTotalMem": 0.0,
        "requestedCpu": 0.0,
        "requestedGenericResources": "",
        "assignedMemOnHeap": on_heap,
        "assignedMemOffHeap": off_heap,
        "assignedTotalMem": round(on_heap + off_heap, 1),
        "assignedCpu": 0.0,
        "assignedGenericResources": "",
    }


def alive_secs(entry: TopologyEntry, now_ms: int) -> int:
    """For how long it runs, or ran; 0 if it is known by its checkpoint only, which does not record its start."""
    if not entry["started_ms"]:
        return 0
    until = entry["ended_ms"] if entry["ended_ms"] is not None else now_ms
    return max(0, until - entry["started_ms"]) // 1000


def head_of(document: TopologyDocument, now_ms: int) -> Json:
    """The fields that the list of topologies and a topology's page share."""
    entry = document["entry"]
    tasks = sum(component["parallelism"] for component in document["components"] if component["kind"] != "system")
    secs = alive_secs(entry, now_ms)
    return {
        "id": entry["id"],
        "encodedId": part_of_path(entry["id"]),
        "owner": entry["user"],
        "name": entry["name"],
        "status": STATUS.get(TopologyState.of(entry["state"]), entry["state"].upper()),
        "uptime": uptime(secs),
        "uptimeSeconds": secs,
        "tasksTotal": tasks,
        "workersTotal": len(workers_of(document)),
        "executorsTotal": tasks,
        "replicationCount": 1,
        "schedulerInfo": entry["why"],
        "topologyVersion": None,
        "stormVersion": STORM_VERSION,
        **memory_of(document),
    }


def workers_of(document: TopologyDocument) -> list[tuple[str, int]]:
    """(host, port) of the processes that do its work: its workers, or its driver if none is known.

    They have no ports, and are numbered by host from 6700 on.
    """
    if not TopologyState.of(document["entry"]["state"]).runs:
        return []
    hosts = [each["host"] for each in document["now"]["memory"] if each["process"] == "worker"]
    numbered: dict[str, int] = {}
    found = []
    for host in hosts or [document["entry"]["host"]]:
        numbered[host] = numbered.get(host, 0) + 1
        found.append((host, FIRST_PORT + numbered[host] - 1))
    return found


def worker_pages(document: TopologyDocument, now_ms: int) -> list[Json]:
    """Its workers. Any worker may run any task, and tasks move between them, so the first worker has all of them."""
    workers = workers_of(document)
    entry, secs = document["entry"], alive_secs(document["entry"], now_ms)
    tasks = {each["id"]: each["parallelism"] for each in document["components"] if each["kind"] != "system"}
    sizes = [each["bytes"] for each in document["now"]["memory"] if each["process"] == "worker"] or [0]
    return [
        {
            "supervisorId": host,
            "host": host,
            "port": port,
            "topologyId": entry["id"],
            "topologyName": entry["name"],
            "executorsTotal": sum(tasks.values()) if not number else 0,
            "assignedMemOnHeap": megabytes(document, "jvm") if not number else 0.0,
            "assignedMemOffHeap": round(sizes[number] / MEGABYTE, 1),
            "assignedCpu": 0.0,
            "componentNumTasks": tasks if not number else {},
            "uptime": uptime(secs),
            "uptimeSeconds": secs,
            "workerLogLink": log_link(entry),
            "owner": entry["user"],
        }
        for number, (host, port) in enumerate(workers)
    ]


def log_link(entry: TopologyEntry) -> str:
    """Where the log of a topology is read."""
    return f"/api/v2/topologies/{part_of_path(entry['id'])}/log"


def error_page(error: ErrorDocument, entry: TopologyEntry, now_ms: int) -> Json:
    """One error of a component."""
    return {
        "errorTime": error["time_ms"] // 1000,
        "errorHost": error["host"],
        "errorPort": FIRST_PORT,
        "errorWorkerLogLink": log_link(entry),
        "errorLapsedSecs": max(0, now_ms - error["time_ms"]) // 1000,
        "error": error["traceback"] or error["text"],
    }


def last_error(errors: Sequence[ErrorDocument], component: str, entry: TopologyEntry, now_ms: int) -> Json:
    """The newest error of a component, as a line in a topology's page; empty values if there is none."""
    own = [error for error in errors if error["component"] == component]
    if not own:
        empty = {"lastError": "", "errorHost": "", "errorPort": None, "errorWorkerLogLink": ""}
        return {**empty, "errorTime": None, "errorLapsedSecs": None}
    page = error_page(own[-1], entry, now_ms)
    del page["error"]
    return {"lastError": own[-1]["text"][:ERROR_CHARACTERS_MAX], **page}


def counts(numbers: Numbers | TaskNumbers | StreamNumbers) -> Json:
    """The fields of every page about emitted tuples."""
    return {name: numbers[name] for name in ("emitted", "transferred", "acked", "failed")}


def executions(numbers: Numbers | TaskNumbers | StreamNumbers) -> Json:
    """The fields of every page about the tuples that a bolt executed."""
    return {
        "executed": numbers["executed"],
        "executeLatency": decimal(numbers["execute_latency_ms"]),
        "processLatency": decimal(numbers["process_latency_ms"]),
    }
