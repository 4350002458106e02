"""REST: our own interface, the paths below ``/api/v2/``.

Routes and the OpenAPI document follow from the rows of ``QUESTIONS`` and ``VERBS``. A change answers 200 (done), 202
(accepted) or 409 (refused), each with the topology's sentence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sparkbolt.base.codec import MismatchError
from sparkbolt.control.documents import Answer
from sparkbolt.control.parameters import Row
from sparkbolt.control.questions import QUESTIONS, TopologyQuestion
from sparkbolt.control.verbs import VERBS, Verb
from sparkbolt.faces.ui.answers import JsonAnswer
from sparkbolt.faces.ui.event_stream import changes
from sparkbolt.faces.ui.openapi import Operation, document
from sparkbolt.faces.ui.operator_calls import Asking
from sparkbolt.faces.ui.security import json_body

PREFIX = "/api/v2"
ONE = "/topologies/{topology}"

Endpoint = Callable[[Request], Awaitable[Response]]


def rest_routes() -> list[Route]:
    """All paths of our own interface."""
    questions = list(QUESTIONS.values())
    verbs = [verb for verb in VERBS.values() if verb.has_route]
    description: dict[str, Any] = {}

    async def openapi(_request: Request) -> Response:
        if not description:
            description.update(document(operations(questions, verbs), PREFIX))
        return JsonAnswer(description)

    return [
        Route(f"{PREFIX}/openapi.json", openapi, methods=["GET"]),
        Route(f"{PREFIX}{ONE}/changes", changes, methods=["GET"]),
        *(Route(f"{PREFIX}/topologies{row.path}", _asking(row), methods=["GET"]) for row in questions),
        *(Route(f"{PREFIX}{ONE}/{verb.route}", _changing(verb), methods=["POST"]) for verb in verbs),
    ]


def operations(questions: list[TopologyQuestion], verbs: list[Verb]) -> list[Operation]:
    """The routes that the OpenAPI document describes."""
    stream = Row.of(changes)
    return [
        *(Operation("GET", f"/topologies{row.path}", row, row.answer) for row in questions),
        Operation("GET", f"{ONE}/changes", stream, None),
        *(Operation("POST", f"{ONE}/{verb.route}", verb, Answer) for verb in verbs),
    ]


def _asking(row: TopologyQuestion) -> Endpoint:
    async def answer(request: Request) -> Response:
        asking: Asking = request.app.state.asking
        texts = {**request.query_params, **request.path_params}
        given = {
            one.name: _checked(one.of_text, texts[one.name]) if one.name in texts else one.default
            for one in row.parameters
        }
        if not row.path:
            return JsonAnswer(await asking.topologies(**given))
        found = await asking.ask(request.path_params["topology"], row.name, **given)
        if found is None:
            raise HTTPException(404, row.absent.format(**given))
        return JsonAnswer(found)

    return answer


def _changing(verb: Verb) -> Endpoint:
    async def answer(request: Request) -> Response:
        asking: Asking = request.app.state.asking
        given = _checked(verb.read, await json_body(request))
        done = await asking.change(request.path_params["topology"], verb.name, by=request.state.by, **given)
        return JsonAnswer(done, 409 if done["refused"] else 200 if done["done"] else 202)

    return answer


def _checked(read: Callable[[Any], Any], value: Any) -> Any:
    try:
        return read(value)
    except MismatchError as mismatch:
        raise HTTPException(400, f"{mismatch.place or 'the body'} {mismatch.text}") from None
