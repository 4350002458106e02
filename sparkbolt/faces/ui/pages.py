"""Pages: makes a page from a template, and an error page from an error.

Templates escape every value; a page works without JavaScript, and has no inline script or style. A page's URL contains
all of its choices, so that you can send it to a colleague. An error page says what to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sparkbolt.base.words import Word
from sparkbolt.control.documents import ALL_TIME, WINDOWS_SECS, TopologyDocument, TopologyEntry, TopologyState
from sparkbolt.control.problems import problems_of, verdict_of
from sparkbolt.control.verbs import VERBS
from sparkbolt.faces.ui import shown
from sparkbolt.faces.ui.app import error_status
from sparkbolt.faces.ui.charts import bar
from sparkbolt.faces.ui.operator_calls import Asking, UnknownTopology
from sparkbolt.faces.ui.record_texts import cut_text
from sparkbolt.faces.ui.urls import address_of, id_in, path_in, path_of
from sparkbolt.version import __version__

PAGE_ROWS = 50
"""How many rows a page of a list has."""
WINDOWS = {"600": "10 min", "10800": "3 h", "86400": "1 day", ALL_TIME: "all time"}
REACH_SECS = {**WINDOWS_SECS, ALL_TIME: 30 * 86_400}
"""How far back charts reach, by window, in seconds: the history has one month."""
REACHES = {**WINDOWS, ALL_TIME: "30 days"}


class Tab(Word):
    """The pages of one topology, by the last part of their URLs."""

    OVERVIEW = ""
    MICRO_BATCHES = "micro-batches"
    TREES = "trees"
    LETTERS = "dead-letters"
    KAFKA = "kafka"
    SETTINGS = "settings"
    LOG = "log"


TABS = {
    Tab.OVERVIEW: "Overview",
    Tab.MICRO_BATCHES: "Micro-batches",
    Tab.TREES: "Trees",
    Tab.LETTERS: "Dead letters",
    Tab.KAFKA: "Lag",
    Tab.SETTINGS: "Settings",
    Tab.LOG: "Log",
}


@dataclass(frozen=True)
class Slice:
    """One page of a list, whose newest rows come first."""

    rows: Sequence[Any]
    number: int
    """From 1."""
    has_next: bool


def page_number(request: Request) -> int:
    """The number of the requested page, from 1 to 1,000; 1 if the parameter is not a number."""
    text = request.query_params.get("page", "1")
    return max(1, min(1000, int(text))) if text.isdecimal() and len(text) < 6 else 1


def wanted_rows(request: Request) -> int:
    """How many of the newest rows to request, to show this page and know whether there is another one."""
    return PAGE_ROWS * page_number(request) + 1


def sliced(request: Request, newest_last: Sequence[Any]) -> Slice:
    """The requested page of the rows that ``wanted_rows`` limits."""
    number = page_number(request)
    rows = list(newest_last)[::-1]
    return Slice(rows[PAGE_ROWS * (number - 1) : PAGE_ROWS * number], number, len(rows) > PAGE_ROWS * number)


def chosen(request: Request, name: str, among: Mapping[str, Any]) -> str:
    """The choice in the query; the first choice if there is none, or an unknown one."""
    text = request.query_params.get(name, "")
    return text if text in among else next(iter(among))


def asking_of(request: Request) -> Asking:
    """The ``Asking`` of the handlers."""
    asking: Asking = request.app.state.asking
    return asking


def now_ms(request: Request) -> float:
    """The time, in milliseconds since the epoch."""
    clock: Callable[[], float] = getattr(request.app.state, "clock", time.time)
    return clock() * 1000


def topology_of(request: Request) -> str:
    """The id or name of the topology that a URL names.

    Raises:
        HTTPException: it names none.
    """
    text: str = request.path_params["topology"]
    try:
        return id_in(text)
    except ValueError:
        raise no_such(f"no topology has the id {text!r}") from None


@lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates, with the filters of ``shown``."""
    made = Environment(
        loader=PackageLoader("sparkbolt.faces.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {**shown.FILTERS, "cut": cut_text}
    made.globals |= {"bar": bar, "path_of": path_of, "windows": WINDOWS, "reaches": REACHES, "tabs": TABS}
    made.globals |= {"version": __version__, "unknown": shown.UNKNOWN}
    return made


def rendered(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """A page."""

    def linked(**changes: Any) -> str:
        """The URL of this page with another choice; a choice of None is left out."""
        query = {**request.query_params, **changes}
        text = urlencode({name: value for name, value in query.items() if value not in (None, "")})
        return f"{path_in(request.scope)}?{text}" if text else path_in(request.scope)

    state = request.state
    session = {
        "may_change": getattr(state, "may_change", False),
        "session": getattr(state, "session", ""),
        "csrf": getattr(state, "csrf", ""),
        "here": address_of(request),
        "query": request.query_params,
        "now": now_ms(request),
        "linked": linked,
        "kept_window": f"?window={window}" if (window := request.query_params.get("window")) in WINDOWS else "",
        "is_still": request.method == "POST",
        "home_trouble": asking_of(request).trouble,
    }
    return HTMLResponse(environment().get_template(template).render({**session, **values}), status)


def trouble_of(entry: TopologyEntry, document: TopologyDocument) -> list[tuple[str, str]]:
    """The verdict on a topology, and its other problems: (level, sentence), as in ``Verdict``."""
    problems = problems_of(entry, document["now"]) or [verdict_of(entry, document["now"])]
    said = [(one["level"], one["text"]) for one in problems]
    if TopologyState(entry["state"]).runs and not document["live"]:
        said.append(("warn", "The topology did not answer. This page shows its last report."))
    return said


def topology_page(request: Request, template: str, document: TopologyDocument, tab: Tab, **values: Any) -> Response:
    """A page of one topology."""
    entry = document["entry"]
    return rendered(
        request,
        template,
        **{
            "document": document,
            "entry": entry,
            "base": path_of(entry["id"]),
            "tab": tab,
            "buttons": [verb for verb in VERBS.values() if verb.is_offered(entry["state"])],
            "runs": TopologyState(entry["state"]).runs,
            "trouble": trouble_of(entry, document),
            **values,
        },
    )


ERRORS = {
    401: ("Log in first", "Open the link that sparkbolt ui printed when it started, or log in with its token."),
    403: ("Not allowed", "Go back, reload the page, and try again."),
    404: ("Not found", "The list of topologies shows the pages that exist."),
    503: (
        "No answer",
        "Reload the page in a few seconds. If the problem remains, check that its machine and directory are available.",
    ),
}
"""By status: the title of its page, and a remedy."""


def error_page(request: Request, error: Exception) -> Response:
    """The page of an error that a handler raised."""
    status, sentence = error_status(error)
    if isinstance(error, UnknownTopology):
        sentence = f"No topology has the id or name {request.path_params.get('topology', '')!r}."
    title, to_do = ERRORS.get(status, ("Something went wrong", "See the log of sparkbolt ui."))
    return rendered(request, "error.html", status=status, title=title, sentence=sentence, to_do=to_do, code=status)


def no_such(what: str) -> HTTPException:
    """The error of a page that is not there."""
    return HTTPException(404, what)
