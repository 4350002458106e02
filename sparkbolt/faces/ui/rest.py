"""REST: our own interface, the paths below ``/api/v2/``.

Rule 1: every operation is a line of the tables below, from which routes and the OpenAPI document are made.
Rule 2: an answer is a document of ``operate`` as it is; a change answers 200 (done), 202 (accepted) or 409 (refused),
each with the Operator's sentence.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sparkbolt.base.codec import MismatchError, decode
from sparkbolt.control.documents import (
    Answer,
    SeriesDocument,
    TopologyDocument,
    TopologyEntry,
)
from sparkbolt.control.logs import LogLine
from sparkbolt.faces.ui.answers import JsonAnswer
from sparkbolt.faces.ui.asking import Asking
from sparkbolt.faces.ui.changes import changes
from sparkbolt.faces.ui.openapi import Operation, Parameter, document
from sparkbolt.faces.ui.rest_types import (
    HolderValue,
    KillBody,
    LettersBody,
    LetterValue,
    OpenTrees,
    RebalanceBody,
    ReplayBody,
    ReplayManyBody,
    SetBody,
    SettingsValue,
    StoryValue,
    TraceBody,
    WindowsValue,
)
from sparkbolt.faces.ui.security import json_body
from sparkbolt.observe.history import MicroBatchRecord

PREFIX = "/api/v2"
LAST_MAX = 10_000
LAST_TREES = 500
SEARCH_CHARACTERS_MAX = 1000

Handler = Callable[[Request, dict[str, Any]], Awaitable[Any]]
"""Gets the request and the parameters of its query, or the fields of its body."""


class _NoBody(TypedDict):
    """An empty body."""


def _last(default: int) -> Parameter:
    return Parameter(
        "last", int, "The maximum number of entries; the newest are returned.", default, lowest=1, highest=LAST_MAX
    )


SEARCH = Parameter("search", str, "Return only entries that contain this text.", "")
STATE = Parameter("state", str, "The state of the trees.", "failed", choices=("failed", "open", "acked"))
ENDED = Parameter("ended", bool, "Include topologies that have ended.", True)
REPLAYED = Parameter("replayed", bool, "Include letters that were replayed.", True)
COMPONENT = Parameter("component", str, "Return only lines of this component.")
SINCE = Parameter("since_ms", int, "The start of the range; default: one hour ago.", lowest=0)
UNTIL = Parameter("until_ms", int, "The end of the range; default: now.", lowest=0)


def _asking(request: Request) -> Asking:
    asking: Asking = request.app.state.asking
    return asking


def _topology(request: Request) -> str:
    return str(request.path_params["topology"])


# ---- reading


async def _topologies(request: Request, given: dict[str, Any]) -> Any:
    return await _asking(request).topologies(ended=given["ended"])


async def _document(request: Request, _given: dict[str, Any]) -> Any:
    return await _asking(request).document(_topology(request))


async def _series(request: Request, given: dict[str, Any]) -> Any:
    return await _asking(request).series(_topology(request), given["since_ms"], given["until_ms"])


async def _micro_batches(request: Request, given: dict[str, Any]) -> Any:
    return await _asking(request).micro_batches(_topology(request), given["last"])


async def _stories(request: Request, given: dict[str, Any]) -> Any:
    asking = _asking(request)
    return await asking.stories(_topology(request), given["state"], search=given["search"], last=given["last"])


async def _story(request: Request, _given: dict[str, Any]) -> Any:
    root = request.path_params["root"]
    story = await _asking(request).story(_topology(request), root)
    if story is None:
        raise HTTPException(
            404, f"there is no tree {root!r}; trees are removed once they are acked, unless they are traced"
        )
    return story


async def _open_trees(request: Request, given: dict[str, Any]) -> Any:
    asking, topology = _asking(request), _topology(request)
    stories = await asking.stories(topology, "open", last=given["last"])
    everything = await asking.document(topology)
    return {"open_trees": everything["now"]["open_trees"], "holders": by_holder(stories)}


def by_holder(stories: list[dict[str, Any]]) -> list[HolderValue]:
    """Open trees by the tasks that hold their tuples, those with most trees first. A tree may be held by several."""
    holders: dict[str, HolderValue] = {}
    for story in stories:
        held: dict[str, int] = {}
        for hop in story["hops"]:
            if hop["held"]:
                held[f"{hop['component']}[{hop['task']}]"] = hop["held"]
        for holder, tuples in (held or {"": 0}).items():
            value = holders.setdefault(
                holder, {"holder": holder, "trees": 0, "tuples": 0, "oldest_ms": None, "stories": []}
            )
            value["trees"] += 1
            value["tuples"] += tuples
            started = [each for each in (value["oldest_ms"], story["started_ms"]) if each is not None]
            value["oldest_ms"] = min(started, default=None)
            value["stories"].append(story)  # type: ignore[arg-type]
    return sorted(holders.values(), key=lambda each: (-each["trees"], each["holder"]))


async def _letters(request: Request, given: dict[str, Any]) -> Any:
    asking = _asking(request)
    return await asking.letters(
        _topology(request), search=given["search"], last=given["last"], replayed=given["replayed"]
    )


async def _letter(request: Request, _given: dict[str, Any]) -> Any:
    letter = request.path_params["letter"]
    for search in (letter, ""):  # an id may be searched for, and if not, all are looked through
        for each in await _asking(request).letters(_topology(request), search=search, last=LAST_MAX):
            if each["id"] == letter:
                return each
    raise HTTPException(404, f"there is no dead letter {letter!r}; GET .../letters lists them")


async def _windows(request: Request, _given: dict[str, Any]) -> Any:
    marks = (await _asking(request).document(_topology(request)))["now"]["watermarks"]
    names = ("watermark_ms", "behind_ms", "windows", "late_tuples")
    return [{"component": id_, **{name: mark.get(name) for name in names}} for id_, mark in marks.items()]


async def _lag(request: Request, _given: dict[str, Any]) -> Any:
    return (await _asking(request).document(_topology(request)))["now"]["lag"]


async def _log(request: Request, given: dict[str, Any]) -> Any:
    asking = _asking(request)
    return await asking.log(
        _topology(request), component=given["component"], search=given["search"], last=given["last"]
    )


async def _settings(request: Request, _given: dict[str, Any]) -> Any:
    everything = await _asking(request).document(_topology(request))
    own = {each["id"]: each["settings"] for each in everything["components"]}
    return {"settings": everything["settings"], "components": own}


READING: dict[Handler, Operation] = {
    _topologies: Operation("GET", "/topologies", "topologies", "List the topologies.", list[TopologyEntry], (ENDED,)),
    _document: Operation(
        "GET",
        "/topologies/{topology}",
        "topology",
        "Get one topology with its components, numbers, errors and events.",
        TopologyDocument,
    ),
    _series: Operation(
        "GET",
        "/topologies/{topology}/series",
        "series",
        "Get the history of the topology's numbers.",
        SeriesDocument,
        (SINCE, UNTIL),
    ),
    _micro_batches: Operation(
        "GET",
        "/topologies/{topology}/micro-batches",
        "microBatches",
        "List the newest micro-batches with the time of each phase; the newest last.",
        list[MicroBatchRecord],
        (_last(100),),
    ),
    _stories: Operation(
        "GET",
        "/topologies/{topology}/stories",
        "stories",
        "List trees: failed, open, or traced and acked. An exact root or SOURCE@POSITION matches in any state.",
        list[StoryValue],
        (STATE, SEARCH, _last(100)),
    ),
    _story: Operation(
        "GET",
        "/topologies/{topology}/stories/{root}",
        "story",
        "Get one tree with the other attempts of its message.",
        StoryValue,
    ),
    _open_trees: Operation(
        "GET",
        "/topologies/{topology}/open-trees",
        "openTrees",
        "List the open trees by the tasks that hold them.",
        OpenTrees,
        (_last(LAST_TREES),),
    ),
    _letters: Operation(
        "GET",
        "/topologies/{topology}/letters",
        "letters",
        "List the dead letters; the newest last.",
        list[LetterValue],
        (SEARCH, _last(100), REPLAYED),
    ),
    _letter: Operation("GET", "/topologies/{topology}/letters/{letter}", "letter", "Get one dead letter.", LetterValue),
    _windows: Operation(
        "GET",
        "/topologies/{topology}/windows",
        "windows",
        "List the windowed bolts with their watermarks.",
        list[WindowsValue],
    ),
    _lag: Operation(
        "GET",
        "/topologies/{topology}/lag",
        "lag",
        "Get the lag by spout and source: the number of positions that are not finished.",
        dict[str, dict[str, int]],
    ),
    _log: Operation(
        "GET",
        "/topologies/{topology}/log",
        "log",
        "Get the newest lines of the log; the newest last.",
        list[LogLine],
        (COMPONENT, SEARCH, _last(200)),
    ),
    _settings: Operation(
        "GET",
        "/topologies/{topology}/settings",
        "settings",
        "Get the settings of the topology and its components.",
        SettingsValue,
    ),
}

# ---- changing


async def _change(request: Request, what: str, *arguments: Any, **options: Any) -> Any:
    return await _asking(request).change(_topology(request), what, *arguments, by=request.state.by, **options)


async def _activate(request: Request, _given: dict[str, Any]) -> Any:
    return await _change(request, "activate")


async def _deactivate(request: Request, _given: dict[str, Any]) -> Any:
    return await _change(request, "deactivate")


async def _kill(request: Request, given: dict[str, Any]) -> Any:
    wait_secs = given.get("wait_secs")
    if wait_secs is not None and not 0 <= wait_secs < 1e9:  # JSON's NaN and Infinity are none either
        raise HTTPException(400, f"wait_secs={wait_secs} is not a number of seconds")
    return await _change(request, "kill", wait_secs=wait_secs)


async def _restart(request: Request, _given: dict[str, Any]) -> Any:
    return await _change(request, "restart")


async def _set(request: Request, given: dict[str, Any]) -> Any:
    return await _change(request, "set", given["key"], given["value"], component=given.get("component"))


async def _rebalance(request: Request, given: dict[str, Any]) -> Any:
    wanted = {"parallelism": given.get("executors", {}), "workers": given.get("num_workers")}
    return await _change(request, "rebalance", **wanted)


async def _trace(request: Request, given: dict[str, Any]) -> Any:
    return await _change(request, "trace", given["message"], component=given.get("component"))


async def _replay_many(request: Request, given: dict[str, Any]) -> Any:
    return await _change(request, "replay", given["ids"], target=given.get("target"))


async def _replay(request: Request, given: dict[str, Any]) -> Any:
    return await _change(
        request, "replay", [request.path_params["letter"]], values=given.get("values"), target=given.get("target")
    )


async def _discard(request: Request, given: dict[str, Any]) -> Any:
    return await _change(request, "discard", given["ids"])


def _post(path: str, name: str, about: str, body: Any = _NoBody) -> Operation:
    return Operation("POST", f"/topologies/{{topology}}/{path}", name, about, Answer, body=body)


CHANGING: dict[Handler, Operation] = {
    _activate: _post("activate", "activate", "Start the spouts again after a deactivate."),
    _deactivate: _post("deactivate", "deactivate", "Stop the spouts; they stay inactive after restarts, too."),
    _kill: _post("kill", "kill", "Stop the spouts, wait for open trees, and end the topology.", KillBody),
    _restart: _post("restart", "restart", "Restart the query from the checkpoint."),
    _set: _post("settings", "set", "Change a setting.", SetBody),
    _rebalance: _post("rebalance", "rebalance", "Ask which changes of parallelism a restart can apply.", RebalanceBody),
    _trace: _post("trace", "trace", "Record the hops of a message from now on.", TraceBody),
    _replay_many: _post("letters/replay", "replayLetters", "Replay dead letters.", ReplayManyBody),
    _replay: _post(
        "letters/{letter}/replay", "replayLetter", "Replay one dead letter, optionally with other values.", ReplayBody
    ),
    _discard: _post("letters/discard", "discardLetters", "Discard dead letters.", LettersBody),
}

CHANGES = Operation(
    "GET",
    "/topologies/{topology}/changes",
    "changes",
    "Stream events (SSE): state, numbers, happened, error-reported, silent. Last-Event-ID resumes the stream.",
    str,
    streams=True,
)

# ---- routes


def rest_routes() -> list[Route]:
    """All paths of our own interface."""
    description = _description()

    async def openapi(_request: Request) -> Response:
        return JsonAnswer(description)

    return [
        Route(f"{PREFIX}/openapi.json", openapi, methods=["GET"]),
        Route(PREFIX + CHANGES.path, changes, methods=["GET"]),
        *(_route(operation, _reading(handler, operation)) for handler, operation in READING.items()),
        *(_route(operation, _changing(handler, operation)) for handler, operation in CHANGING.items()),
    ]


@functools.cache
def _description() -> dict[str, Any]:
    return document([*READING.values(), CHANGES, *CHANGING.values()], PREFIX)


def _route(operation: Operation, endpoint: Callable[[Request], Awaitable[Response]]) -> Route:
    return Route(PREFIX + operation.path, endpoint, methods=[operation.method])


def _reading(handler: Handler, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        given = {each.name: read_parameter(each, request.query_params.get(each.name)) for each in operation.parameters}
        return JsonAnswer(await handler(request, given))

    return answer


def _changing(handler: Handler, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            given = decode(operation.body, await json_body(request))
        except MismatchError as mismatch:
            raise HTTPException(400, f"{mismatch.place or 'the body'} {mismatch.text}") from None
        done: Answer = await handler(request, given)
        return JsonAnswer(done, 409 if done["refused"] else 200 if done["done"] else 202)

    return answer


def read_parameter(parameter: Parameter, text: str | None) -> Any:
    """The value of a parameter.

    Raises:
        HTTPException: 400; the message lists the valid values.
    """
    if text is None:
        return parameter.default
    name = parameter.name
    if parameter.kind is str:
        if len(text) > SEARCH_CHARACTERS_MAX:
            raise HTTPException(400, f"{name} has {len(text)} characters; use {SEARCH_CHARACTERS_MAX} at most")
        if parameter.choices and text not in parameter.choices:
            raise HTTPException(400, f"{name}={text!r} is not one of {', '.join(parameter.choices)}")
        return text
    if parameter.kind is bool:
        if text.lower() not in ("0", "1", "false", "true"):
            raise HTTPException(400, f"{name}={text!r} is not true or false")
        return text.lower() in ("1", "true")
    number = int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else -1
    lowest, highest = parameter.lowest or 0, parameter.highest
    if number < lowest or (highest is not None and number > highest):
        raise HTTPException(
            400,
            f"{name}={text!r} is not a whole number from {lowest}{f' to {highest}' if highest else ' on'}",
        )
    return number
