"""Storm's REST interface: the paths below ``/api/v1/`` that monitoring agents read, and four actions.

Names, types and errors are Storm's; ``docs/rest.md`` lists the differences. Unlike Storm, a change needs the token, and
JSONP is refused: with it every page of every site could read these values in this browser.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sparkbolt.base.codec import MismatchError
from sparkbolt.control.documents import ALL_TIME, TopologyDocument, WindowDocument
from sparkbolt.control.verbs import VERBS, Verb
from sparkbolt.faces.ui.answers import JsonAnswer
from sparkbolt.faces.ui.operator_calls import Asking, LateAnswerError
from sparkbolt.faces.ui.security import json_body
from sparkbolt.faces.ui.storm_pages import (
    STORM_VERSION,
    WINDOW_SECS_MAX,
    Json,
    alive_secs,
    empty_window,
    head_of,
    listed,
    megabytes,
    uptime,
    window_of,
    workers_of,
)
from sparkbolt.faces.ui.storm_topology import component_page, metrics_page, topology_page
from sparkbolt.version import __version__

Page = Callable[[Request], Awaitable[Json]]


def storm_routes() -> list[Route]:
    """The paths of Storm's interface."""
    reading: dict[str, Page] = {
        "/cluster/summary": cluster_summary,
        "/nimbus/summary": nimbus_summary,
        "/supervisor/summary": supervisor_summary,
        "/history/summary": history_summary,
        "/topology/summary": topology_summary,
        "/topology/{id}": topology,
        "/topology/{id}/metrics": topology_metrics,
        "/topology/{id}/component/{component:path}": topology_component,
    }
    changing = {f"/topology/{{id}}/{_path_of(verb)}": _changing(verb) for verb in VERBS.values() if verb.is_storms}
    return [
        *(Route(f"/api/v1{path}", _answering(page), methods=["GET"]) for path, page in reading.items()),
        *(Route(f"/api/v1{path}", _answering(page), methods=["POST"]) for path, page in changing.items()),
    ]


