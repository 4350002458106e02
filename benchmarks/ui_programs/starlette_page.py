"""The page with Starlette and Jinja2: `python starlette_page.py PORT`. An open page asks for its parts again."""

from __future__ import annotations

import sys
import time

import uvicorn
from jinja2 import DictLoader, Environment
from page_data import NAMES, rows, series
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

TEMPLATES = {
    "page": """<!doctype html><html lang="en"><title>word-count</title><h1>word-count</h1>
<main>{% include "parts" %}</main></html>""",
    "parts": """<svg viewBox="0 0 360 200"><polyline points="{{ line }}"/></svg>
<table><tr>{% for name in names %}<th scope="col">{{ name }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for cell in row %}<td>{{ cell }}</td>{% endfor %}</tr>{% endfor %}</table>""",
}
environment = Environment(loader=DictLoader(TEMPLATES), autoescape=True)


def rendered(name: str) -> HTMLResponse:
    now = int(time.time())
    line = " ".join(f"{x},{200 - value / 10:.1f}" for x, value in enumerate(series(now)))
    return HTMLResponse(environment.get_template(name).render(names=NAMES, rows=rows(now), line=line))


def page(request: Request) -> HTMLResponse:
    return rendered("page")


def parts(request: Request) -> HTMLResponse:
    return rendered("parts")


uvicorn.run(
    Starlette(routes=[Route("/", page), Route("/parts", parts)]),
    host="127.0.0.1",
    port=int(sys.argv[1]),
    log_level="warning",
)
