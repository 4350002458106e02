"""Security: who may ask, from which pages, and how a browser may treat the answer.

Rule 1: every request passes ``Guard``, before any handler; a handler may trust ``request.state.by`` and ``.form``.
Rule 2: every change needs the token: as ``Authorization: Bearer``, or through a session that began with it. A session's
requests come from our own pages: their ``Origin`` is ours, and they carry the session's CSRF token.
Rule 3: secrets are compared in constant time, and are never part of a URL that a browser sends (``login_link`` has the
token in its fragment).
Rule 4: texts of requests and exceptions are sent as values of JSON or as plain text, never as HTML.
Rule 5: a ``Host`` that is not ours is refused, so that no other site's name leads a browser here (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparkbolt.errors import ConfigError
from sparkbolt.faces.ui.answers import JsonAnswer, readable
from sparkbolt.faces.ui.urls import address_of

BODY_BYTES_MAX = 1 << 20
BODY_SECS_MAX = 10.0
FORM_FIELDS_MAX = 1000
SESSION_SECS = 12 * 3600
COOKIE = "sparkbolt_session"
CSRF_HEADER = "x-csrf-token"
CSRF_FIELD = "csrf"
TOKEN_CHARACTERS_MIN = 16

READING = ("GET", "HEAD")
CHANGING = ("POST", "PUT", "PATCH", "DELETE")
OPEN_PATHS = ("/login", "/static/")
"""The public paths: the form that asks for the token, and its styles."""
BODY_TYPES = ("application/json", "application/x-www-form-urlencoded")
"""A page of another site cannot send the first without asking, and the second is a form, which has a CSRF token."""

ANSWER_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " font-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    # Not `no-referrer`: with it browsers send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class DeniedRequest(Exception):  # noqa: N818  it is an answer
    """A request that is refused: the status, and a sentence with the remedy."""

    def __init__(self, status: int, sentence: str) -> None:
        """Answer with ``status`` and ``sentence``."""
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


class Sessions:
    """Sessions of browsers: cookies that only the token can make. Nothing is stored, so a restart ends no session."""

    def __init__(self, token: str, *, clock: Callable[[], float] = time.time) -> None:
        """Make and check the sessions of ``token``; another token ends all of them.

        Raises:
            ConfigError: the token is too short.
        """
        if len(token) < TOKEN_CHARACTERS_MIN:
            raise ConfigError(
                f"the token of the UI has {len(token)} characters; SPARKBOLT_UI_TOKEN needs"
                f" {TOKEN_CHARACTERS_MIN} or more"
            )
        self._token = token.encode()
        self._clock = clock

    def is_token(self, given: str) -> bool:
        """Whether a text is the token."""
        return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._token)

    def begin(self) -> str:
        """A cookie's value for a new session, good for ``SESSION_SECS``."""
        text = f"{int(self._clock()) + SESSION_SECS}.{secrets.token_hex(16)}"
        return f"{text}.{self._sign('session', text)}"

    def holds(self, session: str | None) -> bool:
        """Whether a cookie's value is of a session that has not expired."""
        text, _, signature = (session or "").rpartition(".")
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), self._sign("session", text).encode()):
            return False
        return int(text.split(".")[0]) > self._clock()

    def csrf(self, session: str) -> str:
        """The text that our pages send with each change of this session, and other pages cannot know."""
        return self._sign("csrf", session)

    def _sign(self, use: str, text: str) -> str:
        return hmac.new(self._token, f"sparkbolt {use} {text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def host_of(authority: str) -> str:
    """The host of ``HOST[:PORT]``, in lower case, without a port and a last dot; empty if it is invalid.

    >>> host_of("LocalHost:8088"), host_of("[::1]:80"), host_of("a.example.")
    ('localhost', '::1', 'a.example')
    >>> host_of("user@localhost"), host_of("localhost/x"), host_of("")
    ('', '', '')
    """
    if not authority or any(character in authority for character in "@/\\?# \t,"):
        return ""
    try:
        return (urlsplit(f"//{authority}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def local_path(path: str) -> str:
    """The path, if it leads to one of our own pages; ``/`` otherwise.

    >>> local_path("/topology/a?x=1"), local_path("//evil.example"), local_path("https://evil.example")
    ('/topology/a?x=1', '/', '/')
    """
    safe = path.startswith("/") and not path.startswith(("//", "/\\")) and "\\" not in path and path.isprintable()
    return path if safe else "/"


class Guard:
    """ASGI middleware: refuses invalid requests, and passes the user's name to handlers.

    It sets in ``request.state``: ``by`` (who asks, for the topology's events), ``may_change`` (whether the token or a
    session was given), ``session`` and ``csrf`` (texts; empty without a session), ``form`` (a dict of a form's fields).
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        sessions: Sessions,
        allowed_hosts: Sequence[str],
        private: bool,
    ) -> None:
        """Guard ``app``. With ``private`` nothing is shown without the token either."""
        self._app = app
        self._sessions = sessions
        self._hosts = frozenset(host.lower().rstrip(".") for host in allowed_hosts)
        self._private = private

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in ANSWER_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            receive = await self._admit(scope, receive)
        except DeniedRequest as refusal:
            await refused(scope, refusal)(scope, receive, send_safely)
            return
        await self._app(scope, receive, send_safely)

    async def _admit(self, scope: Scope, receive: Receive) -> Receive:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or host_of(hosts[0]) not in self._hosts:
            raise DeniedRequest(421, "the server does not allow this host name; allow it with --allow-host")
        method = scope["method"]
        if method not in READING + CHANGING:
            raise DeniedRequest(405, f"the server does not support the method {method}")
        state = scope.setdefault("state", {})
        session = cookie_parser(headers.get("cookie", "")).get(cookie_name(hosts[0]), "")
        session = session if self._sessions.holds(session) else ""
        bearer = self._bearer(headers)
        client = (scope.get("client") or ("unknown", 0))[0]
        state.update(by=f"{'ui' if session else 'rest'} from {client}", may_change=bool(session or bearer))
        state.update(session=session, csrf=self._sessions.csrf(session) if session else "", form={})
        if method in READING:
            if self._private and not state["may_change"] and not scope["path"].startswith(OPEN_PATHS):
                raise DeniedRequest(401, "this server requires its token for every page")
            return receive
        return await self._admit_change(scope, receive, headers, hosts[0], bearer)

    async def _admit_change(self, scope: Scope, receive: Receive, headers: Headers, host: str, bearer: bool) -> Receive:
        check_origin(headers, host)
        state = scope["state"]
        is_login = scope["path"] == "/login"
        if not (state["may_change"] or is_login):
            raise DeniedRequest(401, "a change needs the token: send Authorization: Bearer TOKEN, or log in at /login")
        body = await read_body(receive, headers)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if body and kind not in BODY_TYPES:
            raise DeniedRequest(415, f"the body must have the type {' or '.join(BODY_TYPES)}")
        if kind == BODY_TYPES[1]:
            state["form"] = form_fields(body)
        if not (bearer or is_login):
            given = headers.get(CSRF_HEADER) or state["form"].get(CSRF_FIELD, "")
            if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), state["csrf"].encode()):
                raise DeniedRequest(403, "the CSRF token is missing or belongs to another session; reload the page")
        return _receive_again(body, receive)

    def _bearer(self, headers: Headers) -> bool:
        """Whether the token was given; a wrong one is refused rather than taken for none."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return False
        if not self._sessions.is_token(given.strip()):
            raise DeniedRequest(401, "the token is wrong")
        return True


def check_origin(headers: Headers, host: str) -> None:
    """A change comes from a page of this server or from a program, not from another site.

    Raises:
        DeniedRequest: it comes from another site's page.
    """
    origins = headers.getlist("origin")
    if any(urlsplit(origin).netloc.lower() != host.lower() for origin in origins):
        raise DeniedRequest(403, "a page of another site requested this change")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise DeniedRequest(403, "a page of another site requested this change")


async def read_body(receive: Receive, headers: Headers) -> bytes:
    """The whole body: at most ``BODY_BYTES_MAX``, within ``BODY_SECS_MAX``.

    Raises:
        DeniedRequest: it is larger, or slower.
    """
    too_large = DeniedRequest(413, f"the body has more than {BODY_BYTES_MAX} bytes")
    announced = headers.get("content-length", "0")
    if not (announced.isdecimal() and announced.isascii()) or int(announced[:20]) > BODY_BYTES_MAX:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECS_MAX):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise DeniedRequest(400, "the client disconnected before its body was complete")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > BODY_BYTES_MAX:
                    raise too_large
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise DeniedRequest(408, f"the body did not arrive within {BODY_SECS_MAX:g} s") from None


async def json_body(request: Request) -> Any:
    """The JSON of a request's body; an empty object without one, or for a form, which has a CSRF token only.

    Raises:
        HTTPException: 400; it is not JSON.
    """
    text = await request.body()
    if not text or request.state.form:
        return {}
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None


def form_fields(body: bytes) -> dict[str, str]:
    """The fields of a form; of one that is given twice the last.

    Raises:
        DeniedRequest: it is not a form.
    """
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX))
    except ValueError as error:
        raise DeniedRequest(400, f"the body is not a form: {error}") from None