def _answering(page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        if "callback" in request.query_params:
            sentence = "JSONP is not supported, because any site could read the answer; remove the parameter callback"
            raise HTTPException(400, sentence)
        return JsonAnswer(await page(request))

    return answer


# ---- the parts of a request


def _asking(request: Request) -> Asking:
    asking: Asking = request.app.state.asking
    return asking


def _now_ms(request: Request) -> int:
    return int(request.app.state.clock() * 1000)


def _id(request: Request) -> str:
    return str(request.path_params["id"])


def _sys(request: Request) -> bool:
    return request.query_params.get("sys", "").lower() in ("1", "true")


async def _document(request: Request) -> TopologyDocument:
    return await _asking(request).document(_id(request))


async def _window(request: Request, document: TopologyDocument) -> WindowDocument:
    window = request.query_params.get("window", ALL_TIME)
    if window == ALL_TIME or window in document["windows"]:
        return document["windows"].get(window) or empty_window(window)
    if not (window.isdecimal() and window.isascii() and len(window) < 10 and 0 < int(window) <= WINDOW_SECS_MAX):
        sentence = f"window={window!r} is not {ALL_TIME} or a number of seconds up to {WINDOW_SECS_MAX}"
        raise HTTPException(400, sentence)
    until_ms = document["now"]["time_ms"]
    # Rounded, so that all requests within a step share the answer.
    since_ms = (until_ms - int(window) * 1000) // 10_000 * 10_000
    return window_of(document, window, await _asking(request).series(_id(request), since_ms))


async def _documents(request: Request) -> list[TopologyDocument]:
    """The documents of the topologies that Storm would list, without those that hang at present."""
    asking = _asking(request)
    found = []
    for entry in listed(await asking.topologies()):
        try:
            found.append(await asking.document(entry["id"]))
        except LateAnswerError:
            continue
    return found


# ---- the cluster


async def cluster_summary(request: Request) -> Json:
    """The sums of all topologies. A worker is a slot; Spark starts workers on demand, so none is free."""
    documents = await _documents(request)
    tasks = sum(head_of(each, 0)["tasksTotal"] for each in documents)
    workers = [worker for each in documents for worker in workers_of(each)]
    memory = round(sum(megabytes(each, "jvm", "driver", "worker") for each in documents), 1)
    version = {"version": STORM_VERSION, "revision": "", "branch": "", "date": "", "srcChecksum": ""}
    return {
        "user": None,
        "stormVersion": STORM_VERSION,
        "stormVersionInfo": version,
        "sparkboltVersion": __version__,
        "supervisors": len({host for host, _ in workers}),
        "topologies": len(documents),
        "slotsTotal": len(workers),
        "slotsUsed": len(workers),
        "slotsFree": 0,
        "executorsTotal": tasks,
        "tasksTotal": tasks,
        "schedulerDisplayResource": False,
        "totalMem": memory,
        "totalCpu": 0.0,
        "availMem": 0.0,
        "availCpu": 0.0,
        "fragmentedMem": 0.0,
        "fragmentedCpu": 0.0,
        "memAssignedPercentUtil": "100.000" if memory else "0.0",
        "cpuAssignedPercentUtil": "0.0",
        "bugtracker-url": None,
        "central-log-url": None,
        "availGenerics": "",
        "totalGenerics": "",
    }


async def nimbus_summary(request: Request) -> Json:
    """The one process that answers here: it leads nothing, and is there as long as it answers."""
    secs = int(request.app.state.clock() - request.app.state.started)
    return {
        "nimbuses": [
            {
                "host": request.url.hostname,
                "port": request.url.port or 80,
                "nimbusLogLink": "",
                "status": "Leader",
                "version": STORM_VERSION,
                "nimbusUpTime": uptime(secs),
                "nimbusUpTimeSeconds": str(secs),
            }
        ]
    }


async def supervisor_summary(request: Request) -> Json:
    """The machines with workers."""
    pages = _supervisors(await _documents(request), _now_ms(request))
    return {
        "supervisors": pages,
        "schedulerDisplayResource": False,
        "logviewerPort": request.url.port or 80,
        "logviewerScheme": request.url.scheme,
    }


def _supervisors(documents: list[TopologyDocument], now_ms: int) -> list[Json]:
    hosts: dict[str, Json] = {}
    for document in documents:
        secs = alive_secs(document["entry"], now_ms)
        for host, _ in workers_of(document):
            page = hosts.setdefault(host, {"slotsUsed": 0, "usedMem": 0.0, "uptimeSeconds": 0})
            page["slotsUsed"] += 1
            page["uptimeSeconds"] = max(page["uptimeSeconds"], secs)
        for each in document["now"]["memory"]:
            if each["host"] in hosts:
                hosts[each["host"]]["usedMem"] += each["bytes"] / (1 << 20)
    return [
        {
            "id": host,
            "host": host,
            "uptime": uptime(page["uptimeSeconds"]),
            "uptimeSeconds": page["uptimeSeconds"],
            "slotsTotal": page["slotsUsed"],
            "slotsUsed": page["slotsUsed"],
            "slotsFree": 0,
            "schedulerDisplayResource": False,
            "blacklisted": False,
            "totalMem": round(page["usedMem"], 1),
            "totalCpu": 0.0,
            "usedMem": round(page["usedMem"], 1),
            "usedCpu": 0.0,
            "availMem": 0.0,
            "availCpu": 0.0,
            "logLink": "",
            "version": STORM_VERSION,
            "totalGenericResources": "",
            "usedGenericResources": "",
            "availGenericResources": "",
        }
        for host, page in hosts.items()
    ]


async def history_summary(request: Request) -> Json:
    """The ids of all known topologies, including ended ones."""
    return {"topo-history": [entry["id"] for entry in await _asking(request).topologies()]}


# ---- topologies


async def topology_summary(request: Request) -> Json:
    """The topologies that run, and those that died or failed and were not restarted."""
    now_ms = _now_ms(request)
    pages = [head_of(each, now_ms) for each in await _documents(request)]
    return {"topologies": pages, "schedulerDisplayResource": False}


async def topology(request: Request) -> Json:
    """One topology over a window."""
    document = await _document(request)
    return topology_page(document, await _window(request, document), _now_ms(request), sys=_sys(request))


async def topology_metrics(request: Request) -> Json:
    """Its counts by stream."""
    document = await _document(request)
    return metrics_page(document, await _window(request, document), sys=_sys(request))


async def topology_component(request: Request) -> Json:
    """One component over a window."""
    document, wanted = await _document(request), request.path_params["component"]
    for component in document["components"]:
        if component["id"] == wanted:
            return component_page(document, component, await _window(request, document), _now_ms(request))
    ids = ", ".join(component["id"] for component in document["components"])
    raise HTTPException(404, f"topology {document['entry']['name']!r} has no component {wanted!r}; it has {ids}")


# ---- changes


def _path_of(verb: Verb) -> str:
    """Storm has the time to wait in the path."""
    return f"{verb.name}/{{wait_secs}}" if any(one.name == "wait_secs" for one in verb.parameters) else verb.name


def _changing(verb: Verb) -> Page:
    async def page(request: Request) -> Json:
        given: Json = {}
        if text := request.path_params.get("wait_secs"):
            if not (text.isdecimal() and text.isascii() and len(text) < 10):
                raise HTTPException(400, f"{text!r} is not a number of seconds")
            given["wait_secs"] = float(text)
        if more := await _options(request, verb):
            given |= {one.name: more[_storms(one.name)] for one in verb.parameters if _storms(one.name) in more}
        try:
            arguments = verb.read(given)
        except MismatchError as mismatch:
            raise HTTPException(400, str(mismatch)) from None
        answer = await _asking(request).change(_id(request), verb.name, by=request.state.by, **arguments)
        if answer["refused"]:
            raise HTTPException(500, answer["text"])
        return {"topologyOperation": verb.name, "topologyId": _id(request), "status": "success"}

    return page


def _storms(name: str) -> str:
    """Storm's name of a parameter, such as ``numWorkers``."""
    first, *more = name.split("_")
    return first + "".join(part.capitalize() for part in more)


async def _options(request: Request, verb: Verb) -> Json:
    """The content of the body, such as ``rebalanceOptions``."""
    body = await json_body(request)
    if not isinstance(body, dict):
        raise HTTPException(400, "the body is not a JSON object")
    options = body.get(f"{verb.name}Options") or {}
    if not isinstance(options, dict):
        raise HTTPException(400, f"{verb.name}Options is not a JSON object")
    return options
