"""App: assembles the web application from its parts.

Every request passes ``security.Guard``. Each interface reports errors in its own format, with the same headers as any
other answer. Handlers find in ``request.app.state``: ``asking`` (``operator_calls.Asking``), and in ``request.state``
the values that ``Guard`` sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from sparkbolt.control.home import HomeError
from sparkbolt.control.operator import Operator
from sparkbolt.errors import SparkboltError, StateError, WrongUseError
from sparkbolt.faces.ui.login import LoginForm, login_routes
from sparkbolt.faces.ui.operator_calls import AmbiguousTopology, Asking, LateAnswerError, UnknownTopology
from sparkbolt.faces.ui.prometheus import prometheus_routes
from sparkbolt.faces.ui.rest import rest_routes
from sparkbolt.faces.ui.security import ANSWER_HEADERS, DeniedRequest, Guard, Sessions, refused
from sparkbolt.faces.ui.storm_rest import storm_routes

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")

ErrorHandler = Callable[[Request, Exception], Response]
"""Makes the answer to a request whose handler raised."""


def make_app(
    operator: Operator,
    *,
    token: str,
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS,
    routes: Sequence[BaseRoute] = (),
    private: bool = False,
    checkpoints: Sequence[str] = (),
    page_error: ErrorHandler | None = None,
    login_form: LoginForm | None = None,
    clock: Callable[[], float] = time.time,
) -> Starlette:
    """Make the application: Storm's REST, our own, metrics, the login, and the given ``routes`` (pages) before them.

    Args:
        operator: answers the requests, in threads.
        token: the token that changes need, of 16 characters or more.
        allowed_hosts: the names, without ports, that browsers may use for this server.
        routes: pages with their styles and scripts.
        private: whether reading needs the token too.
        checkpoints: paths or URLs of checkpoints that are shown besides.
        page_error: makes the answer of an error outside of the interfaces; ``error_status`` gives its status.
        login_form: makes the page that asks for the token; None: a plain one.
        clock: seconds since the epoch.

    Raises:
        ConfigError: the token is too short.
    """
    sessions = Sessions(token, clock=clock)
    asking = Asking(operator, checkpoints)

    async def told(request: Request, error: Exception) -> Response:
        interface = request.url.path.startswith("/api/")
        answer = page_error(request, error) if page_error and not interface else _told(request, error)
        for name, value in ANSWER_HEADERS.items():  # an unexpected error's answer does not pass the Guard
            answer.headers.setdefault(name, value)
        return answer

    kinds: Mapping[Any, Any] = dict.fromkeys((HTTPException, SparkboltError, OSError, Exception), told)
    app = Starlette(
        routes=[*routes, *storm_routes(), *rest_routes(), *prometheus_routes(), *login_routes(sessions, login_form)],
        middleware=[Middleware(Guard, sessions=sessions, allowed_hosts=tuple(allowed_hosts), private=private)],
        exception_handlers=kinds,
    )
    app.state.asking = asking
    app.state.clock = clock
    app.state.started = clock()
    app.state.streams = set()
    return app


def error_status(error: Exception) -> tuple[int, str]:
    """The status and the sentence of an error that a handler raised."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    if isinstance(error, UnknownTopology):
        return 404, str(error)
    if isinstance(error, AmbiguousTopology):
        return 409, str(error)
    if isinstance(error, LateAnswerError | HomeError):
        return 503, str(error)
    if isinstance(error, WrongUseError):
        return 404, str(error)
    if isinstance(error, StateError):
        return 409, str(error)
    if isinstance(error, OSError):
        return 503, f"it cannot be read now ({type(error).__name__}: {error}); try again in a few seconds"
    if isinstance(error, SparkboltError):
        return 500, str(error)
    return 500, f"an unexpected error ({type(error).__name__}: {error}); the log of sparkbolt ui has its traceback"


def _told(request: Request, error: Exception) -> Response:
    status, sentence = error_status(error)
    no_route = isinstance(error, HTTPException) and error.detail == HTTPStatus(status).phrase
    if request.url.path.startswith("/api/v1/") and not no_route:
        status = max(status, 500)  # Storm's interface knows no other
    return refused(request.scope, DeniedRequest(status, sentence))