def refused(scope: Scope, refusal: DeniedRequest) -> Response:
    """The answer to a refused request, in the error format of each interface; pages lead to the login."""
    path: str = scope["path"]
    headers = {"www-authenticate": 'Bearer realm="sparkbolt"'} if refusal.status == 401 else {}
    # Sent bytes that were not read must not count as the next request.
    headers |= {"connection": "close"} if refusal.status in (400, 408, 413) else {}
    if path.startswith("/api/v1/"):
        return storm_error(refusal.status, refusal.sentence, headers)
    if path.startswith("/api/"):
        return problem(refusal.status, refusal.sentence, headers)
    is_page = scope["method"] in READING and "text/html" in Headers(scope=scope).get("accept", "")
    if refusal.status == 401 and is_page:
        return RedirectResponse(f"/login?next={quote(address_of(Request(scope)), safe='/')}", 303)
    return PlainTextResponse(readable(refusal.sentence) + "\n", refusal.status, headers)


def storm_error(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as in Storm's interface: ``error`` is the status with its name, ``errorMessage`` a sentence."""
    name = "Server Error" if status == 500 else HTTPStatus(status).phrase  # as Storm's server calls it
    return JsonAnswer({"error": f"{status} {name}", "errorMessage": sentence}, status, headers)


def problem(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error as in our own interface: the problem details of RFC 9457."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": sentence}
    return JsonAnswer(body, status, headers, media_type="application/problem+json")


def cookie_name(host: str) -> str:
    """The name of the session's cookie: servers at other ports of this host get it too, and may not take it for theirs.

    >>> cookie_name("localhost:8088"), cookie_name("[::1]")
    ('sparkbolt_session_8088', 'sparkbolt_session')
    """
    port = host.rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def _receive_again(body: bytes, receive: Receive) -> Receive:
    """``receive`` for a handler that reads the body, after it was read here."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
