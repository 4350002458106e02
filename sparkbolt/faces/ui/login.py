"""Login: a browser's session begins with the token, and ends.

Everything from a request is escaped before it becomes part of the page.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from sparkbolt.faces.ui.security import SESSION_SECS, Sessions, cookie_name, local_path

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in - Sparkbolt</title></head>
<body>
<main>
<h1>Log in</h1>
<p>To make changes, you need the token, which is in the link that <code>sparkbolt ui</code> printed when it started.</p>
{note}
<form method="post" action="/login">
<input type="hidden" name="next" value="{next}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<button type="submit">Log in</button>
</form>
</main>
</body>
</html>
"""


LoginForm = Callable[[Request, str, str, int], Response]
"""Makes the page that asks for the token: the request, its target, the error (or empty), and the status."""


def login_routes(sessions: Sessions, login_form: LoginForm | None = None) -> list[Route]:
    """``/login`` (a plain form, unless ``login_form`` makes another one) and ``/logout``."""
    asks = login_form or _form

    async def form(request: Request) -> Response:
        return asks(request, request.query_params.get("next", "/"), "", 200)

    async def login(request: Request) -> Response:
        fields = request.state.form
        if not sessions.is_token(fields.get("token", "")):
            return asks(request, fields.get("next", "/"), "This token is wrong.", 401)
        answer = RedirectResponse(local_path(fields.get("next", "/")), 303)
        answer.set_cookie(
            cookie_name(request.headers["host"]),
            sessions.begin(),
            max_age=SESSION_SECS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def logout(request: Request) -> Response:
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(cookie_name(request.headers["host"]), httponly=True, samesite="strict")
        return answer

    return [
        Route("/login", form, methods=["GET"]),
        Route("/login", login, methods=["POST"]),
        Route("/logout", logout, methods=["POST"]),
    ]


def _form(_: Request, leads_to: str, note: str, status: int) -> Response:
    text = f'<p role="alert">{escape(note)}</p>' if note else ""
    return HTMLResponse(_PAGE.format(note=text, next=escape(local_path(leads_to))), status)
